"""Determine the level of each switch (step 2 of inference).

A leaf has hosts, and nothing but endpoints below it. The level of the other switches is the distance from the
leaves. The whole graph decides, and not the share of ports that happens to be filled:

 1. A switch with endpoints is no leaf if it is above others with endpoints (a spine with storage, a line card
    of a director with edge switches below).
 2. It is no leaf either if its cables lead to the switches above several groups of leaves (a core switch with
    a login node).
 3. A switch without endpoints is a leaf if it hangs below the same switches as another leaf.
 4. A leaf may hang on any level above it (border leaves on cores). Such cables do not shorten a distance, and
    neither does a single miswired cable.

Where leaves below one switch share few of the switches above them, the switches form no tree (a ring, a
torus): all switches with hosts are leaves then.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import permutations

import numpy as np
from hyperscout_topology.connected_parts import connected_parts

from hyperscout_inference.fabric.network import Ints, Network, distinct
from hyperscout_inference.grouping.grouping import Bools, Longs, group_children
from hyperscout_inference.grouping.switch_graph import Squares, SwitchGraph, strays

# A switch without endpoints hangs below the same switches as a leaf if at most this share of its cables leads
# elsewhere, or one cable of `_MANY` and more.
_ELSEWHERE_SHARE, _MANY = 0.12, 6
_ROUNDS = 3


def switch_levels(net: Network) -> Ints:
    """Return (devices,) levels: 1 = leaf, 2 = above a leaf, ...; 0 for endpoints and for switches without a
    path to a leaf."""
    graph = SwitchGraph(net)
    leaf = graph.is_switch & (graph.endpoints > 0)
    above = _with_leaves_below(graph, leaf)
    leaf &= ~above
    for _ in range(_ROUNDS):
        level = np.zeros(len(net.ids), np.int32)
        level[leaf] = 1
        _climb(graph, level)
        spanning = _spanning_several_groups(graph, level, leaf)
        if not spanning.any():
            break
        leaf &= ~spanning
    return level


def _with_leaves_below(graph: SwitchGraph, leaf: Bools) -> Bools:
    """Return the switches with endpoints that are above other switches with endpoints.

    Cables between such switches that are no peers form a graph. In a tree it has two sides, and one of them
    is above: the one with cables to further switches above; else the one with the smaller product of hosts
    and switches if the sides are joined like leaves and spines; else the one with far fewer endpoints if more
    cables than these lead to the other side. Switches that share hosts are on one side (rails).
    """
    above = np.zeros(graph.count, np.bool_)
    between = leaf[graph.here] & leaf[graph.there]
    if not between.any():
        return above
    joined = np.zeros(graph.count, np.bool_)
    joined[graph.here[between]] = True
    stray = strays(graph, joined[graph.here])
    near, strangers = {}, 0
    for switch in distinct(graph.here[between]).tolist():
        near[switch], apart = _no_peers(graph, switch, leaf, stray)
        strangers += apart
    near = {s: {o for o in others if s in near[o]} for s, others in near.items()}
    if 2 * sum(map(len, near.values())) < strangers:
        return above  # most such switches are joined in triangles (dragonfly)
    beside = _with_shared_hosts(graph, near)
    side: dict[int, int] = {}
    for start in sorted(near):
        if start in side or not near[start]:
            continue
        side[start] = 0
        sides: tuple[list[int], list[int]] = ([start], [])
        waiting, even = [start], True
        while waiting:
            switch = waiting.pop()
            for others, across in ((near[switch], 1), (beside[switch], 0)):
                for other in sorted(others):
                    if other not in side:
                        side[other] = side[switch] ^ across
                        sides[side[other]].append(other)
                        waiting.append(other)
                    even &= side[other] == side[switch] ^ across
        if even:
            above[_upper_side(graph, near, sides)] = True
    return above & ~_without_tree(graph, leaf & ~above, above) if above.any() else above


def _with_shared_hosts(graph: SwitchGraph, switches: Iterable[int]) -> dict[int, set[int]]:
    """Return the others that share two hosts or more with each switch: they are of one level."""
    on_host: dict[int, list[int]] = {}
    for switch in switches:
        for host in graph.hosts_on(switch):
            on_host.setdefault(host, []).append(switch)
    shared = Counter(pair for mine in on_host.values() for pair in permutations(mine, 2))
    beside: dict[int, set[int]] = {switch: set() for switch in switches}
    for (one, other), hosts in shared.items():
        if hosts > 1:
            beside[one].add(other)
    return beside


def _upper_side(
    graph: SwitchGraph, near: Mapping[int, set[int]], sides: tuple[list[int], list[int]]
) -> list[int]:
    """Return the side that is above the other one, or none."""
    beyond = [_reaches_beyond(graph, own, sides[1 - k]) for k, own in enumerate(sides)]
    if beyond[0] != beyond[1]:
        return sides[beyond.index(True)]
    if _woven(graph, sides):
        return min(sides, key=lambda own: (int(graph.hosts[own].sum()) * len(own), len(own)))
    endpoints = [int(graph.hosts_and_foreign[own].sum()) for own in sides]
    few, full = sorted((0, 1), key=lambda k: (endpoints[k], len(sides[k]), k))
    cables = sum(np.count_nonzero(graph.around(s) == o) for s in sides[few] for o in near[s])
    fewer = endpoints[few] < endpoints[full] and len(sides[few]) < len(sides[full])
    held = cables > endpoints[few] or (cables == endpoints[few] and 4 * cables <= endpoints[full])
    return sides[few] if held and (fewer or 2 * endpoints[few] <= endpoints[full]) else []


def _woven(graph: SwitchGraph, sides: Iterable[list[int]]) -> bool:
    """Return whether most switches of a side are cabled to the same switches as another one of it, which
    happens only in a tree. A ring of four does not count: it is like two leaves and two spines with hosts."""
    for own in map(frozenset, sides):
        above = Counter(frozenset(graph.around(s).tolist()) - own for s in own)
        alike = sum(n for kind, n in above.items() if min(n, len(kind)) > 1 and n + len(kind) > 4)
        if 2 * alike > len(own):
            return True
    return False


def _reaches_beyond(graph: SwitchGraph, own: list[int], others: list[int]) -> bool:
    """Return whether switches without endpoints are above one side. Peers of the other side are not: a switch
    of it has most of their neighbours."""
    peers = [frozenset(graph.around(s).tolist()) for s in others]
    further = {x for s in own for x in graph.around(s).tolist() if not graph.endpoints[x]}
    near = [frozenset(graph.around(x).tolist()) for x in further]
    return 2 * sum(any(2 * len(one & other) > len(one) for other in peers) for one in near) < len(further)


def _no_peers(
    graph: SwitchGraph, switch: int, leaf: Bools, stray: set[tuple[int, int]]
) -> tuple[set[int], int]:
    """Return the leaves that a switch has cables to, without its peers; and how many of them share fewer than
    two hosts with it. Peers share two hosts (one alone may report cables that it lacks), or a switch to which
    both are connected; in a tree a switch and one below it never do. Stray cables do not count."""
    mine = [s for s in distinct(graph.around(switch)).tolist() if (switch, s) not in stray]
    hosts = graph.hosts_on(switch)
    strangers = [s for s in mine if leaf[s] and len(hosts & graph.hosts_on(s)) < 2]
    near = set(mine)
    apart = {
        s for s in strangers if not any(x in near and (s, x) not in stray for x in graph.around(s).tolist())
    }
    return apart, len(strangers)


def _without_tree(graph: SwitchGraph, leaf: Bools, above: Bools) -> Bools:
    """Return the switches of parts that are no tree: most of the switches `above` have leaves below that
    share no more than half of the switches above them."""
    part = connected_parts(graph.count, graph.here, graph.there)
    odd = np.zeros(graph.count, np.int64)
    for switch in np.flatnonzero(above).tolist():
        near = graph.around(switch)
        below = distinct(near[leaf[near]]).tolist()
        if not below:
            continue  # only switches `above` are below it
        if len(below) == 1 and (graph.endpoints[near] == 0).any():
            continue  # the other switches below have no endpoints
        one, other = (set(n[above[n]].tolist()) for n in (graph.around(s) for s in (below[0], below[-1])))
        alike = len(below) > 1 and 2 * len(one & other) > max(len(one), len(other))
        odd[part[switch]] += -1 if alike else 1
    no_tree: Bools = (odd > 0)[part]
    return no_tree


def _spanning_several_groups(graph: SwitchGraph, level: Ints, leaf: Bools) -> Bools:
    """Return the leaves with fewer endpoints than cables to level 2 outside of one group of leaves."""
    spanning = np.zeros(graph.count, np.bool_)
    rows = np.flatnonzero(leaf[graph.here] & (level[graph.there] == 2))
    up = np.bincount(graph.here[rows], minlength=graph.count)
    thin = leaf & (graph.endpoints * 2 < up)
    if not thin.any():
        return spanning
    child, item = graph.here[rows].astype(np.int64), graph.there[rows].astype(np.int64)
    grouping = group_children(graph.count, child, item)
    owner = np.full(graph.count, -1, np.int64)
    for number, items in enumerate(grouping.items):
        owner[list(items)] = number
    mine = thin[child]
    width = grouping.count + 1
    key, cables = np.unique(child[mine] * width + owner[item[mine]] + 1, return_counts=True)
    most = np.zeros(graph.count, np.int64)
    np.maximum.at(most, key // width, cables)
    spanning[thin & (up - most > graph.endpoints)] = True
    return spanning


def _climb(graph: SwitchGraph, level: Ints) -> None:
    """Set the level of each switch above the leaves, level by level, and find leaves without endpoints."""
    reached, squares = 1, Squares(graph)
    while True:
        if reached > 1:
            _leaves_without_endpoints(graph, level, reached)
        rows = (level[graph.here] == 0) & (level[graph.there] == reached)
        down = np.bincount(graph.here[rows], minlength=graph.count)
        lone = rows & (down == 1)[graph.here] & (graph.degree > 2)[graph.here]
        for row in np.flatnonzero(lone).tolist():
            if squares.is_stray(int(graph.here[row]), int(graph.there[row])):
                down[graph.here[row]] = 0  # a stray cable
        candidates = down > 0
        if not candidates.any():
            return
        reached += 1
        level[candidates & ~_higher(graph, level, candidates, down)] = reached


def _leaves_without_endpoints(graph: SwitchGraph, level: Ints, reached: int) -> None:
    """Make each switch a leaf that hangs below the same switches as another leaf."""
    rows = (level[graph.here] == 0) & (level[graph.there] == reached) & (graph.endpoints[graph.here] == 0)
    unknown = np.flatnonzero(np.bincount(graph.here[rows], minlength=graph.count)).tolist()
    if not unknown:
        return
    uplinks: dict[int, set[frozenset[int]]] = {}  # of leaves, by each of their upper switches
    own = np.flatnonzero((level[graph.here] == 1) & (level[graph.there] == reached))
    groups = group_children(graph.count, graph.here[own], graph.there[own])
    alike = {graph.around(leaf).tobytes(): leaf for leaf in distinct(graph.here[own]).tolist()}
    for leaf in alike.values():
        usual = groups.items[groups.group[leaf]]  # a cable to another group may be miswired
        upper = frozenset(x for x in graph.around(leaf).tolist() if level[x] != reached or x in usual)
        for switch in upper:
            uplinks.setdefault(switch, set()).add(upper)
    astray: dict[int, set[int]] = {}  # of switches that are leaves, where their other cables lead
    verdicts: dict[bytes, set[int] | None] = {}  # switches with equal cables are alike
    for switch in unknown:
        near = graph.around(switch)
        if near.tobytes() not in verdicts:
            verdicts[near.tobytes()] = None
            cables = Counter(near[level[near] > 1].tolist())
            mine, total = cables.keys(), cables.total()
            for upper in {known for other in mine for known in uplinks.get(other, ())}:
                both = mine & upper
                outside = total - sum(map(cables.__getitem__, both))
                few = outside <= max(_ELSEWHERE_SHARE * total, total >= _MANY)
                if few and 2 * len(both) > max(len(mine), len(upper)):
                    verdicts[near.tobytes()] = mine - both
                    break
        if (elsewhere := verdicts[near.tobytes()]) is not None:
            astray[switch] = elsewhere
    # What several of them lead to is another group, which they are above, too.
    times = Counter(other for elsewhere in astray.values() for other in elsewhere)
    level[[switch for switch, elsewhere in astray.items() if all(times[x] == 1 for x in elsewhere)]] = 1


def _higher(graph: SwitchGraph, level: Ints, candidates: Bools, down: Longs) -> Bools:
    """Return the candidates that are one level higher, above other candidates.

    Some have far fewer cables down and hosts below than the others, and most of their other cables lead to
    those: their few cables down belong to a leaf that skips a level, or are miswired. Of a switch that does
    not report its cables only some are known. The others are taken in groups that share switches below them.
    A group is higher if it has as many cables to other groups as down (with two of them half as many, and so
    on), and those groups have most hosts below.
    """
    weak = candidates & (down * 3 <= np.median(down[candidates])) & (down < graph.degree) & ~graph.mute
    if weak.any():
        lower = candidates[graph.here] & (level[graph.there] > 0)
        key = distinct(graph.here[lower] * graph.count + graph.there[lower])
        owner, child = np.divmod(key, graph.count)
        hosts = np.bincount(owner, weights=graph.endpoints[child], minlength=graph.count)
        weak &= hosts * 3 <= np.median(hosts[candidates])
    to_strong = graph.cables_to(candidates & ~weak)
    higher = weak & (to_strong * 2 > graph.degree - down)
    rest = candidates & ~higher
    between = rest[graph.here] & rest[graph.there]
    if not between.any():
        return higher
    below = rest[graph.here] & (level[graph.there] > 0)
    groups = group_children(graph.count, graph.there[below], graph.here[below])
    part = np.where(groups.group < 0, groups.count + np.arange(graph.count), groups.group)
    for number, items in enumerate(groups.items):
        part[list(items)] = number
    one, other = part[graph.here[between]], part[graph.there[between]]
    one, other = one[one != other], other[one != other]
    cables_down = np.bincount(part, weights=np.where(rest, down, 0))
    beneath = np.bincount(part, weights=graph.endpoints * (level > 0))
    size = beneath if beneath.any() else cables_down
    near: dict[int, set[int]] = {}
    across = np.bincount(one)
    for (p, q), cables in Counter(zip(one.tolist(), other.tolist(), strict=True)).items():
        if cables > 1 and cables * 10 >= min(across[p], across[q]):  # else miswired
            near.setdefault(p, set()).add(q)
    tops: dict[int, int] = {}  # of a group above, the number of groups below
    for p, others in near.items():
        apart = all(near[q].isdisjoint(others) for q in others)
        most = sum(size[q] for q in others) >= size[p] * (2 if len(others) == 1 else 1)
        if across[p] * len(others) >= cables_down[p] and apart and most:
            tops[p] = len(others)
    for p, below_it in tops.items():
        if all(tops.get(q, 0) <= below_it for q in near[p]):
            higher |= rest & (part == p)
    return higher
