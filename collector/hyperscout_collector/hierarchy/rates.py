"""Links that run slower than their peers."""

from collections.abc import Callable

import numpy as np

from hyperscout_collector.fabric.network import Network
from hyperscout_collector.hierarchy.ranks import Place, Rank
from hyperscout_collector.hierarchy.suspicion import Suspicion
from hyperscout_collector.topology import say

# A group in which more than this share runs below the usual rate was built so.
_SLOW_SHARE = 0.2


def slow_links(
    net: Network, rank: Rank, place: Callable[[int], Place], sources: tuple[str, ...]
) -> list[Suspicion]:
    """Cables of a rank below the usual rate of their group. `place`: the domain of a lower device."""
    grouping = rank.grouping
    rate = net.rate_gbps[rank.rows]
    if not grouping.count or not (rate > 0).any():
        return []
    lower = (
        net.host[rank.lower]
        if (net.host[rank.lower] >= 0).all()
        else np.unique(rank.lower, return_inverse=True)[1]
    )
    group = grouping.group[lower]
    found = []
    known = (rate > 0) & (group >= 0)
    millis = np.round(rate * 1000).astype(np.int64)
    key, count = np.unique(group[known] * 10**8 + millis[known], return_counts=True)
    owner = key // 10**8
    order = np.lexsort((-key, -count, owner))
    lead = order[np.r_[True, owner[order][1:] != owner[order][:-1]]] if len(order) else order
    usual = np.zeros(grouping.count, np.int64)
    usual[owner[lead]] = key[lead] % 10**8
    total = np.bincount(group[known], minlength=grouping.count)
    slow = known & (millis < usual[group] * 0.99)
    slow_count = np.bincount(group[slow], minlength=grouping.count)
    few = slow_count <= np.maximum(1, _SLOW_SHARE * total)
    for row in np.flatnonzero(slow & few[group] & (total[group] > 2)).tolist():
        subject = net.end(int(rank.lower[row]), _port(net, rank, row, int(rank.lower[row])))
        peer = net.end(int(rank.upper[row]), int(rank.upper_port[row]))
        pace = f"{rate[row]:g} Gb/s, its peers at {usual[group[row]] / 1000:g} Gb/s"
        text = f"{say(subject)} to {say(peer)} runs at {pace}"
        found.append(Suspicion("SlowLink", subject, peer, *place(int(rank.lower[row])), 0.8, text, sources))
    return found


def _port(net: Network, rank: Rank, row: int, device: int) -> int:
    cable = int(rank.rows[row])
    return int(net.a_port[cable] if int(net.a[cable]) == device else net.b_port[cable])
