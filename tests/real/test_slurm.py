"""Debian's Slurm reads the files that a collector maintains: its topology is the published hierarchy."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_topology.topology import Topology
from support.collectors import collector_settings, eight_hosts, host_cable, is_whole, playing
from support.live import Watcher
from support.real import require_real
from support.slurm import Slurm, Switches, slurm
from support.waiting import eventually

require_real("slurm")

FABRIC = eight_hosts()
FIRST, LATE = FABRIC.hosts[0], FABRIC.hosts[-1]


@pytest.fixture
def cluster() -> Iterator[Slurm]:
    with slurm(FABRIC.hosts, (FIRST, LATE)) as found:
        yield found


def settings(folder: Path, cluster: Slurm) -> CollectorSettings:
    return collector_settings(
        folder,
        slurm_tree_file=cluster.tree_file,
        slurm_hook=cluster.hook,
        slurm_hook_interval_s=0.5,
        expected_nodes=FABRIC.hosts,
    )


def wanted(topology: Topology) -> Switches:
    """The hierarchy, and nodes that are in none."""
    found = {h.name: (frozenset(h.nodes), frozenset(h.children)) for h in topology.hypernodes}
    placed = frozenset().union(*(h.nodes for h in topology.hypernodes))
    if apart := set(topology.nodes_without_evidence) - placed:
        found["no-topology"] = frozenset(apart), frozenset()
    return found


async def until_read(cluster: Slurm, topology: Topology) -> None:
    await eventually(
        lambda: cluster.switches() == wanted(topology),
        lambda: f"{wanted(topology)}; Slurm has {cluster.switches()}",
    )


async def until_at(cluster: Slurm, node: str, topology: Topology) -> None:
    """A job on the node sees the path of switches from the root to it."""
    path = [h.name for h in sorted(topology.hypernodes, key=lambda h: -h.tier) if node in h.nodes]
    address = ".".join([*(path or ["", "no-topology"]), node])
    await eventually(lambda: cluster.address(node) == address, f"a job on {node} is at {address}")


async def test_the_topology_of_slurm_is_the_published_hierarchy(tmp_path: Path, cluster: Slurm) -> None:
    async with (
        Collector(settings(tmp_path, cluster)) as running,
        playing(running.address, FABRIC, hosts=()) as player,
    ):
        watcher = Watcher(running.address)
        player.cut(cable := host_cable(player, LATE))
        for host in FABRIC.hosts[:-1]:
            player.revive(host)
        topology = await watcher.until(
            lambda x: len(x.hypernodes) == 3 and x.nodes_without_evidence == (LATE,), f"all but {LATE}"
        )
        await until_read(cluster, topology)
        for node in (FIRST, LATE):
            await until_at(cluster, node, topology)

        player.restore(cable)
        player.revive(LATE)
        topology = await watcher.until(is_whole, f"{LATE} is added")
        await until_read(cluster, topology)
        await until_at(cluster, LATE, topology)

        player.pull(next(x.guid for x in FABRIC.switches if x.level == 1))
        topology = await watcher.until(lambda x: FIRST in x.nodes_without_evidence, "a leaf is cut")
        await until_read(cluster, topology)

        cluster.end("slurmctld")
        cluster.start_controller()
        assert cluster.switches() == wanted(topology), "a restart of Slurm"
    count = cluster.reconfigurations
    async with Collector(settings(tmp_path, cluster)) as running:
        states = running.components.publishing.runner.states
        (files,) = (one for one in states if one.publisher.name == "slurm-files")
        await eventually(lambda: files.generation, "the restarted collector has published")
        assert cluster.switches() == wanted(topology), "a restart of the collector"
    assert cluster.reconfigurations == count > 1
