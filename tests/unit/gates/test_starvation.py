"""A large gang against an endless stream of small ones starts in time, by simulated time."""

import random

import pytest
from bench.quality.starvation import Case, simulate
from support.examples import slow_after
from support.placer_clusters import cluster

# 96 nodes in two pods; a gang of 48 needs one of them. Small gangs run for 5 minutes to 2 hours.
CLUSTER = cluster(96, leaf_nodes=8, pod_leaves=6)


def runs_s(rng: random.Random) -> float:
    return rng.uniform(300, 7200)


CASES = [(8, None, 0), (8, 2, 0), (8, None, 1), (8, 2, 1), (3, None, 0), (3, 2, 0), (1, 2, 0)]


@pytest.mark.parametrize("case_", slow_after(2, CASES))
def test_a_large_gang_starts_within_twice_the_longest_remaining_time(
    case_: tuple[int, int | None, int],
) -> None:
    """Anywhere, and in one pod. The latter waits for the last gang that runs there."""
    small, tier, seed = case_
    case = Case(CLUSTER, 48, small, runs_s, before_s=5000, after_s=15_000, tier=tier)
    kept = simulate(case, 600, seed)
    assert kept.waited_s is not None
    assert kept.waited_s <= 2 * kept.longest_s
    assert kept.promised_twice == 0
    starved = simulate(case, 0, seed)
    assert (starved.waited_s, starved.promised_twice) == (None, 0)
    assert kept.busy <= starved.busy, "what is kept is lost for the time"


def test_gangs_of_a_higher_priority_are_not_held_up() -> None:
    case = Case(CLUSTER, 48, 8, runs_s, before_s=5000, after_s=5000, priority=1)
    found, alone = (simulate(case, after_s, 0) for after_s in (600, 0))
    assert found.waited_s is None
    assert (found.busy, found.small) == (alone.busy, alone.small)
