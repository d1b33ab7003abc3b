"""Turn the gaps between steps into domains, and keep the tiers that the pairs support.

At each gap, pairs vote hosts into domains, and domains into larger ones. A tier is kept if its domains
explain the gap: its pairs are clearly faster than those of the next tier, and it groups more than a few
hosts.
"""

from typing import Final

import numpy as np
from hyperscout_topology.connected_parts import connected_parts

from hyperscout_inference.latency import offsets
from hyperscout_inference.latency.edges import Edges, Flags, by_row
from hyperscout_inference.latency.grouping import grouped, numbered
from hyperscout_inference.latency.pairs import Floats, Longs

LEAST_GAP_US: Final = 0.25  # least gap to the next tier: cables of one tier differ by as much
CLEAR: Final = 3.0  # least gap, in spreads of the tiers beside it
AGREEING: Final = 0.75  # least share of a tier's pairs on its side of the cut
HOSTS_GROUPED: Final = 0.01  # least share of all hosts that a tier groups
RAREST: Final = 0.01  # lower bound on the share of values that seem nearer or farther than they are
_TINY_US: Final = 1e-6


def domains_of(
    edges: Edges, rest_us: Floats, hills: Floats, cuts: Floats, noise_us: Floats, placed: Flags
) -> list[Longs]:
    """Return the domains at each cut, and on top the connected components; -1 = not placed. `noise_us`:
    sorted, empty if unknown."""
    unit = np.arange(edges.hosts)
    domain = []
    for cut, gap in zip(cuts, np.diff(hills), strict=True):
        vote = np.clip((cut - rest_us) / max(gap / 4, _TINY_US), -1.0, 1.0)
        together, apart = _weights(noise_us, gap)
        vote *= np.where(vote > 0, together, apart)
        unit = grouped(unit, edges.a, edges.b, vote)
        domain.append(_of_placed(unit, placed))
    domain.append(_of_placed(connected_parts(edges.hosts, edges.a, edges.b), placed))
    return domain


def _weights(noise_us: Floats, gap_us: float) -> tuple[float, float]:
    """Return the weight of a vote for being together and of one for being apart.

    Noise only adds to a round trip. A pair that seems near is near; a pair that seems far may be disturbed.
    Both weights are log-likelihood ratios from the observed noise, scaled so that the larger one is 1.
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
    """(edges,) the lowest tier at which both ends are in one domain."""
    tier = np.full(len(edges), len(domain) - 1)
    for number in range(len(domain) - 2, -1, -1):
        tier[domain[number][edges.a] == domain[number][edges.b]] = number
    return tier


def supported(
    edges: Edges, domain: list[Longs], offset_us: Floats, placed: Flags, *, strict: bool
) -> tuple[list[Longs], Longs, Floats, Floats]:
    """Fit, and drop the least supported tier until all are supported. `strict`: with the limit of 1 on the
    doubt, else 2.5."""
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
    """(tiers - 1,) the doubt about each tier but the last; at 1 or more it is not supported."""
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
