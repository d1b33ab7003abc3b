"""Cables and switches fail and recover faster than sweeps and leases settle: each fault is published."""

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hyperscout_collector.app.build.collector import Collector
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import Cable
from hyperscout_sim.fabric.shapes import rail_optimised
from hyperscout_topology.topology import Topology
from support.collectors import collector_settings, playing
from support.live import Watcher
from support.soak import soak_s, soak_seed

FABRIC = rail_optimised(2, 4, 2, 2, pods=2)
OWNER = FABRIC.node_map()
PAUSES_S = (0, 0, 0.05, 0.2, 0.5)  # sweeps and leases of one change take about that long
SPINES = [x for x in FABRIC.switches if x.level == 2]


def domains_by_tier(topology: Topology) -> list[set[frozenset[str]]]:
    found: dict[int, set[frozenset[str]]] = {}
    for one in topology.hypernodes:
        found.setdefault(one.tier, set()).add(frozenset(one.nodes))
    return [found[tier] for tier in sorted(found)]


def degraded(*names: str) -> Callable[[Topology], bool]:
    """The message of a Degraded condition has these names."""
    return lambda topology: any(
        c.type == "Degraded" and c.status == "True" and all(name in c.message for name in names)
        for h in topology.hypernodes
        for c in h.conditions
    )


def is_well(topology: Topology) -> bool:
    """The tree is as cabled, and no condition is bad."""
    good = {"Ready": "True", "Degraded": "False", "Consistent": "True", "Stale": "False"}
    tiers = [set(tier) for tier in FABRIC.truth.tiers]
    return domains_by_tier(topology) == tiers and all(
        c.status == good[c.type] for h in topology.hypernodes for c in h.conditions
    )


async def flap(player: Player, cable: Cable, watcher: Watcher, random: Random) -> None:
    host, leaf = OWNER[cable.a], FABRIC.name_of(cable.b)
    player.cut(cable)
    await watcher.until(degraded(host, leaf), f"the cable from {host} to {leaf} is down")
    await asyncio.sleep(random.choice(PAUSES_S))
    player.restore(cable)
    if random.random() < 0.5:
        await watcher.until(lambda x: not degraded(host, leaf)(x), f"the cable from {host} to {leaf} is up")
    await asyncio.sleep(random.choice(PAUSES_S))


def subnet_of(switch: int) -> list[Cable]:
    """The cables of hosts in the rail of a spine: all that can change its sweeps."""
    rail = FABRIC.name_of(switch).split("-")[2]
    return [c for c in FABRIC.cables if c.a in OWNER and FABRIC.name_of(c.b).endswith(rail)]


async def pull_each_spine(player: Player, watcher: Watcher, random: Random) -> None:
    """No cable fails twice: from the fifth time on it would be reported as flapping for an hour."""
    await watcher.until(is_well, "the tree as cabled")
    flapped: set[Cable] = set()
    for spine in random.sample(SPINES, len(SPINES)):
        for cable in random.sample([c for c in subnet_of(spine.guid) if c not in flapped], 2):
            flapped.add(cable)
            await flap(player, cable, watcher, random)
        player.pull(spine.guid)
        await watcher.until(degraded(spine.name), f"{spine.name} is missing")
        await asyncio.sleep(random.choice(PAUSES_S))
        player.push_back(spine.guid)
        await watcher.until(is_well, f"all is well after {spine.name} is back")
    ended = [agent.host for agent in player.agents.values() if agent.uplink.stats.failures]
    assert ended == [], "their streams ended, after a minute without progress"


@pytest.mark.soak
async def test_each_fault_is_published_by_its_name(tmp_path: Path) -> None:
    random = Random(seed := soak_seed())
    print(f"HYPERSCOUT_SOAK_SEED={seed}")
    until_s = time.monotonic() + soak_s(0)
    for run in itertools.count(1):
        async with (
            Collector(collector_settings(tmp_path / str(run))) as running,
            playing(running.address, FABRIC) as player,
        ):
            await pull_each_spine(player, Watcher(running.address), random)
        if time.monotonic() >= until_s:
            print(f"{run} fabrics")
            break
