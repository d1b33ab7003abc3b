"""Infer domains and tiers from round trips alone, for a fabric that reports nothing else.

    rtt(i, j) = step(lowest common tier of i and j) + own(i) + own(j) + noise,     noise >= 0

Own parts are fitted and removed, and what is left is cut at its gaps. Pairs vote hosts into domains, and
domains into larger ones. That determines the tier of each pair, and with it a better fit of the own parts.
Two or three rounds are enough. A tier stays only if its pairs are clearly faster than those of the next tier.

Noise may grow with the distance: there are more hops, each on a busy machine, and far pairs scatter by more
than near tiers differ. So the same is tried with ratios instead of differences. The cheaper result counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
from hyperscout_topology.connected_parts import connected_parts

from hyperscout_inference.latency import levels, offsets
from hyperscout_inference.latency.domains import domains_of, tier_of
from hyperscout_inference.latency.edges import Edges, Flags, by_row, edges_of
from hyperscout_inference.latency.pairs import Floats, Longs, PairTable
from hyperscout_inference.latency.rehome import rehomed
from hyperscout_inference.latency.round_trip_fit import (
    Fit,
    cost_of,
    explained,
    few_of,
    pruned,
    scattered,
)

ENOUGH: Final = 3  # pairs that place a host
FINE: Final = 0.3  # smoothing of the histogram, in widths of a hill
COARSE: Final = 0.6
NEAREST: Final = (0.15, 0.4)  # of all pairs
FEW_HOSTS: Final = 64  # up to this many hosts have too few pairs to show gaps in a histogram
ALIKE: Final = 0.97  # share of all hosts with the same company, for two sets of domains to be the same
SAMPLE: Final = 128  # hosts on which several explanations are tried


@dataclass(frozen=True, slots=True, eq=False)
class LatencyTiers:
    """Tiers of domains over n hosts, innermost first; the last one holds all connected hosts.

    `domain`: for each tier (n,) the domain of each host, -1 = none (too little was measured). `confidence`:
    for each tier (domains,) 0 to 1. `rtt_us`: (tiers,) round trip between hosts with their lowest common
    domain in that tier, without the hosts' own parts. `offset_us`: (n,) each host's own part. `noisy`: (n,)
    hosts without usable measurements.
    """

    hosts: Sequence[str]  # sorted
    domain: Sequence[Longs]
    confidence: Sequence[Floats]
    rtt_us: Floats
    offset_us: Floats
    noisy: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Return the number of tiers."""
        return len(self.domain)


@lru_cache(maxsize=2)  # the planner and each inference pass the same table until it changes
def tiers_of(pairs: PairTable, known_rtt_us: tuple[float, ...] = ()) -> LatencyTiers:
    """Return the tiers from any subset of pairs, in any order. `known_rtt_us`: round trips of a wired
    fabric's tiers, innermost first; without it the number of tiers and their gaps are found from the data."""
    everything = edges_of(pairs)
    island = connected_parts(everything.hosts, everything.a, everything.b)
    degree = everything.degree()
    placed = (degree > 0) & (
        degree >= np.minimum(ENOUGH, np.bincount(island, minlength=len(island))[island] - 1)
    )
    edges = everything.only(placed[everything.a] & placed[everything.b])
    if not len(edges):
        # Too few pairs to separate hosts: what is connected is one domain.
        placed, edges = degree > 0, everything
    if not len(edges):
        return _nothing(pairs.nodes)
    if len(known_rtt_us):
        sample, some = _sampled(edges, placed)
        fit = _extended(edges, placed, sample, _explanation(some, sample))
        fit = _polished(_rehomed(_calibrated(placed, fit, np.asarray(known_rtt_us, np.float64))))
    else:
        fit = _best(edges, placed)
    own = fit.offset_us - _least(fit.offset_us[placed & ~fit.noisy])
    return LatencyTiers(
        tuple(pairs.nodes),
        fit.domain,
        [_confidence(fit, t) for t in range(len(fit.domain))],
        fit.rtt_us + 2 * _least(fit.offset_us[placed & ~fit.noisy]),
        np.where(placed & ~fit.noisy, own, 0.0),
        fit.noisy,
    )


def _nothing(hosts: Sequence[str]) -> LatencyTiers:
    return LatencyTiers(tuple(hosts), [], [], np.zeros(0), np.zeros(len(hosts)), np.zeros(len(hosts), bool))


