"""Links that run slower than their like peers, although both devices have faster ones.

A device none of whose links is faster is of an older generation, and its links are not slow. A link with some
of its lanes only is slow, except on a splitter cable, where a neighbour has the other lanes.
"""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt
from hyperscout_formats.text.counts import count
from hyperscout_topology.topology import say

from hyperscout_inference.audit.audit import EITHER, INFERRED
from hyperscout_inference.audit.ranks import Place, Rank
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.inputs import SweepSeen
from hyperscout_inference.fabric.network import Network, distinct, distinct_counts, distinct_places
from hyperscout_inference.grouping.grouping import Bools, Longs

# If more than this share of a group is below its usual rate, the group is built that way.
_SLOW_SHARE = 0.2
MAX_GBPS = 100_000  # a faster rate is a wrong report, for example SPEED_UNKNOWN of ethtool
_PEERS = 2  # fewer others do not show what is usual


def slow_links(
    net: Network,
    rank: Rank,
    group_of: Longs,
    place: Callable[[int], Place],
    sources: tuple[str, ...],
    sweeps: Sequence[SweepSeen],
) -> list[Suspicion]:
    """Return the cables of a rank below the usual rate of their group. `group_of`: (hosts,) in the lowest
    rank, else (distinct lower switches,). `place`: the domain of a lower device. `sweeps` give the number of
    lanes."""
    groups = int(group_of.max(initial=-1)) + 1
    rate = _rates(net, rank.rows)
    rated = rate[rate > 0]
    if not groups or not len(rated) or rated.min() == rated.max():
        return []
    of_hosts = bool((net.host[rank.lower] >= 0).all())
    lower = net.host[rank.lower] if of_hosts else distinct_places(rank.lower)[1]
    group = group_of[lower]
    known = (rate > 0) & (group >= 0)
    millis = np.round(rate * 1000).astype(np.int64)
    usual = _usual(group, millis, known, groups)
    total = np.bincount(group[known], minlength=groups)
    below = known & (millis < usual[group] * 0.99)
    if not below.any():
        return []
    lanes, every = _Lanes(net, sweeps), _rates(net, slice(None))
    for row in np.flatnonzero(below & (total[group] <= _PEERS)).tolist():
        below[row] = 0 < lanes.of(int(rank.rows[row])) < lanes.most  # of two cables, either may be usual
    slow, alone = _slow(
        net, rank, every, below, lower.astype(np.int64), group_of if of_hosts else None, lanes
    )
    few = np.bincount(group[slow], minlength=groups) <= np.maximum(1, _SLOW_SHARE * total)
    found = []
    for row in np.flatnonzero((slow | alone) & few[group]).tolist():
        device = int(rank.lower[row])
        subject, peer = (
            net.end(device, _port(net, rank, row)),
            net.end(int(rank.upper[row]), int(rank.upper_port[row])),
        )
        like = int(
            rank.rows[np.flatnonzero(known & (group == group[row]) & (millis == usual[group[row]]))[0]]
        )
        has, all_lanes = lanes.of(int(rank.rows[row])), lanes.of(like)
        few_of = f" ({count(has, 'lane')} of {all_lanes})" if 0 < has < all_lanes else ""
        pace = f"{rate[row]:g} Gb/s{few_of}, its peers at {usual[group[row]] / 1000:g} Gb/s"
        text = f"{say(subject)} to {say(peer)} runs at {pace}"
        sure = INFERRED if slow[row] else EITHER
        found.append(Suspicion("SlowLink", subject, peer, *place(device), sure, text, sources))
    return found


def _rates(net: Network, rows: Longs | slice) -> npt.NDArray[np.float32]:
    """Return (rows,) the rate of each cable in Gbit/s; 0 = unknown, or not of the compute fabric."""
    rate = net.rate_gbps[rows]
    return np.where((rate < MAX_GBPS) & net.shapes[rows], rate, np.float32(0))


def _usual(group: Longs, millis: Longs, known: Bools, groups: int) -> Longs:
    """Return (groups,) the rate in Mbit/s that most cables of a group have."""
    key, cables = distinct_counts(group[known] * 10**8 + millis[known])
    owner = key // 10**8
    order = np.lexsort((-key, -cables, owner))
    lead = order[np.r_[True, owner[order][1:] != owner[order][:-1]]] if len(order) else order
    usual = np.zeros(groups, np.int64)
    usual[owner[lead]] = key[lead] % 10**8
    return usual


