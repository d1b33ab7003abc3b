"""Find paths with less bandwidth than others of their tier."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hyperscout_topology.figures import digits, figures
from hyperscout_topology.topology import Endpoint

from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.latency.pairs import Floats, Longs

_MIN_ROWS = 6  # rows of a tier that are needed for a usual value
_WEAK = 0.7  # of the tier's median
_SPREAD = 6.0  # least distance below the median, in median distances scaled to a normal deviation
_SIGMA = 1.4826


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """(rows,) each: bandwidth between the hosts `a` and `b` (within a host where they are the same)."""

    a: Longs
    b: Longs
    layer: Longs
    domain: Longs
    gbps: Floats
    at_ns: Longs
    source: str
    rails: Sequence[str]  # () = all rails of a host

    def __len__(self) -> int:
        return len(self.gbps)


def weak_paths(hosts: Sequence[str], weights: Weights) -> list[Suspicion]:
    """Return one suspicion per weak path; one for a host that is weak in most of its paths."""
    found: list[Suspicion] = []
    within = weights.a == weights.b
    for layer in np.unique(weights.layer).tolist():
        for own in (True, False):
            rows = np.flatnonzero((weights.layer == layer) & (within == own))
            if len(rows) >= _MIN_ROWS:
                found += _of_tier(hosts, weights, rows)
    return found


def _of_tier(hosts: Sequence[str], weights: Weights, rows: Longs) -> list[Suspicion]:
    gbps = weights.gbps[rows]
    median = float(np.median(gbps))
    spread = _SIGMA * float(np.median(np.abs(gbps - median)))
    weak = rows[(gbps < _WEAK * median) & (gbps < median - _SPREAD * spread)]
    both = np.concatenate([weights.a[rows], weights.b[rows]])
    count = np.bincount(both, minlength=len(hosts))
    bad = np.bincount(np.concatenate([weights.a[weak], weights.b[weak]]), minlength=len(hosts))
    at_fault = set(np.flatnonzero((bad >= 3) & (bad * 2 > count)).tolist())
    found = []
    usual = f"where this tier's median is {digits(median, 3)} Gbit/s ({len(rows)} pairs)"
    of_tier = figures(tier_median_gbps=median, tier_pairs=len(rows))
    for host in sorted(at_fault):
        mine = weak[(weights.a[weak] == host) | (weights.b[weak] == host)]
        least = float(np.median(weights.gbps[mine]))
        text = f"{hosts[host]}: {digits(least, 3)} Gbit/s in {len(mine)} of {count[host]} pairs, {usual}"
        said = figures(bandwidth_gbps=least, weak_pairs=len(mine), pairs=count[host]) + of_tier
        subject = Endpoint(hosts[host], hosts[host])
        where = (int(weights.layer[mine[0]]), int(weights.domain[mine[0]]))
        found.append(Suspicion("SlowLink", subject, None, *where, 0.8, text, (weights.source,), figures=said))
    for row in weak.tolist():
        a, b = int(weights.a[row]), int(weights.b[row])
        if a in at_fault or b in at_fault:
            continue
        rail = weights.rails[row] if weights.rails else None
        here, _, there = (rail or "").partition("~")
        subject = Endpoint(hosts[a], hosts[a], here or None)
        peer = Endpoint(hosts[b], hosts[b], there or here or None) if a != b else None
        ends = hosts[a] if peer is None else f"{hosts[a]} -> {hosts[b]}{f' on {rail}' if rail else ''}"
        gbps_of_row = float(weights.gbps[row])
        text = f"{ends}: {digits(gbps_of_row, 3)} Gbit/s {usual}"
        said = figures(bandwidth_gbps=gbps_of_row) + of_tier
        where = (int(weights.layer[row]), int(weights.domain[row]))
        confidence = 0.8 if peer is None else 0.5  # a pair does not show which end is at fault
        found.append(
            Suspicion("SlowLink", subject, peer, *where, confidence, text, (weights.source,), figures=said)
        )
    return found
