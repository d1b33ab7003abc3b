"""Add accelerator domains inside the domains of the compute fabric (step 5 of inference).

An accelerator domain is placed as a whole in the outer domain with most of its hosts; hosts that are wired to
another domain are an anomaly. A host without such peers is a domain of its own, so that all hosts have the
same number of tiers.

The tier is called after the kind of most of its hosts when it is published first, and keeps that name, so
that a few agents rename no label. Each domain has the kind of its own fabric.

What one agent reports changes only the place of its own host. So two hosts alone are a domain only if that
was published, if a manager reports it, or if there are no cables. If such a pair is wired to different outer
domains, it is not joined. The tier of leaves does not appear because one host left its accelerator domain.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from hyperscout_formats.facts.accelerators import KINDS, NVLINK
from hyperscout_formats.text.counts import first_few
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import Endpoint

from hyperscout_inference.audit.audit import EITHER
from hyperscout_inference.audit.ranks import NOWHERE, Place
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.accelerators import AcceleratorDomains
from hyperscout_inference.fabric.network import Network
from hyperscout_inference.grouping.grouping import Grouping, Longs
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.grouping.past import Past

_NAMED = 3


@dataclass(frozen=True, slots=True)
class WithAccelerators:
    """`outer`: index of the fabric's first tier in `layers`, to which host links belong. `leaf_to_inner`:
    (leaf domains,) the accelerator domain that replaces each; None if the leaf tier is kept. `without_gpus`:
    of hosts that report no GPUs, while others of their domain do. It is a fault only if their agents report.
    """

    layers: Sequence[Layer]
    suspicions: Sequence[Suspicion]
    without_gpus: Sequence[Suspicion] = ()
    outer: int = 0
    leaf_to_inner: Longs | None = None

    def moved(self, place: Place) -> Place:
        """Return the present place of a (layer, domain) of the fabric's layers."""
        layer, domain = place
        if layer < 0 or domain < 0:
            return place
        if self.leaf_to_inner is not None:
            return (0, int(self.leaf_to_inner[domain])) if layer == 0 else place
        return (layer + self.outer, domain)


@memoized  # most changes concern neither GPUs nor domains
def with_accelerators(
    net: Network,
    layers: tuple[Layer, ...],
    domains: AcceleratorDomains,
    past: Past,
    cluster: frozenset[str] | None,
) -> WithAccelerators:
    """Return the layers with the accelerator tier as innermost, if there are domains of several hosts.

    `net`: the devices and hosts of `layers`; cables do not matter.
    """
    name = past.accelerator_tier()
    if not domains.adapters and name is None:
        return WithAccelerators(layers, ())
    former = past.labels(name) if name is not None else None
    group, founders, mute, apart = _groups(net, layers[0], domains, past, former)
    in_use = past.tiers_in_use(group, cluster)
    disputes = [_apart(net, layers[0], pair, domains) for pair in apart]
    sizes = np.bincount(group[group >= 0])
    if not _has_domain(net, group, sizes, domains, layers[0], former) and name not in in_use:
        return WithAccelerators(layers, [*_faults(net, domains, layers[0].domain), *disputes])
    found = _kinds(net, group, len(founders), domains, former, past)
    if name is None:
        hosts = Counter(found[d] for d in group.tolist() if d >= 0 and sizes[d] > 1)
        name = max(KINDS, key=lambda kind: hosts[kind])  # of equal numbers the first kind
    kinds = [kind or name for kind in found]
    no_switches, no_child = [()] * len(founders), np.zeros(0, np.int64)
    grouping = Grouping.empty(len(group))
    inner = Layer(name, group, no_switches, no_child, grouping, founders, kinds=kinds)
    outer, torn = _outer(net, layers[0], inner, past)
    # An NVLink domain without wiring evidence has outer domains of its own, up to the top tier.
    extra = np.flatnonzero(outer < 0)
    outer[extra] = layers[0].count + np.arange(len(extra))
    result = [inner]
    child = outer
    for depth, layer in enumerate(layers):
        below = result[-1].domain
        result.append(
            replace(
                layer,
                domain=np.append(child, -1)[below],  # -1 (no domain) finds the last one
                switches=[*layer.switches, *([()] * len(extra))],
                child=child,
                founders=[*layer.founders, *([()] * len(extra))] if layer.founders else (),
            )
        )
        if depth + 1 < len(layers):
            above = layers[depth + 1]
            child = np.concatenate([above.child, above.count + np.arange(len(extra))])
    suspicions = [*_faults(net, domains, group), *torn, *disputes]
    without_gpus = [_no_gpus(net, i, group, kinds) for i in mute]
    if layers[0].name not in in_use and _groups_nothing(layers[0], sizes, outer, past, former):
        result, leaf_to_inner = _without_leaf(result, sizes)
        return WithAccelerators(result, suspicions, without_gpus, leaf_to_inner=leaf_to_inner)
    return WithAccelerators(result, suspicions, without_gpus, outer=1)


