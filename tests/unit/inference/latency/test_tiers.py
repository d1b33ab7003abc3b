"""Tiers from round trips: whatever was measured, valid domains come out; where enough was, the true ones."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hyperscout_formats.text.latency_csv import LatencyRow
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.latency import offsets
from hyperscout_inference.latency.edges import Edges, by_row
from hyperscout_inference.latency.pairs import NO_PAIRS, Floats, Longs, PairTable, pairs_of_rows
from hyperscout_inference.latency.tiers import LatencyTiers, tiers_of
from hyperscout_sim.fabric.opaque import Jitter, OpaqueFabric, even, opaque
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples, slow_after
from support.opaque_loop import all_pairs, indices, table

SHAPES = {
    "12 hosts, flat": [12],
    "24 hosts, flat": [24],
    "two leaves": [6, 6],
    "three leaves": [4, 4, 4],
    "one leaf three times the other": [9, 3],
    "two pods of two leaves of three": even(2, 2, 3),
    "two pods of three leaves": even(2, 3, 4),
    "uneven leaves": [[3, 2], [4, 4]],
    "leaves of 2 to 9": [[2, 9, 5], [3, 4], [6, 6, 2]],
    "three pods, one a single leaf": [[5, 5], [4, 4, 4], [7]],
    "four tiers": even(2, 2, 2, 4),
}
NO_NOISE = Jitter(median_us=0.0)


def fabric(sizes: list, seed: int, **options: object) -> OpaqueFabric:  # type: ignore[type-arg]
    return opaque(sizes, seed=seed, **options)  # type: ignore[arg-type]


def valid(pairs: PairTable, found: LatencyTiers) -> None:
    """What every caller may rely on."""
    n = len(pairs.nodes)
    assert tuple(found.hosts) == tuple(pairs.nodes)
    assert found.noisy.shape == found.offset_us.shape == (n,)
    assert np.isfinite(found.offset_us).all()
    assert found.rtt_us.shape == (found.count,) == (len(found.confidence),)
    assert np.isfinite(found.rtt_us).all()
    inner = None
    for domain, confidence in zip(found.domain, found.confidence, strict=True):
        assert domain.shape == (n,)
        placed = domain >= 0
        count = int(domain.max()) + 1 if n else 0
        assert set(domain[placed].tolist()) == set(range(count))
        assert confidence.shape == (count,)
        assert ((confidence >= 0) & (confidence <= 1)).all()
        if inner is not None:  # laminar, and every host is in a domain of each tier or of none
            assert np.array_equal(inner >= 0, placed)
            assert len(set(zip(inner[placed].tolist(), domain[placed].tolist(), strict=True))) == len(
                set(inner[placed].tolist())
            )
        assert not (found.noisy & placed).any()
        inner = domain


@pytest.mark.parametrize("seed", slow_after(1, range(8)))
@pytest.mark.parametrize("hosts", slow_after(1, [3, 40]))
def test_noise_that_grows_with_the_distance(seed: int, hosts: int) -> None:
    """On busy machines far pairs scatter by more than near tiers differ: 6, 22 and 80 us by a fifth each."""
    rng = np.random.default_rng(seed)
    leaf = np.repeat(np.arange(4), hosts)
    a, b = np.triu_indices(len(leaf), 1)
    tier = np.where(leaf[a] == leaf[b], 0, np.where(leaf[a] // 2 == leaf[b] // 2, 1, 2))
    rtt_us = np.array([6.0, 22.0, 80.0])[tier] * rng.lognormal(0.0, 0.2, len(a))
    rows = [LatencyRow(f"h{i:03}", f"h{j:03}", us, 1) for i, j, us in zip(a, b, rtt_us.tolist(), strict=True)]
    found = tiers_of(pairs_of_rows(rows))
    assert [x.tolist() for x in found.domain] == [leaf.tolist(), (leaf // 2).tolist(), (0 * leaf).tolist()]
    assert found.rtt_us == pytest.approx([6.0, 22.0, 80.0], rel=0.2)
    assert not found.noisy.any()
    assert not found.offset_us.any()


@pytest.mark.parametrize("name", slow_after(2, list(SHAPES)))
@pytest.mark.parametrize("seed", slow_after(1, range(2)))
def test_small_fabrics_without_noise(name: str, seed: int) -> None:
    true = fabric(SHAPES[name], seed, jitter=NO_NOISE, noisy=0.0)
    pairs = all_pairs(true, seed)
    found = tiers_of(pairs)
    valid(pairs, found)
    assert indices(true, found) == [1.0] * len(true.domain)
    steps = np.diff(found.rtt_us)
    assert steps == pytest.approx(1.5, abs=0.05)
    assert found.offset_us - true.own_us == pytest.approx(np.median(found.offset_us - true.own_us), abs=0.2)


@pytest.mark.parametrize("name", slow_after(1, list(SHAPES)))
@pytest.mark.parametrize("seed", slow_after(1, range(2)))
def test_small_fabrics(name: str, seed: int) -> None:
    true = fabric(SHAPES[name], seed, jitter=Jitter(0.15, 0.8))
    found = tiers_of(all_pairs(true, seed))
    assert indices(true, found) == [1.0] * len(true.domain)


@pytest.mark.parametrize("hosts", slow_after(3, [2, 3, 5, 12, 60]))
@pytest.mark.parametrize("own_us", slow_after(1, [2.0, 0.0]))
@pytest.mark.parametrize("jitter", [NO_NOISE, Jitter()])
def test_a_flat_fabric_is_one_tier(hosts: int, own_us: float, jitter: Jitter) -> None:
    for seed in range(2):
        true = fabric([hosts], seed, own_us=own_us, jitter=jitter)
        pairs = all_pairs(true, seed)
        found = tiers_of(pairs)
        valid(pairs, found)
        assert found.count == (1 if len(pairs) else 0)


@pytest.mark.slow
def test_noisy_hosts_are_named_and_nowhere() -> None:
    true = fabric(even(4, 4, 8), 1)
    found = tiers_of(all_pairs(true, 1))
    assert true.noisy.sum() == 3
    assert np.array_equal(found.noisy, true.noisy)
    assert (found.domain[0][true.noisy] == -1).all()
    assert indices(true, found) == [1.0, 1.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.005, 0.02])
def test_wrong_single_values_neither_merge_nor_split_domains(share: float) -> None:
    true = fabric(even(3, 4, 6), 5, noisy=0.0)
    pairs = all_pairs(true, 5)
    random = np.random.default_rng(1)
    wrong = random.random(len(pairs)) < share
    rtt_us = np.where(wrong, random.uniform(0.5, 12, len(pairs)), pairs.rtt_us)
    found = tiers_of(replace(pairs, rtt_us=rtt_us))
    assert indices(true, found) == [1.0, 1.0, 1.0]


@pytest.mark.slow
def test_a_single_wrong_value_between_domains_that_hardly_measured_each_other() -> None:
    """Single linkage would merge them."""
    true = fabric([8, 8, 8], 2, noisy=0.0)
    pairs = all_pairs(true, 2)
    a, b = pairs.a, pairs.b
    apart = np.flatnonzero(true.domain[0][a] != true.domain[0][b])
    rtt_us = pairs.rtt_us.copy()
    rtt_us[apart[0]] -= 1.5
    found = tiers_of(replace(pairs, rtt_us=rtt_us))
    assert indices(true, found) == [1.0, 1.0]


@pytest.mark.slow
def test_the_order_of_rows_does_not_matter() -> None:
    true = fabric(even(2, 3, 5), 3)
    pairs = all_pairs(true, 3)
    order = np.random.default_rng(0).permutation(len(pairs))
    columns = ("a", "b", "rail", "rtt_us", "jitter_us", "bandwidth_gbps", "samples", "at_ns")
    shuffled = replace(pairs, **{name: getattr(pairs, name)[order] for name in columns})
    first, second = tiers_of(pairs), tiers_of(shuffled)
    assert [d.tobytes() for d in first.domain] == [d.tobytes() for d in second.domain]
    assert [c.tobytes() for c in first.confidence] == [c.tobytes() for c in second.confidence]
    assert first.rtt_us.tobytes() == second.rtt_us.tobytes()
    assert first.offset_us.tobytes() == second.offset_us.tobytes()


@pytest.mark.slow
def test_rails_of_one_pair_count_once() -> None:
    """A rail that is slower throughout, and that only some pairs measured, moves no host."""
    true = fabric(even(2, 2, 4), 4, noisy=0.0, jitter=Jitter(0.1, 0.5))
    one = all_pairs(true, 4)
    some = np.random.default_rng(0).random(len(one)) < 0.6
    columns = ("a", "b", "jitter_us", "bandwidth_gbps", "samples", "at_ns")
    both = {name: np.concatenate((getattr(one, name), getattr(one, name)[some])) for name in columns}
    rail = np.concatenate((one.rail, np.ones(int(some.sum()), np.int32)))
    pairs = replace(
        one, **both, rail=rail, rails=("a", "b"), rtt_us=np.concatenate((one.rtt_us, one.rtt_us[some] + 20))
    )
    assert indices(true, tiers_of(pairs)) == [1.0, 1.0, 1.0]


@pytest.mark.slow
def test_parts_that_never_met_have_a_root_each() -> None:
    true = fabric([[4, 4, 4], [4, 4, 4]], 6, noisy=0.0, jitter=Jitter(0.1, 0.5))
    pairs = all_pairs(true, 6)
    same = true.domain[1][pairs.a] == true.domain[1][pairs.b]
    columns = ("a", "b", "rail", "rtt_us", "jitter_us", "bandwidth_gbps", "samples", "at_ns")
    found = tiers_of(replace(pairs, **{name: getattr(pairs, name)[same] for name in columns}))
    assert found.count == 2
    assert found.domain[1].max() == 1
    assert len(np.unique(found.domain[0])) == 6


@pytest.mark.parametrize(
    ("rows", "domains"),
    [
        ([], []),
        ([("a", "b", 3.0)], [[0, 0]]),
        ([("a", "b", 3.0), ("b", "c", 9.0)], [[0, 0, 0]]),
        ([("a", "b", 3.0), ("c", "d", 3.0)], [[0, 0, 1, 1]]),
        ([("a", "b", 3.0), ("a", "c", 3.0), ("b", "c", 3.0)], [[0, 0, 0]]),
    ],
)
def test_little_is_known(rows: Sequence[tuple[str, str, float]], domains: list[list[int]]) -> None:
    pairs = pairs_of_rows([LatencyRow(*row) for row in rows])
    found = tiers_of(pairs)
    valid(pairs, found)
    assert [domain.tolist() for domain in found.domain] == domains


def test_no_pairs() -> None:
    found = tiers_of(NO_PAIRS)
    valid(NO_PAIRS, found)
    assert found.count == 0


def test_a_host_with_too_few_pairs_is_nowhere() -> None:
    true = fabric([5, 5, 5], 7, noisy=0.0, jitter=Jitter(0.1, 0.5))
    pairs = all_pairs(true, 7)
    keep = (pairs.a != 3) & (pairs.b != 3)
    keep[np.flatnonzero(~keep)[:1]] = True
    columns = ("a", "b", "rail", "rtt_us", "jitter_us", "bandwidth_gbps", "samples", "at_ns")
    found = tiers_of(replace(pairs, **{name: getattr(pairs, name)[keep] for name in columns}))
    assert found.count == 2
    assert [int(d[3]) for d in found.domain] == [-1, -1]
    assert (np.delete(found.domain[0], 3) >= 0).all()


@st.composite
def any_pairs(draw: st.DrawFn) -> PairTable:
    n = draw(st.integers(2, 14))
    rows = draw(st.integers(0, 60))
    values = st.one_of(
        st.floats(0.1, 20),
        st.sampled_from([0.0, -1.0, float("nan"), float("inf"), 1e300, 1e-300, 9.9e6, 3.0, 3.0, 4.5]),
    )
    ints = st.lists(st.integers(0, n - 1), min_size=rows, max_size=rows)
    zeros = np.zeros(rows)
    return PairTable(
        [f"n{i:02}" for i in range(n)],
        ("a", "b"),
        np.array(draw(ints), np.int32),
        np.array(draw(ints), np.int32),
        np.array(draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)), np.int32),
        np.array(draw(st.lists(values, min_size=rows, max_size=rows)), np.float64),
        zeros,
        zeros,
        zeros.astype(np.int32),
        zeros.astype(np.int64),
    )


@examples(0.5)
@given(pairs=any_pairs(), known=st.lists(st.floats(-1, 30), max_size=4))
@pytest.mark.slow
def test_anything_measured_gives_valid_tiers(pairs: PairTable, known: list[float]) -> None:
    valid(pairs, tiers_of(pairs))
    found = tiers_of(pairs, tuple(known))
    valid(pairs, found)
    assert found.count in (0, len(known)) or not known


@examples(0.25)
@given(
    sizes=st.lists(st.lists(st.integers(3, 6), min_size=2, max_size=3), min_size=2, max_size=3),
    seed=st.integers(0, 1000),
    gap_us=st.floats(1.0, 30.0),
    own_us=st.floats(0.0, 2.0),
)
@pytest.mark.slow
def test_any_three_tiers(sizes: list[list[int]], seed: int, gap_us: float, own_us: float) -> None:
    true = fabric(sizes, seed, gap_us=gap_us, own_us=own_us, noisy=0.0, jitter=Jitter(0.05, 0.5))
    found = tiers_of(all_pairs(true, seed))
    assert indices(true, found) == [1.0, 1.0, 1.0]


class TestKnownSteps:
    """One wired fabric calibrates what a hop costs."""

    KNOWN = (2.6, 4.1, 5.6)

    def test_of_three_tiers(self) -> None:
        true = fabric(even(2, 3, 4), 8, noisy=0.0)
        found = tiers_of(all_pairs(true, 8), self.KNOWN)
        assert indices(true, found) == [1.0, 1.0, 1.0]

    def test_a_leaf_is_a_leaf(self) -> None:
        true = fabric([24], 8, noisy=0.0)
        found = tiers_of(all_pairs(true, 8), self.KNOWN)
        assert [int(domain.max()) for domain in found.domain] == [0, 0, 0]

    @pytest.mark.slow
    def test_a_tier_that_groups_nothing_keeps_its_number(self) -> None:
        """Leaves that meet in the core alone: the pods hold one leaf each."""
        true = fabric([8, 8, 8], 9, gap_us=3.0, noisy=0.0)
        pairs = all_pairs(true, 9)
        found = tiers_of(pairs, self.KNOWN)
        valid(pairs, found)
        assert found.count == 3
        assert np.array_equal(found.domain[0], found.domain[1])
        assert found.domain[2].max() == 0
        assert indices(true, replace(found, domain=found.domain[1:])) == [1.0, 1.0]
        assert tiers_of(pairs).count == 2

    def test_hosts_that_meet_above_the_leaves(self) -> None:
        """One host a leaf: each round trip is one of the second tier."""
        true = fabric([24], 10, base_us=4.1, noisy=0.0)
        found = tiers_of(all_pairs(true, 10), self.KNOWN)
        assert [int(domain.max()) for domain in found.domain] == [23, 0, 0]


def unmoved(
    edges: Edges, tier: Longs, tiers: int, offset_us: Floats, rounds: int = 0
) -> tuple[Floats, Floats]:
    return offset_us, by_row(tier, edges.rest_us(offset_us), tiers, 0.5)


@pytest.mark.slow
def test_own_parts_that_are_left_in_are_mistaken_for_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests above would notice."""
    true = fabric(even(2, 3, 4), 8, noisy=0.0)
    pairs = all_pairs(true, 8)
    assert indices(true, tiers_of(pairs)) == [1.0, 1.0, 1.0]
    monkeypatch.setattr(offsets, "start", lambda edges, top: np.zeros(edges.hosts))
    monkeypatch.setattr(offsets, "sharpened", lambda edges, offset_us, near_us: offset_us)
    for name in ("refit", "polished"):
        monkeypatch.setattr(offsets, name, unmoved)
    assert min(indices(true, tiers_of.__wrapped__(pairs)), default=0.0) < 0.99