def _least(offset_us: Floats) -> float:
    return float(np.quantile(offset_us, 0.02, method="lower")) if len(offset_us) else 0.0


def _best(edges: Edges, placed: Flags) -> Fit:
    """Return the cheaper of two explanations: in differences, and in ratios."""
    sample, some = _sampled(edges, placed)
    few = _explanation(some, sample)
    if (edges.rtt_us > 0).all():  # aligning a rail with the others can make values negative
        middle_us = float(np.exp(np.log(some.rtt_us).mean()))
        no_parts = [(np.zeros(edges.hosts, bool), np.zeros(edges.hosts))]  # a ratio needs no own parts
        ratios = _cheapest(_in_ratios(some, middle_us), sample, no_parts)
        if ratios.cost < few.cost:
            return _of_ratios(edges, _extended(_in_ratios(edges, middle_us), placed, sample, ratios))
    return _polished(_rehomed(_extended(edges, placed, sample, few)))


def _of_ratios(edges: Edges, fit: Fit) -> Fit:
    """Convert an explanation in ratios to microseconds. Own parts become 0: a host's factor cannot be
    subtracted from a round trip."""
    fit = _rehomed(fit)
    use = edges.only(~fit.noisy[edges.a] & ~fit.noisy[edges.b])
    rtt_us = np.nan_to_num(by_row(fit.tier, use.rtt_us, len(fit.domain), 0.5))
    return replace(fit, edges=use, offset_us=np.zeros(edges.hosts), rtt_us=np.maximum.accumulate(rtt_us))


def _in_ratios(edges: Edges, middle_us: float) -> Edges:
    """Return edges with ratios as differences; around the middle a microsecond stays one.

    With the geometric mean as the middle, costs of both kinds of explanation are comparable: the product of
    all scale factors is 1.
    """
    return replace(edges, rtt_us=middle_us * np.log(edges.rtt_us / middle_us))