def _has_domain(
    net: Network,
    group: Longs,
    sizes: Longs,
    domains: AcceleratorDomains,
    leaf: Layer,
    former: Longs | None,
) -> bool:
    """Return whether there are domains of several hosts. A single pair may be one host's claim."""
    shared = np.flatnonzero(sizes > 1)
    if len(shared) != 1 or sizes[shared[0]] > 2:
        return len(shared) > 0
    pair = {net.hosts[i] for i in np.flatnonzero(group == shared[0]).tolist()}
    return not leaf.count or former is not None or pair <= domains.managed


def _kinds(
    net: Network,
    group: Longs,
    count: int,
    domains: AcceleratorDomains,
    former: Longs | None,
    past: Past,
) -> list[str]:
    """Return the kind of each domain: of most of its hosts, else that with which it was published; "" = it
    has no GPUs."""
    found: list[Counter[str]] = [Counter() for _ in range(count)]
    for i, (host, d) in enumerate(zip(net.hosts, group.tolist(), strict=True)):
        if d < 0:
            continue
        if host in domains.kind:
            found[d][domains.kind[host]] += 1
        elif former is not None and former[i] >= 0 and (kind := past.source[int(former[i])]) in KINDS:
            found[d][kind] += 0  # counts only where no host reports
    return [max(votes, key=lambda kind: (votes[kind], kind), default="") for votes in found]


def _groups_nothing(leaf: Layer, sizes: Longs, outer: Longs, past: Past, former: Longs | None) -> bool:
    """Return whether each domain of the fabric's first tier has one accelerator domain. One host that left
    the domain of its rack does not count, if the tier was not published before."""
    inside = np.bincount(outer)
    shared = np.flatnonzero(inside > 1)
    if len(shared) != 1 or inside[shared[0]] > 2:
        return not len(shared)
    is_one_host = sizes[outer == shared[0]].min() == 1
    return bool(is_one_host and former is not None and past.labels(leaf.name) is None)


def _without_leaf(layers: Sequence[Layer], sizes: Longs) -> tuple[list[Layer], Longs]:
    """Merge the fabric's first tier into the accelerator tier: each of its domains has one of these. Also
    return (leaf domains,) that one.

    `sizes`: hosts by accelerator domain. Of two in an outer domain the one host alone has no switches.
    """
    inner, leaf, *above = layers
    place = np.full(leaf.count, -1, np.int64)
    order = np.argsort(sizes, kind="stable")
    place[leaf.child[order]] = order
    switches = [leaf.switches[d] if place[d] == n else () for n, d in enumerate(leaf.child.tolist())]
    result = [replace(inner, switches=switches)]
    if above:
        result += [replace(above[0], child=above[0].child[leaf.child]), *above[1:]]
    return result, place


