"""Keeps the free resources of each node, and how many workers of each kind fit in each domain.

The counts are updated in place: a change of a node costs one addition per tier for each remembered kind of
worker.
"""

import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hyperscout_placer.cluster.forest import Flags, Forest, Longs
from hyperscout_placer.cluster.request import MAX_WORKERS, Workers

Resources = Mapping[str, int]  # name -> amount in base units
_Needs = tuple[tuple[str, int], ...]

_MAX_AMOUNT = 2**62
_KINDS = 32  # kinds of workers that are remembered


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """Nodes that a role may use: (nodes,). Equal `key`s mean equal `allowed` and `lacking`.

    `taints`: the taints of each node that nothing but its taints keeps out, as text, by node number.
    `lacking`: (nodes,) the weights of preferences that a node does not meet; None = 0 on all nodes.
    `why`: why other nodes may not be used, if that is not known of each.
    """

    key: str
    allowed: Flags
    taints: Mapping[int, str] = field(default_factory=dict)
    lacking: Longs | None = None
    why: str = ""

    @classmethod
    def of(cls, allowed: Flags, taints: Mapping[int, str], lacking: Longs | None = None) -> "Mask":
        """A mask with a digest of the nodes and of what they lack as its key."""
        digest = hashlib.blake2b(np.packbits(allowed).tobytes(), digest_size=16)
        if lacking is not None:
            digest.update(lacking.tobytes())
        return cls(digest.hexdigest(), allowed, taints, lacking)


def narrowed(masks: Mapping[str, Mask], roles: Iterable[str], more: Mask) -> dict[str, Mask]:
    """The masks of these roles, restricted to the nodes that `more` allows too."""
    found = {}
    for role in roles:
        mask = masks.get(role)
        both = more
        if mask is not None:
            key = f"{mask.key} & {more.key}"
            both = Mask(key, mask.allowed & more.allowed, lacking=mask.lacking, why=mask.why)
        found[role] = both
    return found


@dataclass(slots=True, eq=False)
class Fit:
    """How many workers of one kind fit: on `nodes` (nodes,), and summed in `domains`, by tier from 1 up."""

    nodes: Longs
    domains: list[Longs]


@dataclass(slots=True, eq=False)
class _Kept:
    """A fit and what it was computed for. It is updated when the free resources change."""

    needs: _Needs
    usable: Flags | None  # None = every node
    fit: Fit


class CapacityError(ValueError):
    """An impossible amount of free resources. The message names the node and the resource."""


