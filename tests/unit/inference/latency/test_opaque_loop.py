"""The whole loop on simulated fabrics that show no wires: plan, measure, infer, until the plan is empty.

The bound: adjusted Rand index of at least 0.99 at every tier, over the hosts that are not noisy, with at most
12 n log2 n probes (a probe = one burst to one peer; both ends of a pair are two).
"""

from dataclasses import replace

import numpy as np
import pytest
from hyperscout_inference.latency import offsets
from hyperscout_inference.latency.edges import Edges, by_row
from hyperscout_inference.latency.pairs import Floats, Longs
from hyperscout_inference.latency.planner import plan
from hyperscout_inference.latency.tiers import tiers_of
from hyperscout_sim.fabric.opaque import OpaqueFabric, even, opaque
from support.opaque_loop import S_NS, Learnt, budget, domains_for, indices, learn, table, worse

THOUSAND = {"8 pods x 8 leaves x 16": even(8, 8, 16)}  # other shapes and sizes: the benchmark
HUNDREDS = {
    "3 x 4 x 12": even(3, 4, 12),
    "6 leaves of 20": even(6, 20),
    "uneven": [[20, 9, 31], [16] * 4, [4] * 6, [25]],
    "four of five hosts in one pod": [[20] * 8, [18, 22]],
}


def held(fabric: OpaqueFabric, learnt: Learnt) -> None:
    assert learnt.probes <= budget(len(fabric))
    found = indices(fabric, learnt.found)
    assert len(found) == len(fabric.domain)
    assert min(found) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("name", THOUSAND)
def test_a_thousand_hosts_in_three_tiers(name: str) -> None:
    seed = list(THOUSAND).index(name)
    fabric = opaque(THOUSAND[name], seed=seed)
    learnt = learn(fabric, seed=seed, limit=12 * len(fabric))
    held(fabric, learnt)
    assert learnt.done


@pytest.mark.slow
@pytest.mark.parametrize("name", HUNDREDS)
def test_hundreds(name: str) -> None:
    seed = 1 + list(HUNDREDS).index(name) % 2
    fabric = opaque(HUNDREDS[name], seed=seed)
    held(fabric, learn(fabric, seed=seed, limit=4 * len(fabric)))


@pytest.mark.slow
def test_a_flat_fabric_stays_flat() -> None:
    fabric = opaque([150], seed=3)
    learnt = learn(fabric, seed=3, limit=12 * len(fabric))
    assert learnt.found.count == 1
    assert learnt.done


@pytest.mark.slow
def test_pairs_that_never_answer() -> None:
    seed = 2
    fabric = opaque(even(3, 4, 12), seed=seed)
    learnt = learn(fabric, seed=seed, failing=0.05, limit=4 * len(fabric))
    held(fabric, learnt)


@pytest.mark.slow
def test_a_trickle() -> None:
    """A few pairs at a time, as a small budget gives them."""
    fabric = opaque(even(2, 3, 10), seed=4)
    held(fabric, learn(fabric, seed=4, limit=100))


@pytest.mark.slow
def test_the_same_again() -> None:
    fabric = opaque(even(2, 3, 8), seed=5)
    first, second = (learn(fabric, seed=5, limit=300) for _ in range(2))
    assert first.probes == second.probes
    assert [d.tobytes() for d in first.found.domain] == [d.tobytes() for d in second.found.domain]


@pytest.mark.slow
def test_a_host_that_moved_is_found_by_verification_alone() -> None:
    """A host is plugged in under another leaf, and no message says so."""
    before = opaque(even(2, 3, 10), seed=6, noisy=0.0)
    learnt = learn(before, seed=6, limit=400)
    domain = [labels.copy() for labels in before.domain]
    mover, there = 0, int(np.flatnonzero(domain[1] != domain[1][0])[0])
    for labels in domain:
        labels[mover] = labels[there]
    now = replace(before, domain=domain)
    held(before, learnt)
    assert min(indices(now, learnt.found)) < 0.99
    random = np.random.default_rng(6)
    number = {name: index for index, name in enumerate(before.names)}
    n = len(number)
    key = learnt.pairs.a.astype(np.int64) * n + learnt.pairs.b
    assert list(learnt.pairs.nodes) == list(before.names)
    rtt_us, at_ns = learnt.pairs.rtt_us, learnt.pairs.at_ns
    pairs, found = learnt.pairs, learnt.found
    for turn in range(2 * len(pairs) // 100):
        now_ns = (turn + 1000) * S_NS
        wishes = plan(
            before.names, pairs, domains_for(list(before.names), found),
            wired=False, now_ns=now_ns, reverify_ns=900 * S_NS, limit=100, seed=turn,
        )  # fmt: skip
        a, b = np.array([[number[wish.a], number[wish.b]] for wish in wishes]).T
        value = worse(now, a, b, random)
        fine = np.isfinite(value)
        key, index = np.unique(np.concatenate(((a * n + b)[fine], key)), return_index=True)
        rtt_us = np.concatenate((value[fine], rtt_us))[index]
        at_ns = np.concatenate((np.full(int(fine.sum()), now_ns), at_ns))[index]
        pairs = table(before, key // n, key % n, rtt_us, at_ns)
        found = tiers_of(pairs)
        if min(indices(now, found), default=0.0) == 1.0:
            return
    pytest.fail("it was never found")


def unmoved(
    edges: Edges, tier: Longs, tiers: int, offset_us: Floats, rounds: int = 0
) -> tuple[Floats, Floats]:
    return offset_us, by_row(tier, edges.rest_us(offset_us), tiers, 0.5)


@pytest.mark.slow
def test_own_parts_that_are_left_in_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = opaque(HUNDREDS["3 x 4 x 12"], seed=1)
    monkeypatch.setattr(offsets, "start", lambda edges, top: np.zeros(edges.hosts))
    monkeypatch.setattr(offsets, "sharpened", lambda edges, offset_us, near_us: offset_us)
    for name in ("refit", "polished"):
        monkeypatch.setattr(offsets, name, unmoved)
    found = indices(fabric, learn(fabric, seed=1, limit=4 * len(fabric)).found)
    assert min(found, default=0.0) < 0.99
