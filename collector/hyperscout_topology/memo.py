"""Keep results of functions while their arguments stay the same. This changes no result.

One changed report then costs the work that depends on it: most arguments of most steps of inference are
equal in successive inferences of a collector. `hyperscout infer` calls each function once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Generic, NamedTuple, TypeVar, TypeVarTuple

import numpy as np

from hyperscout_topology.topology import Adapter

_Evidence = TypeVar("_Evidence")
_Found = TypeVar("_Found")
_Arguments = TypeVarTuple("_Arguments")

_AT_ONCE = 64  # values of nodes that are compared in one step


class MemoByNode(Generic[_Evidence, _Found]):
    """Calls a function with each node and its evidence, and keeps a result while that evidence is equal.

    The inputs of a collector share the objects of nodes that did not change: Python compares lists of them
    by identity, and looks only at nodes of lists that differ. The function depends on nothing
    but its arguments. Neither the evidence nor its results nor what is returned may be changed; it is the
    same object while all results are equal. The order of nodes is not that of the evidence.
    """

    def __init__(self, function: Callable[[str, _Evidence], _Found]) -> None:
        self._function = function
        # Calls in other threads see the old evidence and results, or the new ones.
        self._last: tuple[Mapping[str, _Evidence], dict[str, _Found]] = {}, {}

    def __call__(self, evidence: Mapping[str, _Evidence]) -> Mapping[str, _Found]:
        known, found = self._last
        changed, are_same_nodes = _changes(known, evidence)
        if not are_same_nodes:
            found = {node: found[node] for node in evidence if node in found}
        fresh = {node: self._function(node, evidence[node]) for node in changed}
        if any(node not in found or found[node] != mine for node, mine in fresh.items()):
            found = {**found, **fresh}
        self._last = evidence, found
        return found


class _Changes(NamedTuple):
    """`nodes`: those of the later evidence whose evidence was not there or another one."""

    nodes: Sequence[str]
    are_same_nodes: bool


_KEPT = 8  # many functions take the evidence of one kind
_kept: tuple[tuple[Mapping[str, object], Mapping[str, object], _Changes], ...] = ()


def _changes(before: Mapping[str, object], now: Mapping[str, object]) -> _Changes:
    """Return what changed. Evidence that was just compared is not compared again."""
    if before is now:
        return _Changes((), True)
    global _kept  # noqa: PLW0603 - a cache; a thread may drop what another has kept
    for one, other, changes in _kept:
        if one is before and other is now:
            return changes
    nodes, values = list(now), list(now.values())
    are_same_nodes = nodes == list(before)
    known = list(before.values()) if are_same_nodes else list(map(before.get, nodes))
    changes = _Changes([nodes[i] for i in differing(known, values)], are_same_nodes)
    _kept = ((before, now, changes), *_kept[: _KEPT - 1])
    return changes


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
            last = known = args, function(*args)
        return known[1]

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
