"""Place hosts without wiring evidence by latency (step 6 of inference).

Wiring takes precedence: wired hosts are not moved, and a latency domain that contains wired hosts becomes
part of their domain. Round trips within the wired tiers calibrate the tiers of the other hosts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count, pairwise

import numpy as np
from hyperscout_topology.names import tier_name

from hyperscout_inference.fabric.network import Network
from hyperscout_inference.grouping.grouping import Grouping, Longs
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.grouping.past import Past
from hyperscout_inference.latency.pairs import Floats, PairTable
from hyperscout_inference.latency.tiers import LatencyTiers, tiers_of

# A host with less than this share of the median number of measured pairs is not moved out of its published
# domain: its agent has just restarted.
_LITTLE = 0.5


def with_latency(net: Network, layers: Sequence[Layer], pairs: PairTable, past: Past) -> list[Layer]:
    """Return the layers with the hosts that only latency places; wired domains keep their indexes."""
    at = {host: i for i, host in enumerate(net.hosts)}
    rows = np.fromiter((at[name] for name in pairs.nodes), np.int64, len(pairs.nodes))
    wired = layers[0].domain >= 0
    if wired[rows].all():
        return list(layers)
    found = tiers_of(pairs)
    if wired.any():
        known = _calibrated(found, pairs, [layer.domain[rows] for layer in layers])
        found = tiers_of(pairs, known) if known else found
    if not found.count:
        return list(layers)
    hosts = np.fromiter((at[name] for name in found.hosts), np.int64, len(found.hosts))
    if (before := past.labels(layers[0].name)) is not None:
        found = _staying(found, pairs, before[hosts])
    by_tier = [np.full(len(net.hosts), -1, np.int64) for _ in found.domain]
    for domain, column in zip(found.domain, by_tier, strict=True):
        column[hosts] = domain
    if not wired.any():
        return alone(net, found.confidence, by_tier)
    return beside(net, layers, found.confidence, by_tier)


def as_published(net: Network, layers: Sequence[Layer], past: Past) -> list[Layer]:
    """Return the layers with the hosts without wiring evidence in their published domains. Used while latency
    is measured again after a restart of all agents."""
    wired = layers[0].domain >= 0
    if wired.all():
        return list(layers)
    names = past.outer_tiers()
    before = [labels for name in names if (labels := past.labels(name)) is not None]
    known = np.logical_and.reduce([labels >= 0 for labels in before], axis=0)
    if not before or not (known & ~wired).any():
        return list(layers)
    by_tier, confidence = [], []
    for labels in before:
        which, column = np.unique(np.where(known, labels, -1), return_inverse=True)
        by_tier.append(column.astype(np.int64) - int(which[0] < 0))
        confidence.append(np.array([past.confidence[int(label)] for label in which if label >= 0]))
    if not wired.any():
        return alone(net, confidence, by_tier)
    return beside(net, layers, confidence, by_tier)


def _staying(found: LatencyTiers, pairs: PairTable, before: Longs) -> LatencyTiers:
    """Return `found` with hosts that have too few pairs, and are alone in their domain, in the domain of the
    hosts they were published with. `before`: (hosts found,) the former domain, -1 = none."""
    number = {name: i for i, name in enumerate(pairs.nodes)}
    rows = np.fromiter((number[name] for name in found.hosts), np.int64, len(found.hosts))
    measured = np.bincount(np.concatenate([pairs.a, pairs.b]), minlength=len(pairs.nodes))[rows]
    little = (measured < _LITTLE * np.median(measured)) & (before >= 0)
    lowest = found.domain[0]
    size = np.bincount(lowest[lowest >= 0], minlength=1)
    lost = little & (lowest >= 0) & (size[lowest] == 1)
    if not lost.any():
        return found
    settled = np.flatnonzero(~lost & (before >= 0) & (lowest >= 0))
    key, first, votes = np.unique(
        before[settled] * len(size) + lowest[settled], return_index=True, return_counts=True
    )
    order = np.lexsort((key, -votes))[::-1]
    with_whom = dict(zip((key[order] // len(size)).tolist(), settled[first[order]].tolist(), strict=True))
    as_whom = np.arange(len(before))
    for host in np.flatnonzero(lost).tolist():
        as_whom[host] = with_whom.get(int(before[host]), host)
    domains, confidence = [], []
    for column, sure in zip(found.domain, found.confidence, strict=True):
        stays = column[as_whom]
        kept = np.unique(stays[stays >= 0])
        domains.append(np.where(stays >= 0, np.searchsorted(kept, stays), -1))
        confidence.append(sure[kept])
    return replace(found, domain=domains, confidence=confidence)


def _calibrated(found: LatencyTiers, pairs: PairTable, wired: Sequence[Longs]) -> tuple[float, ...]:
    """Return the median round trip in us of each wired tier, without the hosts' own parts; empty unless all
    tiers are measured and ascending. `wired`: of each tier, (nodes of the pairs,) the wired domain."""
    at = {host: i for i, host in enumerate(found.hosts)}
    own_us = np.array([found.offset_us[at[n]] if n in at else np.nan for n in pairs.nodes], np.float64)
    rtt_us = pairs.rtt_us - own_us[pairs.a] - own_us[pairs.b]
    known: list[float] = []
    left = np.isfinite(rtt_us)
    for domain in wired:
        here = left & (domain[pairs.a] >= 0) & (domain[pairs.a] == domain[pairs.b])
        if not here.any():
            return ()
        known.append(float(np.median(rtt_us[here])))
        left &= ~here
    return tuple(known) if all(x < y for x, y in pairwise(known)) else ()


def alone(net: Network, sure: Sequence[Floats], by_tier: Sequence[Longs]) -> list[Layer]:
    """Return layers from latency or labels alone. `by_tier`: innermost first, (hosts,) the domain, -1 = none.
    `sure`: of each tier, (domains,) the confidence."""
    layers: list[Layer] = []
    for tier, domain in enumerate(by_tier):
        count = int(domain.max(initial=-1)) + 1
        child = np.zeros(0, np.int64)
        if layers:
            child = np.zeros(layers[-1].count, np.int64)
            inside = layers[-1].domain >= 0
            child[layers[-1].domain[inside]] = domain[inside]
        confidence = dict(enumerate(sure[tier].tolist()))
        founders = _members(net, domain, count) if not layers else ()
        layers.append(_layer(layers, domain, [()] * count, child, founders, confidence))
    return layers


def beside(
    net: Network,
    layers: Sequence[Layer],
    sure: Sequence[Floats],
    by_tier: Sequence[Longs],
    witnesses: int = 1,
) -> list[Layer]:
    """Return layers of one depth with wired and other hosts. New domains have a confidence.

    A domain of latency or labels is the wired domain that has most of its wired hosts, `witnesses` at least.
    Where no domain has most of them, it is too coarse for this tier: its other hosts get a new domain.
    """
    depth = max(len(layers), len(by_tier))
    result: list[Layer] = []
    inner = by_tier[0]
    for tier in range(depth):
        below = result[-1] if result else None
        latent = by_tier[min(tier, len(by_tier) - 1)]
        confidence = sure[min(tier, len(by_tier) - 1)]
        if tier < len(layers):
            wired = layers[tier]
        else:  # latency has more tiers: the topmost wired domains are not split
            top = layers[-1]
            wired = _layer(result, top.domain, [()] * top.count, np.arange(top.count), (), {})
            wired = replace(wired, labelled=top.labelled)
        homes = _Homes(latent, wired, witnesses)
        domain = wired.domain.copy()
        child = wired.child
        if below is None:
            others = np.flatnonzero((wired.domain < 0) & (latent >= 0))
            domain[others] = [homes.of(d) for d in latent[others].tolist()]
        else:
            child = np.full(below.count, -1, np.int64)
            child[: len(wired.child)] = wired.child
            within = _joined(inner, wired, witnesses)
            new, member = np.unique(below.domain, return_index=True)
            for number, host in zip(new.tolist(), member.tolist(), strict=True):
                if number >= len(wired.child):
                    known = int(within[inner[host]])
                    child[number] = known if known >= 0 else homes.of(int(latent[host]))
            inside = np.flatnonzero(below.domain >= 0)
            domain[inside] = child[below.domain[inside]]
        switches = [*wired.switches, *([()] * len(homes.fresh))]
        founders: Sequence[tuple[str, ...]] = ()
        if below is None:
            own = wired.founders or [()] * wired.count
            founders = [*own, *_members(net, domain, len(switches))[wired.count :]]
        elif wired.founders:
            founders = [*wired.founders, *([()] * len(homes.fresh))]
        result.append(
            Layer(
                wired.name,
                domain,
                switches,
                child,
                wired.grouping,
                founders,
                {number: float(confidence[latency]) for latency, number in homes.fresh.items()},
                wired.labelled,
            )
        )
        inner = latent
    return result


class _Homes:
    """The domain in a layer of each domain of latency or labels: a wired one, else a new one."""

    def __init__(self, latent: Longs, wired: Layer, witnesses: int) -> None:
        self._joined = _joined(latent, wired, witnesses).tolist()
        self._count = wired.count
        self.fresh: dict[int, int] = {}

    def of(self, domain: int) -> int:
        joined = int(self._joined[domain])
        return joined if joined >= 0 else self.fresh.setdefault(domain, self._count + len(self.fresh))


def _joined(latent: Longs, wired: Layer, witnesses: int) -> Longs:
    """Return of each domain of latency or labels the wired domain of most of its wired hosts, -1 = none."""
    count = int(latent.max(initial=-1)) + 1
    both = (latent >= 0) & (wired.domain >= 0)
    pairs, votes = np.unique(latent[both] * wired.count + wired.domain[both], return_counts=True)
    of, home = np.divmod(pairs, max(wired.count, 1))
    most = 2 * votes > np.bincount(latent[both], minlength=count)[of]
    joined = np.full(count, -1, np.int64)
    chosen = most & (votes >= witnesses)
    joined[of[chosen]] = home[chosen]
    return joined


def _members(net: Network, domain: Longs, count: int) -> list[tuple[str, ...]]:
    members: list[list[str]] = [[] for _ in range(count)]
    for host in np.flatnonzero(domain >= 0).tolist():
        members[domain[host]].append(net.hosts[host])
    return [tuple(names) for names in members]


def _layer(
    below: Sequence[Layer],
    domain: Longs,
    switches: Sequence[tuple[int, ...]],
    child: Longs,
    founders: Sequence[tuple[str, ...]],
    confidence: Mapping[int, float],
) -> Layer:
    taken = {layer.name for layer in below}  # wired tiers may be leaf and core, without pod
    name = next(name for level in count(len(below) + 1) if (name := tier_name(level)) not in taken)
    return Layer(name, domain, switches, child, Grouping.empty(len(domain)), founders, confidence)
