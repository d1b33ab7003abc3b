"""Simulated measurements of a hierarchy that is known: bursts with noise, and faults planted among them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
from hyperscout_formats.facts.facts import LatencyResult, LatencySample
from hyperscout_inference.grouping.grouping import Grouping
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.latency.bursts import PairHistory, columns_of
from hyperscout_inference.latency.pairs import PairTable
from hyperscout_inference.measured.measured import Measurements, measure
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.opaque import Jitter, OpaqueFabric, even, opaque

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
TIERS = ("leaf", "pod", "core")
AT_NS = 1_790_000_000_000_000_000


def layers_of(fabric: OpaqueFabric) -> list[Layer]:
    """The true hierarchy, as inference would hand it on."""
    found: list[Layer] = []
    for name, domain in zip(TIERS, fabric.domain, strict=False):
        count = int(domain.max()) + 1
        child = np.zeros(found[-1].count if found else 0, np.int64)
        if found:
            child[found[-1].domain] = domain
        found.append(Layer(name, domain, [()] * count, child, Grouping.empty(len(domain))))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Pairs of hosts that measure each other on one of some rails. `more_us`: (pairs,) planted on top of what
    the fabric gives; `jitter_us`: (pairs,) of the last three bursts, before them it was 0.2."""

    fabric: OpaqueFabric
    a: Longs
    b: Longs
    rail: Longs
    rails: int
    more_us: Floats
    jitter_us: Floats
    random: np.random.Generator

    @property
    def names(self) -> Sequence[str]:
        return self.fabric.names

    def touching(self, host: int) -> npt.NDArray[np.bool_]:
        return (self.a == host) | (self.b == host)

    def plus(self, chosen: npt.NDArray[np.bool_] | Longs, us: float, *, jitter_us: float = 0.0) -> "World":
        more, jitter = self.more_us.copy(), self.jitter_us.copy()
        more[chosen] += us
        jitter[chosen] += jitter_us
        return replace(self, more_us=more, jitter_us=jitter)

    def table(self, bursts: int = 1) -> PairTable:
        """What both ends agree upon after so many bursts."""
        ends: list[list[Floats]] = [[], []]
        for _ in range(bursts):
            for end, us in zip(ends, self.fabric.measured_us(self.a, self.b, self.random), strict=True):
                end.append(us + self.more_us)
        jitter = [
            (0.2 if burst < bursts - 3 else self.jitter_us) * self.random.uniform(0.7, 1.4, len(self.a))
            for burst in range(bursts)
        ]
        columns = []
        for end in ends:
            rows = zip(np.stack(end).T.tolist(), np.stack(jitter).T.tolist(), strict=True)
            columns.append(columns_of([_result(*row) for row in rows]))
        x, y = ends[0][-1], ends[1][-1]
        kept = np.abs(x - y) <= np.maximum(1.0, 0.3 * np.minimum(x, y))
        both = np.maximum(columns[0], columns[1])[:, kept]
        count = int(kept.sum())
        return PairTable(
            self.fabric.names,
            tuple(f"eth{i}" for i in range(self.rails)),
            self.a[kept].astype(np.int32),
            self.b[kept].astype(np.int32),
            self.rail[kept].astype(np.int32),
            np.maximum(x, y)[kept],
            jitter[-1][kept],
            np.zeros(count),
            np.full(count, 16, np.int32),
            np.full(count, AT_NS),
            int((~kept).sum()),
            PairHistory(*both),
        )

    def measured(self, bursts: int = 1) -> Measurements:
        return measure(self.names, layers_of(self.fabric), self.table(bursts), {})


def _result(us: Sequence[float], jitter_us: Sequence[float]) -> LatencyResult:
    history = tuple(LatencySample(0, *burst) for burst in zip(us[:-1][-8:], jitter_us[:-1][-8:], strict=True))
    return LatencyResult("", "", "udp", 0, 16, 16, us[-1], us[-1], jitter_us[-1], history=history)


def world(
    seed: int, *counts: int, per_host: int = 10, rails: int = 1, noisy: float = 0.0, own_us: float = 2.0
) -> World:
    """An even tree; of each host's pairs a third lies in each of its domains."""
    random = np.random.default_rng(seed)
    fabric = opaque(even(*(counts or (2, 4, 12))), seed=seed, noisy=noisy, own_us=own_us)
    rows = []
    for host in range(len(fabric)):
        for domain in fabric.domain:
            mates = np.flatnonzero(domain == domain[host])
            mates = mates[mates != host]
            chosen = random.choice(
                mates, min(len(mates), max(1, per_host // 2 // len(fabric.domain) + 1)), False
            )
            rows += [(min(host, m), max(host, m)) for m in chosen.tolist()]
    pairs = np.array(sorted(set(rows)), np.int64)
    a, b = (np.repeat(pairs[:, i], rails) for i in (0, 1))
    rail = np.tile(np.arange(rails), len(pairs))
    return World(fabric, a, b, rail, rails, np.zeros(len(a)), np.full(len(a), 0.2), random)


def pinged(fabric: SimFabric, seed: int = 1, rows: int = 2000) -> World:
    """Every host measures every other one (or some of them), as far away as the wires say."""
    random = np.random.default_rng(seed)
    names = sorted({host for domain in fabric.truth.tiers[0] for host in domain})
    at = {name: i for i, name in enumerate(names)}
    columns = []
    for tier in fabric.truth.tiers:
        column = np.full(len(names), -1)
        for number, domain in enumerate(sorted(map(sorted, tier))):
            column[[at[host] for host in domain]] = number
        columns.append(column)
    steps = [2.6 + 1.5 * tier for tier in range(len(columns))]
    own, quiet = random.uniform(0, 2, len(names)), np.zeros(len(names), np.bool_)
    opaque = OpaqueFabric(names, columns, steps, own, quiet, Jitter(), 0.0)
    pairs = np.array([*combinations(range(len(names)), 2)], np.int64).reshape(-1, 2)
    if len(pairs) > rows:
        pairs = pairs[np.sort(random.choice(len(pairs), rows, replace=False))]
    a, b = pairs.T
    nothing = np.zeros(len(a))
    return World(opaque, a, b, np.zeros(len(a), np.int64), 1, nothing, nothing + 0.2, random)


def share_of(seeds: range, holds: Callable[[int], bool]) -> float:
    """In which share of the seeds it holds."""
    return sum(map(holds, seeds)) / len(seeds)
