"""Which pairs next: no more than asked for, the telling ones first, no node forgotten, an end to learning."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hyperscout_inference.latency.pairs import NO_PAIRS, PairTable
from hyperscout_inference.latency.planner import VERIFYING, Wish, landmark_count, plan
from hyperscout_sim.fabric.opaque import Jitter, OpaqueFabric, even, opaque
from hypothesis import given
from hypothesis import strategies as st
from support.opaque_loop import S_NS, all_pairs, table

NOW_NS = 10**6 * S_NS
HOUR_NS = 3600 * S_NS


def wishes(
    nodes: list[str],
    pairs: PairTable = NO_PAIRS,
    domains: "list[np.ndarray] | None" = None,  # type: ignore[type-arg]
    *,
    wired: bool = False,
    now_ns: int = NOW_NS,
    reverify_ns: int = HOUR_NS,
    limit: int = 10**6,
    seed: int = 0,
) -> list[Wish]:
    found = plan(
        nodes,
        pairs,
        domains or [],
        wired=wired,
        now_ns=now_ns,
        reverify_ns=reverify_ns,
        limit=limit,
        seed=seed,
    )
    assert len(found) <= limit
    assert len(set(found)) == len(found)
    assert all(wish.a < wish.b and wish.a in nodes and wish.b in nodes for wish in found)
    return found


def measured(fabric: OpaqueFabric, found: list[Wish], at_ns: int = NOW_NS) -> PairTable:
    number = {name: index for index, name in enumerate(fabric.names)}
    a = np.array([number[wish.a] for wish in found])
    b = np.array([number[wish.b] for wish in found])
    return table(fabric, a, b, fabric.true_us(a, b), at_ns)


@pytest.mark.parametrize("nodes", [[], ["a"]])
def test_no_pair_to_measure(nodes: list[str]) -> None:
    assert wishes(nodes) == []


def test_two_measure_each_other() -> None:
    assert wishes(["a", "b"]) == [Wish("a", "b")]


def test_few_measure_all_pairs() -> None:
    nodes = [f"n{i:02}" for i in range(12)]
    assert len(wishes(nodes)) == 66


@pytest.mark.parametrize("limit", [0, 1, 7, 300])
def test_no_more_than_asked_for(limit: int) -> None:
    nodes = [f"n{i:03}" for i in range(100)]
    assert len(wishes(nodes, limit=limit)) == limit


def test_landmarks_come_first_and_among_themselves() -> None:
    nodes = [f"n{i:03}" for i in range(200)]
    marks = landmark_count(200)
    first = wishes(nodes, limit=marks * (marks - 1) // 2)
    seen = Counter(name for wish in first for name in wish)
    assert len(seen) == marks
    assert set(seen.values()) == {marks - 1}
    everything = Counter(name for wish in wishes(nodes) for name in wish)
    assert min(everything.values()) >= marks - 1
    assert len(everything) == 200


def test_landmarks_stay_when_nodes_come() -> None:
    nodes = [f"n{i:03}" for i in range(200)]

    def marks(names: list[str]) -> set[str]:
        seen = Counter(name for wish in wishes(names) for name in wish)
        return {name for name, count in seen.items() if count > 150}

    assert len(marks(nodes) & marks(sorted([*nodes, "m1", "zz"]))) >= len(marks(nodes)) - 1


def test_what_is_known_is_not_asked_again() -> None:
    fabric = opaque([40], seed=1, noisy=0.0, jitter=Jitter(0.0))
    names = list(fabric.names)
    pairs = replace(all_pairs(fabric), at_ns=np.full(len(all_pairs(fabric)), NOW_NS))
    assert wishes(names, pairs, [np.zeros(40, np.int64)]) == []


def test_pairs_of_nodes_that_are_gone_do_not_matter() -> None:
    fabric = opaque([40], seed=1)
    names = list(fabric.names)[:20]
    assert len(wishes(names, measured(fabric, [Wish(*fabric.names[30:32])]))) == 190


def test_a_host_that_is_alone_asks_one_of_each_domain() -> None:
    """All landmarks are known; host 0 is in no leaf: it asks one member of each leaf, a few at a time."""
    fabric = opaque(even(6, 20), seed=2, noisy=0.0)
    names = list(fabric.names)
    base = measured(fabric, wishes(names))
    leaf = fabric.domain[0].copy()
    leaf[0] = 6
    top = np.zeros(120, np.int64)
    asked: Counter[int] = Counter()
    pairs = base
    for turn in range(12):
        new = [w for w in wishes(names, pairs, [leaf, top], seed=turn) if names[0] in w]
        asked.update(int(leaf[names.index(w.b if w.a == names[0] else w.a)]) for w in new)
        number = {name: index for index, name in enumerate(pairs.nodes)}
        known = [
            Wish(pairs.nodes[i], pairs.nodes[j])
            for i, j in zip(pairs.a.tolist(), pairs.b.tolist(), strict=True)
        ]
        assert number
        pairs = measured(fabric, list(dict.fromkeys([*known, *new])))
    reached = {
        int(leaf[names.index(pairs.nodes[j])])
        for i, j in zip(pairs.a.tolist(), pairs.b.tolist(), strict=True)
        if pairs.nodes[i] == names[0]
    }
    assert reached >= set(range(6))


def test_company_for_those_with_little() -> None:
    fabric = opaque(even(2, 30), seed=3, noisy=0.0)
    names = list(fabric.names)
    domains = [fabric.domain[0], np.zeros(60, np.int64)]
    pairs = measured(fabric, wishes(names))
    for turn in range(20):
        new = wishes(names, pairs, domains, seed=turn)
        if not new:
            break
        known = [
            Wish(pairs.nodes[i], pairs.nodes[j])
            for i, j in zip(pairs.a.tolist(), pairs.b.tolist(), strict=True)
        ]
        pairs = measured(fabric, list(dict.fromkeys([*known, *new])))
    else:
        pytest.fail("it never ends")
    inside = fabric.domain[0][pairs.a] == fabric.domain[0][pairs.b]
    own = np.bincount(pairs.a[inside], minlength=60) + np.bincount(pairs.b[inside], minlength=60)
    assert own.min() >= 5


class TestVerification:
    """Of a known hierarchy, for ever."""

    FABRIC = opaque(even(3, 4, 8), seed=4, noisy=0.0)

    def test_a_wired_one(self) -> None:
        names, domain = list(self.FABRIC.names), list(self.FABRIC.domain)
        found = wishes(names, NO_PAIRS, domain, wired=True)
        number = {name: index for index, name in enumerate(names)}
        tiers = Counter(
            next(t for t, d in enumerate(domain) if d[number[wish.a]] == d[number[wish.b]]) for wish in found
        )
        assert len(found) < 4 * len(names)
        assert tiers[0] == 96 * 2
        assert tiers[1] >= 3 * 4
        assert tiers[2] == 3
        own = Counter(
            name for wish in found if domain[0][number[wish.a]] == domain[0][number[wish.b]] for name in wish
        )
        assert set(own.values()) == {4}

    def test_nothing_while_it_is_fresh_and_the_oldest_first_after_that(self) -> None:
        names, domain = list(self.FABRIC.names), list(self.FABRIC.domain)
        everything = wishes(names, NO_PAIRS, domain, wired=True)
        pairs = measured(self.FABRIC, everything)
        assert wishes(names, pairs, domain, wired=True) == []
        at_ns = pairs.at_ns.copy()
        at_ns[[7, 100, 30]] = [3, 1, 2]
        old = replace(pairs, at_ns=at_ns)
        due = wishes(names, old, domain, wired=True)
        assert due == [Wish(pairs.nodes[pairs.a[row]], pairs.nodes[pairs.b[row]]) for row in (100, 30, 7)]
        assert due[:1] == wishes(names, old, domain, wired=True, limit=1)

    def test_a_learnt_one(self) -> None:
        fabric = opaque(even(2, 6), seed=4, noisy=0.0)
        names = list(fabric.names)
        pairs = measured(fabric, wishes(names), at_ns=1)
        due = wishes(names, pairs, list(fabric.domain))
        assert len(due) == len(pairs)
        rings = set(wishes(names, NO_PAIRS, list(fabric.domain), wired=True))
        assert 0 < len(rings) < len(pairs)
        assert rings & set(due[:6])
        assert set(due[:6]) - rings

    @pytest.mark.parametrize("at_ns", [0, 1])
    def test_all_that_was_learnt_from_comes_round(self, at_ns: int) -> None:
        """The oldest first: the landmarks, too, which are no neighbours in any ring."""
        names = list(self.FABRIC.names)
        pairs = measured(self.FABRIC, wishes(names), at_ns=at_ns)
        where = {
            Wish(pairs.nodes[i], pairs.nodes[j]): row
            for row, (i, j) in enumerate(zip(pairs.a.tolist(), pairs.b.tolist(), strict=True))
        }
        looked_at: set[Wish] = set()
        turns = 0
        while len(looked_at) < len(pairs):
            found = [
                wish
                for wish in wishes(names, pairs, list(self.FABRIC.domain), limit=200, seed=turns)
                if wish in where
            ]
            assert found
            looked_at |= set(found)
            now_ns = pairs.at_ns.copy()
            now_ns[[where[wish] for wish in found]] = NOW_NS
            pairs = replace(pairs, at_ns=now_ns)
            turns += 1
        assert turns < len(pairs) / (VERIFYING * 200) + 2  # while so much is left to learn

    def test_nodes_in_no_domain_are_left_alone(self) -> None:
        names = list(self.FABRIC.names)
        domain = [np.where(np.arange(96) < 5, -1, d) for d in self.FABRIC.domain]
        found = wishes(names, NO_PAIRS, domain, wired=True)
        assert not {name for wish in found for name in wish} & set(names[:5])

    def test_pairs_that_never_answer_do_not_stop_it(self) -> None:
        """One pair has been asked for in vain; the oldest of the others has its turn all the same."""
        names, domain = list(self.FABRIC.names), list(self.FABRIC.domain)
        everything = wishes(names, NO_PAIRS, domain, wired=True)
        pairs = measured(self.FABRIC, everything[40:], at_ns=1)
        found = wishes(names, pairs, domain, wired=True, limit=10)
        assert 0 < len(set(found) & set(everything[:40])) < 10


def test_the_same_again() -> None:
    fabric = opaque(even(2, 3, 10), seed=5)
    names = list(fabric.names)
    pairs = measured(fabric, wishes(names))
    first = wishes(names, pairs, list(fabric.domain), seed=3)
    assert first == wishes(names, pairs, list(fabric.domain), seed=3)
    order = np.random.default_rng(0).permutation(len(pairs))
    columns = ("a", "b", "rail", "rtt_us", "jitter_us", "bandwidth_gbps", "samples", "at_ns")
    shuffled = replace(pairs, **{name: getattr(pairs, name)[order] for name in columns})
    assert first == wishes(names, shuffled, list(fabric.domain), seed=3)


@given(data=st.data())
def test_anything_known_gives_a_plan(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 60))
    names = [f"n{i:02}" for i in range(n)]
    tiers = data.draw(st.integers(0, 3))
    domains = [
        np.array(data.draw(st.lists(st.integers(-1, 8), min_size=n, max_size=n))) for _ in range(tiers)
    ]
    rows = data.draw(st.integers(0, 80))
    ends = st.lists(st.integers(0, n - 1), min_size=rows, max_size=rows)
    zeros = np.zeros(rows)
    pairs = PairTable(
        sorted([*names[: n // 2], *(f"o{i}" for i in range(n - n // 2))]),
        ("r",),
        np.array(data.draw(ends), np.int32),
        np.array(data.draw(ends), np.int32),
        zeros.astype(np.int32),
        np.array(data.draw(st.lists(st.floats(0.1, 50), min_size=rows, max_size=rows)), np.float64),
        zeros,
        zeros,
        zeros.astype(np.int32),
        np.array(data.draw(st.lists(st.integers(0, NOW_NS), min_size=rows, max_size=rows)), np.int64),
    )
    wishes(
        names, pairs, domains, wired=data.draw(st.booleans()), limit=data.draw(st.integers(0, 500)), seed=rows
    )