def _groups(
    net: Network, leaf: Layer, domains: AcceleratorDomains, past: Past, before: Longs | None
) -> tuple[Longs, list[tuple[str, ...]], list[int], list[tuple[int, int]]]:
    """Return (hosts,) the accelerator domain, -1 = none; the founders of each domain; the hosts (indexes)
    that were in one and report no GPU now; and the pairs of `_wired_apart`. `before`: (hosts,) the former."""
    former = before.tolist() if before is not None else [-1] * len(net.hosts)
    keys: dict[int, tuple[str, ...]] = {}
    votes: dict[int, list[tuple[str, ...]]] = {}
    reporting = {x.node for x in domains.adapters}
    mute: list[int] = []
    alone = bool(domains.key) and not leaf.count  # there is no evidence but that of GPUs
    for i, host in enumerate(net.hosts):
        if host in domains.key:
            keys[i] = _text(domains.key[host])
            if host not in domains.tied:
                votes.setdefault(former[i], []).append(keys[i])
    for i, host in enumerate(net.hosts):
        if host in domains.tied and former[i] >= 0 and (others := votes.get(former[i])):
            most = max(sorted(set(others)), key=others.count)
            if most in map(_text, domains.tied[host]):
                keys[i] = most
    for i, host in enumerate(net.hosts):
        if i in keys:
            continue
        if former[i] >= 0 and host not in domains.local:
            # A host without a key stays with the hosts that it was published with.
            others = votes.get(former[i])
            keys[i] = max(sorted(set(others)), key=others.count) if others else ("before", str(former[i]))
            # If no host of the domain reports, the probe is off or all agents are restarting.
            if others and host not in reporting:
                mute.append(i)
        elif leaf.domain[i] >= 0 or (host in domains.switched and alone):
            keys[i] = (host,)
    apart = _wired_apart(net, keys, domains, leaf, (before, past.labels(leaf.name)))
    for pair in apart:
        keys |= {i: (net.hosts[i],) for i in pair}
    group = np.full(len(net.hosts), -1, np.int64)
    number: dict[tuple[str, ...], int] = {}
    for i in sorted(keys):
        group[i] = number.setdefault(keys[i], len(number))
    shared = np.bincount(group[group >= 0], minlength=len(number)) > 1
    return group, list(number), [i for i in mute if shared[group[i]]], apart


def _wired_apart(
    net: Network,
    keys: Mapping[int, tuple[str, ...]],
    domains: AcceleratorDomains,
    leaf: Layer,
    published: Sequence[Longs | None],
) -> list[tuple[int, int]]:
    """Return the pair of hosts that share a domain with no other host, are wired to different domains of the
    fabric, were not `published` in one domain, and that no manager reports. Several such pairs are the way in
    which the racks are wired: none."""
    hosts: dict[tuple[str, ...], list[int]] = {}
    for i in sorted(keys):
        hosts.setdefault(keys[i], []).append(i)
    former = [x for x in published if x is not None]
    found = [
        (one, other)
        for one, other in (tuple(mine) for mine in hosts.values() if len(mine) == 2)
        if min(leaf.domain[one], leaf.domain[other]) >= 0
        and leaf.domain[one] != leaf.domain[other]
        and not any(x[one] == x[other] >= 0 for x in former)
        and not {net.hosts[one], net.hosts[other]} <= domains.managed
    ]
    return found if len(found) == 1 else []


def _text(key: tuple[str, int]) -> tuple[str, ...]:
    return (key[0], str(key[1]))


