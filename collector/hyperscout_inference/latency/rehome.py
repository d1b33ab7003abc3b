"""Try again to place hosts that ended up alone in their domain.

A host with an own part that was estimated too small seems far from all others, and its values then agree
with that. So it is tried in each place that its peers are in, with the own part that fits best there.
"""

from typing import Final

import numpy as np

from hyperscout_inference.latency.edges import Edges
from hyperscout_inference.latency.grouping import numbered
from hyperscout_inference.latency.pairs import Floats, Longs

MAX_HOSTS: Final = 512  # hosts that are tried
PEERS: Final = 5  # values that a place must explain
AT_ONCE: Final = 200_000  # values that are compared at a time
BETTER: Final = 0.75  # a new place must leave less than this share of the present remainder


def rehomed(edges: Edges, domain: list[Longs], offset_us: Floats, rtt_us: Floats) -> list[Longs]:
    """Return the domains, with lone hosts moved to where their values fit clearly better."""
    tiers = len(domain)
    if tiers < 2:
        return domain
    placed = domain[0] >= 0
    size = np.bincount(domain[0][placed])
    alone = np.flatnonzero(placed & (size[domain[0]] == 1))[:MAX_HOSTS]
    result = [labels.copy() for labels in domain]
    matrix = np.stack(domain)
    for host in alone.tolist():
        mine = (edges.a == host) | (edges.b == host)
        peers = np.where(edges.a[mine] == host, edges.b[mine], edges.a[mine])
        if len(peers) < PEERS:
            continue
        value = edges.rtt_us[mine] - offset_us[peers]
        now = _left(value[None], rtt_us[_tiers(matrix[:, [host]], matrix[:, peers])])[0]
        best, home, level = BETTER * now, -1, 0
        _, first = np.unique(matrix[0, peers], return_index=True)
        each = max(1, AT_ONCE // len(peers))
        for places in np.split(peers[first], range(each, len(first), each)):
            near = _tiers(matrix[:, places], matrix[:, peers])
            for lowest in range(tiers - 1):
                left = _left(value[None], rtt_us[np.maximum(near, lowest)])
                nearest = int(np.argmin(left))
                if left[nearest] < best:
                    best, home, level = float(left[nearest]), int(places[nearest]), lowest
        if home >= 0:
            for tier in range(level, tiers):
                result[tier][host] = matrix[tier, home]
    return [_renumbered(labels) for labels in result]


def _tiers(some: Longs, others: Longs) -> Longs:
    """(some, others) the lowest tier at which each of `some` is in one domain with each of `others`."""
    return np.asarray(np.argmax(some[:, :, None] == others[:, None, :], axis=0), np.int64)


def _left(value: Floats, step_us: Floats) -> Floats:
    """(places,) what the steps and the best own part leave unexplained, us."""
    own = value - step_us
    return np.asarray(np.abs(own - np.median(own, axis=1, keepdims=True)).mean(axis=1))


def _renumbered(labels: Longs) -> Longs:
    result = np.full(len(labels), -1)
    result[labels >= 0] = numbered(labels[labels >= 0])
    return result
