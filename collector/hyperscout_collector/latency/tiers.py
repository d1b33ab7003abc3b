"""Domains and tiers from round trips alone: what a fabric that shows nothing else still tells.

    rtt(i, j) = step(lowest common tier of i and j) + own(i) + own(j) + noise,     noise >= 0

Own parts are fitted and taken out, what is left is cut where it has gaps, pairs vote hosts into domains,
domains into larger ones; that fixes the tier of each pair, and with it a better fit of the own parts.
Two or three rounds settle it. A tier stays only if its pairs are clearly faster than those of the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from hyperscout_collector.latency import levels, offsets
from hyperscout_collector.latency.edges import Edges, Flags, by_row, components, edges_of, row_widths
from hyperscout_collector.latency.grouping import grouped, numbered
from hyperscout_collector.latency.pairs import Floats, Longs, PairTable
from hyperscout_collector.latency.rehome import rehomed

ROUNDS: Final = 5
ENOUGH: Final = 3  # pairs that place a host
LEAST_GAP_US: Final = (
    0.25  # a tier less than this above the next is none: cables of one tier differ by as much
)
CLEAR: Final = 3.0  # a gap in terms of the spread of the tiers beside it
AGREEING: Final = 0.75  # of a tier's pairs that must lie on its side of the cut
HOSTS_GROUPED: Final = 0.01  # of all hosts that a tier must group
FINE: Final = 0.3  # widths of a hill, by which the histogram is smoothed
COARSE: Final = 0.6
SCATTERED: Final = 4.0  # times as wide as what others measure
NEAREST: Final = (0.15, 0.4)  # of all pairs
TIER: Final = 1.5  # logarithms of the number of pairs, that a tier costs by itself
LOST_US: Final = 40.0  # what a value of a noisy host is told by: it may be anywhere in as much
RAREST: Final = 0.01  # share of values that seem nearer or farther than they are, at least
FEW_HOSTS: Final = 64  # so few pairs show no gaps in a histogram
SAMPLE: Final = 192  # hosts; several explanations are tried on so many

_TINY_US: Final = 1e-6


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


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """One explanation. `domain`: by tier, -1 = noisy or not placed; `tier`: (edges,) of those in `edges`."""

    edges: Edges  # those between hosts that are not noisy
    domain: list[Longs]
    tier: Longs
    offset_us: Floats
    rtt_us: Floats
    noisy: Flags
    cost: float


def tiers_of(pairs: PairTable, known_rtt_us: Sequence[float] = ()) -> LatencyTiers:
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
    fit = _best(edges, placed)
    if len(known_rtt_us):
        fit = _calibrated(edges, placed, fit, np.asarray(known_rtt_us, np.float64))
    domain = rehomed(fit.edges, fit.domain, fit.offset_us, fit.rtt_us)
    fit = replace(fit, domain=domain, tier=_tier_of(fit.edges, domain))
    offset_us, rtt_us = offsets.polished(fit.edges, fit.tier, len(fit.domain), fit.offset_us)
    rtt_us = np.where(np.isfinite(rtt_us), rtt_us, fit.rtt_us)
    fit = replace(fit, offset_us=offset_us, rtt_us=rtt_us)
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


def _best(edges: Edges, placed: Flags) -> _Fit:
    """The cheapest of several explanations: of all hosts, or where they are many, of those that most
    measure; from these to all is one step."""
    degree = edges.degree()
    if np.count_nonzero(placed) <= SAMPLE:
        return _explanations(edges, placed)[0]
    sample = np.zeros(edges.hosts, bool)
    order = np.argsort(-degree, kind="stable")
    sample[order[: SAMPLE // 2]] = True
    others = np.sort(order[SAMPLE // 2 : np.count_nonzero(placed)])
    sample[others[:: max(1, len(others) // (SAMPLE // 2))]] = True
    some = edges.only(sample[edges.a] & sample[edges.b])
    few = _explanations(some, sample)[0]
    offset_us = offsets.extended(edges, sample & ~few.noisy, few.domain, few.offset_us)
    noisy = _few(edges, _scattered(edges, offset_us) & placed)
    return _explained(edges, placed, noisy, offset_us, FINE)


def _explanations(edges: Edges, placed: Flags) -> list[_Fit]:
    """From two starts, each as it is and with the innermost domains brought to one level."""
    fits = []
    starts = []
    for top in (True, False):
        offset_us = _started(edges, top)
        noisy = _few(edges, _scattered(edges, offset_us) & placed)
        if noisy.any():
            offset_us = np.where(
                noisy, offset_us, _started(edges.only(~noisy[edges.a] & ~noisy[edges.b]), top)
            )
        if top:
            use = edges.only(~noisy[edges.a] & ~noisy[edges.b])
            offset_us = offsets.sharpened(use, offset_us, 2 * levels.width(use.rest_us(offset_us)))
        starts.append((noisy, offset_us))
    for noisy, offset_us in starts:
        for smooth, level in ((FINE, False), (FINE, True), (COARSE, True)):
            fits.append(_explained(edges, placed, noisy, offset_us, smooth, level=level))
    if all(len(fit.domain) == 1 for fit in fits) or np.count_nonzero(placed) <= FEW_HOSTS:
        # One tier, or own parts that blur the gaps: what is nearest is tried as if there were a gap.
        for noisy, offset_us in starts:
            fits += [_explained(edges, placed, noisy, offset_us, FINE, nearest=part) for part in NEAREST]
    return [_pruned(edges, placed, min(fits, key=_cost)), *fits]


def _calibrated(edges: Edges, placed: Flags, fit: _Fit, known_us: Floats) -> _Fit:
    """The same with the tiers of a wired fabric, all of them, in place of those that the data show."""
    known_us = np.maximum.accumulate(np.where(np.isfinite(known_us), known_us, 0.0))
    offset_us = np.where(placed, fit.offset_us - _least(fit.offset_us[placed & ~fit.noisy]), 0.0)
    use = fit.edges
    for _ in range(2):
        rest = use.rest_us(offset_us)
        hills, cuts = levels.aligned(rest, known_us)
        domain = _domains(use, rest, hills, cuts, np.zeros(0), placed & ~fit.noisy)
        tier = _tier_of(use, domain)
        offset_us, rtt_us = offsets.refit(use, tier, len(domain), offset_us)
        rtt_us = np.where(np.isfinite(rtt_us), rtt_us, hills)
    return _Fit(use, domain, tier, offset_us, rtt_us, fit.noisy, fit.cost)


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


def _few(edges: Edges, noisy: Flags) -> Flags:
    """Those, or nobody: where most are in trouble it is what is usual here."""
    hosts = np.count_nonzero(edges.degree())
    left = np.any(~noisy[edges.a] & ~noisy[edges.b])
    return noisy if left and 2 * np.count_nonzero(noisy) < hosts else np.zeros_like(noisy)


def _scattered(edges: Edges, offset_us: Floats) -> Flags:
    """(hosts,) those whose values gather nowhere: in trouble, whatever the tiers are."""
    rest = edges.rest_us(offset_us)
    rows = np.concatenate((edges.a, edges.b))
    wide = row_widths(rows, np.concatenate((rest, rest)), edges.hosts, 0.25)
    if np.isnan(wide).all():
        return np.zeros(edges.hosts, np.bool_)  # too few values of each to tell
    limit = SCATTERED * max(levels.FINEST_US, float(np.nanmedian(wide)))
    return np.nan_to_num(wide) > limit


def _explained(
    edges: Edges,
    placed: Flags,
    noisy: Flags,
    offset_us: Floats,
    smooth: float,
    *,
    level: bool = False,
    nearest: float = 0.0,
) -> _Fit:
    """Rounds of cut, vote and fit, until the domains stay. `level`: first bring all the innermost domains to
    one level, for a start that set parts of the fabric wrong against each other. `nearest`: first cut off
    this share of the pairs, whether there is a gap or not."""
    before: list[Longs] = []
    noise_us = np.zeros(0)
    for number in range(ROUNDS):
        use = edges.only(~noisy[edges.a] & ~noisy[edges.b])
        rest = use.rest_us(offset_us)
        wide = levels.width(rest)
        hills, cuts = levels.gaps(rest, smooth * wide, max(3, len(use) // 1000))
        if nearest and not number:
            hills, cuts = _halved(rest, nearest)
        if number > (2 if level else 0):
            bad = _few(edges, _far_from_all(edges, edges.rest_us(offset_us), hills, wide) & placed)
            if not np.array_equal(bad, noisy):
                noisy = bad
                use = edges.only(~noisy[edges.a] & ~noisy[edges.b])
                rest = use.rest_us(offset_us)
        domain = _domains(use, rest, hills, cuts, noise_us, placed & ~noisy)
        if level and number < 2:
            offset_us = _levelled(use, domain, offset_us)
            continue
        domain, tier, offset_us, rtt_us = _believed(
            use, domain, offset_us, placed & ~noisy, strict=number > 1
        )
        if number > 1 and len(domain) == len(before) and all(map(np.array_equal, domain, before)):
            break
        before = domain
        noise_us = np.sort(use.rest_us(offset_us) - rtt_us[tier])
    return _fitted(edges, use, domain, tier, offset_us, rtt_us, noisy)


def _fitted(
    edges: Edges,
    use: Edges,
    domain: list[Longs],
    tier: Longs,
    offset_us: Floats,
    rtt_us: Floats,
    noisy: Flags,
) -> _Fit:
    """With its cost: as long as the shortest text that would tell all values, each by its tier, and each host
    by its own part and its domains."""
    off = np.abs(use.rest_us(offset_us) - rtt_us[tier])
    told = int(np.count_nonzero(use.degree())) + len(domain) - 1
    free = max(1, len(use) - told)  # what is fitted lies nearer than it should
    low, high = np.quantile(edges.rtt_us, (0.05, 0.95))
    spread = max(levels.FINEST_US, float(np.minimum(off, max(levels.FINEST_US, high - low)).sum()) / free)
    cost = len(use) * np.log(spread) + (len(edges) - len(use)) * np.log(LOST_US)
    cost += sum(map(_text, domain)) + TIER * (len(domain) - 1) * np.log(len(use))
    return _Fit(use, domain, tier, offset_us, rtt_us, noisy, float(cost))


def _cost(fit: _Fit) -> float:
    return fit.cost


def _pruned(edges: Edges, placed: Flags, fit: _Fit) -> _Fit:
    """Without the tiers that it is shorter told without: wrong values that look like one."""
    while len(fit.domain) > 1:
        rest = fit.edges.rest_us(fit.offset_us)
        fewer = []
        for gone in range(len(fit.domain) - 1):
            hills = np.delete(fit.rtt_us, gone)
            cuts = (hills[1:] + hills[:-1]) / 2
            domain = _domains(fit.edges, rest, hills, cuts, np.zeros(0), placed & ~fit.noisy)
            domain, tier, offset_us, rtt_us = _believed(
                fit.edges, domain, fit.offset_us, placed & ~fit.noisy, strict=True
            )
            fewer.append(_fitted(edges, fit.edges, domain, tier, offset_us, rtt_us, fit.noisy))
        best = min(fewer, key=_cost)
        if best.cost >= fit.cost:
            break
        fit = best
    return fit


def _halved(rest_us: Floats, share: float) -> tuple[Floats, Floats]:
    found = np.quantile(rest_us, (share / 2, share, 0.5 + share / 2))
    return found[[0, 2]], found[[1]]


def _text(domain: Longs) -> float:
    """How much it takes to tell each host's domain: the entropy."""
    sizes = np.bincount(domain[domain >= 0])
    sizes = sizes[sizes > 0]
    return float(-(sizes * np.log(sizes / sizes.sum())).sum())


