"""Build tiers of domains from a graph with levels (steps 3 and 4 of inference)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from hyperscout_topology.connected_parts import connected_parts
from hyperscout_topology.memo import memoized
from hyperscout_topology.names import tier_name

from hyperscout_inference.fabric.network import Ints, Network, distinct
from hyperscout_inference.grouping.grouping import Grouping, Longs, group_children
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.grouping.levels import switch_levels
from hyperscout_inference.grouping.past import Past

# If at least this share of a group's cables ends in another group, the two are one partial mesh, not two
# domains with miswired cables (tests miswire at most about 6 %).
WOVEN = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """`level`: (devices,) see `switch_levels`. `layers`: the tiers that group something, innermost first.
    `foreign`: hosts (indexes) that are unclaimed and connected to no leaf. `side_by_side`: the domains of the
    last tier whose leaves are joined side by side."""

    level: Ints
    layers: tuple[Layer, ...]
    foreign: list[int]
    side_by_side: list[int]


@memoized
def build_tree(net: Network, past: Past, cluster: frozenset[str] | None) -> Tree:
    """Return levels and tiers. `net`: see `wiring`."""
    level = switch_levels(net)
    host_end, switch_end = host_cables(net)
    on_leaf = level[switch_end] == 1
    hosts = net.host[host_end].astype(np.int64)
    first = group_children(
        len(net.hosts),
        hosts[on_leaf],
        switch_end[on_leaf].astype(np.int64),
        voters=None if net.unclaimed.all() else ~net.unclaimed,
        before=past.labels("leaf"),
    )
    domain = first.group.copy()
    switches = list(first.items)
    # Hosts that are connected to no leaf share the domain of the switches that they are connected to.
    rows = ~np.isin(hosts, hosts[on_leaf])
    foreign = _foreign(net, hosts[on_leaf], hosts[rows])
    rows &= ~np.isin(hosts, foreign)
    higher = group_children(len(net.hosts), hosts[rows], switch_end[rows].astype(np.int64))
    inside = higher.group >= 0
    domain[inside] = higher.group[inside] + len(switches)
    switches += higher.items
    layers = [Layer(tier_name(1), domain, switches, np.zeros(0, np.int64), first)]
    side_by_side = _add_layers_above(net, level, layers, past, first.count).tolist()
    used = _drop_tiers_that_group_nothing(layers, past.tiers_in_use(domain, cluster))
    return Tree(level, _kept_layers(used), foreign, side_by_side)


def _kept_layers(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return the layers of the last tree if these are equal: most changes of cables change no domain."""
    rows = (
        (x.name, x.domain, x.switches, x.child, x.grouping.group, x.grouping.items, x.grouping.tie)
        for x in layers
    )
    return _layers(*chain.from_iterable(rows))


@memoized
def _layers(*columns: Any) -> tuple[Layer, ...]:
    rows = zip(*[iter(columns)] * 7, strict=True)
    return tuple(
        Layer(name, domain, switches, child, Grouping(*grouping))
        for name, domain, switches, child, *grouping in rows
    )


def _foreign(net: Network, on_leaf: Longs, above: Longs) -> list[int]:
    """Return the hosts on switches above leaves that do not compute: those that no source claims, with
    another number of cables than the hosts on leaves. `on_leaf`, `above`: the hosts, once for each cable."""
    usual = set(np.flatnonzero(np.bincount(np.unique(on_leaf, return_counts=True)[1]) > 1).tolist())
    of_host = np.bincount(above, minlength=len(net.hosts))
    return [
        host
        for host in np.flatnonzero(of_host).tolist()
        if int(of_host[host]) not in usual and net.hosts[host] not in net.claimed
    ]


def host_cables(net: Network) -> tuple[Ints, Ints]:
    """Return the compute fabric's cables between hosts and switches: (cables,) adapters and switches."""
    rows = host_cable_rows(net)
    a, b = net.a[rows], net.b[rows]
    flip = net.is_switch[a]
    return np.where(flip, b, a), np.where(flip, a, b)


def host_cable_rows(net: Network) -> npt.NDArray[np.intp]:
    """Return the rows of the compute fabric's cables between hosts and switches."""
    a, b = net.a, net.b
    return np.flatnonzero(
        net.shapes & ((net.is_switch[a] & (net.host[b] >= 0)) | (net.is_switch[b] & (net.host[a] >= 0)))
    )


