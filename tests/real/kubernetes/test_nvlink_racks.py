"""A row of racks like GB300 NVL72, from what the GPUs were told to gangs in one rack.

Four racks of 18 trays under two units of rail leaves and one pod, one rack parted into two cliques, beside
HGX hosts and a node without GPUs: simulated agents, the real collector, a real API server with its nodes, the
real kubectl watching and the real kube-scheduler placing.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric import nvlink
from hyperscout_sim.fabric.nvlink import Gpus
from hyperscout_sim.fabric.racks import RackCluster, racks
from kube.api import Object
from kube.recorder import recording
from support.collector_process import collector_process
from support.collectors import playing
from support.gangs import GANG_OPTIONS, TAINT, Gangs, discovered, label_values, tainted, until
from support.kubernetes import Cluster
from support.live import Watcher
from support.published import Published, condition, conditions_of, leaf_of, published, status_at

FLAGS = ("--settle-s", "1.5", "--hold-down-s", "0.1", "--restart-grace-s", "0")
ROW = racks(2, 2, hgx=4, cpu_nodes=1, split={3: 9})
TIERS = ("nvlink", "leaf", "pod")
NVLINK = "hyperscout.io/nvlink"
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
WORKERS = 18


def below(hypernodes: Mapping[str, Object], name: str) -> frozenset[str]:
    """The nodes below a HyperNode, followed from member to member as a scheduler does."""
    found: set[str] = set()
    for member in hypernodes.get(name, {}).get("spec", {}).get("members", ()):
        value = member["selector"]["exactMatch"]["name"]
        found |= {value} if member["type"] == "Node" else below(hypernodes, value)
    return frozenset(found)


def tiers_of(hypernodes: Mapping[str, Object]) -> dict[tuple[int, str], set[frozenset[str]]]:
    found: dict[tuple[int, str], set[frozenset[str]]] = {}
    for name, h in hypernodes.items():
        found.setdefault((h["spec"]["tier"], h["spec"]["tierName"]), set()).add(below(hypernodes, name))
    return found


def truth(cluster: RackCluster, apart: str = "") -> dict[tuple[int, str], set[frozenset[str]]]:
    """`apart`: a node that is in no rack's domain now."""
    inner = {domain - {apart} for domain in cluster.tiers[0]} | ({frozenset([apart])} if apart else set())
    return {
        (number, name): set(tier)
        for number, (name, tier) in enumerate(zip(TIERS, cluster.tiers, strict=True), 1)
    } | {(1, "nvlink"): inner}


def degraded(hypernodes: Mapping[str, Object]) -> dict[str, str]:
    """Name -> message of those that are."""
    found = {name: condition(h, "Degraded") for name, h in hypernodes.items()}
    return {name: message for name, (status, message) in found.items() if status == "True"}


@asynccontextmanager
async def discovering(
    kube: Cluster, folder: Path, cluster: RackCluster, gpus: Mapping[str, Gpus]
) -> AsyncIterator[tuple[Published, Player]]:
    """All but the scheduler."""
    kube.nodes(cluster.hosts, gpus=4)
    words = ("--kubernetes", "publish", "--kubeconfig", str(kube.kubeconfig), *FLAGS)
    async with (
        recording(kube.plane) as recorder,
        published(kube) as seen,
        collector_process(folder, *words) as process,
    ):
        try:
            async with playing(process.address, cluster.fabric, gpus=gpus, connections=4) as player:
                yield seen, player
        except AssertionError as error:
            error.add_note(process.said.decode())
            raise
        assert await process.stop() == 0
        await asyncio.to_thread(recorder.assert_clean)  # no write was one that a scheduler stumbles over


async def the_tree(seen: Published, cluster: RackCluster, apart: str = "") -> None:
    """Until it is as it should be, with all conditions on it."""
    await seen.until(
        lambda now: (
            tiers_of(now) == truth(cluster, apart)
            and all(
                {c["type"] for c in conditions_of(h)} == {"Ready", "Degraded", "Consistent", "Stale"}
                for h in now.values()
            )
        ),
        "the tree",
    )


