"""Simulates fabrics that show only round trips, no cables: any shape, with noise.

    rtt = step of the lowest common domain + a constant of each host + noise

The noise of a burst is the minimum of its pings, each log-normal above the true value. Each end measures
independently. A noisy host adds tens of microseconds at random to every measurement that it takes part in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
STEP_US: Final = 1.5  # a router between two network namespaces


@dataclass(frozen=True, slots=True)
class Jitter:
    """Noise of the minimum ping of a burst above the true value: log-normal, `median_us` and `sigma`.

    If `pings` > 1, the two parameters are those of a single ping, and a burst takes the minimum of that many
    pings. The defaults were measured with bursts of 16 between network namespaces on a busy machine.
    """

    median_us: float = 0.3
    sigma: float = 0.8
    pings: int = 1

    def draw(self, random: np.random.Generator, count: int) -> Floats:
        """Return (count,) microseconds."""
        if self.median_us <= 0:
            return np.zeros(count)
        shape = (count, self.pings)
        return np.asarray(np.exp(self.sigma * random.standard_normal(shape).min(axis=1)) * self.median_us)


@dataclass(frozen=True, slots=True, eq=False)
class OpaqueFabric:
    """A fabric of n hosts.

    `domain`: for each tier, innermost first, (n,) the true domain of each host. `step_us`: round trip of each
    tier.
    """

    names: Sequence[str]  # sorted
    domain: Sequence[Longs]
    step_us: Sequence[float]
    own_us: Floats
    noisy: npt.NDArray[np.bool_]
    jitter: Jitter
    noise_us: float  # a noisy host adds up to this

    def __len__(self) -> int:
        return len(self.names)

    def true_us(self, a: Longs, b: Longs) -> Floats:
        """Return (pairs,) round trips in microseconds, without noise."""
        tier = np.full(len(a), len(self.domain) - 1)
        for number in range(len(self.domain) - 2, -1, -1):
            tier[self.domain[number][a] == self.domain[number][b]] = number
        return np.asarray(np.asarray(self.step_us, float)[tier] + self.own_us[a] + self.own_us[b])

    def measured_us(self, a: Longs, b: Longs, random: np.random.Generator) -> tuple[Floats, Floats]:
        """Return (pairs,) round trips in microseconds for each end, from one burst each."""
        true = self.true_us(a, b)
        spoilt = self.noisy[a] | self.noisy[b]
        ends = []
        for _ in range(2):
            extra = np.where(spoilt, random.uniform(0, self.noise_us, len(a)), 0.0)
            ends.append(true + self.jitter.draw(random, len(a)) + extra)
        return ends[0], ends[1]


def opaque(
    sizes: Sequence[int] | Sequence[Sequence[int]] | Sequence[Sequence[Sequence[int]]],
    *,
    seed: int = 0,
    gap_us: float | Sequence[float] = STEP_US,
    base_us: float = 2.6,
    own_us: float = 2.0,
    noisy: float = 0.02,
    noise_us: float = 40.0,
    jitter: Jitter | None = None,
) -> OpaqueFabric:
    """Make a fabric from the sizes of its tier-1 domains, nested like the tiers above. `[n]` is flat.

    `gap_us`: round trip that each tier adds. The constants of hosts are uniform from 0 to `own_us`. `noisy`:
    share of noisy hosts. Names are random and contain no evidence about the topology.
    """
    random = np.random.default_rng(seed)
    depth = _depth(sizes)
    columns: list[list[int]] = [[] for _ in range(depth)]
    _number(sizes, columns, depth - 1, [0] * depth)
    hosts = len(columns[0])
    order = random.permutation(hosts)
    domain = [np.asarray(column, np.int64)[order] for column in columns]
    while len(domain) > 1 and domain[-2].max() == domain[-1].max() == 0:
        domain.pop()  # the two upper tiers are one domain each: drop the upper one
    gaps = [gap_us] * (len(domain) - 1) if isinstance(gap_us, int | float) else list(gap_us)
    steps = (base_us + np.concatenate(([0.0], np.cumsum(gaps)))).tolist()
    names = sorted(f"{value:012x}" for value in random.choice(1 << 46, hosts, replace=False).tolist())
    bad = np.zeros(hosts, bool)
    bad[random.choice(hosts, round(noisy * hosts), replace=False)] = True
    own = random.uniform(0, own_us, hosts) if own_us > 0 else np.zeros(hosts)
    return OpaqueFabric(names, domain, steps, own, bad, jitter or Jitter(), noise_us)


def even(*counts: int) -> list:  # type: ignore[type-arg]
    """Return the sizes of an even tree, from the top: `even(4, 8, 32)` is 4 pods of 8 leaves of 32 hosts."""
    if len(counts) == 1:
        return [counts[0]]
    if len(counts) == 2:
        return [counts[1]] * counts[0]
    return [even(*counts[1:]) for _ in range(counts[0])]


def _depth(sizes: object) -> int:
    return 1 + _depth(sizes[0]) if isinstance(sizes, Sequence) else 1


def _number(sizes: object, columns: list[list[int]], tier: int, used: list[int]) -> None:
    """Append the domain of each host below, for each tier."""
    if isinstance(sizes, Sequence):
        for part in sizes:
            start = len(columns[0])
            _number(part, columns, tier - 1, used)
            columns[tier].extend([used[tier]] * (len(columns[0]) - start))
        used[tier] += 1
    else:
        count = int(sizes)  # type: ignore[call-overload]
        columns[0].extend([used[0]] * count)
        used[0] += 1