def _levelled(edges: Edges, domain: list[Longs], offset_us: Floats) -> Floats:
    """Own parts such that round trips within each innermost domain are the same."""
    rest = edges.rest_us(offset_us)
    shift = np.full(edges.hosts, np.nan)
    for labels in domain:
        count = int(labels.max()) + 1
        has = np.isfinite(shift) & (labels >= 0)
        inside = labels[edges.a] == labels[edges.b]
        within = by_row(labels[edges.a][inside], rest[inside], count, 0.5)
        known = by_row(labels[has], shift[has], count, 0.5)
        fresh = np.where(np.isfinite(known), known, within / 2)
        shift = np.where(np.isnan(shift) & (labels >= 0), fresh[labels], shift)
    return offset_us + np.where(np.isfinite(shift), shift - float(np.nanmedian(shift)), 0.0)


def _far_from_all(edges: Edges, rest_us: Floats, hills: Floats, wide: float) -> Flags:
    """(hosts,) those most of whose pairs fit no tier."""
    if not len(hills):
        return np.zeros(edges.hosts, np.bool_)
    near_us = max(6 * wide, float(np.diff(hills).min()) / 2 if len(hills) > 1 else 0.0)
    place = np.searchsorted((hills[1:] + hills[:-1]) / 2, rest_us)
    far = np.abs(rest_us - hills[place]) > near_us
    degree = edges.degree()
    count = np.bincount(edges.a[far], minlength=edges.hosts) + np.bincount(
        edges.b[far], minlength=edges.hosts
    )
    return count > 0.5 * degree


