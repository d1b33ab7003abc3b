"""Keep results of functions while their arguments stay the same. This changes no result.

One changed report then costs the work that depends on it: most arguments of most steps of inference are
equal in successive inferences of a collector. `hyperscout infer` calls each function once.
"""

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import wraps
from typing import Generic, TypeVar, TypeVarTuple

import numpy as np

from hyperscout_topology.topology import Adapter, Switch

_Value = TypeVar("_Value")
_Evidence = TypeVar("_Evidence")
_Found = TypeVar("_Found")
_Arguments = TypeVarTuple("_Arguments")

_AT_ONCE = 64  # values of nodes that are compared in one step


class Followed(dict[str, _Value]):
    """Values by node, which say how they differ from earlier ones. They may not be changed."""

    __slots__ = ("__weakref__", "_before", "_changed")
    _before: "weakref.ref[Followed[_Value]] | None"
    _changed: Collection[str]

    def __init__(self, values: Mapping[str, _Value] | None = None) -> None:
        super().__init__(values or {})
        self._before, self._changed = None, ()

    def after(self, changes: Mapping[str, _Value | None]) -> "Followed[_Value]":
        """Return these values with others of some nodes; None = the node has none any more."""
        found = Followed(self)
        for node, value in changes.items():
            if value is None:
                found.pop(node, None)
            else:
                found[node] = value
        found._before, found._changed = weakref.ref(self), changes.keys()
        return found

    def since(self, earlier: Mapping[str, _Value]) -> Collection[str] | None:
        """Return the nodes that may differ from the earlier values, None = they are not known."""
        if self is earlier:
            return ()
        return self._changed if self._before is not None and self._before() is earlier else None


class MemoByNode(Generic[_Evidence, _Found]):
    """Calls a function with each node and its evidence, and keeps a result while that evidence is equal.

    A node for which the function returns None has no result.

    The inputs of a collector know which nodes changed. Others share the objects of nodes that did not: Python
    compares lists of them by identity, and looks only at nodes of lists that differ. The function depends on
    nothing but its arguments. Neither the evidence nor its results nor what is returned may be changed; it is
    the same object while all results are equal. The order of nodes is not that of the evidence.
    """

    def __init__(self, function: Callable[[str, _Evidence], _Found | None]) -> None:
        self._function = function
        # Calls in other threads see the old evidence and results, or the new ones.
        self._last: tuple[Mapping[str, _Evidence], Followed[_Found]] = {}, Followed()

    def __call__(self, evidence: Mapping[str, _Evidence]) -> Mapping[str, _Found]:
        known, found = self._last
        fresh: dict[str, _Found | None] = {}
        for node in changed_nodes(known, evidence):
            mine = self._function(node, evidence[node]) if node in evidence else None
            if found.get(node) != mine:
                fresh[node] = mine
        if fresh:
            found = found.after(fresh)
        self._last = evidence, found
        return found


def changed_nodes(before: Mapping[str, object], now: Mapping[str, object]) -> Sequence[str]:
    """Return the nodes with another value or without one now."""
    known = now.since(before) if isinstance(now, Followed) else None
    if known is not None:
        return [node for node in known if before.get(node) != now.get(node)]
    nodes, values = list(now), list(now.values())
    earlier = list(before)
    if nodes == earlier:
        return [nodes[i] for i in differing(list(before.values()), values)]
    changed = [nodes[i] for i in differing(list(map(before.get, nodes)), values)]
    return [*changed, *(node for node in earlier if node not in now)]


def differing(known: Sequence[object], values: Sequence[object]) -> Iterator[int]:
    """Yield the positions of values that differ. Those that stay should be the same objects."""
    for first in range(0, len(values), _AT_ONCE):
        before, now = known[first : first + _AT_ONCE], values[first : first + _AT_ONCE]
        if before != now:
            yield from (
                i for i, (one, other) in enumerate(zip(before, now, strict=True), first) if one != other
            )


def memoized(function: Callable[[*_Arguments], _Found]) -> Callable[[*_Arguments], _Found]:
    """Keep the result for the last arguments. Callers must not change arguments or results.

    `functools.lru_cache` would hash the arguments, and arrays have no hash. Comparing is fast where most of
    their parts are the same objects.
    """
    last: tuple[tuple[object, ...], _Found] | None = None

    @wraps(function)
    def call(*args: *_Arguments) -> _Found:
        nonlocal last
        known = last
        if known is None or len(known[0]) != len(args) or not all(map(_same, known[0], args)):
            found = function(*args)
        else:
            found = known[1]
        last = args, found  # the next arguments are rather these objects than equal earlier ones
        return found

    return call


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


def _positions(ids: Sequence[str]) -> Mapping[str, int]:
    """Return the index of each id; of one that is there twice, the last."""
    return {ident: i for i, ident in enumerate(ids)}


positions, positions_of_hosts = memoized(_positions), memoized(_positions)


@memoized
def nodes_of_adapters(adapters: Sequence[Adapter]) -> dict[str, str]:
    """Return the node of each adapter, by its id."""
    return {adapter.id: adapter.node for adapter in adapters}


@memoized
def names_of_adapters(adapters: Sequence[Adapter]) -> dict[str, str]:
    """Return the name of each adapter on its node, by its id, where it is known."""
    return {adapter.id: adapter.name for adapter in adapters if adapter.name}


@memoized
def switches_by_id(switches: Sequence[Switch]) -> dict[str, Switch]:
    """Return the switches by id."""
    return {switch.id: switch for switch in switches}
