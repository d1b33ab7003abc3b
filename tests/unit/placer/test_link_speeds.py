"""Bandwidths that are read from links: of nodes, of tiers, and of the ring that crosses them."""

from dataclasses import replace

import pytest
from hyperscout_placer.cluster.allreduce import Predicted, predict
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.link_speeds import node_speeds
from hyperscout_placer.cluster.speeds import TierSpeed, speeds_of
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.link_changes import DENIED
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Adapter, Endpoint, Link, LinkTable, Measured, Rate, Tier, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.builders import anomaly
from support.topologies import cabled, leaves, pods

NDR, EDR, QDR, DDR = Rate(400.0, 4), Rate(100.0, 4), Rate(40.0, 4), Rate(20.0, 4)
UNKNOWN = Rate()
TREE = pods(2, 2)  # two pods of two leaves of four nodes, n0000 to n0015
FOREST = Forest.of(TREE)
MB = 1_000_000


def read(topology: Topology) -> list[list[float]]:
    return [x.tolist() for x in node_speeds(topology, Forest.of(topology))]


def speeds(topology: Topology) -> list[TierSpeed]:
    return speeds_of(topology, Forest.of(topology))


def ring(topology: Topology, *nodes: int) -> Predicted:
    return predict(Forest.of(topology), speeds(topology), [f"n{n:04}" for n in nodes], MB)


@pytest.mark.parametrize(
    ("rate", "gbps"),
    [
        (Rate(10.0, 4), 8.0),  # SDR: 4 x 2.5 x 8/10
        (DDR, 16.0),  # 4 x 5 x 8/10
        (QDR, 32.0),  # 4 x 10 x 8/10
        (Rate(10.0, 1), 8.0),  # one lane of QDR
        (Rate(56.0, 4), 54.545454),  # FDR: 4 x 14.0625 x 64/66
        (EDR, 100.0),
        (NDR, 400.0),
        (Rate(40.0, 0), 40.0),  # 40 Gbit/s Ethernet: no lanes are known
        (UNKNOWN, 0.0),
    ],
)
def test_data_rates(rate: Rate, gbps: float) -> None:
    assert rate.data_gbps == pytest.approx(gbps)


def test_each_node_has_its_slowest_link_on_the_way() -> None:
    topology = cabled(TREE, NDR, n0001=(EDR,), pod0_l01=(QDR,), pod1=(QDR, QDR))
    leaf, pod, core = read(topology)
    assert leaf == [400, 100, *[400] * 14]
    assert pod == [400, 100, 400, 400, *[32] * 4, *[400] * 8]
    assert core == [400, 100, 400, 400, *[32] * 4, *[64] * 8]  # two cables of QDR are one trunk of 64


def test_rails_are_added_up_and_each_has_its_own_way() -> None:
    # Both leaves of n0 have a cable to the spine, of 400 and of 100.
    topology = cabled(leaves(("n0",), ("n1",)), NDR, l2=(EDR,), n0=(NDR, NDR))
    assert read(topology) == [[800, 400], [400, 100]]  # both rails share one cable upwards
    rail = Link("n0", "9", "sw-l2", "9", "infiniband", (), "", *NDR)
    assert read(replace(topology, links=LinkTable.of([*topology.links, rail]))) == [[1200, 400], [500, 100]]


@pytest.mark.parametrize(
    ("rails", "uplinks", "leaf", "core"),
    [
        ((NDR,) * 8, (NDR,) * 8, 3200, 3200),
        ((NDR,) * 8, (NDR,), 3200, 400),  # eight rails share one cable upwards
        ((NDR,) * 8, (NDR, NDR, EDR), 3200, 900),
        ((NDR, *[UNKNOWN] * 7), (NDR,) * 8, 3200, 3200),  # a rail counts like the known rails
        ((EDR, NDR, UNKNOWN), (NDR,) * 8, 600, 600),  # the slowest of them
        ((NDR,) * 8, (NDR, *[UNKNOWN] * 7), 3200, 3200),
        ((NDR,) * 8, (UNKNOWN,) * 8, 3200, 0),
        ((UNKNOWN,) * 8, (NDR,) * 8, 0, 0),
    ],
)
def test_unknown_rails_and_shared_trunks(
    rails: tuple[Rate, ...], uplinks: tuple[Rate, ...], leaf: float, core: float
) -> None:
    topology = cabled(leaves(("n0",), ("n1",)), NDR, n0=rails, l1=uplinks)
    ethernet = Link("n0", "e", "sw-l1", "e", "ethernet", (), "", *UNKNOWN)  # no rail of InfiniBand
    found = read(replace(topology, links=LinkTable.of([*topology.links, ethernet])))
    assert [tier[0] for tier in found] == [leaf, core]