def _slow(
    net: Network,
    rank: Rank,
    every: npt.NDArray[np.float32],
    below: Bools,
    lower: Longs,
    group: Longs | None,
    lanes: "_Lanes",
) -> tuple[Bools, Bools]:
    """Return (cables,) which of the cables `below` the usual rate are slow, and which are the cables of a
    host that is slower as a whole and the only one of its domain. `group`: (hosts,) the domain; None = the
    rank is one of switches."""
    device = _second_best(np.concatenate([net.a, net.b]), np.concatenate([every, every]), len(net.ids))
    host = np.zeros(len(net.hosts) + 1, np.float32)  # the last one: no host
    for end in (net.a, net.b):
        np.maximum.at(host, net.host[end], every)
    can = device[rank.lower] if group is None else host[net.host[rank.lower]]
    slow = below & (every[rank.rows] < 0.99 * np.minimum(can, device[rank.upper]))
    every_row = np.flatnonzero(below).tolist()
    partial = {row: n for row in every_row if 0 < (n := lanes.of(int(rank.rows[row]))) < lanes.most}
    shared = _on_splitters(rank, {row for row, n in partial.items() if 2 * n == lanes.most})
    slow[shared] = False
    rest = [row for row in sorted(partial.keys() - set(shared)) if not slow[row]]
    alone = np.zeros(len(below), np.bool_)
    if group is None:
        slow[rest] = True
        return slow, alone
    halved = np.zeros(len(below), np.bool_)  # with half of the lanes: slow, or on a splitter cable
    for row in rest:
        (halved if 2 * partial[row] == lanes.most else slow)[row] = True
    older = below & ~slow
    hosts = distinct(lower[older])
    members = np.bincount(group[group >= 0])
    lone = (np.bincount(group[hosts], minlength=len(members)) == 1) & (members > _PEERS)
    whole = older & lone[group[lower]]
    whole[list(partial)] = False
    return slow, whole | halved


def _second_best(
    device: npt.NDArray[np.int32], rate: npt.NDArray[np.float32], devices: int
) -> npt.NDArray[np.float32]:
    """Return (devices,) the second highest rate of the cables of each device; of a single cable, its rate."""
    order = np.lexsort((-rate, device))
    first = np.searchsorted(device[order], np.arange(devices))
    cables = np.bincount(device, minlength=devices)
    best = np.zeros(devices, np.float32)
    some = cables > 0
    best[some] = rate[order][(first + (cables > 1))[some]]
    return best


def _on_splitters(rank: Rank, halves: Collection[int]) -> list[int]:
    """Return the cables on splitters: the switch has cables of `halves` to at least two devices.

    `halves`: cables that use half of their lanes.
    """
    ends: dict[int, set[int]] = {}
    for row in halves:
        ends.setdefault(int(rank.upper[row]), set()).add(int(rank.lower[row]))
    return [row for row in halves if len(ends[int(rank.upper[row])]) > 1]


class _Lanes:
    """The active lanes of InfiniBand cables, by the newest sweep that has the port."""

    def __init__(self, net: Network, sweeps: Sequence[SweepSeen]) -> None:
        self._net = net
        self._sweeps = [seen.sweep for seen in reversed(sweeps)]
        self._index: list[tuple[Longs, Longs]] = []  # of each sweep: devices by GUID, rows by device
        self.most = max((int(s.width.max(initial=0)) for s in self._sweeps), default=0)

    def of(self, cable: int) -> int:
        """Return the number of lanes of a cable of the network, 0 = unknown."""
        net = self._net
        if not net.fabrics[net.fabric[cable]].startswith("infiniband"):
            return 0
        if not self._index:
            self._index = [(np.argsort(s.guid), np.argsort(s.device, kind="stable")) for s in self._sweeps]
        for device, port in (net.a[cable], net.a_port[cable]), (net.b[cable], net.b_port[cable]):
            guid = np.uint64(int(net.ids[device], 16))
            for sweep, (by_guid, by_device) in zip(self._sweeps, self._index, strict=True):
                at = int(np.searchsorted(sweep.guid, guid, sorter=by_guid))
                if at == len(by_guid) or sweep.guid[by_guid[at]] != guid:
                    continue
                begin, end = np.searchsorted(
                    sweep.device, (by_guid[at], by_guid[at] + 1), sorter=by_device
                ).tolist()
                for row in by_device[begin:end].tolist():
                    if sweep.port[row] == port:
                        return int(sweep.width[row])
        return 0


def _port(net: Network, rank: Rank, row: int) -> int:
    cable, device = int(rank.rows[row]), int(rank.lower[row])
    return int(net.a_port[cable] if int(net.a[cable]) == device else net.b_port[cable])
