"""Jobs as LLM clusters get them: seeded, from published figures, and nothing else.

`SEREN` and `KALOS` are the two clusters of "Characterization of Large Language Model Development in the
Datacenter" (Hu et al., NSDI 2024). Its trace summary and its figure of jobs and GPU time by number of GPUs
give, for each size, a share of the jobs and of the GPU time, hence a mean run time. Run times are log-normal
about it, so wide that the median of all jobs is the published one (122 s, 124 s), and end at the longest
published one.
"""

import math
from dataclasses import dataclass
from random import Random

GPUS_PER_NODE = 8
LONGEST_S = 1_209_604.0


@dataclass(frozen=True, slots=True)
class Mix:
    """`sizes`: (GPUs, share of the jobs in %, mean run time in s). `sigma`: of the logarithm of run times."""

    name: str
    sizes: tuple[tuple[int, float, float], ...]
    sigma: float


SEREN = Mix(
    "Seren",
    (
        (1, 54.04, 809),
        (2, 11.39, 630),
        (4, 2.52, 1847),
        (8, 28.80, 1344),
        (16, 1.11, 2240),
        (32, 0.96, 6304),
        (64, 0.50, 8632),
        (128, 0.24, 15159),
        (256, 0.18, 10164),
        (512, 0.13, 6560),
        (1024, 0.14, 6959),
    ),
    2.05,
)
# Of jobs below eight GPUs only the share of jobs can be read from the figure; run times: what the mean of all
# jobs leaves to them.
KALOS = Mix(
    "Kalos",
    (
        (1, 86.28, 400),
        (2, 2.07, 400),
        (8, 5.56, 3760),
        (16, 0.34, 400),
        (32, 0.39, 28518),
        (64, 0.65, 8330),
        (128, 0.38, 2711),
        (256, 1.22, 18196),
        (512, 2.04, 10047),
        (1024, 1.06, 8851),
    ),
    1.7,
)


@dataclass(frozen=True, slots=True)
class Job:
    """`gpus` of whole nodes where more than one node is taken. `first`: it was running when the trace begins,
    and counts in no average."""

    number: int
    arrives_s: float
    runs_s: float
    gpus: int
    first: bool

    @property
    def workers(self) -> int:
        return max(1, self.gpus // GPUS_PER_NODE)

    @property
    def need(self) -> int:
        """GPUs of one worker."""
        return min(self.gpus, GPUS_PER_NODE)


@dataclass(frozen=True, slots=True)
class Trace:
    """`jobs` by arrival; `ends_s`: when the last has come."""

    jobs: tuple[Job, ...]
    ends_s: float


def trace(
    mix: Mix, count: int, capacity_gpus: int, load: float, seed: int, stretch: int = 1, burst: int = 8
) -> Trace:
    """`count` jobs whose GPU time, spread over the trace, is `load` of the cluster's; before them, at time 0,
    as much as is running in such a cluster at any time (long jobs are met more often than they come).

    `stretch` multiplies the sizes over one node. Jobs of one node or less come in bursts of `burst` on
    average (the evaluations of one checkpoint come together), larger ones by themselves; both at
    random times.
    """
    rng = Random(seed)
    running: list[tuple[float, int]] = []
    taken = 0
    while taken < 0.98 * load * capacity_gpus:
        runs_s, gpus = _draw(rng, mix, stretch, by_time=True)
        if taken + gpus <= load * capacity_gpus:
            running.append((max(1.0, runs_s * rng.random()), gpus))
            taken += gpus
    coming = [_draw(rng, mix, stretch, by_time=False) for _ in range(count)]
    ends_s = sum(runs_s * gpus for runs_s, gpus in coming) / (load * capacity_gpus)
    at_s, together = 0.0, 0
    arrivals = []
    for _, gpus in coming:
        if gpus > GPUS_PER_NODE or together == 0:
            at_s = rng.uniform(0, ends_s)
        if gpus <= GPUS_PER_NODE:
            together = together - 1 if together else int(rng.expovariate(1 / burst))
        arrivals.append(at_s)
    rows = [(0.0, runs_s, gpus, True) for runs_s, gpus in running]
    rows += sorted((at, runs, gpus, False) for at, (runs, gpus) in zip(arrivals, coming, strict=True))
    return Trace(tuple(Job(i, *row) for i, row in enumerate(rows)), ends_s)


def _draw(rng: Random, mix: Mix, stretch: int, *, by_time: bool) -> tuple[float, int]:
    """Run time in s, and GPUs. `by_time`: as a look at a moment meets them, by how long they run."""
    weights = [share * (mean_s if by_time else 1.0) for _, share, mean_s in mix.sizes]
    gpus, _, mean_s = rng.choices(mix.sizes, weights)[0]
    middle = math.log(mean_s) + (0.5 if by_time else -0.5) * mix.sigma**2
    runs_s = LONGEST_S + 1
    while runs_s > LONGEST_S:
        runs_s = math.exp(rng.gauss(middle, mix.sigma))
    return max(1.0, runs_s), gpus * stretch if gpus > GPUS_PER_NODE else gpus