def test_links_that_say_nothing() -> None:
    topology = cabled(leaves(("n0",), ("n1",)), QDR, n1=(UNKNOWN,))
    more = [
        Link("n0", "7", "sw-l1", "7", "ethernet", (), "", 25.0),  # beside InfiniBand
        Link("n1", "7", "sw-l2", "7", "ethernet", (), "", 25.0),
        Link("n0", "8", "sw-l1", "8", "infiniband", (), f"{DENIED}as others say", *NDR),
        Link("n0", "9", "management", "9", "infiniband", (), "", *NDR),  # no switch of the tree
        Link("storage", "1", "sw-l1", "6", "infiniband", (), "", *NDR),  # no node of the tree
    ]
    found = replace(topology, links=LinkTable.of([*topology.links, *more]))
    assert read(found) == [[32, 25], [32, 25]]
    unnamed = replace(found, adapters=(*found.adapters, Adapter("storage", "elsewhere", "")))
    assert read(unnamed) == [[32, 25], [32, 25]]


def test_a_link_that_is_down_carries_nothing() -> None:
    topology = cabled(leaves(("n0",), ("n1",)), NDR, n0=(NDR, NDR), l2=(QDR, QDR))
    ends = [
        (Endpoint("n0", "n0", "1"), Endpoint("sw-l1", "l1", "n0-1")),
        (Endpoint("sw-core", "core", "sw-l2-0"), Endpoint("sw-l2", "l2", "0")),
        (Endpoint("sw-l2", "l2", "7"), Endpoint("gone", "gone", "1")),
    ]
    down = replace(topology, anomalies=tuple(anomaly("MissingLink", *pair) for pair in ends))
    assert read(topology) == [[800, 400], [400, 64]]  # n1's leaf has two cables of QDR upwards
    assert read(down) == [[400, 400], [400, 32]]
    slow = replace(topology, anomalies=tuple(anomaly("SlowLink", *pair) for pair in ends))
    assert read(slow) == read(topology)


def test_without_speeds_nothing_is_read() -> None:
    for topology in (TREE, cabled(TREE, UNKNOWN), cabled(TREE, NDR, **{f"n{i:04}": () for i in range(16)})):
        assert read(topology) == [[0.0] * 16] * 3
        assert {x.bandwidth_source for x in speeds(topology)} == {"assumed"}
    assert read(Topology(1)) == []


def test_an_unknown_trunk_makes_its_tier_an_assumption_limited_by_what_is_read_below() -> None:
    topology = cabled(TREE, QDR, pod0=(UNKNOWN,), pod1=(UNKNOWN,), n0000=(DDR,))
    assert read(topology)[2] == [0.0] * 16
    core = speeds(topology)[3]
    assert (core.bandwidth_gbps, core.bandwidth_source) == (pytest.approx(32.0), "assumed")
    assert ring(topology, 0, 8).hops[0].bandwidth_gbps == 16.0  # n0000 has no faster link


def test_switches_of_one_level_are_joined_by_their_own_links() -> None:
    """Leaves in a ring without a switch above them."""
    top = leaves(("n0",), ("n1",), ("n2",))
    flat = replace(
        top, hypernodes=tuple(replace(h, switches=h.switches[: h.tier == 1]) for h in top.hypernodes)
    )
    pairs = (("sw-l1", "sw-l2", QDR), ("sw-l2", "sw-l3", NDR), ("sw-l3", "sw-l1", NDR))
    links = [Link(a, f"{b}", b, f"{a}", "infiniband", (), "", *rate) for a, b, rate in pairs]
    below = cabled(top, NDR, l1=(), l2=(), l3=())
    assert read(replace(below, hypernodes=flat.hypernodes, links=LinkTable.of([*below.links, *links]))) == [
        [400, 400, 400],
        [32, 32, 400],
    ]


def test_nvlink_is_not_read_from_network_links() -> None:
    topology = cabled(TREE, QDR)
    nvlink = replace(
        topology,
        hypernodes=tuple(
            replace(h, tier_name="nvlink", switches=()) if h.tier == 1 else h for h in topology.hypernodes
        ),
        links=LinkTable.of(
            [replace(x, b_device=f"sw-{x.b_device[3:].split('-')[0]}") for x in topology.links]
        ),
    )
    found = speeds(nvlink)
    assert [(x.bandwidth_gbps, x.bandwidth_source) for x in found[1:4]] == [
        (pytest.approx(3600), "assumed"),
        (pytest.approx(32), "read"),
        (pytest.approx(32), "read"),
    ]