def _domains(
    edges: Edges, rest_us: Floats, hills: Floats, cuts: Floats, noise_us: Floats, placed: Flags
) -> list[Longs]:
    """Domains at each cut, and on top what is connected; -1 = not placed. `noise_us`: sorted, if known."""
    unit = np.arange(edges.hosts)
    domain = []
    for cut, gap in zip(cuts, np.diff(hills), strict=True):
        vote = np.clip((cut - rest_us) / max(gap / 4, _TINY_US), -1.0, 1.0)
        together, apart = _weights(noise_us, gap)
        vote *= np.where(vote > 0, together, apart)
        unit = grouped(unit, edges.a, edges.b, vote)
        domain.append(_of_placed(unit, placed))
    domain.append(_of_placed(components(edges.hosts, edges.a, edges.b), placed))
    return domain


def _weights(noise_us: Floats, gap_us: float) -> tuple[float, float]:
    """What a value on the near side of a cut says for being together, and one beyond it for being apart.

    Noise only adds: a pair that seems near is near, one that seems far may have been disturbed. Both are as
    the noise itself says (log-likelihood ratios), the stronger one is 1.
    """
    if not len(noise_us):
        return 1.0, 1.0
    astray = 1 - np.searchsorted(noise_us, gap_us / 2) / len(noise_us)
    closer = np.searchsorted(noise_us, -gap_us / 2) / len(noise_us)
    astray, closer = np.clip((astray, closer), RAREST, 0.4)
    together, apart = np.log((1 - astray) / closer), np.log((1 - closer) / astray)
    return float(together / max(together, apart)), float(apart / max(together, apart))