def switch_cable_rows(net: Network) -> npt.NDArray[np.intp]:
    """Return the rows of the compute fabric's cables between two different switches."""
    return np.flatnonzero(net.shapes & net.is_switch[net.a] & net.is_switch[net.b] & (net.a != net.b))


def _add_layers_above(net: Network, level: Ints, layers: list[Layer], past: Past, voters: int) -> Longs:
    """Add a layer for each level above the leaves, and layers for cables between the top domains. Returns the
    domains of the last layer in which no switch is above the leaves.

    A domain joins a group in the layer of the lowest level to which its switches have cables, and is alone in
    the layers below that (a leaf on cores, a host on a spine). `voters`: the number of domains of leaves.
    """
    rows = switch_cable_rows(net)
    flip = level[net.a[rows]] > level[net.b[rows]]
    lower, upper = np.where(flip, net.b[rows], net.a[rows]), np.where(flip, net.a[rows], net.b[rows])
    # Of each domain, the switches that the next level is connected to.
    exits = _own_leaves(layers[0], frozenset(lower.tolist()))
    votes = np.arange(layers[0].count) < voters
    for reached in range(2, int(level.max(initial=1)) + 1):
        top = layers[-1]
        up = (level[upper] == reached) & (level[lower] < reached) & (level[lower] > 0)
        child, item = _cables_of_domains(exits, lower[up], upper[up], len(net.ids))
        at = [(domain, s) for domain, own in enumerate(exits) for s in own if level[s] == reached]
        on_it = np.array(at, np.int64).reshape(-1, 2)
        grouping = group_children(
            top.count,
            np.concatenate([child, on_it[:, 0]]),
            np.concatenate([item, on_it[:, 1]]),
            voters=votes if not votes.all() else None,
            before=past.labels_of_domains(tier_name(reached), top),
            merge_share=WOVEN,
        )
        layer = _layer(tier_name(reached), top, grouping)
        alone = np.flatnonzero(grouping.group < 0).tolist()
        exits = [*grouping.items, *(exits[domain] for domain in alone)]
        votes = np.bincount(layer.child, weights=votes, minlength=layer.count) > 0
        layers.append(layer)
    parts = _side_by_side(_across(layers, exits, level, lower, upper))
    inside = np.arange(layers[-1].count)  # of each domain that was at the top, the domain of the last layer
    for number, part in enumerate(parts, max(3, int(level.max(initial=1)) + 1)):
        groups, group = np.unique(part, return_inverse=True)
        child = np.zeros(layers[-1].count, np.int64)
        child[inside] = group
        joined = Grouping(child, [()] * len(groups), np.zeros(len(child), np.bool_))
        layers.append(_layer(tier_name(number), layers[-1], joined))
        inside = group
    on_leaves = np.array([bool(own) and all(level[s] == 1 for s in own) for own in exits], np.bool_)
    joined_leaves = inside[on_leaves]
    return distinct(joined_leaves[np.bincount(joined_leaves)[joined_leaves] > 1]) if parts else inside[:0]


def _own_leaves(leaves: Layer, climbing: Collection[int]) -> list[tuple[int, ...]]:
    """Return the switches of each domain. A domain of one host has only those that no larger domain has: a
    host that claims ports of several leaves does not join what is above them. If none of these is among the
    `climbing`, which have switches above, it has one that it shares.
    """
    hosts = np.bincount(leaves.domain[leaves.domain >= 0], minlength=leaves.count).tolist()
    shared = {s for domain, own in enumerate(leaves.switches) if hosts[domain] > 1 for s in own}
    found = list(leaves.switches)
    for domain, switches in enumerate(leaves.switches):
        if hosts[domain] == 1 and not shared.isdisjoint(switches):
            own = [s for s in switches if s not in shared]
            borrowed = [s for s in switches if s in shared and s in climbing]
            found[domain] = tuple(own if any(s in climbing for s in own) else own + borrowed[:1])
    return found


def _cables_of_domains(
    domains: Sequence[tuple[int, ...]], lower: Ints, upper: Ints, devices: int
) -> tuple[Longs, Longs]:
    """Return the cables from switches to switches above as (cables,) domains and switches. A switch of
    several domains gives one entry for each."""
    size = np.array([len(d) for d in domains], np.int64)
    member = np.concatenate([np.array(d, np.int64) for d in domains] or [np.zeros(0, np.int64)])
    owner = np.repeat(np.arange(len(domains)), size)
    order = np.argsort(member, kind="stable")
    member, owner = member[order], owner[order]
    start = np.searchsorted(member, np.arange(devices + 1))
    times = start[lower + 1] - start[lower]
    rows = np.repeat(np.arange(len(lower)), times)
    offset = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
    return owner[start[lower[rows]] + offset], upper[rows].astype(np.int64)


