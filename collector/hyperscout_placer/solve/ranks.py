"""Assigns a node to each rank from what each domain holds, in tree order, so that neighbours are near."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.units import DISSOLVED, GANG, Shape, Units
from hyperscout_placer.solve.tables import Held

# By unit, a list of its copies: each is a node (a worker), or again such a mapping of its parts.
_Bundle = dict[int, list[Any]]


def nodes_by_rank(forest: Forest, units: Units, held: Held) -> list[int]:
    """The nodes of a gang by rank. `held`: of the top domain."""
    (gang,) = _bundle(forest, units, held, units.top)[GANG]
    nodes: list[int] = []
    _emit(units.shape, {GANG: iter([gang])}, nodes)
    return nodes


def _bundle(forest: Forest, units: Units, held: Held, tier: int) -> _Bundle:
    """The units that a domain holds, with their nodes."""
    inside: _Bundle = {}
    for child in held.children:
        if tier == 1:
            for unit, count in child.units.items():
                inside.setdefault(unit, []).extend([_on_node(units, unit, child.index)] * count)
        else:
            for unit, found in _bundle(forest, units, child, tier - 1).items():
                inside.setdefault(unit, []).extend(found)
    copies: dict[int, list[Any]] = {}  # copies of the units that were opened here

    def made(unit: int, *, dealt: bool) -> list[Any]:
        count = held.opened.get(unit)
        if count is None:
            return inside.get(unit, [])
        parts = {i: made(i, dealt=dealt) for i in units.inner(unit)}
        if dealt:
            return [{i: x[copy::count] for i, x in parts.items()} for copy in range(count)]
        each = {i: units.units[i].count for i in parts}
        copies[unit] = [
            {i: x[copy * each[i] : (copy + 1) * each[i]] for i, x in parts.items()} for copy in range(count)
        ]
        return copies[unit]

    runs = {unit: made(unit, dealt=False) for unit in held.units}
    if all(_is_spread(forest, units, unit, copies[unit]) for unit in held.opened):
        return runs
    # Dealt in turn, no group gets more of a domain than its share. A spread relies on that.
    return {unit: made(unit, dealt=True) for unit in held.units}


def _on_node(units: Units, unit: int, node: int) -> Any:
    """One copy of a unit that is whole on a node."""
    if units.units[unit].kind >= 0:
        return node
    return {i: [_on_node(units, i, node)] * units.units[i].count for i in units.inner(unit)}


def _is_spread(forest: Forest, units: Units, unit: int, copies: list[_Bundle]) -> bool:
    """Whether each of the copies keeps its spread."""
    spread = units.units[unit].spread
    if spread is None:
        return True
    for copy in copies:
        domains = forest.domain_of(spread.tier, np.fromiter(_nodes(copy), np.int64))
        if np.unique(domains, return_counts=True)[1].max() > spread.most:
            return False
    return True


def _nodes(bundle: _Bundle) -> Iterator[int]:
    for found in bundle.values():
        for x in found:
            if isinstance(x, dict):
                yield from _nodes(x)
            else:
                yield x


def _emit(shape: Shape, bundle: Mapping[int, Iterator[Any]], nodes: list[int]) -> None:
    if not shape.inner:
        nodes.extend(islice(bundle[shape.unit], shape.count))
        return
    for _ in range(shape.count):
        within = bundle
        if shape.unit != DISSOLVED:
            within = {unit: iter(found) for unit, found in next(bundle[shape.unit]).items()}
        for inner in shape.inner:
            _emit(inner, within, nodes)