def test_two_ends_of_a_table_are_one_pair() -> None:
    pairs = pairs_of_rows(
        [
            LatencyRow("b", "a", 4.0, 9),
            LatencyRow("a", "b", 3.0),
            LatencyRow("c", "c", 1.0),
            LatencyRow("a", "c", 5.0),
        ]
    )
    assert list(pairs.nodes) == ["a", "b", "c"]
    assert list(zip(pairs.a.tolist(), pairs.b.tolist(), pairs.rtt_us.tolist(), strict=True)) == [
        (0, 1, 3.0),
        (0, 2, 5.0),
    ]
    assert pairs_of_rows([LatencyRow("a", "a", 3.0)]) is NO_PAIRS


def test_a_table_of_all_pairs_is_what_was_measured() -> None:
    true = fabric(even(2, 6), 1, noisy=0.0)
    pairs = all_pairs(true, 1)
    rows = [
        LatencyRow(pairs.nodes[b], pairs.nodes[a], float(rtt_us))
        for a, b, rtt_us in zip(pairs.a.tolist(), pairs.b.tolist(), pairs.rtt_us.tolist(), strict=True)
    ]
    again = pairs_of_rows(rows[::-1])
    assert np.array_equal(again.rtt_us, pairs.rtt_us)
    assert np.array_equal(again.a, pairs.a)
    assert table(true, pairs.a, pairs.b, pairs.rtt_us).nodes == pairs.nodes


@pytest.mark.slow
def test_a_table_that_was_asked_for_is_not_reckoned_with_again() -> None:
    """The planner and each inference ask; nothing that they do with the answer changes it."""
    pairs = all_pairs(opaque(even(3, 8), seed=4, noisy=0.0))
    first = tiers_of(pairs)
    assert tiers_of(pairs) is first
    infer(FabricInputs(pairs=pairs))
    anew = tiers_of.__wrapped__(pairs)
    assert all(map(np.array_equal, first.domain, anew.domain))
    assert np.array_equal(first.offset_us, anew.offset_us)
    assert tiers_of(replace(pairs)) is not first
