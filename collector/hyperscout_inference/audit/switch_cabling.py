"""Audit switches against the switches above them, and cables that join no neighbouring levels."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout_topology.topology import say

from hyperscout_inference.audit.audit import EITHER, INFERRED, Audit, Cables, audit
from hyperscout_inference.audit.lateral import lateral_suspicions
from hyperscout_inference.audit.ranks import NOWHERE, Place, Rank, pick
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.network import Ints, Network, distinct, distinct_counts, distinct_places
from hyperscout_inference.grouping.grouping import Grouping, Longs, group_children
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.grouping.tiers import WOVEN, has_long_cables, switch_cable_rows

# Cables within a level are few below this share of its cables to other levels.
_FEW_SIDEWAYS = 0.25


def switch_ranks(
    net: Network, level: Ints, layers: Sequence[Layer], home: dict[int, Place], hosts: Rank
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
        below, child = distinct_places(lower[mine])
        above, item = distinct_places(upper[mine])
        grouping = group_children(len(below), child, item, kin=rail[below], merge_share=WOVEN)
        found_here = audit(len(below), Cables(child, item, *ports), grouping)
        rank = Rank(rows[mine], lower[mine], upper[mine], *ports, grouping, found_here)
        # A switch belongs to the rail of most switches below it; shared ones belong to none.
        _majority(rail, rank.upper.astype(np.int64), rail[rank.lower])
        ranks[low] = rank
        found += _switch_verdicts(net, rank, below, above, home)
        found += _exchanged(net, rank, home)
    pairs = _Pairs(rows, lower, upper, lower_port, upper_port)
    found += _to_other_groups(net, level, layers, home, pairs, found)
    found += _skipping(net, level, home, pairs)
    found += _sideways(net, level, home, pairs, has_long_cables(layers))
    return ranks, found


def ranks_beside(net: Network, level: Ints) -> list[Rank]:
    """Return the cables that join no neighbouring levels (long cables, peer links, leaves on cores), one rank
    for each pair of levels, as one group each and without an audit."""
    rows = switch_cable_rows(net)
    one, other = level[net.a[rows]], level[net.b[rows]]
    rows = rows[(one > 0) & (other > 0) & (abs(one - other) != 1)]
    flip = level[net.a[rows]] > level[net.b[rows]]
    lower, upper = pick(flip, net.b[rows], net.a[rows]), pick(flip, net.a[rows], net.b[rows])
    ports = pick(flip, net.b_port[rows], net.a_port[rows]), pick(flip, net.a_port[rows], net.b_port[rows])
    found = []
    for low, high in sorted({*zip(level[lower].tolist(), level[upper].tolist(), strict=True)}):
        mine = (level[lower] == low) & (level[upper] == high)
        switches = len(distinct(lower[mine]))
        group = Grouping(np.zeros(switches, np.int64), [()], np.zeros(switches, np.bool_))
        own, far = (x[mine].astype(np.int64) for x in ports)
        found.append(Rank(rows[mine], lower[mine], upper[mine], own, far, group, Audit((), (), (), ())))
    return found


def _majority(label: Longs, device: Longs, value: Longs) -> None:
    """Set the label of each device to the value that most of its rows have (-1 = none)."""
    known = value >= 0
    if not known.any():
        return
    width = int(value.max()) + 1
    key, votes = distinct_counts(device[known] * width + value[known])
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
                "MissingLink", subject, peer, *home.get(device, NOWHERE), m.confidence, text, net.all_sources
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
                "Miswired", subject, peer, *home.get(device, NOWHERE), s.confidence, text, net.all_sources
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
            "Miswired", subject, peer, *home.get(device, NOWHERE), EITHER, text, net.all_sources
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
        return Suspicion("Miswired", subject, peer, *place, confidence, text, net.all_sources)


def _exchanged(net: Network, rank: Rank, home: dict[int, Place]) -> list[Suspicion]:
    """Return the cables of two switches that have exchanged all their cables up.

    The switches of a domain are below different groups (the switches of a rail), and domains follow each
    other in the same order on the ports of each group. An exchanged switch is below the group of another
    switch of its domain, in the place of the other domain.
    """
    below = distinct(rank.lower)
    places = [home.get(switch) for switch in below.tolist()]
    if rank.grouping.count < 2 or max(Counter(places).values()) < 3:
        return []
    row_of = np.searchsorted(below, rank.lower)
    first = np.full(len(below), np.iinfo(np.int64).max)
    np.minimum.at(first, row_of, rank.upper_port)
    groups = rank.grouping.group.tolist()
    members: dict[Place, list[int]] = defaultdict(list)
    order: list[list[tuple[int, Place]]] = [[] for _ in range(rank.grouping.count)]
    for n in np.argsort(first, kind="stable").tolist():
        place = places[n]
        if place is not None and groups[n] >= 0:
            members[place].append(n)
            order[groups[n]].append((n, place))
    there = {place: Counter(groups[n] for n in mine) for place, mine in members.items()}
    twice = [
        (place, group)
        for place, count in there.items()
        # Else the domain is not below a group for each of its switches.
        if len(count) == len(members[place]) - 1 >= 2
        for group, times in count.items()
        if times == 2
    ]
    wrong = np.zeros(len(below), np.bool_)
    for one, mine in twice:
        for other, theirs in twice:
            if one < other and not there[one][theirs] and not there[other][mine]:
                pair = [*_in_place_of(order, mine, one, other), *_in_place_of(order, theirs, other, one)]
                wrong[pair if len(pair) == 2 else []] = True
    ports = rank.lower_port.astype(np.int32), rank.upper_port.astype(np.int32)
    pairs = _Pairs(rank.rows, rank.lower, rank.upper, *ports)
    what = "leads to the switches of another rail"
    return [
        pairs.miswired(net, row, home.get(int(rank.lower[row]), NOWHERE), INFERRED, what)
        for row in np.flatnonzero(wrong[row_of]).tolist()
    ]


def _in_place_of(
    order: Sequence[Sequence[tuple[int, Place]]], group: int, own: Place, other: Place
) -> list[int]:
    """Return which of the two switches of a domain in a group is in the place of another domain, by the order
    of domains that the other groups share. `order`: (switch, domain) of each group, in order of ports."""
    references = {
        tuple(place for _, place in mine)
        for mine in order
        if len({*mine}) == len({place for _, place in mine}) and {own, other} <= {place for _, place in mine}
    }
    found = set()
    for reference in references:
        for candidate in (n for n, place in order[group] if place == own):
            now = [other if n == candidate else place for n, place in order[group]]
            now = [place for place in now if place in reference]
            if now == [place for place in reference if place in now]:
                found.add(candidate)
    return list(found) if len(found) == 1 else []


def _to_other_groups(
    net: Network,
    level: Ints,
    layers: Sequence[Layer],
    home: dict[int, Place],
    pairs: _Pairs,
    known: Sequence[Suspicion],
) -> list[Suspicion]:
    """Return cables to a switch of another group than most cables of the switch's domain lead to. A fabric
    whose upper switches are all in one group is not divided as the others are."""
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
        fabric = net.fabric[pairs.rows]
        groups = np.bincount(distinct(fabric[rows] * layer.count + other[rows]) // layer.count)
        for row in away[groups[fabric[away]] > 1].tolist():
            domain = int(own[row])
            device = int(pairs.lower[row])
            sure = INFERRED if astray[domain] * 2 < total[domain] else EITHER
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
    usual ones. Parallel cables within a domain are no mistake."""
    peers = (level[pairs.lower] > 0) & (level[pairs.lower] == level[pairs.upper])
    if not peers.any():
        return []
    ends = np.sort(np.stack([pairs.lower, pairs.upper]), axis=0)
    _, pair, times = np.unique(ends, axis=1, return_inverse=True, return_counts=True)
    single = peers & (times[pair.ravel()] == 1)
    suspect = np.zeros(len(peers), np.bool_)
    risen = np.zeros(len(net.ids), np.bool_)
    risen[pairs.lower[level[pairs.upper] > level[pairs.lower]]] = True
    apart = risen[pairs.lower] & risen[pairs.upper]
    apart[apart] = [home.get(x) != home.get(y) for x, y in ends.T[apart].tolist()]
    for rank in distinct(level[pairs.lower[peers]]).tolist():
        here = peers & (level[pairs.lower] == rank)
        wired = len(distinct(np.concatenate([pairs.lower[here], pairs.upper[here]])))
        # If most of a level has such cables, or they are many, the fabric is built that way (dragonfly+, peer
        # links, a ring); a single one is a mistake above the leaves, and between two domains that have
        # switches above.
        cables = np.count_nonzero(here)
        lone = cables == 1 and (rank > 1 or bool(apart[here].all()))
        others = np.count_nonzero((level[pairs.lower] == rank) != (level[pairs.upper] == rank))
        few = wired * 2 <= np.count_nonzero(level == rank) and cables < _FEW_SIDEWAYS * others
        if (few or lone) and not (long_cables and rank > 1):
            suspect |= here & (single | apart)
    found = lateral_suspicions(net, level, pairs.rows[peers & ~suspect], home)
    for row in np.flatnonzero(suspect).tolist():
        place = home.get(int(pairs.lower[row]), NOWHERE)
        found.append(pairs.miswired(net, row, place, INFERRED, "joins two switches of one level"))
    return found


def loops(net: Network, home: dict[int, Place]) -> list[Suspicion]:
    """Return cables from a switch to itself."""
    found = []
    for row in np.flatnonzero(net.a == net.b).tolist():
        switch = int(net.a[row])
        if not net.is_switch[switch]:
            continue
        subject, peer = net.end(switch, int(net.a_port[row])), net.end(switch, int(net.b_port[row]))
        text = f"the cable from {say(subject)} to {say(peer)} joins a switch with itself"
        place = home.get(switch, NOWHERE)
        found.append(Suspicion("Miswired", subject, peer, *place, INFERRED, text, net.all_sources))
    return found
