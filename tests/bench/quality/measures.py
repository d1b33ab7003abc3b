"""What a run of the simulation comes to, in figures."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench.quality.simulate import Result, Start
from hyperscout_placer.cluster.allreduce import predict
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.speeds import TierSpeed

# The published fabric of a cluster that trained Llama 3 (Grattafiori et al., 2024): 400 Gbit/s a GPU, not
# blocking within a pod, 1:7 above it. NVLink: 450 GB/s a direction. Latencies: by order of magnitude.
SPEEDS = (
    TierSpeed(1.0, 3600.0),
    TierSpeed(3.0, 400.0),
    TierSpeed(5.0, 400.0),
    TierSpeed(8.0, 400.0 / 7),
    TierSpeed(20.0, 10.0),
)
MESSAGE_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Figures:
    """Of gangs of two nodes and more: `top`, `leaves`, `pods` (means), `above` (share that lies above the
    lowest tier which could hold it), `ring_ms` (mean, of one all-reduce). Of all jobs: `wait_s`, `wait95_s`,
    `waiting` (never placed), `took_us`, `took99_us`. Of the cluster, whenever a gang came: `scattered` (share
    of all GPUs that are free in partly used leaves), `leaf_gang`, `pod_gang` (GPUs of the largest that
    fits)."""

    placer: str
    gangs: int
    top: float
    leaves: float
    pods: float
    above: float
    ring_ms: float
    wait_s: float
    wait95_s: float
    gang_wait_s: float
    waiting: int
    busy: float
    scattered: float
    leaf_gang: float
    pod_gang: float
    took_us: float
    took99_us: float


def figures(result: Result, forest: Forest, ends_s: float) -> Figures:
    gangs = [start for start in result.starts if start.job.workers > 1]
    waits = [start.at_s - start.job.arrives_s for start in result.starts]
    # A gang that has not been placed has waited so far.
    waits += [ends_s - job.arrives_s for job in result.waiting]
    took = [start.took_s * 1e6 for start in result.starts]
    gpus = len(forest.nodes) * 8
    return Figures(
        placer=result.placer,
        gangs=len(gangs),
        top=_mean([start.cost.top for start in gangs]),
        leaves=_mean([_used(start, 1) for start in gangs]),
        pods=_mean([_used(start, 2) for start in gangs]),
        above=_mean([start.cost.top > start.lowest for start in gangs]),
        ring_ms=_mean([ring_s(forest, start) * 1e3 for start in gangs]),
        wait_s=_mean(waits),
        wait95_s=quantile(waits, 0.95),
        gang_wait_s=_mean([start.at_s - start.job.arrives_s for start in gangs]),
        waiting=len(result.waiting),
        busy=result.busy,
        scattered=_mean([look.in_used_leaves / gpus for look in result.looks]),
        leaf_gang=_mean([look.largest[0] for look in result.looks]),
        pod_gang=_mean([look.largest[1] for look in result.looks]),
        took_us=_mean(took),
        took99_us=quantile(took, 0.99),
    )


def together(rows: Sequence[Figures]) -> Figures:
    """Means over several traces; gangs, and jobs that were never placed, are added up."""
    values = [asdict(row) for row in rows]
    added = {"gangs", "waiting"}
    found = {
        name: sum(value[name] for value in values) / (1 if name in added else len(rows))
        for name in values[0]
        if name != "placer"
    }
    return Figures(placer=rows[0].placer, **found | {name: int(found[name]) for name in added})


def ring_s(forest: Forest, start: Start) -> float:
    """Of one all-reduce of MESSAGE_BYTES over the gang, by the placer's own model."""
    nodes = [forest.nodes[i] for i in start.nodes]
    return predict(forest, SPEEDS, nodes, MESSAGE_BYTES).ring_s


def worse(result: Result, other: str) -> tuple[float, float]:
    """Share of this run's decisions where the other would have paid more on the same state: about gangs, and
    about jobs of one node or less."""
    pairs = result.beside[other]
    gangs = [theirs > mine for mine, theirs in pairs if mine.nodes > 1]
    return _mean(gangs), _mean([theirs > mine for mine, theirs in pairs if mine.nodes == 1])


def _used(start: Start, tier: int) -> int:
    """Domains of the tier that hold a rank."""
    return 1 if start.cost.top <= tier else start.cost.domains[start.cost.top - 1 - tier]


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
