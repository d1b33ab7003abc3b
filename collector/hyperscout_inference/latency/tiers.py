"""Domains and tiers from round trips alone: what a fabric that shows nothing else still tells.

    rtt(i, j) = step(lowest common tier of i and j) + own(i) + own(j) + noise,     noise >= 0

Own parts are fitted and taken out, what is left is cut where it has gaps, pairs vote hosts into domains,
domains into larger ones; that fixes the tier of each pair, and with it a better fit of the own parts.
Two or three rounds settle it. A tier stays only if its pairs are clearly faster than those of the next.

Noise may grow with the distance: more hops, each on a busy machine, and far pairs scatter by more than near
tiers differ. So the same is tried in ratios in place of differences, and what is shorter told is believed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from hyperscout_inference.latency import levels, offsets
from hyperscout_inference.latency.domains import domains_of, tier_of
from hyperscout_inference.latency.edges import Edges, Flags, by_row, components, edges_of
from hyperscout_inference.latency.explained import (
    Fit,
    cost_of,
    explained,
    few_of,
    pruned,
    scattered,
)
from hyperscout_inference.latency.pairs import Floats, Longs, PairTable
from hyperscout_inference.latency.rehome import rehomed

ENOUGH: Final = 3  # pairs that place a host
FINE: Final = 0.3  # widths of a hill, by which the histogram is smoothed
COARSE: Final = 0.6
NEAREST: Final = (0.15, 0.4)  # of all pairs
FEW_HOSTS: Final = 64  # so few pairs show no gaps in a histogram
ALIKE: Final = 0.97  # of all hosts: so many in the same company are the same domains
SAMPLE: Final = 128  # hosts; several explanations are tried on so many


@dataclass(frozen=True, slots=True, eq=False)
class LatencyTiers:
    """Tiers of domains over n hosts, innermost first; the last one holds all that is connected.

    `domain`: for each tier (n,) the domain of each host, -1 = none (too little was measured). `confidence`:
    for each tier (domains,) 0 to 1. `rtt_us`: (tiers,) round trip between hosts whose lowest common domain is
    of that tier, the hosts' own parts taken out. `offset_us`: (n,) each host's own part.
    `noisy`: (n,) hosts whose measurements say nothing.
    """

    hosts: Sequence[str]  # sorted
    domain: Sequence[Longs]
    confidence: Sequence[Floats]
    rtt_us: Floats
    offset_us: Floats
    noisy: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        """Tiers."""
        return len(self.domain)


@lru_cache(maxsize=2)  # the planner and each inference ask of the same table, until it is another one
def tiers_of(pairs: PairTable, known_rtt_us: tuple[float, ...] = ()) -> LatencyTiers:
    """Tiers from any subset of pairs, in any order. `known_rtt_us`: what a wired fabric's tiers measured, by
    tier from the innermost; without it the number of tiers and their gaps are found from the data."""
    everything = edges_of(pairs)
    island = components(everything.hosts, everything.a, everything.b)
    degree = everything.degree()
    placed = (degree > 0) & (
        degree >= np.minimum(ENOUGH, np.bincount(island, minlength=len(island))[island] - 1)
    )
    edges = everything.only(placed[everything.a] & placed[everything.b])
    if not len(edges):
        # Too little to tell anybody apart: what is connected is one domain.
        placed, edges = degree > 0, everything
    if not len(edges):
        return _nothing(pairs.nodes)
    if len(known_rtt_us):
        sample, some = _sampled(edges, placed)
        fit = _extended(edges, placed, sample, _explanation(some, sample))
        fit = _polished(_rehomed(_calibrated(edges, placed, fit, np.asarray(known_rtt_us, np.float64))))
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
    """The shorter told of two: in differences, and in ratios."""
    sample, some = _sampled(edges, placed)
    few = _explanation(some, sample)
    if (edges.rtt_us > 0).all():  # less where a rail was brought to the level of the others
        middle_us = float(np.exp(np.log(some.rtt_us).mean()))
        nobodys = [(np.zeros(edges.hosts, bool), np.zeros(edges.hosts))]  # a ratio needs no own parts
        ratios = _cheapest(_in_ratios(some, middle_us), sample, nobodys)
        if ratios.cost < few.cost:
            return _of_ratios(edges, _extended(_in_ratios(edges, middle_us), placed, sample, ratios))
    return _polished(_rehomed(_extended(edges, placed, sample, few)))


def _of_ratios(edges: Edges, fit: Fit) -> Fit:
    """An explanation in ratios, in microseconds. What is a factor of a host is no part of its own that could
    be taken out of anything."""
    fit = _rehomed(fit)
    use = edges.only(~fit.noisy[edges.a] & ~fit.noisy[edges.b])
    rtt_us = np.nan_to_num(by_row(fit.tier, use.rtt_us, len(fit.domain), 0.5))
    return replace(fit, edges=use, offset_us=np.zeros(edges.hosts), rtt_us=np.maximum.accumulate(rtt_us))


def _in_ratios(edges: Edges, middle_us: float) -> Edges:
    """Differences become ratios; around the middle a microsecond stays one. With the geometric mean for the
    middle, what an explanation costs is the same measure in both: all stretches together make 1."""
    return replace(edges, rtt_us=middle_us * np.log(edges.rtt_us / middle_us))


def _sampled(edges: Edges, placed: Flags) -> tuple[Flags, Edges]:
    """All hosts, or where they are many, some of those that most measure and some of the others: explanations
    are tried on these, and from these to all is one step."""
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
    """The explanation of a sample, of all hosts."""
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
    """The cheapest from two starts: own parts by what crosses the top, and by the mean."""
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
    """Of all that these starts (who is noisy, own parts) lead to, each as it is and with the innermost
    domains brought to one level."""
    fits: list[Fit] = []
    for smooth, level in ((FINE, True), (FINE, False), (COARSE, True)):
        fits += [
            explained(edges, placed, noisy, offset_us, smooth, level=level) for noisy, offset_us in starts
        ]
        if np.count_nonzero(placed) > FEW_HOSTS and len(fits) > 1 and _agreed(*fits[-2:]):
            break
    if all(len(fit.domain) == 1 for fit in fits) or np.count_nonzero(placed) <= FEW_HOSTS:
        # One tier, or own parts that blur the gaps: what is nearest is tried as if there were a gap.
        for noisy, offset_us in starts:
            fits += [explained(edges, placed, noisy, offset_us, FINE, nearest=part) for part in NEAREST]
    return pruned(edges, placed, min(fits, key=cost_of))


def _agreed(x: Fit, y: Fit) -> bool:
    """Whether two starts came to the same domains, of more than one tier: then no other is needed."""
    return len(x.domain) == len(y.domain) > 1 and all(map(_alike, x.domain, y.domain))


def _alike(x: Longs, y: Longs) -> bool:
    """Whether all but a few hosts are in the same domain, and have the same company in it."""
    both = np.zeros((int(x.max()) + 2, int(y.max()) + 2), np.int64)
    np.add.at(both, (x, y), 1)
    return bool(min(both.max(axis=0).sum(), both.max(axis=1).sum()) >= ALIKE * len(x))


def _calibrated(edges: Edges, placed: Flags, fit: Fit, known_us: Floats) -> Fit:
    """The same with the tiers of a wired fabric, all of them, in place of those that the data show."""
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
    """First own parts, island by island: nothing joins them but that their smallest is about 0."""
    island = components(edges.hosts, edges.a, edges.b)
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
    """(domains,) of a tier: by the pairs that hold it together and those that set it apart."""
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
