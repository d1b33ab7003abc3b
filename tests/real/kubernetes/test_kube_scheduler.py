"""Gangs on a discovered fabric: the real kube-scheduler places them by the labels and taints that we write.

A simulated fabric streams to a real collector, which labels the nodes of a real API server. kube-scheduler's
own topology-aware gangs then land inside one discovered domain each; a cable is cut, and the next gangs go
where the fabric is whole; it is put back, and the gang that waited gets its place.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from hyperscout_sim.fabric.shapes import rail_optimised
from support.gangs import GANG_OPTIONS, TAINT, Gangs, discovered, label_values, tainted, until
from support.kubernetes import Cluster

LEAF = "hyperscout.io/leaf"
SIZE = 4


async def test_gangs_go_where_the_fabric_is_whole(own_kube: Callable[..., Cluster], tmp_path: Path) -> None:
    fabric = rail_optimised(2, SIZE, 2, 2, pods=2)  # 4 units of 4 nodes, 2 rails, 2 pods
    units = fabric.truth.tiers[0]
    unit_of = {host: i for i, unit in enumerate(units) for host in unit}
    kube = await asyncio.to_thread(own_kube, GANG_OPTIONS)
    kube.nodes(fabric.hosts)
    gangs = Gangs(kube, LEAF)
    async with discovered(kube, fabric, tmp_path / "collector") as player:

        def labelled() -> bool:
            values = label_values(kube, LEAF)
            return all(values.values()) and len(set(values.values())) == len(units)

        await until("labels of every leaf", labelled, kube)
        values = label_values(kube, LEAF)
        assert {frozenset(n for n in values if values[n] == v) for v in values.values()} == set(units)
        assert set(values.values()) <= set(kube.hypernodes())

        async def lands(gang: str) -> int:
            """The unit that the gang is placed in: one, and all of it."""
            nodes = await until(f"gang {gang} runs", lambda: gangs.nodes_of(gang), kube)
            assert frozenset(nodes) in units, f"{gang} is on {nodes}"
            return unit_of[nodes[0]]

        await asyncio.to_thread(gangs.submit, "first", SIZE)
        taken = [await lands("first")]

        # A cable of a unit that is still free.
        victim = next(host for host in fabric.hosts if unit_of[host] not in taken)
        adapters = {adapter.guid for adapter in fabric.adapters_of()[victim]}
        cable = next(c for c in fabric.cables if adapters & {c.a, c.b})
        player.cut(cable)
        await until("the taint", lambda: tainted(kube) == {victim: [TAINT]}, kube)

        for gang in ("second", "third"):
            await asyncio.to_thread(gangs.submit, gang, SIZE)
            taken.append(await lands(gang))
        assert sorted([*taken, unit_of[victim]]) == [0, 1, 2, 3], "both where the fabric is whole"

        await asyncio.to_thread(gangs.submit, "fourth", SIZE)
        await until("there is no whole unit left", lambda: gangs.refused("fourth"), kube)
        assert gangs.nodes_of("fourth") == []
        player.restore(cable)
        assert await lands("fourth") == unit_of[victim]
        assert tainted(kube) == {}