def has_long_cables(layers: Sequence[Layer]) -> bool:
    """Return whether cables between the top switches of domains form the top tier (dragonfly+)."""
    return not any(layers[-1].switches)


def _layer(name: str, below: Layer, grouping: Grouping) -> Layer:
    """Return a layer from a grouping of the domains below; a domain without a group is one of its own."""
    child = grouping.group.copy()
    alone = np.flatnonzero(child < 0)
    child[alone] = grouping.count + np.arange(len(alone))
    switches = [*grouping.items, *([()] * len(alone))]
    domain = (
        np.where(below.domain >= 0, child[np.maximum(below.domain, 0)], -1) if below.count else below.domain
    )
    return Layer(name, domain, switches, child, grouping)


@dataclass(frozen=True, slots=True, eq=False)
class _Across:
    """Cables between the top switches of different top domains. Each pair of domains occurs once.

    `one`, `other`, `cables`: (pairs,), one < other. `tops`: (domains,) the number of top switches.
    """

    one: Longs
    other: Longs
    cables: Longs
    tops: Longs


def _across(layers: list[Layer], exits: Sequence[tuple[int, ...]], level: Ints, x: Ints, y: Ints) -> _Across:
    """Return the cables of `x` to `y` that join two domains: through their top switches, or through any
    switch where one of the domains has no switch above its leaves."""
    count = len(exits)
    if count < 2:
        none = np.zeros(0, np.int64)
        return _Across(none, none, none, none)
    tops = np.array([len(own) for own in exits], np.int64)
    owner, exit_of = (np.full(len(level), -1, np.int64) for _ in range(2))
    lifted = np.arange(count)
    for depth in range(len(layers) - 1, -1, -1):
        for domain, switches in enumerate(layers[depth].switches):
            owner[[s for s in switches if owner[s] < 0]] = lifted[domain]
        if depth:
            lifted = lifted[layers[depth].child]
    for domain in range(count - 1, -1, -1):
        exit_of[list(exits[domain])] = domain
    low = np.array([all(level[s] == 1 for s in own) for own in exits], np.bool_)
    one, other = np.minimum(owner[x], owner[y]), np.maximum(owner[x], owner[y])
    across = (one >= 0) & (one != other)
    across &= ((exit_of[x] >= 0) & (exit_of[y] >= 0)) | low[one] | low[other]
    key, cables = np.unique(one[across] * count + other[across], return_counts=True)
    return _Across(key // count, key % count, cables, tops)


def _side_by_side(across: _Across) -> list[Longs]:
    """Return the groups of top domains that cables join although no switch is above them, as labels: first
    those with mostly the same neighbours (the groups of a dragonfly), if any, then all that are joined.

    A single cable joins two domains only if both have such cables on half of their top switches, or if all of
    three or more domains are joined. Otherwise it is miswired.
    """
    count = len(across.tops)
    if not len(across.one):
        return []
    one, other = across.one, across.other
    root = connected_parts(count, one, other)
    if len(distinct(root)) > 1 or count < 3:
        lateral = np.bincount(one, across.cables, count) + np.bincount(other, across.cables, count)
        real = lateral * 2 >= np.maximum(across.tops, 1)
        keep = (across.cables > 1) | (real[one] & real[other])
        one, other = one[keep], other[keep]
        root = connected_parts(count, one, other)
    if len(distinct(root)) == count:
        return []
    near = [{domain} for domain in range(count)]
    for i, j in zip(one.tolist(), other.tolist(), strict=True):
        near[i].add(j)
        near[j].add(i)
    pairs = zip(one.tolist(), other.tolist(), strict=True)
    alike = np.array([2 * len(near[i] & near[j]) > len(near[i] | near[j]) for i, j in pairs], np.bool_)
    dense = connected_parts(count, one[alike], other[alike])
    if len(distinct(root)) < len(distinct(dense)) < count:
        return [dense, root]
    return [root]


def _drop_tiers_that_group_nothing(layers: list[Layer], in_use: Collection[str]) -> list[Layer]:
    kept = [layers[0]]
    since: Longs | None = None
    for layer in layers[1:]:
        child = layer.child if since is None else layer.child[since]
        if layer.count < kept[-1].count or layer.name in in_use:
            kept.append(Layer(layer.name, layer.domain, layer.switches, child, layer.grouping))
            since = None
        else:
            since = child
    return kept