def _of_placed(unit: Longs, placed: Flags) -> Longs:
    result = np.full(len(unit), -1)
    result[placed] = numbered(unit[placed])
    return result


def _tier_of(edges: Edges, domain: list[Longs]) -> Longs:
    """(edges,) the lowest tier at which both ends are together."""
    tier = np.full(len(edges), len(domain) - 1)
    for number in range(len(domain) - 2, -1, -1):
        tier[domain[number][edges.a] == domain[number][edges.b]] = number
    return tier


def _believed(
    edges: Edges, domain: list[Longs], offset_us: Floats, placed: Flags, *, strict: bool
) -> tuple[list[Longs], Longs, Floats, Floats]:
    """Fit, and drop the least believable tier, until all are believed."""
    hosts = int(np.count_nonzero(placed))
    while True:
        tier = _tier_of(edges, domain)
        fitted, rtt_us = offsets.refit(edges, tier, len(domain), offset_us)
        doubt = _doubts(edges, domain, tier, fitted, rtt_us, hosts)
        if not len(doubt) or doubt.max() < (1 if strict else 2.5):
            return domain, tier, fitted, rtt_us
        domain = [d for number, d in enumerate(domain) if number != int(np.argmax(doubt))]


def _doubts(
    edges: Edges, domain: list[Longs], tier: Longs, offset_us: Floats, rtt_us: Floats, hosts: int
) -> Floats:
    """(tiers but the last,) 1 and more: not to be believed."""
    rest = edges.rest_us(offset_us)
    spread = 1.48 * by_row(tier, np.abs(rest - rtt_us[tier]), len(domain), 0.5)
    doubt = np.zeros(len(domain) - 1)
    apart_before = hosts
    for number in range(len(domain) - 1):
        apart = int(domain[number].max()) + 1
        sizes = np.bincount(domain[number][domain[number] >= 0])
        grouped_hosts = int(sizes[sizes > 1].sum())
        gap = rtt_us[number + 1] - rtt_us[number]
        if apart in (apart_before, int(domain[-1].max()) + 1) or grouped_hosts < HOSTS_GROUPED * hosts:
            doubt[number] = 9
        elif not gap > LEAST_GAP_US:
            doubt[number] = 8
        else:
            cut = rtt_us[number] + gap / 2
            below = np.mean(rest[tier == number] < cut)
            above = np.mean(rest[tier == number + 1] > cut)
            doubt[number] = max(
                CLEAR * np.nanmax(spread[number : number + 2]) / gap, (1 - min(below, above)) / (1 - AGREEING)
            )
        apart_before = apart
    return doubt


def _confidence(fit: _Fit, number: int) -> Floats:
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
