"""Predicted all-reduces: small ones by hand, what must hold of all, and where the figures come from."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hyperscout_placer.cluster.allreduce import HopSpeed, Predicted, predict
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.speeds import (
    BETWEEN_ISLANDS,
    DEFAULTS,
    WITHIN_NODE,
    Source,
    TierSpeed,
    default_speeds,
    speeds_of,
)
from hyperscout_topology.topology import Measured, Rate, Tier, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.topologies import cabled, leaves, pods

# Within a node, leaf, pod, core, between islands: (us, Gbit/s). 8 Gbit/s are a byte a nanosecond.
SPEEDS = [
    TierSpeed(1.0, 800.0, "measured", "measured"),
    TierSpeed(2.0, 8.0, "measured", "measured"),
    TierSpeed(4.0, 4.0, "measured", "measured"),
    TierSpeed(8.0, 2.0, "assumed", "read"),
    TierSpeed(50.0, 1.0),
]
FOREST = Forest.of(pods(2, 2))  # two pods of two leaves of four nodes, n0000 to n0015


def of(*nodes: int, message_bytes: int = 1000) -> Predicted:
    return predict(FOREST, SPEEDS, [f"n{n:04}" for n in nodes], message_bytes)


US = 1e-6


def test_one_rank_has_no_other_to_reduce_with() -> None:
    assert of(3) == Predicted(0.0, 0.0, 1000)
    assert (of(3).measured, of(3).sources) == (True, "as measured")


@pytest.mark.parametrize(
    ("name", "nodes", "ring_us", "tree_us"),
    [
        # 1,000 bytes take 1 us over a leaf, 2 over a pod, 4 over the core. Two: half of them each way.
        ("two of a leaf", (0, 1), 2 * (2 + 0.5), 2 * (2 + 0.5)),
        ("two of a pod", (0, 4), 2 * (4 + 1), 2 * (4 + 1)),
        ("two of the core", (0, 8), 2 * (8 + 2), 2 * (8 + 2)),
        ("two of a node", (0, 0), 2 * (1 + 0.005), 2 * (1 + 0.005)),
        # Four: 0 <- 2 <- {1, 3} and 3 <- 1 <- {2, 0}: two hops to the root; rank 2 takes half of the bytes
        # from each of two children, and sends half as an inner rank and half as a leaf.
        ("four of a leaf", (0, 1, 2, 3), 6 * (2 + 0.25), 2 * (2 * 2 + 1)),
        # The hop between the pods bounds each step of the ring. In the trees 2 -> 0 and 1 -> 3 cross, and
        # 1 -> 2 and 2 -> 1 do: node 2 takes from 1 over the core (2 us of half) and from 3 in its leaf (0.5).
        ("two and two", (0, 1, 8, 9), 6 * (8 + 1), 2 * (8 + 8 + 2 + 2)),
        # Two ranks a node: in tree order two hops leave a node, by turns four do, and share its bandwidth.
        ("pairs on nodes", (0, 0, 1, 1), 6 * (2 + 0.25), 2 * (2 + 2 + 0.5 + 0.5)),
        ("one node thrice", (0, 1, 0, 2), 6 * (2 + 2 * 0.25), 2 * (2 + 2 + 0.5 + 0.5)),
        # Rank 2 takes half of the bytes from each of 1 and 3, all over the core, and sends less.
        ("far by turns", (0, 8, 1, 9), 6 * (8 + 1), 2 * (8 + 2 + 2 + 2)),
        ("pairs by turns", (0, 1, 0, 1), 6 * (2 + 2 * 0.25), 2 * (1 + 2 + 0.5 + 0.5)),
    ],
)
def test_by_hand(name: str, nodes: tuple[int, ...], ring_us: float, tree_us: float) -> None:
    found = of(*nodes)
    assert found.ring_s == pytest.approx(ring_us * US)
    assert found.tree_s == pytest.approx(tree_us * US)


def test_between_islands_is_the_last_speed() -> None:
    islands = Forest.of(
        Topology(1, tuple(replace(h, parent=None) for h in leaves(("a",), ("b",)).hypernodes[:2]))
    )
    assert predict(islands, [*SPEEDS[:2], SPEEDS[4]], ["a", "b"], 1000).ring_s == pytest.approx(2 * 54 * US)


def test_measured_is_what_rests_on_measurements_alone() -> None:
    assert of(0, 1, 5).measured
    assert not of(0, 1, 8).measured
    # Ring neighbours are in other pods here, those of the trees are not.
    guessed = [SPEEDS[0], replace(SPEEDS[1], bandwidth_source="read"), *SPEEDS[2:]]
    assert predict(FOREST, guessed, ["n0000", "n0004"], 1).measured
    assert not predict(FOREST, guessed, ["n0000", "n0004", "n0001", "n0005"], 1).measured


def test_a_prediction_names_its_figures_and_their_sources() -> None:
    assert of(0, 0, 1, 8).hops == (
        HopSpeed(0, "within nodes", 1.0, "measured", 800.0, "measured"),
        HopSpeed(1, "leaf", 2.0, "measured", 8.0, "measured"),
        HopSpeed(3, "core", 8.0, "assumed", 2.0, "read"),
    )


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ((0, 4), "as measured"),
        ((0, 8), "latency assumed, bandwidth read"),
        (
            (0, 0, 1, 8),
            (
                "latency measured (within nodes, leaf) and assumed (core), "
                "bandwidth measured (within nodes, leaf) and read (core)"
            ),
        ),
    ],
)
def test_the_sources_in_words(nodes: tuple[int, ...], text: str) -> None:
    assert of(*nodes).sources == text


def test_trees_are_logarithmic_and_rings_are_not() -> None:
    forest = Forest.of(leaves(tuple(f"n{i:04}" for i in range(1024))))
    speeds = default_speeds(forest)
    of_many = {n: predict(forest, speeds, forest.nodes[:n], 8) for n in (2, 4, 16, 64, 256, 1024)}
    for n, found in of_many.items():
        assert found.ring_s == pytest.approx(2 * (n - 1) * 2 * US, rel=1e-3)
        assert found.tree_s == pytest.approx(2 * np.log2(n) * 2 * US, rel=1e-2)


def test_no_rank_has_more_to_do_in_the_trees_than_the_bytes_once_each_way() -> None:
    """A rank in the middle of one tree is at the end of the other; both are as low as can be."""
    forest = Forest.of(leaves(tuple(f"n{i:03}" for i in range(130))))
    wide = [TierSpeed(0.0, 8.0)] * 4
    near = [TierSpeed(1.0, 1e12)] * 4
    for n in range(3, 130):
        assert predict(forest, wide, forest.nodes[:n], 1000).tree_s == pytest.approx(2 * 1000e-9)
        hops = predict(forest, near, forest.nodes[:n], 8).tree_s / (2 * US)
        assert hops <= np.ceil(np.log2(n)) + 1e-6


@given(st.lists(st.integers(0, 15), min_size=2, max_size=40), st.integers(1, 1 << 30))
def test_no_time_beats_the_fastest_wire_and_a_slower_tier_never_helps(nodes: list[int], size: int) -> None:
    found = of(*nodes, message_bytes=size)
    n = len(nodes)
    fastest = 2 * size * 8e-9 / SPEEDS[0].bandwidth_gbps
    assert found.ring_s >= fastest * (n - 1) / n
    assert found.tree_s >= fastest / 2
    worse = predict(FOREST, [*SPEEDS[:3], TierSpeed(9.0, 1.9), SPEEDS[4]], [f"n{x:04}" for x in nodes], size)
    assert worse.ring_s >= found.ring_s
    assert worse.tree_s >= found.tree_s
    # The more they have in common, the faster.
    near = predict(FOREST, SPEEDS, [f"n{x % 8:04}" for x in nodes], size)
    if len(set(nodes)) == len({x % 8 for x in nodes}):
        assert near.ring_s <= found.ring_s
        assert near.tree_s <= found.tree_s


# -- where the figures come from ----------------------------------------------------------------------------


def told(topology: Topology, *figures: tuple[float | None, float | None]) -> Topology:
    """(RTT, Gbit/s) by tier."""
    names = {h.tier: h.tier_name for h in topology.hypernodes}

    def m(value: float | None) -> Measured | None:
        return None if value is None else Measured(value, value, 5)

    tiers = [Tier(t, names[t], m(us), m(gbps)) for t, (us, gbps) in enumerate(figures, 1)]
    return replace(topology, tiers=tuple(tiers))


def speeds(topology: Topology) -> list[TierSpeed]:
    return speeds_of(topology, Forest.of(topology))


def sources(speed: TierSpeed) -> tuple[Source, Source]:
    return speed.latency_source, speed.bandwidth_source


def test_medians_of_tiers_and_half_a_round_trip() -> None:
    found = speeds(told(pods(2, 2), (6.0, 390.0), (9.0, 200.0), (12.0, 100.0)))
    assert found[1:4] == [
        TierSpeed(us, pytest.approx(gbps), "measured", "measured")  # type: ignore[arg-type]
        for us, gbps in ((3.0, 390), (4.5, 200), (6.0, 100))
    ]
    assert [sources(found[i]) for i in (0, 4)] == [("assumed", "assumed")] * 2


def test_defaults_by_the_name_of_the_tier() -> None:
    assert [(x.latency_us, x.bandwidth_gbps) for x in default_speeds(FOREST)] == [
        WITHIN_NODE,
        DEFAULTS["leaf"],
        DEFAULTS["pod"],
        DEFAULTS["core"],
        BETWEEN_ISLANDS,
    ]
    for mine, plain in zip(speeds(pods(2, 2)), default_speeds(FOREST), strict=True):
        assert (mine.latency_us, *sources(mine)) == (plain.latency_us, "assumed", "assumed")
        assert mine.bandwidth_gbps == pytest.approx(plain.bandwidth_gbps)
    other = replace(
        pods(2, 2), hypernodes=tuple(replace(h, tier_name=f"t{h.tier}") for h in pods(2, 2).hypernodes)
    )
    assert default_speeds(Forest.of(other)) == default_speeds(FOREST)
    assert [x.latency_us for x in speeds(Topology(1))] == [WITHIN_NODE[0], BETWEEN_ISLANDS[0]]


@pytest.mark.parametrize(
    ("figures", "latency_us", "gbps"),
    [
        # A default above a slow measured tier is no faster, one below a fast measured one no slower.
        ([(40.0, 100.0), (None, None), (None, None)], [1, 20, 20, 20, 30], [3600, 100, 100, 100, 25]),
        ([(None, None), (None, None), (2.0, 800.0)], [1, 1, 1, 1, 30], [3600, 800, 800, 800, 25]),
        ([(2.0, None), (None, None), (70.0, None)], [1, 1, 3, 35, 35], [3600, 400, 400, 200, 25]),
    ],
)
def test_defaults_give_way(
    figures: list[tuple[float | None, float | None]], latency_us: list[float], gbps: list[float]
) -> None:
    found = speeds(told(pods(2, 2), *figures))
    assert [x.latency_us for x in found] == pytest.approx(latency_us)
    assert [x.bandwidth_gbps for x in found] == pytest.approx(gbps)


@pytest.mark.parametrize("figure", [0.0, -5.0, 5e-324, 1e-300])
def test_a_figure_too_small_to_be_measured_is_ignored(figure: float) -> None:
    assert speeds(told(pods(2, 2), *[(figure, figure)] * 3)) == speeds(pods(2, 2))
    topology = cabled(pods(2, 2), Rate(figure, 4)) if figure > 0 else pods(2, 2)  # a file has none below 0
    assert speeds(topology) == speeds(pods(2, 2))


def test_where_no_tier_has_a_figure_its_domains_tell() -> None:
    topology = pods(2, 2)
    some = {"pod0-l00": 6.0, "pod0-l01": 8.0, "pod1-l00": 20.0}
    topology = replace(
        topology,
        hypernodes=tuple(
            replace(h, latency_us=Measured(some[h.name], 0.0, 0)) if h.name in some else h
            for h in topology.hypernodes
        ),
    )
    assert speeds(topology)[1].latency_us == 4.0
    assert sources(speeds(topology)[1]) == ("measured", "assumed")


def test_pings_say_nothing_of_nvlink() -> None:
    topology = pods(2, 2)
    named = replace(
        topology,
        hypernodes=tuple(
            replace(h, tier_name="nvlink" if h.tier == 1 else h.tier_name) for h in topology.hypernodes
        ),
    )
    found = speeds(told(named, (6.0, 390.0), (9.0, 390.0), (12.0, 390.0)))
    assert (found[1].latency_us, found[1].bandwidth_gbps) == (DEFAULTS["nvlink"][0], pytest.approx(3600))
    assert sources(found[1]) == ("assumed", "assumed")
    assert speeds(told(named, (6.0, 6000.0)))[1].bandwidth_gbps == pytest.approx(6000)


@given(
    st.lists(
        st.tuples(*[st.none() | st.floats(0.01, 1e4)] * 2),
        min_size=3,
        max_size=3,
    )
)
def test_what_is_not_measured_is_never_out_of_order(figures: list[tuple[float | None, float | None]]) -> None:
    found = speeds(told(pods(2, 2), *figures))
    for which in (0, 1):
        known = [figures[i - 1][which] for i in range(1, 4)]
        if None in known and len(set(known)) <= 2:  # not two that contradict each other themselves
            values = [x.latency_us for x in found] if which == 0 else [-x.bandwidth_gbps for x in found]
            assert all(a <= b * (1 + 1e-9) if b > 0 else a <= b * (1 - 1e-9) for a, b in pairwise(values))