# -- predictions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "ring_us", "gbps"),
    [
        # A step of n ranks takes the latency (leaf 2, pod 3, core 4.5 us) and 1 MB / n: of two ranks 0.5 MB
        # take 10 us at 400 Gbit/s, 125 us at 32, 62.5 us at 64, 40 us at 100; of four ranks half of that.
        ((0, 2), 2 * (2 + 10), 400),
        ((0, 1), 2 * (2 + 40), 100),  # n0001 has a slow link of its own
        ((0, 4), 2 * (3 + 125), 32),  # the leaf of n0004 has a slow way up
        ((4, 5), 2 * (2 + 10), 400),  # within that leaf it does not matter
        ((2, 8), 2 * (4.5 + 62.5), 64),  # the pod of n0008 has two cables of QDR
        ((2, 3, 4, 5), 6 * (3 + 62.5), 32),
        ((4, 8), 2 * (4.5 + 125), 32),  # the slower of both ends
    ],
)
def test_a_ring_is_as_slow_as_its_slowest_edge(nodes: tuple[int, ...], ring_us: float, gbps: float) -> None:
    found = ring(cabled(TREE, NDR, n0001=(EDR,), pod0_l01=(QDR,), pod1=(QDR, QDR)), *nodes)
    assert found.ring_s == pytest.approx(ring_us * 1e-6)
    assert found.hops[-1].bandwidth_gbps == gbps
    assert found.sources == "latency assumed, bandwidth read"


@pytest.mark.parametrize(
    ("measured_gbps", "usual", "slow"),
    [
        (300.0, 300.0, 32.0),  # a slow link limits what was measured elsewhere in the tier
        (20.0, 20.0, 20.0),  # what was measured is less than the slow link
        (700.0, 700.0, 32.0),  # not all links were read: what was measured stays
    ],
)
def test_what_was_measured_comes_before_what_was_read(
    measured_gbps: float, usual: float, slow: float
) -> None:
    m = Measured(measured_gbps, measured_gbps, 9)
    topology = replace(cabled(TREE, NDR, n0001=(QDR,)), tiers=(Tier(1, "leaf", None, m),))
    assert [ring(topology, *nodes).hops[0].bandwidth_gbps for nodes in ((0, 2), (0, 1))] == [
        pytest.approx(usual),
        pytest.approx(slow),
    ]
    assert ring(topology, 0, 2).sources == "latency assumed, bandwidth measured"


@given(
    st.sampled_from([NDR, EDR, QDR, DDR]),
    st.lists(st.integers(0, 15), min_size=2, max_size=40),
    st.integers(1, 1 << 30),
)
def test_equal_links_give_what_the_tiers_give(rate: Rate, nodes: list[int], size: int) -> None:
    names = [f"n{x:04}" for x in nodes]
    found = speeds(cabled(TREE, rate))
    assert [x.bandwidth_gbps for x in found[1:4]] == pytest.approx([rate.data_gbps] * 3)
    of_tiers = [replace(x, node_gbps=None) for x in found]
    mine, plain = (predict(FOREST, x, names, size) for x in (found, of_tiers))
    assert (mine.ring_s, mine.tree_s) == (pytest.approx(plain.ring_s), pytest.approx(plain.tree_s))
    assert mine.sources == plain.sources


@given(
    st.dictionaries(
        st.sampled_from(["n0000", "n0009", "pod0_l00", "pod1_l01", "pod0", "pod1"]),
        st.sampled_from([(NDR,), (QDR,), (QDR, QDR), (DDR,)]),
    ),
    st.lists(st.integers(0, 15), min_size=2, max_size=20),
)
def test_a_slower_link_makes_nothing_faster_and_a_file_keeps_the_speeds(
    slower: dict[str, tuple[Rate, ...]], nodes: list[int]
) -> None:
    topology = cabled(TREE, NDR, **slower)
    found = ring(topology, *nodes)
    best = ring(cabled(TREE, NDR), *nodes)
    assert found.ring_s >= best.ring_s * (1 - 1e-9)
    assert found.tree_s >= best.tree_s * (1 - 1e-9)
    assert ring(from_json(to_json(topology)), *nodes) == found
