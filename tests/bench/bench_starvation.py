"""A gang of 1,000 against an endless stream of gangs of 8 on 2,000 nodes, in simulated time.

How long it waits, as a multiple of the longest remaining time of the gangs that run when it arrives, and what
share of the nodes is in use meanwhile, beside a run in which no domain is kept. Same seeds, same figures.
"""

import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.quality.starvation import Case, Outcome, simulate
from support.bench_rows import row
from support.placer_clusters import cluster

SEEDS = range(3)
DRAIN_AFTER_S = 600.0  # the default of the setting
HOUR_S = 3600.0
NODES = 2000
# How long small gangs run. The last one has a mean of half an hour and a long tail.
RUNS: dict[str, Callable[[random.Random], float]] = {
    "5 min to 2 h": lambda rng: rng.uniform(300, 2 * HOUR_S),
    "30 to 90 min": lambda rng: rng.uniform(0.5, 1.5) * HOUR_S,
    "30 min, up to 4 h": lambda rng: min(rng.lognormvariate(6.78, 1.2), 4 * HOUR_S),
}


def main() -> None:
    topology = cluster(NODES, leaf_nodes=20, pod_leaves=50)
    for name, runs_s in RUNS.items():
        for tier, inside in ((None, "anywhere"), (2, "in one pod of 1,000")):
            case = Case(topology, 1000, 8, runs_s, before_s=2 * HOUR_S, after_s=6 * HOUR_S, tier=tier)
            compare(f"gang of 1,000 {inside}, beside gangs of 8 that run {name}", case)


def compare(what: str, case: Case) -> None:
    """With a domain that is kept, and without."""
    kept = [simulate(case, DRAIN_AFTER_S, seed) for seed in SEEDS]
    starved = [simulate(case, 0, seed) for seed in SEEDS]
    assert not any(found.promised_twice for found in (*kept, *starved))
    waits = [found.waited_s for found in kept if found.waited_s is not None]
    assert len(waits) == len(kept), "a gang did not start"
    worst = max(found.waited_s / found.longest_s for found in kept if found.waited_s is not None)
    never = sum(found.waited_s is None for found in starved)
    row(
        f"start of a {what}",
        f"{statistics.median(waits) / 60:.0f} min",
        f"{_longest_min(kept):.0f} min remain; {never} of {len(starved)} never start without",
        f"{worst:.2f} x at most",
        "2 x",
    )
    busy, full = (statistics.fmean(found.busy for found in runs) for runs in (kept, starved))
    lost = (full - busy) * case.after_s / HOUR_S * NODES
    row(f"nodes in use, 6 h: {what}", f"{busy:.1%}", f"{full:.1%} without", f"{lost:,.0f} node hours lost")


def _longest_min(found: list[Outcome]) -> float:
    return statistics.median(one.longest_s for one in found) / 60


if __name__ == "__main__":
    main()
