"""Find paths with less bandwidth than others of their tier.

One end alone reports a result of NCCL, so any host may report any bandwidth with all others. A path therefore
counts as weak only if it is weak compared with the rows that are left without those of any one other host. A
host is reported only if the same holds without its paths to any one peer.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hyperscout_topology.figures import digits, figures
from hyperscout_topology.topology import Endpoint

from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.latency.pairs import Floats, Longs

_MIN_ROWS = 6  # rows of a tier that are needed for a usual value, without those of any one other host
_MIN_PEERS = 3  # of a host: peers with weak paths that are needed to report the host, without any one of them
# Hosts with a smaller share of a tier's rows are not left out: they move its median by 1 % of the rows at
# most. At most 100 hosts are above it, so that the work for many rows is bounded.
_LEFT_OUT_SHARE = 0.02
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
            found += _of_tier(hosts, weights, rows)
    return found


def _of_tier(hosts: Sequence[str], weights: Weights, rows: Longs) -> list[Suspicion]:
    weak = _weak(weights, rows, len(hosts))
    if not len(weak):
        return []
    median = float(np.median(weights.gbps[rows]))
    count = np.bincount(np.concatenate([weights.a[rows], weights.b[rows]]), minlength=len(hosts))
    at_fault = _at_fault(weights, rows, weak)
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


def _weak(weights: Weights, rows: Longs, hosts: int) -> Longs:
    """Return the rows that are weak, also without those of any one host that is not an end of them."""
    weak = rows[weights.gbps[rows] < _limit(weights.gbps[rows])]
    if not len(weak):
        return weak
    a, b = weights.a[rows], weights.b[rows]
    count = np.bincount(a, minlength=hosts) + np.bincount(b[a != b], minlength=hosts)
    for host in np.flatnonzero(count > _LEFT_OUT_SHARE * len(rows)).tolist():
        limit = _limit(weights.gbps[rows[(a != host) & (b != host)]])
        own = (weights.a[weak] == host) | (weights.b[weak] == host)
        weak = weak[own | (weights.gbps[weak] < limit)]
    return weak


def _limit(gbps: Floats) -> float:
    """Return the bandwidth below which a row is weak; 0 if there are too few rows."""
    if len(gbps) < _MIN_ROWS:
        return 0.0
    median = float(np.median(gbps))
    spread = _SIGMA * float(np.median(np.abs(gbps - median)))
    return min(_WEAK * median, median - _SPREAD * spread)


def _at_fault(weights: Weights, rows: Longs, weak: Longs) -> set[int]:
    """Return the hosts that are weak in most of their rows, also without those to any one peer."""
    found: set[int] = set()
    peers, weak_peers = _rows_by_peer(weights, rows), _rows_by_peer(weights, weak)
    for host, bad in weak_peers.items():
        total, weak_total = peers[host].total(), bad.total()
        if len(bad) > _MIN_PEERS and all(
            (weak_total - bad[peer]) * 2 > total - of for peer, of in peers[host].items()
        ):
            found.add(host)
    return found


def _rows_by_peer(weights: Weights, rows: Longs) -> dict[int, Counter[int]]:
    """Return for each host the number of rows with each other host: several, where there are rails."""
    found: dict[int, Counter[int]] = {}
    for a, b in zip(weights.a[rows].tolist(), weights.b[rows].tolist(), strict=True):
        if a != b:
            found.setdefault(a, Counter())[b] += 1
            found.setdefault(b, Counter())[a] += 1
    return found
