"""Keep results of functions while their arguments stay the same. This changes no result.

One changed report then costs the work that depends on it: most arguments of most steps of inference are
equal in successive inferences of a collector. `hyperscout infer` calls each function once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import compress
from operator import is_, is_not
from typing import Generic, NamedTuple, TypeVar, TypeVarTuple

import numpy as np

from hyperscout_topology.topology import Adapter

_Evidence = TypeVar("_Evidence")
_Found = TypeVar("_Found")
_Arguments = TypeVarTuple("_Arguments")


class MemoByNode(Generic[_Evidence, _Found]):
    """Calls a function with each node and its evidence, and keeps a result while that evidence is the same.

    The inputs of a collector share the objects of nodes that did not change. The function depends on nothing
    but its arguments. Neither its results nor what is returned may be changed; it is the same object while
    all results are equal. The order of nodes is not that of the evidence.
    """

    def __init__(self, function: Callable[[str, _Evidence], _Found]) -> None:
        self._function = function
        self._last: _Last[_Evidence, _Found] = _Last([], [], {})

    def __call__(self, evidence: Mapping[str, _Evidence]) -> Mapping[str, _Found]:
        last = self._last  # calls in other threads see the old results or the new ones
        found, values = last.found, list(evidence.values())
        if len(values) == len(last.nodes) and all(map(is_, evidence, last.nodes)):  # the common case
            nodes, differs = last.nodes, map(is_not, values, last.values)
        else:
            known, nodes = dict(zip(last.nodes, last.values, strict=True)), list(evidence)
            differs = map(is_not, map(known.get, nodes), values)
            found = {node: found[node] for node in nodes if node in found}
        fresh = {node: self._function(node, evidence[node]) for node in compress(nodes, differs)}
        if any(node not in found or found[node] != mine for node, mine in fresh.items()):
            found = {**found, **fresh}
        self._last = _Last(nodes, values, found)
        return found


class _Last(NamedTuple, Generic[_Evidence, _Found]):
    nodes: list[str]
    values: list[_Evidence]  # of each node, its evidence
    found: dict[str, _Found]


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


@memoized
def positions(ids: Sequence[str]) -> Mapping[str, int]:
    """Return the index of each id; of one that is there twice, the last."""
    return {ident: i for i, ident in enumerate(ids)}


@memoized
def nodes_of_adapters(adapters: Sequence[Adapter]) -> dict[str, str]:
    """Return the node of each adapter, by its id."""
    return {adapter.id: adapter.node for adapter in adapters}
