"""The whole loop on simulated fabrics that show no wires: plan, measure, infer, until the plan is empty.

The bound: adjusted Rand index of at least 0.99 at every tier, over the hosts that are not noisy, with at most
12 n log2 n probes (a probe = one burst to one peer; both ends of a pair are two).
"""

import numpy as np
import pytest
from hyperscout_collector.latency import offsets
from hyperscout_collector.latency.edges import Edges, by_row
from hyperscout_collector.latency.pairs import Floats, Longs
from hyperscout_sim.opaque import OpaqueFabric, even, opaque
from support.opaque_loop import Learnt, budget, indices, learn

THOUSAND = {
    "4 pods x 8 leaves x 32": even(4, 8, 32),
    "8 pods x 8 leaves x 16": even(8, 8, 16),
    "2 pods x 16 leaves x 32": even(2, 16, 32),
    "uneven": [[90, 60, 40, 10], [32] * 8, [16] * 12, [50] * 3, [8] * 6 + [64], [24, 36]],
    "seven of eight hosts in one pod": [[40] * 22, [48, 48, 48]],
}
HUNDREDS = {
    "2 x 5 x 10": even(2, 5, 10),
    "3 x 4 x 12": even(3, 4, 12),
    "6 leaves of 20": even(6, 20),
    "uneven": [[20, 9, 31], [16] * 4, [4] * 6, [25]],
}


def held(fabric: OpaqueFabric, learnt: Learnt) -> None:
    assert learnt.probes <= budget(len(fabric))
    found = indices(fabric, learnt.found)
    assert len(found) == len(fabric.domain)
    assert min(found) >= 0.99


@pytest.mark.parametrize("name", THOUSAND)
def test_a_thousand_hosts_in_three_tiers(name: str) -> None:
    seed = list(THOUSAND).index(name)
    fabric = opaque(THOUSAND[name], seed=seed)
    learnt = learn(fabric, seed=seed, limit=8 * len(fabric))
    held(fabric, learnt)
    assert learnt.done


@pytest.mark.parametrize("name", HUNDREDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_hundreds(name: str, seed: int) -> None:
    fabric = opaque(HUNDREDS[name], seed=seed)
    held(fabric, learn(fabric, seed=seed, limit=4 * len(fabric)))


def test_a_flat_fabric_stays_flat() -> None:
    fabric = opaque([300], seed=3)
    learnt = learn(fabric, seed=3, limit=4 * len(fabric))
    assert learnt.found.count == 1
    assert learnt.done


@pytest.mark.parametrize("seed", [1, 2])
def test_pairs_that_never_answer(seed: int) -> None:
    fabric = opaque(even(3, 4, 12), seed=seed)
    learnt = learn(fabric, seed=seed, failing=0.05, limit=4 * len(fabric))
    held(fabric, learnt)


def test_a_trickle() -> None:
    """A few pairs at a time, as a small budget gives them."""
    fabric = opaque(even(2, 3, 10), seed=4)
    held(fabric, learn(fabric, seed=4, limit=40))


def test_the_same_again() -> None:
    fabric = opaque(even(2, 3, 8), seed=5)
    first, second = (learn(fabric, seed=5) for _ in range(2))
    assert first.probes == second.probes
    assert [d.tobytes() for d in first.found.domain] == [d.tobytes() for d in second.found.domain]


def unmoved(
    edges: Edges, tier: Longs, tiers: int, offset_us: Floats, rounds: int = 0
) -> tuple[Floats, Floats]:
    return offset_us, by_row(tier, edges.rest_us(offset_us), tiers, 0.5)


def test_own_parts_that_are_left_in_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = opaque(HUNDREDS["3 x 4 x 12"], seed=1)
    monkeypatch.setattr(offsets, "start", lambda edges, top: np.zeros(edges.hosts))
    monkeypatch.setattr(offsets, "sharpened", lambda edges, offset_us, near_us: offset_us)
    for name in ("refit", "polished"):
        monkeypatch.setattr(offsets, name, unmoved)
    found = indices(fabric, learn(fabric, seed=1, limit=4 * len(fabric)).found)
    assert min(found, default=0.0) < 0.99
