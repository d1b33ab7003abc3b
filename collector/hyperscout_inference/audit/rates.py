"""Links that run slower than their peers."""

from collections.abc import Callable, Sequence

import numpy as np
from hyperscout_topology.topology import say

from hyperscout_inference.audit.ranks import Place, Rank
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.inputs import SweepSeen
from hyperscout_inference.fabric.network import Network

# If more than this share of a group is below its usual rate, the group is built that way.
_SLOW_SHARE = 0.2
_MAX_GBPS = 100_000  # a faster rate is a wrong report, for example SPEED_UNKNOWN of ethtool


def slow_links(
    net: Network,
    rank: Rank,
    place: Callable[[int], Place],
    sources: tuple[str, ...],
    sweeps: Sequence[SweepSeen] = (),
) -> list[Suspicion]:
    """Return the cables of a rank below the usual rate of their group. `place`: the domain of a lower device.
    `sweeps` give the number of lanes."""
    grouping = rank.grouping
    rate = net.rate_gbps[rank.rows]
    rate = np.where(rate < _MAX_GBPS, rate, 0)
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
        peers = known & (group == group[row]) & (millis == usual[group[row]])
        like = int(rank.rows[np.flatnonzero(peers)[0]])
        lanes, all_lanes = (_lanes(net, cable, sweeps) for cable in (int(rank.rows[row]), like))
        few_of = f" ({lanes} lane{'s'[: lanes > 1]} of {all_lanes})" if 0 < lanes < all_lanes else ""
        pace = f"{rate[row]:g} Gb/s{few_of}, its peers at {usual[group[row]] / 1000:g} Gb/s"
        text = f"{say(subject)} to {say(peer)} runs at {pace}"
        found.append(Suspicion("SlowLink", subject, peer, *place(int(rank.lower[row])), 0.8, text, sources))
    return found


def _lanes(net: Network, cable: int, sweeps: Sequence[SweepSeen]) -> int:
    """Return the number of active lanes of an InfiniBand cable, 0 = unknown."""
    if not net.fabrics[net.fabric[cable]].startswith("infiniband"):
        return 0
    for device, port in (net.a[cable], net.a_port[cable]), (net.b[cable], net.b_port[cable]):
        guid = np.uint64(int(net.ids[device], 16))
        for seen in reversed(sweeps):
            sweep = seen.sweep
            at = np.flatnonzero((sweep.guid[sweep.device] == guid) & (sweep.port == port))
            if len(at):
                return int(sweep.width[at[0]])
    return 0


def _port(net: Network, rank: Rank, row: int, device: int) -> int:
    cable = int(rank.rows[row])
    return int(net.a_port[cable] if int(net.a[cable]) == device else net.b_port[cable])
