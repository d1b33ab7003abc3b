"""Keep nodes that no cable shows now, and tiers that have lost all cables, as they were published."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from hyperscout_topology.topology import HyperNode, Topology


def with_cut_off(
    hypernodes: list[HyperNode], previous: Topology, absent: frozenset[str], present: Collection[str]
) -> list[HyperNode]:
    """Return the HyperNodes with the nodes `absent` in their published domains. `present`: devices that
    evidence shows.

    A node is added to the lowest of its domains that still exists, and to the present parents of that domain.
    The published domains below it are added again.
    """
    now = _with_lost_tiers(hypernodes, previous, present, bool(absent))
    if not absent:
        return [*now.values()]
    depth = max((h.tier for h in previous.hypernodes), default=0)
    if now and depth != max(h.tier for h in now.values()):
        return hypernodes  # with another number of tiers, nodes cannot be kept
    names = {h.tier: h.tier_name for h in (*previous.hypernodes, *now.values())}
    chains: dict[str, list[HyperNode]] = {}  # of each absent node, its domains from the root down
    lacking = absent.difference(*(h.nodes for h in hypernodes))  # dead cables may have placed the others
    for old in sorted(previous.hypernodes, key=lambda h: -h.tier):
        for node in old.nodes:
            if node in lacking:
                chains.setdefault(node, []).append(old)
    more: dict[str, list[str]] = {}
    for node, chain in sorted(chains.items()):
        if [h.tier for h in chain] != list(range(depth, 0, -1)):
            continue
        if any(h.name in now and now[h.name].tier != h.tier for h in chain):
            continue  # a domain of the name has another tier now
        standing = next((i for i in range(depth - 1, -1, -1) if chain[i].name in now), -1)
        for i in range(standing + 1, depth):
            parent = now[chain[i - 1].name] if i else None
            now[chain[i].name] = replace(
                chain[i],
                tier_name=names[depth - i],
                parent=parent.name if parent else None,
                children=(),
                nodes=(),
                conditions=(),
            )
            if parent:
                children = tuple(sorted({*parent.children, chain[i].name}))
                now[parent.name] = replace(parent, children=children)
        name: str | None = chain[-1].name
        while name is not None:
            more.setdefault(name, []).append(node)
            name = now[name].parent
    return [replace(h, nodes=tuple(sorted({*h.nodes, *more.get(h.name, ())}))) for h in now.values()]


def _with_lost_tiers(
    hypernodes: Iterable[HyperNode], previous: Topology, present: Collection[str], is_cut_off: bool
) -> dict[str, HyperNode]:
    """Return the HyperNodes by name, with the published ones above them that have lost their cables.

    These are domains of cables of which no switch is `present`. If nodes are cut off, evidence may show only
    one part of the fabric, so others come back, too.
    """
    former = {h.name: h for h in previous.hypernodes}
    now = {h.name: h for h in hypernodes}
    tops = [h for h in now.values() if h.parent is None]
    for top in tops:
        same = former.get(top.name)
        if same is None or same.tier != top.tier or not set(top.switches) <= set(same.switches):
            return now  # it is connected otherwise
        above = former.get(same.parent or "")
        if above is not None and (
            above.source != "wires"
            or not (is_cut_off or (above.switches and not any(x in present for x in above.switches)))
        ):
            return now
    for top in tops:
        child = top
        while (name := former[child.name].parent) is not None:
            domain = now.get(name) or replace(former[name], children=(), nodes=(), conditions=())
            children, nodes = {*domain.children, child.name}, {*domain.nodes, *top.nodes}
            now[child.name] = replace(now[child.name], parent=name)
            now[name] = replace(domain, children=tuple(sorted(children)), nodes=tuple(sorted(nodes)))
            child = now[name]
    return now
