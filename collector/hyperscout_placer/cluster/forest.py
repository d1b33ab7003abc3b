"""The topology as the placer uses it: columns by tier, in which every domain is one run of nodes.

Nodes and domains are numbered in tree order (children by name). So a domain is a slice of the nodes, its
children are a slice of the tier below, and ranks in number order follow the tree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from hyperscout_formats.text.reporters import cluster_of
from hyperscout_topology.gaps import single_host_domains
from hyperscout_topology.names import tier_level
from hyperscout_topology.topology import HyperNode, Topology

from hyperscout_placer.cluster.health import health_of

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
NODE = "node"  # the name of tier 0
_MAX_NUMBER = 9999  # of a tier that a request names; a larger one means the same


class ForestError(ValueError):
    """The HyperNodes are not a laminar forest of uniform depth. The message names the HyperNode."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """The domains of one tier, in tree order. All columns but `of_node` are (domains,).

    `start`, `stop`: the domain's nodes. `child`, `child_stop`: its children in the tier below (nodes, at tier
    1). `parent`: its parent in the tier above; 0 at the top. `degraded`: degraded links that count against
    the domain itself. `of_node`: (nodes,) the domain of each node.
    """

    tier: int
    tier_name: str
    names: tuple[str, ...]
    start: Longs
    stop: Longs
    child: Longs
    child_stop: Longs
    parent: Longs
    degraded: Longs
    of_node: Longs

    def __len__(self) -> int:
        return len(self.names)

    def summed(self, counts: Longs) -> Longs:
        """(domains,) the sums of counts of the children."""
        sums = np.concatenate(([0], np.cumsum(counts)))
        found: Longs = sums[self.child_stop] - sums[self.child]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """All tiers. `nodes`: names in tree order; `index`: number by name. `layers`: tier 1 first.

    `degraded`: (nodes,) number of the node's own links that are degraded. `down`: (nodes,) whether the node
    is down (see `Health`). `clusters`: (nodes,) by cluster, whether the node belongs to it; empty = all nodes
    belong to the collector's own cluster. `hidden`: by name of a domain that no answer names, the one above.
    """

    generation: int
    nodes: tuple[str, ...]
    index: dict[str, int]
    layers: tuple[Layer, ...]
    degraded: Longs
    down: Flags
    clusters: Mapping[str, Flags] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Topology, *, single_hosts: bool = True) -> "Forest":
        """The forest of the topology's HyperNodes.

        `single_hosts`: whether answers name accelerator domains of one host.

        Raises ForestError where they are no forest of uniform depth: for example a HyperNode with two
        parents, a cycle, or a node in two HyperNodes of tier 1.
        """
        tiers = _by_tier(topology.hypernodes)
        ordered, parents = _in_tree_order(tiers)
        nodes = tuple(node for h in ordered[0] for node in sorted(h.nodes)) if ordered else ()
        sizes = np.array([len(h.nodes) for h in ordered[0]] if ordered else [], np.int64)
        layers: list[Layer] = []
        for tier, (domains, parent) in enumerate(zip(ordered, parents, strict=True), 1):
            children = sizes if tier == 1 else np.array([len(h.children) for h in domains], np.int64)
            child_stop = np.cumsum(children)
            child = child_stop - children
            # At tier 1 the children are nodes.
            node_at = (
                np.concatenate(([0], np.cumsum(sizes)))
                if tier == 1
                else np.append(layers[-1].start, len(nodes))
            )
            start = node_at[:-1] if tier == 1 else node_at[child]
            stop = node_at[1:] if tier == 1 else node_at[child_stop]
            layers.append(
                Layer(
                    tier,
                    domains[0].tier_name,
                    tuple(h.name for h in domains),
                    start,
                    stop,
                    child,
                    child_stop,
                    np.array(parent, np.int64),
                    np.zeros(len(domains), np.int64),
                    np.repeat(np.arange(len(domains)), stop - start),
                )
            )
        healthy = cls(
            topology.generation,
            nodes,
            {node: i for i, node in enumerate(nodes)},
            tuple(layers),
            np.zeros(len(nodes), np.int64),
            np.zeros(len(nodes), np.bool_),
            _clusters(nodes),
            {} if single_hosts else single_host_domains(topology),
        )
        return healthy.with_health_of(topology)

    def with_health_of(self, topology: Topology) -> "Forest":
        """The forest of another generation with the same HyperNodes and members, see `same_members`."""
        health = health_of(topology)
        degraded, down = np.zeros(len(self.nodes), np.int64), np.zeros(len(self.nodes), np.bool_)
        for node, links in health.nodes.items():
            degraded[self.index[node]] = links
        down[[self.index[node] for node in health.down]] = True
        of_domains = health.hypernodes
        layers = tuple(
            replace(layer, degraded=np.array([of_domains.get(x, 0) for x in layer.names], np.int64))
            for layer in self.layers
        )
        return replace(self, generation=topology.generation, layers=layers, degraded=degraded, down=down)

    @property
    def top(self) -> int:
        """The highest tier; 0 = there are no HyperNodes."""
        return len(self.layers)

    def tier(self, text: str) -> int:
        """A tier by its number or tierName; 0 = "node". Raises ForestError that lists the existing tiers."""
        for layer in self.layers:
            if text in (str(layer.tier), layer.tier_name):
                return layer.tier
        if text in ("0", NODE):
            return 0
        there = ", ".join(f"{x.tier} ({x.tier_name})" if x.tier_name else str(x.tier) for x in self.layers)
        raise ForestError(f"no tier {text!r}: the tiers are 0 (node){', ' if there else ''}{there}")

    def count(self, tier: int) -> int:
        """The number of domains of a tier (nodes, at 0). Above the highest is one: all islands together."""
        if tier > self.top:
            return 1
        return len(self.layers[tier - 1]) if tier else len(self.nodes)

    def names(self, tier: int) -> tuple[str, ...]:
        """The names of the domains of a tier for answers; at 0 the nodes."""
        if not tier:
            return self.nodes
        names = self.layers[tier - 1].names
        return tuple(self.hidden.get(name, name) for name in names) if self.hidden else names

    def domain_of(self, tier: int, nodes: Longs) -> Longs:
        """(nodes,) the domain of a tier in which each of these nodes is; at 0 the node itself."""
        return self.layers[tier - 1].of_node[nodes] if tier else nodes

    def inside(self, tier: int, domain: int) -> Flags:
        """(nodes,) the nodes in a domain of a tier, as in `domain_of`; above the highest tier all nodes."""
        every = np.arange(len(self.nodes))
        return self.domain_of(tier, every) == domain if tier <= self.top else every >= 0

    def below(self, names: frozenset[str]) -> Flags:
        """(nodes,) the nodes with these names, and those in HyperNodes with these names.

        Unknown names are ignored.
        """
        found = np.zeros(len(self.nodes), np.bool_)
        found[[self.index[name] for name in names & self.index.keys()]] = True
        for layer in self.layers if names else ():
            for i, name in enumerate(layer.names):
                if name in names:
                    found[layer.start[i] : layer.stop[i]] = True
        return found

    def barred(self, avoid: frozenset[str], cluster: str) -> Flags:
        """(nodes,) the nodes to avoid, as `below` finds them, and the nodes of all other clusters."""
        found = self.below(avoid)
        if self.clusters:
            mine = self.clusters.get(cluster)
            found |= True if mine is None else ~mine
        return found

    def holder(self, nodes: Sequence[int] | Longs) -> tuple[int, str] | None:
        """Tier and name of the lowest domain that contains all of these nodes; None where there is none."""
        low, high = int(np.min(nodes)), int(np.max(nodes))  # a domain is a run of nodes
        for layer in self.layers:
            domain = int(layer.of_node[low])
            if domain == layer.of_node[high]:
                return layer.tier, layer.names[domain]
        return None

    def named_holder(self, nodes: Sequence[int] | Longs) -> tuple[int, str] | None:
        """As `holder`, for answers: the domain above a hidden one."""
        found = self.holder(nodes)
        return (found[0] + 1, self.hidden[found[1]]) if found and found[1] in self.hidden else found

    def degraded_links(self, nodes: Sequence[int] | Longs) -> int:
        """Degraded links of these nodes and of their domains, up to the lowest one that contains all."""
        return sum(int(links[at].sum()) for _, links, at in self._used(nodes))

    def degraded_parts(self, nodes: Sequence[int] | Longs) -> list[tuple[str, int]]:
        """Those of these nodes and domains that are degraded, with the number of their degraded links."""
        parts = [(names[i], int(links[i])) for names, links, at in self._used(nodes) for i in at.tolist()]
        return [(name, links) for name, links in parts if links]

    def _used(self, nodes: Sequence[int] | Longs) -> Iterator[tuple[Sequence[str], Longs, Longs]]:
        """Names, degraded links, and which are used: of the nodes, then tier by tier."""
        used = np.unique(np.asarray(nodes, np.int64))
        yield self.nodes, self.degraded, used
        holder = self.holder(used)
        for layer in self.layers if holder is None else self.layers[: holder[0]]:
            yield layer.names, layer.degraded, np.unique(layer.of_node[used])


class Tiers:
    """Reads the tiers of a request. In place of a tier that does not exist, the lowest one above it is used.

    `replaced`: which tiers do not exist, and what replaces each, in words.
    """

    def __init__(self, forest: Forest) -> None:
        self._forest = forest
        self.replaced: tuple[str, ...] = ()

    @property
    def top(self) -> int:
        return self._forest.top

    def at_most(self, text: str) -> int:
        """A tier that limits where a group is. Without one above it, the highest tier is used: a group in one
        domain of it is below the tier. Raises ForestError for a name that no hierarchy has."""
        return min(self._read(text, f": {say_tier(self._forest, self.top)} is used, the highest"), self.top)

    def over(self, text: str) -> int:
        """A tier over whose domains a gang is spread; one above the highest = no tier is at or above it.

        Raises ForestError for a name that no hierarchy has.
        """
        return self._read(text, ", nor one above it")

    def _read(self, text: str, none_above: str) -> int:
        layers = self._forest.layers
        try:
            return self._forest.tier(text)
        except ForestError:
            if text.isascii() and text.isdecimal():
                levels: list[int | None] = [x.tier for x in layers]
                level: int | None = min(int(text), _MAX_NUMBER)
            else:
                levels, level = [tier_level(x.tier_name) for x in layers], tier_level(text)
            if level is None or None in levels or not layers:
                raise
        found = next((i for i, at in enumerate(levels, 1) if at is not None and at >= level), self.top + 1)
        why = (
            none_above
            if found > self.top
            else f": {say_tier(self._forest, found)} is used, the lowest above it"
        )
        self.replaced = tuple(dict.fromkeys((*self.replaced, f"there is no tier {text}{why}")))
        return found


def say_tier(forest: Forest, tier: int) -> str:
    """The tier as text, for example: tier 2 (pod)."""
    if tier == 0:
        return f"tier 0 ({NODE})"
    name = forest.layers[tier - 1].tier_name if tier <= forest.top else "all islands"
    return f"tier {tier} ({name})" if name else f"tier {tier}"


def _clusters(nodes: Sequence[str]) -> dict[str, Flags]:
    of_node = [cluster_of(node) for node in nodes]
    if not any(of_node):
        return {}
    column = np.array(of_node)
    return {cluster: column == cluster for cluster in sorted(set(of_node))}


def _by_tier(hypernodes: Sequence[HyperNode]) -> list[dict[str, HyperNode]]:
    """HyperNodes by name, tier 1 first.

    Raises ForestError for a missing tier or a child of the wrong tier.
    """
    found: dict[str, HyperNode] = {}
    for h in hypernodes:
        if h.name in found:
            raise ForestError(f"HyperNode {h.name}: the name is used twice")
        if h.tier < 1:
            raise ForestError(f"HyperNode {h.name}: tier {h.tier}: expected 1 or more")
        found[h.name] = h
    top = max((h.tier for h in hypernodes), default=0)
    tiers: list[dict[str, HyperNode]] = [{} for _ in range(min(top, len(found)))]
    for h in found.values():
        if h.tier > len(tiers):
            raise ForestError(
                f"HyperNode {h.name}: tier {h.tier}, but not every tier below it has a HyperNode"
            )
        if (h.tier == 1) != (not h.children):
            raise ForestError(f"HyperNode {h.name}: tier {h.tier} with {len(h.children)} children")
        tiers[h.tier - 1][h.name] = h
        for child in h.children:
            if (there := found.get(child)) is None:
                raise ForestError(f"HyperNode {h.name}: its child {child} does not exist")
            if there.tier != h.tier - 1:
                raise ForestError(
                    f"HyperNode {h.name}: tier {h.tier}, but its child {child} has tier {there.tier}"
                )
    return tiers


def _in_tree_order(tiers: list[dict[str, HyperNode]]) -> tuple[list[list[HyperNode]], list[list[int]]]:
    """The domains of each tier, tier 1 first, and the parent of each.

    Children are sorted by name within a parent.
    """
    ordered = [sorted(tiers[-1].values(), key=lambda h: h.name)] if tiers else []
    parents = [[0] * len(ordered[0])] if ordered else []
    for h in ordered[0] if ordered else ():
        if h.parent is not None:
            raise ForestError(f"HyperNode {h.name}: parent {h.parent}, but it is in the highest tier")
    for below in reversed(tiers[:-1]):
        children = [(name, i) for i, h in enumerate(ordered[-1]) for name in sorted(h.children)]
        ordered.append([below[name] for name, _ in children])
        parents.append([i for _, i in children])
        _no_orphans(below, children, ordered[-2])
    ordered.reverse()
    parents.reverse()
    if ordered:
        _same_nodes(ordered, parents)
    return ordered, parents


def _no_orphans(below: dict[str, HyperNode], children: list[tuple[str, int]], above: list[HyperNode]) -> None:
    """Check that each domain has one parent, and names no other as its parent."""
    parent_of: dict[str, str] = {}
    for name, i in children:
        if name in parent_of:
            raise ForestError(f"HyperNode {name}: two parents, {parent_of[name]} and {above[i].name}")
        parent_of[name] = above[i].name
    for name, h in below.items():
        if name not in parent_of:
            raise ForestError(f"HyperNode {name}: no parent, while others of tier {h.tier} have one")
        if h.parent is not None and h.parent != parent_of[name]:
            raise ForestError(f"HyperNode {name}: parent {h.parent}, but it is a child of {parent_of[name]}")


def _same_nodes(ordered: list[list[HyperNode]], parents: list[list[int]]) -> None:
    """Check that tier-1 domains share no node, and that a parent has exactly the nodes of its children."""
    owner: dict[str, str] = {}
    for h in ordered[0]:
        for node in h.nodes:
            if (other := owner.setdefault(node, h.name)) != h.name:
                raise ForestError(f"HyperNode {h.name}: node {node} is in {other} too")
        if len(set(h.nodes)) < len(h.nodes):
            raise ForestError(f"HyperNode {h.name}: a node is listed twice")
    for below, above, parent in zip(ordered, ordered[1:], parents, strict=False):
        inside: list[set[str]] = [set() for _ in above]
        for h, i in zip(below, parent, strict=True):
            inside[i].update(h.nodes)
        for h, nodes in zip(above, inside, strict=True):
            if wrong := nodes.symmetric_difference(h.nodes):
                raise ForestError(
                    f"HyperNode {h.name}: node {min(wrong)}: expected in it and in one of its children"
                )
