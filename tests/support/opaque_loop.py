"""A collector's loop over a simulated opaque fabric: plan, measure, infer, until the plan is empty."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout_inference.latency.pairs import NO_PAIRS, NOISE_SHARE, NOISE_US, PairTable
from hyperscout_inference.latency.planner import plan
from hyperscout_inference.latency.tiers import LatencyTiers, tiers_of
from hyperscout_sim.fabric.opaque import OpaqueFabric

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
S_NS = 10**9


def table(fabric: OpaqueFabric, a: Longs, b: Longs, rtt_us: Floats, at_ns: int | Longs = 0) -> PairTable:
    """What was measured, as `pairs_of` would give it. Hosts without a pair are left out."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    seen, ends = np.unique(np.concatenate((low, high)), return_inverse=True)
    low, high = np.split(ends, 2)
    order = np.lexsort((high, low))
    count, zeros = len(a), np.zeros(len(a))
    return PairTable(
        [fabric.names[i] for i in seen.tolist()],
        ("eth0",),
        low[order].astype(np.int32),
        high[order].astype(np.int32),
        np.zeros(count, np.int32),
        rtt_us[order],
        zeros,
        zeros,
        np.full(count, 16, np.int32),
        np.broadcast_to(np.asarray(at_ns, np.int64), count)[order],
    )


def all_pairs(fabric: OpaqueFabric, seed: int = 0) -> PairTable:
    """Each host with each other host."""
    a, b = np.triu_indices(len(fabric), 1)
    rtt_us = worse(fabric, a, b, np.random.default_rng(seed))
    agreed = np.isfinite(rtt_us)
    return table(fabric, a[agreed], b[agreed], rtt_us[agreed])


def worse(fabric: OpaqueFabric, a: Longs, b: Longs, random: np.random.Generator) -> Floats:
    """What counts of two ends: the one that saw the pair farther away; NaN where they disagree."""
    x, y = fabric.measured_us(a, b, random)
    low, high = np.minimum(x, y), np.maximum(x, y)
    return np.where(high - low <= np.maximum(NOISE_US, NOISE_SHARE * low), high, np.nan)


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """`probes`: bursts that were tried. `plans`: how often a plan was asked for."""

    found: LatencyTiers
    pairs: PairTable
    probes: int
    plans: int
    done: bool


def domains_for(names: "list[str]", found: LatencyTiers) -> list[Longs]:
    """The domains found, for those nodes; -1 = not seen yet."""
    number = {name: index for index, name in enumerate(found.hosts)}
    to = np.array([number.get(name, -1) for name in names], np.int64)
    return [
        np.where(to >= 0, domain[to], -1) if len(domain) else np.full(len(names), -1)
        for domain in found.domain
    ]


def learn(
    fabric: OpaqueFabric,
    *,
    seed: int = 0,
    failing: float = 0.0,
    limit: int | None = None,
    most_probes: float | None = None,
    least: int = 0,
) -> Learnt:
    """Until no more than `least` pairs are planned, or the probes are spent. `failing`: share of pairs that
    never answer."""
    random = np.random.default_rng(seed)
    names = list(fabric.names)
    n = len(names)
    number = {name: index for index, name in enumerate(names)}
    most = most_probes if most_probes is not None else budget(n)
    limit = limit or 2 * n
    key, rtt_us = np.zeros(0, np.int64), np.zeros(0)
    pairs, found = NO_PAIRS, tiers_of(NO_PAIRS)
    probes = plans = 0
    while True:
        room = min(limit, int(most - probes) // 2)
        wishes = plan(
            names, pairs, domains_for(names, found),
            wired=False, now_ns=S_NS, reverify_ns=10**6 * S_NS, limit=room, seed=seed * 100_003 + plans,
        )  # fmt: skip
        plans += 1
        if len(wishes) <= least:
            return Learnt(found, pairs, probes, plans, room > 0)
        probes += 2 * len(wishes)
        a = np.array([number[wish.a] for wish in wishes])
        b = np.array([number[wish.b] for wish in wishes])
        broken = ((a * 7919 + b * 104_729 + seed) % 1000) < 1000 * failing
        a, b = a[~broken], b[~broken]
        value = worse(fabric, a, b, random)
        a, b, value = a[np.isfinite(value)], b[np.isfinite(value)], value[np.isfinite(value)]
        # The newest value of a pair counts.
        key, index = np.unique(np.concatenate((a * n + b, key)), return_index=True)
        rtt_us = np.concatenate((value, rtt_us))[index]
        pairs = table(fabric, key // n, key % n, rtt_us, S_NS)
        found = tiers_of(pairs)


def budget(hosts: int) -> float:
    """12 n log2 n."""
    return 12 * hosts * float(np.log2(max(2, hosts)))


def rand_index(x: Longs, y: Longs) -> float:
    """Adjusted for chance (Hubert and Arabie, 1985): 1 = the same partition."""
    _, x = np.unique(x, return_inverse=True)
    _, y = np.unique(y, return_inverse=True)
    both = np.unique(x * (int(y.max()) + 1) + y, return_counts=True)[1].astype(float)

    def pairs(sizes: Floats) -> float:
        return float((sizes * (sizes - 1) / 2).sum())

    together = pairs(both)
    in_x, in_y = pairs(np.bincount(x).astype(float)), pairs(np.bincount(y).astype(float))
    chance = in_x * in_y / max(1.0, len(x) * (len(x) - 1) / 2)
    most = (in_x + in_y) / 2
    return 1.0 if most == chance else (together - chance) / (most - chance)


def indices(fabric: OpaqueFabric, found: LatencyTiers) -> list[float]:
    """For each true tier, the adjusted Rand index over the hosts that are not noisy; empty when the number
    of tiers is wrong. A host that was not placed counts as one by itself."""
    if found.count != len(fabric.domain):
        return []
    number = {name: index for index, name in enumerate(found.hosts)}
    to = np.array([number.get(name, -1) for name in fabric.names], np.int64)
    alone = -2 - np.arange(len(fabric))
    result = []
    for true, domain in zip(fabric.domain, found.domain, strict=True):
        label = np.where(to >= 0, domain[to], -1)
        label = np.where(label < 0, alone, label)
        result.append(rand_index(true[~fabric.noisy], label[~fabric.noisy]))
    return result
