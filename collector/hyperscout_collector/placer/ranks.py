"""From what each domain holds to a node for each rank: filled in tree order, so that neighbours are near."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from hyperscout_collector.placer.tables import Held
from hyperscout_collector.placer.units import DISSOLVED, GANG, Shape, Units

# Units by number; each is a node (a worker), or again such a table of what it is made of.
_Bundle = dict[int, list[Any]]


def nodes_by_rank(units: Units, held: Held) -> list[int]:
    """The nodes of a gang by rank; `held`: by the domain at its top."""
    (gang,) = _bundle(units, held, units.top)[GANG]
    nodes: list[int] = []
    _emit(units.shape, {GANG: iter([gang])}, nodes)
    return nodes


def _bundle(units: Units, held: Held, tier: int) -> _Bundle:
    """The units that a domain holds, with their nodes."""
    inside: _Bundle = {}
    for child in held.children:
        if tier == 1:
            for unit, count in child.units.items():
                inside.setdefault(unit, []).extend([child.index] * count)
        else:
            for unit, found in _bundle(units, child, tier - 1).items():
                inside.setdefault(unit, []).extend(found)
    # Dealt out in turn, no group has more of a domain than its share: that is what a spread relies on.
    dealt = any(units.units[unit].spread for unit in held.opened)

    def made(unit: int) -> list[Any]:
        count = held.opened.get(unit)
        if count is None:
            return inside.get(unit, [])
        parts = {i: made(i) for i in units.inner(unit)}
        if dealt:
            return [{i: x[copy::count] for i, x in parts.items()} for copy in range(count)]
        each = {i: units.units[i].count for i in parts}
        return [
            {i: x[copy * each[i] : (copy + 1) * each[i]] for i, x in parts.items()} for copy in range(count)
        ]

    return {unit: made(unit) for unit in held.units}


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
