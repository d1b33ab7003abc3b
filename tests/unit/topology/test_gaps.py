"""What keeps the domains of a topology from being one tree, in words and in figures."""

from dataclasses import replace

from hyperscout_collector.serve.fanout.hub import Generation
from hyperscout_topology.gaps import TreeGaps, tree_gaps
from hyperscout_topology.problems import topology_problems
from hyperscout_topology.topology import Link, Switch, Topology
from support.builders import anomaly, hypernode

LEAVES = tuple(Switch(f"leaf-{n}", f"leaf-{n}", 1) for n in (1, 2))
SPINE = Switch("spine", "spine", 2)
APART = Topology(
    1,
    tuple(hypernode(f"d{n}", nodes=(f"h{n}",), switches=(f"leaf-{n}",)) for n in (1, 2)),
    switches=(*LEAVES, SPINE),
    links=tuple(Link(f"leaf-{n}", "9", "spine", str(n), "ethernet", ("lldp",)) for n in (1, 2)),
)


def test_switches_above_several_roots_are_in_no_tier() -> None:
    gaps = tree_gaps(APART)
    assert (gaps.separate_roots, gaps.unused) == (("d1", "d2"), ((2, 1),))
    assert gaps.lines == (
        "the tree has 2 roots in one connected fabric (d[1-2]): no switches above join them",
        "1 switch of level 2 above these roots is in no tier: it joins no domains",
    )
    assert set(gaps.lines) <= set(topology_problems(APART))


def test_gaps_are_found_once_whatever_has_no_cable_or_no_node() -> None:
    odd = replace(
        APART,
        hypernodes=(*APART.hypernodes, hypernode("d3", nodes=(), switches=())),
        switches=(*APART.switches, Switch("core", "core", 3)),
    )
    assert tree_gaps(odd) == tree_gaps(APART)
    assert tree_gaps(odd) is tree_gaps(replace(odd, generation=2))


def test_roots_that_no_cable_joins_are_a_gap_within_a_sweep_only() -> None:
    hosts = tuple(Link(f"a{n}", "1", f"leaf-{n}", "1", "ethernet", ("lldp",)) for n in (1, 2))
    apart = replace(APART, switches=LEAVES, links=hosts)
    assert tree_gaps(apart) == TreeGaps()
    swept = replace(apart, links=tuple(replace(x, fabric="infiniband") for x in hosts))
    assert tree_gaps(swept).separate_roots == ("d1", "d2")
    assert (
        "the tree has 2 roots in one sweep (d[1-2]), and no cable joins them" in topology_problems(swept)[0]
    )
    rails = (replace(hosts[0], fabric="infiniband-1"), replace(hosts[1], fabric="infiniband-2"))
    assert tree_gaps(replace(apart, links=rails)) == TreeGaps()


def test_switches_that_form_no_tree_are_a_problem() -> None:
    note = anomaly("NotATree", message="the switches form no tree")
    ring = replace(APART, anomalies=(note,), links=())
    assert topology_problems(ring) == ["the switches form no tree"]
    assert Generation(ring).tree_gaps == ("the switches form no tree",)