def _outer(net: Network, leaf: Layer, inner: Layer, past: Past) -> tuple[Longs, list[Suspicion]]:
    """Return (accelerator domains,) the domain of the fabric's first tier with most of its hosts, -1 = no
    wiring evidence; and suspicions about hosts that are wired to another domain."""
    outer = np.full(inner.count, -1, np.int64)
    torn: list[Suspicion] = []
    placed = np.flatnonzero((inner.domain >= 0) & (leaf.domain >= 0))
    width = max(leaf.count, 1)
    key, votes = np.unique(inner.domain[placed] * width + leaf.domain[placed], return_counts=True)
    former, former_leaf = past.labels_of_domains(leaf.name, inner), past.labels_of_domains(leaf.name, leaf)
    by_group: dict[int, list[tuple[int, int]]] = {}
    for k, count in zip(key.tolist(), votes.tolist(), strict=True):
        by_group.setdefault(k // width, []).append((count, k % width))
    for group, found in by_group.items():

        def rank(one: tuple[int, int], group: int = group) -> tuple[int, bool, int]:
            count, domain = one
            # One host alone does not move a published domain.
            stays = (
                former is not None and former_leaf is not None and former[group] == former_leaf[domain] >= 0
            )
            return (-count - stays, not stays, domain)

        (most, home), *rest = sorted(found, key=rank)
        outer[group] = home
        for count, domain in rest:
            mine = placed[(inner.domain[placed] == group) & (leaf.domain[placed] == domain)].tolist()
            torn.append(_torn(net, leaf, inner, group, (home, most), (domain, count), mine))
    return outer, torn


def _torn(
    net: Network,
    leaf: Layer,
    inner: Layer,
    group: int,
    home: tuple[int, int],
    other: tuple[int, int],
    hosts: Sequence[int],
) -> Suspicion:
    names = [net.hosts[h] for h in hosts]
    kind = KINDS[inner.kinds[group]]
    size = np.count_nonzero(inner.domain == group)
    are_fewer = other[1] < home[1]
    text = (
        f"{first_few(names, _NAMED)} ({other[1]} of the {kind.domain}'s {size} hosts) are connected "
        f"to {leaf.say_switches(net, other[0])}, {'most of its hosts' if are_fewer else 'others'} "
        f"to {leaf.say_switches(net, home[0])}"
    )
    sure = EITHER if kind.spans_leaves else 0.9 if are_fewer else 0.5
    subject = Endpoint(names[0], names[0])
    nodes = tuple(sorted(names))
    return Suspicion("SourcesDisagree", subject, None, 0, group, sure, text, (kind.name,), nodes)


def _apart(net: Network, leaf: Layer, pair: tuple[int, int], domains: AcceleratorDomains) -> Suspicion:
    """Either host may be right, so the suspicion is not sure enough to count against one."""
    kind = KINDS[domains.kind.get(net.hosts[pair[0]], NVLINK)]
    (one, near), (other, far) = (
        (net.hosts[i], leaf.say_switches(net, int(leaf.domain[i]))) for i in sorted(pair)
    )
    text = (
        f"{one} (connected to {near}) and {other} (connected to {far}) alone report one {kind.domain}. They "
        f"are not joined, because one may have copied it: compare `{kind.command}` on both"
    )
    ends = Endpoint(one, one), Endpoint(other, other)
    return Suspicion("SourcesDisagree", *ends, *NOWHERE, EITHER, text, (kind.name,), (one, other))


def _faults(net: Network, domains: AcceleratorDomains, domain: Longs) -> list[Suspicion]:
    """Return the faults of links as suspicions against the innermost domain of the host."""
    at = {host: i for i, host in enumerate(net.hosts)}
    return [
        Suspicion(x.kind, x.subject, x.peer, 0, int(domain[at[x.host]]), x.confidence, x.message, (x.source,))
        for x in domains.faults
    ]


def _no_gpus(net: Network, host: int, group: Longs, kinds: Sequence[str]) -> Suspicion:
    name, place = net.hosts[host], (0, int(group[host]))
    kind = KINDS[kinds[place[1]]]
    text = f"{name} no longer reports a GPU; the other hosts of its {kind.domain} do"
    return Suspicion("MissingLink", Endpoint(name, name), None, *place, 0.9, text, (kind.name,))
