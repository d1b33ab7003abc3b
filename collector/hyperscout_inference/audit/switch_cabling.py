"""Audit switches against the switches above them, and cables that join no neighbouring levels."""

import numpy as np
import numpy.typing as npt
from hyperscout_topology.topology import say

from hyperscout_inference.audit.audit import Cables, audit
from hyperscout_inference.audit.lateral import lateral_suspicions
from hyperscout_inference.audit.ranks import NOWHERE, Place, Rank, all_sources, pick
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.network import Ints, Network, distinct
from hyperscout_inference.grouping.grouping import Longs, group_children
from hyperscout_inference.grouping.tiers import WOVEN, switch_cable_rows


def switch_ranks(
    net: Network, level: Ints, home: dict[int, Place], hosts: Rank, long_cables: bool
) -> tuple[dict[int, Rank], list[Suspicion]]:
    """Return the ranks of switches and switches one level above, by the lower level, and their missing and
    miswired cables."""
    rail = np.full(len(net.ids), -1, np.int64)
    _majority(rail, hosts.upper.astype(np.int64), hosts.lower_port)
    rows = switch_cable_rows(net)
    flip = level[net.a[rows]] > level[net.b[rows]]
    lower, lower_port = pick(flip, net.b[rows], net.a[rows]), pick(flip, net.b_port[rows], net.a_port[rows])
    upper, upper_port = pick(flip, net.a[rows], net.b[rows]), pick(flip, net.a_port[rows], net.b_port[rows])
    step = level[upper] - level[lower]
    ranks: dict[int, Rank] = {}
    found: list[Suspicion] = []
    for low in range(1, int(level.max(initial=0))):
        mine = np.flatnonzero((level[lower] == low) & (step == 1))
        ports = lower_port[mine].astype(np.int64), upper_port[mine].astype(np.int64)
        below, child = np.unique(lower[mine], return_inverse=True)
        above, item = np.unique(upper[mine], return_inverse=True)
        grouping = group_children(len(below), child, item, kin=rail[below], merge_share=WOVEN)
        found_here = audit(len(below), Cables(child, item, *ports), grouping)
        rank = Rank(rows[mine], lower[mine], upper[mine], *ports, grouping, found_here)
        # A switch belongs to the rail of most switches below it; shared ones belong to none.
        _majority(rail, rank.upper.astype(np.int64), rail[rank.lower])
        ranks[low] = rank
        found += _switch_verdicts(net, rank, below, above, home)
    found += _astray_switch_cables(
        net, level, rows, home, long_cables, lower, lower_port, upper, upper_port, step
    )
    return ranks, found


def _majority(label: Longs, device: Longs, value: Longs) -> None:
    """Set the label of each device to the value that most of its rows have (-1 = none)."""
    known = value >= 0
    if not known.any():
        return
    width = int(value.max()) + 1
    key, votes = np.unique(device[known] * width + value[known], return_counts=True)
    owner = key // width
    total = np.bincount(owner, weights=votes)
    firm = votes * 2 > total[owner]
    label[owner[firm]] = key[firm] % width


def _switch_verdicts(
    net: Network, rank: Rank, below: Ints, above: Ints, home: dict[int, Place]
) -> list[Suspicion]:
    found = []
    for m in rank.audit.missing:
        device = int(below[m.child])
        subject, peer = net.end(device, m.child_port), net.end(int(above[m.item]), m.item_port)
        text = f"no link from {say(subject)} to {say(peer)}; its peers have one"
        found.append(
            Suspicion(
                "MissingLink", subject, peer, *home.get(device, NOWHERE), m.confidence, text, all_sources(net)
            )
        )
    for s in rank.audit.stray:
        device, port = int(rank.lower[s.row]), int(rank.lower_port[s.row])
        subject, peer = net.end(device, port), net.end(int(rank.upper[s.row]), int(rank.upper_port[s.row]))
        goal = (
            f", expected {say(net.end(int(above[s.item]), s.item_port))}"
            if s.item >= 0
            else ", unlike its peers"
        )
        text = f"{say(subject)} is plugged into {say(peer)}{goal}"
        found.append(
            Suspicion(
                "Miswired", subject, peer, *home.get(device, NOWHERE), s.confidence, text, all_sources(net)
            )
        )
    already = {s.ends for s in found}
    tied = np.flatnonzero(rank.grouping.tie[np.searchsorted(below, rank.lower)])
    for row in tied.tolist():
        device = int(rank.lower[row])
        subject, peer = (
            net.end(device, int(rank.lower_port[row])),
            net.end(int(rank.upper[row]), int(rank.upper_port[row])),
        )
        text = (
            f"{net.names[device]} has equally many cables to two groups of switches: "
            f"the cable from {say(subject)} to {say(peer)} may be wrong"
        )
        maybe = Suspicion("Miswired", subject, peer, *home.get(device, NOWHERE), 0.5, text, all_sources(net))
        if maybe.ends not in already:
            found.append(maybe)
    return found


def _astray_switch_cables(
    net: Network,
    level: Ints,
    rows: npt.NDArray[np.intp],
    home: dict[int, Place],
    long_cables: bool,
    lower: Ints,
    lower_port: Ints,
    upper: Ints,
    upper_port: Ints,
    step: Ints,
) -> list[Suspicion]:
    """Return cables that skip a level, or join two switches of one level where that is not usual; and the
    suspicions about the usual ones."""
    known = (level[lower] > 0) & (level[upper] > 0)
    peers = known & (step == 0)
    owners = np.full((len(net.ids), 2), -1, np.int64)
    for switch, place in home.items():
        owners[switch] = place
    together = (owners[lower] == owners[upper]).all(axis=1) & (owners[lower][:, 0] >= 0)
    suspect = known & (step > 1)
    usual = peers & together
    for rank in distinct(level[lower[peers]]).tolist():
        here = peers & (level[lower] == rank) & ~together
        wired = len(distinct(np.concatenate([lower[here], upper[here]])))
        # If half of a level has such cables, the fabric is built that way (dragonfly+, a ring of peer links).
        if wired * 2 < np.count_nonzero(level == rank) and not (long_cables and rank > 1):
            suspect |= here
        else:
            usual |= here
    found = lateral_suspicions(net, level, rows[usual], home)
    for row in np.flatnonzero(suspect).tolist():
        subject, peer = (
            net.end(int(lower[row]), int(lower_port[row])),
            net.end(int(upper[row]), int(upper_port[row])),
        )
        what = "skips a level" if step[row] > 1 else "joins two switches of one level"
        place = home.get(int(lower[row]), NOWHERE)
        text = f"the cable from {say(subject)} to {say(peer)} {what}"
        found.append(Suspicion("Miswired", subject, peer, *place, 0.7, text, all_sources(net)))
    return found