async def healthy(seen: Published) -> None:
    await seen.until(lambda now: now and not degraded(now), "nothing Degraded")


async def test_racks_become_hypernodes_and_a_killed_link_shows_where_it_is(
    kube: Cluster, tmp_path: Path
) -> None:
    whole, other = ROW.racks[0], ROW.racks[1]
    tray, gpus = whole.trays[6], ROW.gpus[whole.trays[6]]
    async with discovering(kube, tmp_path, ROW, ROW.gpus) as (seen, player):
        await the_tree(seen, ROW)
        await healthy(seen)
        first = dict(seen.now)
        for name, h in first.items():
            assert LABEL.fullmatch(name)
            if h["spec"]["tierName"] == "nvlink":
                nodes = below(first, name)
                rack = next((r.name for r in ROW.racks if nodes <= set(r.trays)), *sorted(nodes)[:1])
                assert name.startswith(rack)

        # One NVLink of one GPU is killed: its rack is Degraded, no other is, and the message says which.
        began_s = time.monotonic()
        player.set_gpus(tray, nvlink.dead_link(gpus, 2, 11))
        found = await seen.until(degraded, "Degraded")
        print(f"\nfrom a dead NVLink to a watching kubectl: {time.monotonic() - began_s:.2f} s")
        assert set(found) == {leaf_of(first, tray)["metadata"]["name"]}
        (message,) = found.values()
        assert tray in message
        assert f"{gpus[2].pci_address}/nvlink11" in message
        table = await kube.kubectl_async("get", "hypernodes")
        row = next(line for line in table.splitlines() if line.startswith(next(iter(found))))
        assert row.split()[1:4] == ["1", "nvlink", "18"]
        assert "LinksDown" in row
        player.set_gpus(tray, gpus)
        await healthy(seen)

        # A GPU that was told another clique than its three neighbours; another that is being told.
        stray = other.trays[2]
        for ill, word in (
            (nvlink.wrong_clique(ROW.gpus[stray], 1, 9), "clique 9"),
            (nvlink.in_progress(ROW.gpus[stray], [3]), "in-progress"),
            (nvlink.in_progress(ROW.gpus[stray]), "in-progress"),
        ):
            player.set_gpus(stray, ill)
            found = await seen.until(degraded, word)
            assert list(found) == [leaf_of(first, stray)["metadata"]["name"]]
            assert stray in status_at(seen.now, stray, "Degraded")[1]
            assert word in status_at(seen.now, stray, "Degraded")[1]
            player.set_gpus(stray, ROW.gpus[stray])
            await healthy(seen)
        assert tiers_of(seen.now) == truth(ROW)

        # The whole tray is put into another clique: it leaves the rack's domain, and comes back to it.
        player.set_gpus(stray, nvlink.with_fabric(ROW.gpus[stray], clique_id=9))
        await the_tree(seen, ROW, apart=stray)
        player.set_gpus(stray, ROW.gpus[stray])
        await the_tree(seen, ROW)
        assert set(seen.now) == set(first)