def _sampled(edges: Edges, placed: Flags) -> tuple[Flags, Edges]:
    """Return all hosts, or a sample of many hosts: some with most pairs, and some of the others.

    Explanations are tried on the sample. One more step extends the best one to all hosts.
    """
    count = int(np.count_nonzero(placed))
    if count <= SAMPLE:
        return placed, edges
    sample = np.zeros(edges.hosts, bool)
    order = np.argsort(-edges.degree(), kind="stable")
    sample[order[: SAMPLE // 2]] = True
    others = np.sort(order[SAMPLE // 2 : count])
    sample[others[:: max(1, len(others) // (SAMPLE // 2))]] = True
    return sample, edges.only(sample[edges.a] & sample[edges.b])


def _extended(edges: Edges, placed: Flags, sample: Flags, few: Fit) -> Fit:
    """Extend the explanation of a sample to all hosts."""
    if sample is placed:
        return few
    offset_us = offsets.extended(edges, sample & ~few.noisy, few.domain, few.offset_us)
    noisy = few_of(edges, scattered(edges, offset_us) & placed)
    return explained(edges, placed, noisy, offset_us, FINE)


def _polished(fit: Fit) -> Fit:
    offset_us, rtt_us = offsets.polished(fit.edges, fit.tier, len(fit.domain), fit.offset_us)
    return replace(fit, offset_us=offset_us, rtt_us=np.where(np.isfinite(rtt_us), rtt_us, fit.rtt_us))


def _rehomed(fit: Fit) -> Fit:
    domain = rehomed(fit.edges, fit.domain, fit.offset_us, fit.rtt_us)
    return replace(fit, domain=domain, tier=tier_of(fit.edges, domain))


def _explanation(edges: Edges, placed: Flags) -> Fit:
    """Return the cheapest explanation from two starts: own parts by what crosses the top, and by the mean."""
    starts = []
    for top in (True, False):
        offset_us = _started(edges, top)
        noisy = few_of(edges, scattered(edges, offset_us) & placed)
        if noisy.any():
            offset_us = np.where(
                noisy, offset_us, _started(edges.only(~noisy[edges.a] & ~noisy[edges.b]), top)
            )
        if top:
            use = edges.only(~noisy[edges.a] & ~noisy[edges.b])
            offset_us = offsets.sharpened(use, offset_us, 2 * levels.width(use.rest_us(offset_us)))
        starts.append((noisy, offset_us))
    return _cheapest(edges, placed, starts)


def _cheapest(edges: Edges, placed: Flags, starts: Sequence[tuple[Flags, Floats]]) -> Fit:
    """Return the cheapest explanation from these starts (noisy hosts, own parts), each with and without the
    innermost domains aligned to one level."""
    fits: list[Fit] = []
    for smooth, level in ((FINE, True), (FINE, False), (COARSE, True)):
        fits += [
            explained(edges, placed, noisy, offset_us, smooth, level=level) for noisy, offset_us in starts
        ]
        if np.count_nonzero(placed) > FEW_HOSTS and len(fits) > 1 and _agreed(*fits[-2:]):
            break
    if all(len(fit.domain) == 1 for fit in fits) or np.count_nonzero(placed) <= FEW_HOSTS:
        # There is one tier, or own parts blur the gaps: the nearest pairs are tried as if there were a gap.
        for noisy, offset_us in starts:
            fits += [explained(edges, placed, noisy, offset_us, FINE, nearest=part) for part in NEAREST]
    return pruned(edges, placed, min(fits, key=cost_of))


def _agreed(x: Fit, y: Fit) -> bool:
    """Return whether two starts led to the same domains, of more than one tier. Then no other start is
    needed."""
    return len(x.domain) == len(y.domain) > 1 and all(map(_alike, x.domain, y.domain))


def _alike(x: Longs, y: Longs) -> bool:
    """Return whether all but a few hosts are in the same domain with the same company."""
    both = np.zeros((int(x.max()) + 2, int(y.max()) + 2), np.int64)
    np.add.at(both, (x, y), 1)
    return bool(min(both.max(axis=0).sum(), both.max(axis=1).sum()) >= ALIKE * len(x))


def _calibrated(placed: Flags, fit: Fit, known_us: Floats) -> Fit:
    """Replace the tiers that the data show with all tiers of a wired fabric."""
    known_us = np.maximum.accumulate(np.where(np.isfinite(known_us), known_us, 0.0))
    offset_us = np.where(placed, fit.offset_us - _least(fit.offset_us[placed & ~fit.noisy]), 0.0)
    use = fit.edges
    for _ in range(2):
        rest = use.rest_us(offset_us)
        hills, cuts = levels.aligned(rest, known_us)
        domain = domains_of(use, rest, hills, cuts, np.zeros(0), placed & ~fit.noisy)
        tier = tier_of(use, domain)
        offset_us, rtt_us = offsets.refit(use, tier, len(domain), offset_us)
        rtt_us = np.where(np.isfinite(rtt_us), rtt_us, hills)
    return Fit(use, domain, tier, offset_us, rtt_us, fit.noisy, fit.cost)


def _started(edges: Edges, top: bool) -> Floats:
    """Return the first own parts, island by island. In each island the smallest own part is about 0."""
    island = connected_parts(edges.hosts, edges.a, edges.b)
    order = np.argsort(island[edges.a], kind="stable")
    names, begin = np.unique(island[edges.a][order], return_index=True)
    offset_us = np.zeros(edges.hosts)
    for name, which in zip(names, np.split(order, begin[1:]), strict=True):
        members = np.flatnonzero(island == name)
        if len(members) <= ENOUGH:
            continue
        number = np.zeros(edges.hosts, np.int64)
        number[members] = np.arange(len(members))
        part = Edges(len(members), number[edges.a[which]], number[edges.b[which]], edges.rtt_us[which])
        found = offsets.start(part, top)
        offset_us[members] = found - _least(found)
    return offset_us


def _confidence(fit: Fit, number: int) -> Floats:
    """(domains,) confidence in a tier's domains: by the pairs within them and the pairs that leave them."""
    domain = fit.domain[number]
    count = int(domain.max()) + 1
    rest = fit.edges.rest_us(fit.offset_us)
    a, b = domain[fit.edges.a], domain[fit.edges.b]
    inside = a == b
    if number == len(fit.domain) - 1:
        return np.ones(count)
    cut = (fit.rtt_us[number] + fit.rtt_us[number + 1]) / 2
    near = rest < cut
    held = (np.bincount(a[inside & near], minlength=count) + 0.5) / (
        np.bincount(a[inside], minlength=count) + 1
    )
    ends, far = np.concatenate((a[~inside], b[~inside])), np.concatenate((~near[~inside],) * 2)
    apart = (np.bincount(ends[far], minlength=count) + 0.5) / (np.bincount(ends, minlength=count) + 1)
    return np.minimum(held, apart)