class Capacity:
    """The free resources by node. `free`: by node name; a node that is missing there has nothing free.

    Names that are not in the forest are ignored. Raises CapacityError for an amount that is negative or not a
    62-bit integer.
    """

    def __init__(self, forest: Forest, free: Mapping[str, Resources]) -> None:
        self.forest = forest
        self._free: dict[str, Longs] = {}  # by resource (nodes,)
        self._kept: OrderedDict[tuple[_Needs, str | None, bool], _Kept] = OrderedDict()
        for node, resources in free.items():
            check_free(node, resources)
            if (at := forest.index.get(node)) is not None:
                for name, amount in resources.items():
                    self._column(name)[at] = amount

    def copy(self, forest: Forest | None = None) -> "Capacity":
        """A copy for trials, without the remembered kinds of workers. `forest`: one with the same nodes."""
        other = Capacity(forest or self.forest, {})
        other._free = {name: column.copy() for name, column in self._free.items()}
        return other

    def free_of(self, node: str) -> dict[str, int]:
        """What is free on a node now. Raises KeyError for a node that is not in the forest."""
        at = self.forest.index[node]
        return {name: int(column[at]) for name, column in self._free.items() if column[at]}

    def free(self, resource: str) -> Longs:
        """(nodes,) free amounts of a resource. The caller must not change the array.

        A resource that no node has gets no stored column, as a request may name any resource.
        """
        column = self._free.get(resource)
        return np.zeros(len(self.forest.nodes), np.int64) if column is None else column

    def has(self, resource: str) -> bool:
        """Whether any node that accepts work has this resource, free or not."""
        return resource in self._free

    def most_of(self, resource: str) -> int:
        """The largest amount of a resource that is free on any one node."""
        return int(self.free(resource).max(initial=0))

    def set_free(self, node: str, free: Resources) -> None:
        """Replace what is free on a node. Raises KeyError, CapacityError."""
        check_free(node, free)
        at = self.forest.index[node]
        for name in free:
            self._column(name)
        for name, column in self._free.items():
            column[at] = free.get(name, 0)
        self._follow((at,))

    def take(self, nodes: Sequence[str], needs: Sequence[Workers]) -> None:
        """Take the resources of one worker on each of these nodes (by rank), all or none.

        Raises CapacityError that names the node on which a worker does not fit, and KeyError for an unknown
        node.
        """
        wanted = self._sums(nodes, needs)
        for (at, name), amount in wanted.items():
            there = int(self._free[name][at]) if name in self._free else 0
            if amount > there:
                raise CapacityError(
                    f"node {self.forest.nodes[at]}: {amount} {name} are needed, {there} are free"
                )
        for (at, name), amount in wanted.items():
            self._free[name][at] -= amount
        self._follow({at for at, _ in wanted})

    def give(self, nodes: Sequence[str], needs: Sequence[Workers]) -> None:
        """Undo `take`. Nodes that are not in the forest are ignored. Amounts stop at the 62-bit maximum."""
        here = [(node, need) for node, need in zip(nodes, needs, strict=True) if node in self.forest.index]
        given = self._sums([node for node, _ in here], [need for _, need in here])
        for (at, name), amount in given.items():
            column = self._column(name)
            column[at] = min(int(column[at]) + amount, _MAX_AMOUNT - 1)
        self._follow({at for at, _ in given})

    def fit(self, workers: Workers, mask: Mask | None = None, *, use_down: bool = False) -> Fit:
        """How many workers of this kind fit now. The caller must not change the result."""
        needs = tuple((name, amount) for name, amount in workers.resources if amount)
        key = (needs, None if mask is None else mask.key, use_down)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = self._reckoned(needs, mask, use_down)
            if len(self._kept) > _KINDS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return kept.fit

    def _reckoned(self, needs: _Needs, mask: Mask | None, use_down: bool) -> _Kept:
        forest = self.forest
        nodes = np.full(len(forest.nodes), MAX_WORKERS, np.int64)  # no gang has more workers
        for name, amount in needs:
            np.minimum(nodes, self.free(name) // amount, out=nodes)
        usable = None if use_down or not forest.down.any() else ~forest.down
        if mask is not None:
            usable = mask.allowed if usable is None else usable & mask.allowed
        if usable is not None:
            nodes[~usable] = 0
        return _Kept(needs, usable, Fit(nodes, summed(forest, nodes)))

    def _follow(self, changed: Iterable[int]) -> None:
        """Update the remembered fits for nodes with changed free resources."""
        for kept in self._kept.values():
            fit = kept.fit
            for at in changed:
                if kept.usable is not None and not kept.usable[at]:
                    continue
                count = min([MAX_WORKERS, *(self._at(name, at) // amount for name, amount in kept.needs)])
                if more := count - int(fit.nodes[at]):
                    fit.nodes[at] = count
                    for layer, domains in zip(self.forest.layers, fit.domains, strict=True):
                        domains[layer.of_node[at]] += more

    def _at(self, name: str, node: int) -> int:
        column = self._free.get(name)
        return 0 if column is None else int(column[node])

    def _column(self, name: str) -> Longs:
        if name not in self._free:
            self._free[name] = np.zeros(len(self.forest.nodes), np.int64)
        return self._free[name]

    def _sums(self, nodes: Sequence[str], needs: Sequence[Workers]) -> dict[tuple[int, str], int]:
        """Amounts by (node number, resource)."""
        sums: dict[tuple[int, str], int] = defaultdict(int)
        for node, need in zip(nodes, needs, strict=True):
            at = self.forest.index[node]
            for name, amount in need.resources:
                if amount:
                    sums[at, name] += amount
        return sums


def summed(forest: Forest, nodes: Longs) -> list[Longs]:
    """Sum a count per node for each domain, by tier from 1 up."""
    found: list[Longs] = []
    below = nodes
    for layer in forest.layers:
        below = layer.summed(below)
        found.append(below)
    return found


def check_free(node: str, free: Resources) -> None:
    """Check the free resources of a node. Raises CapacityError."""
    for name, amount in free.items():
        if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount < _MAX_AMOUNT:
            raise CapacityError(f"node {node}: {name}: {amount!r}: expected a whole number, 0 or more")
