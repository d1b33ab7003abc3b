"""Debian's Slurm reads the files that a collector maintains: its topology is the published hierarchy."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_publish.slurm.text import SlurmOptions, slurm_tree
from hyperscout_topology.topology import HyperNode, Topology
from support.collectors import collector_settings, eight_hosts, host_cable, is_whole, playing
from support.live import Watcher
from support.real import require_real
from support.slurm import Slurm, Switches, slurm
from support.waiting import eventually

require_real("slurm")

FABRIC = eight_hosts()
FIRST, LATE = FABRIC.hosts[0], FABRIC.hosts[-1]
ALONE = (("b1", "a"), ("b2", "a"), ("c1", "b"), ("c2", "b"))  # and the leaf of each


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


async def test_a_tree_without_accelerator_domains_of_one_host() -> None:
    """A leaf with a rack and two hosts alone, and one with hosts alone: Slurm reads the uneven tree."""

    def domain(name: str, tier: int, parent: str | None, nodes: str, children: str = "") -> HyperNode:
        tiers = ("nvlink", "leaf", "pod")
        switches = () if tier == 1 else (f"switch-{name}",)
        return HyperNode(
            name, tier, tiers[tier - 1], parent, tuple(children.split()), tuple(nodes.split()), switches
        )

    topology = Topology(
        1,
        (
            domain("rack", 1, "leaf-a", "a1 a2"),
            *(domain(f"{node}-x", 1, f"leaf-{leaf}", node) for node, leaf in ALONE),
            domain("leaf-a", 2, "pod", "a1 a2 b1 b2", "b1-x b2-x rack"),
            domain("leaf-b", 2, "pod", "c1 c2", "c1-x c2-x"),
            domain("pod", 3, None, "a1 a2 b1 b2 c1 c2", "leaf-a leaf-b"),
        ),
    )
    nodes = ("a1", "a2", "b1", "b2", "c1", "c2")
    with slurm(nodes, ("b1", "c1")) as cluster:
        text = "".join(slurm_tree(topology, SlurmOptions(single_hosts=False)))
        cluster.tree_file.write_text(text)
        assert cluster.run("scontrol", "reconfigure") == ""
        await eventually(
            lambda: set(cluster.switches()) == {"rack", "leaf-a-hosts", "leaf-a", "leaf-b", "pod"},
            lambda: f"Slurm has {cluster.switches()}",
        )
        assert cluster.switches()["leaf-b"] == (frozenset({"c1", "c2"}), frozenset())
        assert cluster.switches()["leaf-a"][1] == {"rack", "leaf-a-hosts"}
        await eventually(
            lambda: cluster.address("b1") == "pod.leaf-a.leaf-a-hosts.b1", lambda: cluster.address("b1")
        )
        assert cluster.run("srun", "-N2", "--nodelist=b1,c1", "true") == "", "a job over both leaves"