async def test_what_is_ill_from_the_beginning(kube: Cluster, tmp_path: Path) -> None:
    """No past says where a tray belongs of which no GPU is done; for the others their GPUs do."""
    row = racks(2, 2, trays=6, hgx=2, cpu_nodes=1, split={3: 2})
    dead, torn, waiting = row.racks[0].trays[1], row.racks[1].trays[2], row.racks[2].trays[3]
    gpus = {
        **row.gpus,
        dead: nvlink.dead_link(row.gpus[dead], 0, 5),
        torn: nvlink.wrong_clique(row.gpus[torn], 3, 1),
        waiting: nvlink.in_progress(row.gpus[waiting]),
    }
    async with discovering(kube, tmp_path, row, gpus) as (seen, player):
        await the_tree(seen, row, apart=waiting)
        found = await seen.until(lambda now: len(degraded(now)) == 3 and degraded(now), "three Degraded")
        for node in (dead, torn, waiting):
            assert node in found[leaf_of(seen.now, node)["metadata"]["name"]]
        alone = leaf_of(seen.now, waiting)["metadata"]["name"]
        rack = leaf_of(seen.now, row.racks[2].trays[0])["metadata"]["name"]
        player.set_gpus(waiting, row.gpus[waiting])
        await the_tree(seen, row)
        assert rack in seen.now
        assert alone not in seen.now
        before = {name: below(seen.now, name) for name in seen.now}

    # A collector that starts with what it kept, before any agent has spoken: everything is as it was.
    words = ("--kubernetes", "publish", "--kubeconfig", str(kube.kubeconfig), *FLAGS)
    async with recording(kube.plane) as recorder, collector_process(tmp_path, *words) as process:
        topology = await Watcher(process.address).until(lambda now: bool(now.hypernodes), "what was kept")
        assert {h.name: frozenset(h.nodes) for h in topology.hypernodes} == before
        assert await process.stop() == 0
        assert set(kube.hypernodes()) == set(before)
        await asyncio.to_thread(recorder.assert_clean)


async def test_a_gang_of_a_racks_size_lands_in_one_rack(
    own_kube: Callable[..., Cluster], tmp_path: Path
) -> None:
    whole = [set(rack.trays) for rack in ROW.racks[:3]]
    kube = await asyncio.to_thread(own_kube, GANG_OPTIONS)
    kube.nodes(ROW.gpus, gpus=4)
    kube.nodes(ROW.without_gpus, gpus=0)
    gangs = Gangs(kube, NVLINK, gpus=4)
    async with discovered(kube, ROW.fabric, tmp_path / "collector", ROW.gpus) as player:

        def labelled() -> bool:
            values = label_values(kube, NVLINK)
            parts = {frozenset(n for n in values if values[n] == v) for v in values.values()}
            return all(values.values()) and parts == set(ROW.nvlink)

        await until("labels of every NVLink domain", labelled, kube)
        values = label_values(kube, NVLINK)
        assert all(LABEL.fullmatch(value) for value in values.values())
        # Labels and HyperNodes have publishers of their own, and either may write first.
        named = set(values.values())
        await until("a HyperNode for each label", lambda: named <= set(kube.hypernodes()), kube)

        async def lands(gang: str) -> int:
            """The rack that the gang is placed in: one, and all of it."""
            nodes = await until(f"gang {gang} runs", lambda: gangs.nodes_of(gang), kube)
            assert set(nodes) in whole, f"{gang} is on {nodes}"
            return whole.index(set(nodes))

        async def submit(gang: str, size: int = WORKERS) -> None:
            await asyncio.to_thread(gangs.submit, gang, size)

        await submit("first")
        taken = [await lands("first")]

        # A tray of a free rack loses an NVLink: the second gang goes to the rack that is whole.
        ill, free = (i for i in range(3) if i not in taken)
        tray = ROW.racks[ill].trays[4]
        player.set_gpus(tray, nvlink.dead_link(ROW.gpus[tray], 1, 0))
        await until("the taint", lambda: tainted(kube) == {tray: [TAINT]}, kube)
        await submit("second")
        assert await lands("second") == free

        # No rack is left that could take the third, though 17 + 18 trays and the HGX hosts are free.
        await submit("third")
        await until("there is no whole rack left", lambda: gangs.refused("third"), kube)
        assert gangs.nodes_of("third") == []
        # The link is mended, and the gang that waited gets its rack.
        player.set_gpus(tray, ROW.gpus[tray])
        assert await lands("third") == ill
        assert tainted(kube) == {}

        # A clique is a domain of its own: a gang of its size fits into half a rack.
        await submit("half", 9)
        nodes = await until("half a rack", lambda: gangs.nodes_of("half"), kube)
        assert frozenset(nodes) in ROW.racks[3].cliques

        # What comes next waits until a rack is free again.
        await submit("fourth")
        await until("all racks are taken", lambda: gangs.refused("fourth"), kube)
        await asyncio.to_thread(gangs.finish, "second")
        assert await lands("fourth") == free
