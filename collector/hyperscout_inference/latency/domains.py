"""From gaps between steps to domains, and which of the tiers that come out to believe.

At each gap pairs vote hosts into domains, and domains into larger ones. A tier is believed if its domains
explain the gap: its pairs are clearly faster than those of the next, and it groups more than a few hosts.
"""

from typing import Final

import numpy as np

from hyperscout_inference.latency import offsets
from hyperscout_inference.latency.edges import Edges, Flags, by_row, components
from hyperscout_inference.latency.grouping import grouped, numbered
from hyperscout_inference.latency.pairs import Floats, Longs

LEAST_GAP_US: Final = (
    0.25  # a tier less than this above the next is none: cables of one tier differ by as much
)
CLEAR: Final = 3.0  # a gap in terms of the spread of the tiers beside it
AGREEING: Final = 0.75  # of a tier's pairs that must lie on its side of the cut
HOSTS_GROUPED: Final = 0.01  # of all hosts that a tier must group
RAREST: Final = 0.01  # share of values that seem nearer or farther than they are, at least
_TINY_US: Final = 1e-6


def domains_of(
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


def tier_of(edges: Edges, domain: list[Longs]) -> Longs:
    """(edges,) the lowest tier at which both ends are together."""
    tier = np.full(len(edges), len(domain) - 1)
    for number in range(len(domain) - 2, -1, -1):
        tier[domain[number][edges.a] == domain[number][edges.b]] = number
    return tier


def believed(
    edges: Edges, domain: list[Longs], offset_us: Floats, placed: Flags, *, strict: bool
) -> tuple[list[Longs], Longs, Floats, Floats]:
    """Fit, and drop the least believable tier, until all are believed."""
    hosts = int(np.count_nonzero(placed))
    while True:
        tier = tier_of(edges, domain)
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
