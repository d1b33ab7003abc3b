"""Build tiers of domains from a graph with levels (steps 3 and 4 of inference)."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from hyperscout_inference.fabric.network import Ints, Network, distinct
from hyperscout_inference.grouping.grouping import Grouping, Longs, group_children
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.grouping.past import Past

# If at least this share of a group's cables ends in another group, the two are one partial mesh, not two
# domains with miswired cables (tests miswire at most about 6 %).
WOVEN = 0.3


def tier_name(level: int) -> str:
    """Return the name of the tier of switches at a level."""
    return {1: "leaf", 2: "pod", 3: "core"}.get(level, f"core-{level}")


def build_layers(
    net: Network, level: Ints, past: Past, cluster: frozenset[str] | None
) -> tuple[list[Layer], list[int]]:
    """Return the tiers that group something, innermost first; and the foreign hosts (indexes): unclaimed, and
    connected to no leaf."""
    host_end, switch_end = host_cables(net)
    on_leaf = level[switch_end] == 1
    hosts = net.host[host_end]
    first = group_children(
        len(net.hosts),
        hosts[on_leaf].astype(np.int64),
        switch_end[on_leaf].astype(np.int64),
        voters=None if net.unclaimed.all() else ~net.unclaimed,
        before=past.labels("leaf"),
    )
    domain = first.group.copy()
    switches = list(first.items)
    # A claimed host that is connected to no leaf (a login node on a spine) is a domain of its own.
    above: list[tuple[int, int]] = []
    foreign = []
    higher = sorted(set(hosts[~on_leaf].tolist()) - set(hosts[on_leaf].tolist()))
    for host in higher:
        own = distinct(switch_end[hosts == host])
        if net.hosts[host] not in net.claimed:
            foreign.append(host)
            continue
        domain[host] = len(switches)
        above += [(len(switches), int(s)) for s in own.tolist()]
        switches.append(tuple(own.tolist()))
    layers = [Layer(tier_name(1), domain, switches, np.zeros(0, np.int64), first)]
    _add_layers_above(net, level, layers, past, np.array(above, np.int64).reshape(-1, 2), first.count)
    return _drop_tiers_that_group_nothing(layers, past.tiers_in_use(domain, cluster)), foreign


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


def _add_layers_above(
    net: Network, level: Ints, layers: list[Layer], past: Past, above: Longs, voters: int
) -> None:
    rows = switch_cable_rows(net)
    x, y = net.a[rows], net.b[rows]
    for lower in range(1, int(level.max(initial=1))):
        top = layers[-1]
        up = np.concatenate(
            [
                x[(level[x] == lower) & (level[y] == lower + 1)],
                y[(level[y] == lower) & (level[x] == lower + 1)],
            ]
        )
        on = np.concatenate(
            [
                y[(level[x] == lower) & (level[y] == lower + 1)],
                x[(level[y] == lower) & (level[x] == lower + 1)],
            ]
        )
        child, item = _cables_of_domains(top.switches, up, on, len(net.ids))
        here = above[level[above[:, 1]] == lower + 1]
        # A host on a spine joins a domain of the spine, and is no voter.
        lone = _lifted(layers, here[:, 0])
        votes = np.ones(top.count, np.bool_)
        if lower == 1:
            votes[voters:] = False
        child, item = np.concatenate([child, lone]), np.concatenate([item, here[:, 1]])
        grouping = group_children(
            top.count,
            child,
            item,
            voters=votes if not votes.all() else None,
            before=past.labels_of_domains(tier_name(lower + 1), top),
            merge_share=WOVEN,
        )
        layers.append(_layer(tier_name(lower + 1), top, grouping))
    lateral = _lateral(net, level, layers, x, y)
    if lateral is not None:
        layers.append(_layer(tier_name(max(3, int(level.max()) + 1)), layers[-1], lateral))


def _lifted(layers: list[Layer], domains: Longs) -> Longs:
    """Return the domains of the topmost layer that contain the tier-1 domains."""
    for layer in layers[1:]:
        domains = layer.child[domains]
    return domains


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


def _lateral(net: Network, level: Ints, layers: list[Layer], x: Ints, y: Ints) -> Grouping | None:
    """Group the top domains by cables between their own top switches (dragonfly+); None if nothing is joined.

    A cable between two leaves is a peer link and does not count. A domain takes part if it has at least half
    as many such cables as top switches, so that one miswired cable joins nothing.
    """
    top = layers[-1]
    owner = np.full(len(net.ids), -1, np.int64)
    tops = np.zeros(top.count, np.int64)
    # The top switches of a domain are those of its highest layer that has any.
    lifted = np.arange(top.count)
    for depth in range(len(layers) - 1, 0, -1):
        layer = layers[depth]
        settled = tops > 0
        for domain, switches in enumerate(layer.switches):
            root = int(lifted[domain])
            if switches and not settled[root]:
                own = [s for s in switches if level[s] >= 2]
                owner[own] = root
                tops[root] += len(own)
        lifted = lifted[layer.child]
    one, other = owner[x], owner[y]
    across = (one >= 0) & (other >= 0) & (one != other)
    if not across.any():
        return None
    one, other = one[across], other[across]
    lateral = np.bincount(one, minlength=top.count) + np.bincount(other, minlength=top.count)
    pairs = sorted(set(zip(one.tolist(), other.tolist(), strict=True)))
    roots, group = np.unique(_joined(top.count, pairs), return_inverse=True)
    # Cables that join all of three or more domains are not miswired, however few they are.
    if len(roots) > 1 or top.count < 3:
        real = lateral * 2 >= np.maximum(tops, 1)
        roots, group = np.unique(
            _joined(top.count, [(i, j) for i, j in pairs if real[i] and real[j]]), return_inverse=True
        )
    if len(roots) == top.count:
        return None
    none = np.full(top.count, -1, np.int64)
    return Grouping(group.astype(np.int64), [()] * len(roots), np.zeros(top.count, np.bool_), none)


def _joined(count: int, pairs: Sequence[tuple[int, int]]) -> Longs:
    """Return (count,) labels, equal for indexes that pairs connect."""
    label = np.arange(count)
    for i, j in pairs:
        low, high = sorted((int(label[i]), int(label[j])))
        label[label == high] = low
    return label


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
