"""Explain all round trips by one fit: rounds of cut, vote and fit from a start, and the fit's cost.

The fit also finds the noisy hosts: hosts with values that do not cluster, or that match no tier.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from hyperscout_inference.latency import levels
from hyperscout_inference.latency.domains import domains_of, supported
from hyperscout_inference.latency.edges import Edges, Flags, by_row, row_widths
from hyperscout_inference.latency.pairs import Floats, Longs

ROUNDS: Final = 5
SCATTERED: Final = 4.0  # a host is noisy if its values spread this many times as wide as those of others
TIER: Final = 1.5  # cost of each tier, in logarithms of the number of pairs
LOST_US: Final = 40.0  # a value of a noisy host costs as much as one anywhere in this range


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """One explanation. `domain`: by tier, -1 = noisy or not placed; `tier`: (edges,) of each edge in
    `edges`."""

    edges: Edges  # between hosts that are not noisy
    domain: list[Longs]
    tier: Longs
    offset_us: Floats
    rtt_us: Floats
    noisy: Flags
    cost: float


def explained(
    edges: Edges,
    placed: Flags,
    noisy: Flags,
    offset_us: Floats,
    smooth: float,
    *,
    level: bool = False,
    nearest: float = 0.0,
) -> Fit:
    """Repeat cut, vote and fit until the domains are stable, at most `ROUNDS` times.

    `level`: first align all innermost domains to one level, for a start that shifts parts of the fabric
    against each other. `nearest`: first cut off this share of the pairs, with or without a gap.
    """
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
            bad = few_of(edges, _far_from_all(edges, edges.rest_us(offset_us), hills, wide) & placed)
            if not np.array_equal(bad, noisy):
                noisy = bad
                use = edges.only(~noisy[edges.a] & ~noisy[edges.b])
                rest = use.rest_us(offset_us)
        domain = domains_of(use, rest, hills, cuts, noise_us, placed & ~noisy)
        if level and number < 2:
            offset_us = _levelled(use, domain, offset_us)
            continue
        domain, tier, offset_us, rtt_us = supported(
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
) -> Fit:
    """Return the fit with its cost: the description length of all values by their tiers, and of all hosts by
    their own parts and domains."""
    off = np.abs(use.rest_us(offset_us) - rtt_us[tier])
    fitted = int(np.count_nonzero(use.degree())) + len(domain) - 1  # parameters
    free = max(1, len(use) - fitted)  # degrees of freedom: residuals are smaller than the noise
    low, high = np.quantile(edges.rtt_us, (0.05, 0.95))
    spread = max(levels.FINEST_US, float(np.minimum(off, max(levels.FINEST_US, high - low)).sum()) / free)
    cost = len(use) * np.log(spread) + (len(edges) - len(use)) * np.log(LOST_US)
    cost += sum(map(_text, domain)) + TIER * (len(domain) - 1) * np.log(len(use))
    return Fit(use, domain, tier, offset_us, rtt_us, noisy, float(cost))


def cost_of(fit: Fit) -> float:
    return fit.cost


def pruned(edges: Edges, placed: Flags, fit: Fit) -> Fit:
    """Drop the tiers that do not lower the cost: wrong values may resemble a tier."""
    while len(fit.domain) > 1:
        rest = fit.edges.rest_us(fit.offset_us)
        fewer = []
        for gone in range(len(fit.domain) - 1):
            hills = np.delete(fit.rtt_us, gone)
            cuts = (hills[1:] + hills[:-1]) / 2
            domain = domains_of(fit.edges, rest, hills, cuts, np.zeros(0), placed & ~fit.noisy)
            domain, tier, offset_us, rtt_us = supported(
                fit.edges, domain, fit.offset_us, placed & ~fit.noisy, strict=True
            )
            fewer.append(_fitted(edges, fit.edges, domain, tier, offset_us, rtt_us, fit.noisy))
        best = min(fewer, key=cost_of)
        if best.cost >= fit.cost:
            break
        fit = best
    return fit


def _halved(rest_us: Floats, share: float) -> tuple[Floats, Floats]:
    found = np.quantile(rest_us, (share / 2, share, 0.5 + share / 2))
    return found[[0, 2]], found[[1]]


def _text(domain: Longs) -> float:
    """Return the description length of each host's domain: the entropy."""
    sizes = np.bincount(domain[domain >= 0])
    sizes = sizes[sizes > 0]
    return float(-(sizes * np.log(sizes / sizes.sum())).sum())


def _levelled(edges: Edges, domain: list[Longs], offset_us: Floats) -> Floats:
    """Return own parts that make the round trips within all innermost domains equal."""
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


def few_of(edges: Edges, noisy: Flags) -> Flags:
    """Return these hosts, or none if they are half of the hosts or more: then their noise is normal here."""
    hosts = np.count_nonzero(edges.degree())
    left = np.any(~noisy[edges.a] & ~noisy[edges.b])
    return noisy if left and 2 * np.count_nonzero(noisy) < hosts else np.zeros_like(noisy)


def scattered(edges: Edges, offset_us: Floats) -> Flags:
    """(hosts,) those with values that do not cluster, whatever the tiers are."""
    rest = edges.rest_us(offset_us)
    rows = np.concatenate((edges.a, edges.b))
    wide = row_widths(rows, np.concatenate((rest, rest)), edges.hosts, 0.25)
    if np.isnan(wide).all():
        return np.zeros(edges.hosts, np.bool_)  # too few values per host
    limit = SCATTERED * max(levels.FINEST_US, float(np.nanmedian(wide)))
    return np.nan_to_num(wide) > limit


def _far_from_all(edges: Edges, rest_us: Floats, hills: Floats, wide: float) -> Flags:
    """(hosts,) those for which most pairs match no tier."""
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
