"""Audit switches against the switches above them, and cables that join no neighbouring levels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout_topology.topology import say

from hyperscout_inference.audit.audit import EITHER, INFERRED, Cables, audit
from hyperscout_inference.audit.lateral import lateral_suspicions
from hyperscout_inference.audit.ranks import NOWHERE, Place, Rank, all_sources, pick
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.network import Ints, Network, distinct
from hyperscout_inference.grouping.grouping import Longs, group_children
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.grouping.tiers import WOVEN, has_long_cables, switch_cable_rows


def switch_ranks(
    net: Network, level: Ints, layers: list[Layer], home: dict[int, Place], hosts: Rank
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
        found += _exchanged(net, rank, rail[below], home)
    pairs = _Pairs(rows, lower, upper, lower_port, upper_port)
    found += _to_other_groups(net, level, layers, home, pairs, found)
    found += _skipping(net, level, home, pairs)
    found += _sideways(net, level, home, pairs, has_long_cables(layers))
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
        maybe = Suspicion(
            "Miswired", subject, peer, *home.get(device, NOWHERE), EITHER, text, all_sources(net)
        )
        if maybe.ends not in already:
            found.append(maybe)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """All cables between two switches, shape (cables,) each. `rows`: of the network."""

    rows: npt.NDArray[np.intp]
    lower: Ints
    upper: Ints
    lower_port: Ints
    upper_port: Ints

    def miswired(self, net: Network, row: int, place: Place, confidence: float, what: str) -> Suspicion:
        subject = net.end(int(self.lower[row]), int(self.lower_port[row]))
        peer = net.end(int(self.upper[row]), int(self.upper_port[row]))
        text = f"the cable from {say(subject)} to {say(peer)} {what}"
        return Suspicion("Miswired", subject, peer, *place, confidence, text, all_sources(net))


def _exchanged(net: Network, rank: Rank, rail: Longs, home: dict[int, Place]) -> list[Suspicion]:
    """Return the cables of two switches that have exchanged all their cables up, by the rails of the hosts
    below them: each is above the switches of the other one's rail."""
    group = rank.grouping.group
    usual = np.full(max(1, rank.grouping.count), -1, np.int64)
    _majority(usual, group[group >= 0], rail[group >= 0])
    misfit = np.flatnonzero((group >= 0) & (rail >= 0) & (usual[group] >= 0) & (usual[group] != rail))
    where = Counter((int(rail[s]), int(usual[group[s]])) for s in misfit.tolist())
    wrong = np.zeros(len(group), np.bool_)
    for s in misfit.tolist():
        wrong[s] = where[int(usual[group[s]]), int(rail[s])] > 0
    if not wrong.any():
        return []
    below = np.unique(rank.lower, return_inverse=True)[1]
    pairs = _Pairs(
        rank.rows, rank.lower, rank.upper, rank.lower_port.astype(np.int32), rank.upper_port.astype(np.int32)
    )
    what = "leads to the switches of another rail"
    return [
        pairs.miswired(net, row, home.get(int(rank.lower[row]), NOWHERE), INFERRED, what)
        for row in np.flatnonzero(wrong[below]).tolist()
    ]


def _to_other_groups(
    net: Network,
    level: Ints,
    layers: list[Layer],
    home: dict[int, Place],
    pairs: _Pairs,
    known: Sequence[Suspicion],
) -> list[Suspicion]:
    """Return cables to a switch of another group than most cables of the switch's domain lead to."""
    found: list[Suspicion] = []
    already = {s.ends for s in known if s.kind == "Miswired"}
    for depth in range(1, len(layers)):
        below, layer = layers[depth - 1], layers[depth]
        of_lower, of_upper = (np.full(len(net.ids), -1, np.int64) for _ in range(2))
        for domain, switches in enumerate(below.switches):
            of_lower[list(switches)] = domain
        for group, switches in enumerate(layer.switches):
            of_upper[list(switches)] = group
        own, other = of_lower[pairs.lower], of_upper[pairs.upper]
        rows = np.flatnonzero((own >= 0) & (other >= 0) & (level[pairs.lower] < level[pairs.upper]))
        away = rows[layer.child[own[rows]] != other[rows]]
        if not len(away):
            continue
        total = np.bincount(own[rows], minlength=below.count)
        astray = np.bincount(own[away], minlength=below.count)
        for row in away.tolist():
            domain = int(own[row])
            device = int(pairs.lower[row])
            sure = 0.9 if astray[domain] * 2 < total[domain] else EITHER
            what = "leads to another group of switches than most cables of its domain"
            suspicion = pairs.miswired(net, row, home.get(device, NOWHERE), sure, what)
            if suspicion.ends not in already:
                found.append(suspicion)
    return found


def _skipping(net: Network, level: Ints, home: dict[int, Place], pairs: _Pairs) -> list[Suspicion]:
    """Return cables that skip a level, of switches most of whose other cables up do not."""
    up = (level[pairs.lower] > 0) & (level[pairs.upper] > level[pairs.lower])
    skips = up & (level[pairs.upper] > level[pairs.lower] + 1)
    cables, skipping = (np.bincount(pairs.lower[rows], minlength=len(net.ids)) for rows in (up, skips))
    few = skips & (skipping * 2 < cables)[pairs.lower]
    return [
        pairs.miswired(net, row, home.get(int(pairs.lower[row]), NOWHERE), INFERRED, "skips a level")
        for row in np.flatnonzero(few).tolist()
    ]


def _sideways(
    net: Network, level: Ints, home: dict[int, Place], pairs: _Pairs, long_cables: bool
) -> list[Suspicion]:
    """Return cables between two switches of one level where that is not usual, and the suspicions about the
    usual ones. Parallel cables are no mistake."""
    peers = (level[pairs.lower] > 0) & (level[pairs.lower] == level[pairs.upper])
    if not peers.any():
        return []
    ends = np.sort(np.stack([pairs.lower, pairs.upper]), axis=0)
    _, pair, times = np.unique(ends, axis=1, return_inverse=True, return_counts=True)
    single = peers & (times[pair.ravel()] == 1)
    suspect = np.zeros(len(peers), np.bool_)
    for rank in distinct(level[pairs.lower[peers]]).tolist():
        here = peers & (level[pairs.lower] == rank)
        wired = len(distinct(np.concatenate([pairs.lower[here], pairs.upper[here]])))
        # If half of a level has such cables, the fabric is built that way (dragonfly+, peer links, a ring); a
        # single one above the leaves is a mistake.
        lone = np.count_nonzero(here) == 1 and rank > 1
        few = wired * 2 < np.count_nonzero(level == rank) or lone
        if few and not (long_cables and rank > 1):
            suspect |= here & single
    found = lateral_suspicions(net, level, pairs.rows[peers & ~suspect], home)
    for row in np.flatnonzero(suspect).tolist():
        place = home.get(int(pairs.lower[row]), NOWHERE)
        found.append(pairs.miswired(net, row, place, INFERRED, "joins two switches of one level"))
    return found


def loops(net: Network, home: dict[int, Place]) -> list[Suspicion]:
    """Return cables from a switch to itself."""
    found = []
    for row in np.flatnonzero((net.a == net.b) & net.is_switch[net.a]).tolist():
        switch = int(net.a[row])
        subject, peer = net.end(switch, int(net.a_port[row])), net.end(switch, int(net.b_port[row]))
        text = f"the cable from {say(subject)} to {say(peer)} joins a switch with itself"
        place = home.get(switch, NOWHERE)
        found.append(Suspicion("Miswired", subject, peer, *place, 0.9, text, all_sources(net)))
    return found
