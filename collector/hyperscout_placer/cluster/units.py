"""Splits a gang into units: what stays whole in a domain of which tier, and what each unit is made of.

Under a given top tier, groups that may be as wide as the gang add no constraint and dissolve. What is left is
a tree of units: the gang (unit 0), groups within it, and workers. At tier t a domain holds whole units of
level t. A unit is of level t if its tier is at most t and its parent's tier is above t.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hyperscout_placer.cluster.request import Group, Spread, Workers, ends, size

GANG = 0
DISSOLVED = -1


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit. `tier`: it stays whole in a domain of that tier (0 = a worker).

    `count`: number of these units in one `parent`; `total`: in the gang. `size`: workers in one unit. `kind`:
    index of its kind of worker, -1 = a group.
    """

    parent: int
    count: int
    total: int
    size: int
    tier: int
    spread: Spread | None = None
    kind: int = -1


@dataclass(frozen=True, slots=True)
class Shape:
    """The tree of the request. `unit` DISSOLVED: a group without a constraint of its own."""

    unit: int
    count: int
    inner: "tuple[Shape, ...]" = ()


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a gang. `kinds`: the workers that `Unit.kind` indexes."""

    units: tuple[Unit, ...]
    shape: Shape
    kinds: tuple[Workers, ...]
    top: int

    def level(self, tier: int) -> tuple[int, ...]:
        """The units that a domain of that tier (below the top) holds whole."""
        return tuple(
            i
            for i, unit in enumerate(self.units)
            if i != GANG and unit.tier <= tier < self.units[unit.parent].tier
        )

    def inner(self, unit: int) -> list[int]:
        return [i for i, x in enumerate(self.units) if x.parent == unit]

    def opened(self, tier: int, held: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
        """Open units of level `tier` down to the level below.

        Returns two counts by unit: those in the level below, and those that were opened.
        """
        below: dict[int, int] = {}
        opened: dict[int, int] = {}
        todo = list(held.items())
        while todo:
            unit, count = todo.pop()
            if self.units[unit].tier < tier:
                below[unit] = count
            else:
                opened[unit] = count
                todo += [(i, count * self.units[i].count) for i in self.inner(unit)]
        return below, opened

    def members(self, unit: int, tier: int) -> tuple[int, ...]:
        """The units of level `tier` inside a unit."""
        return tuple(i for i in self.level(tier) if unit in self._around(i))

    def kinds_in(self, unit: int) -> dict[int, int]:
        """Number of workers by kind in one copy of a unit."""
        if self.units[unit].kind >= 0:
            return {self.units[unit].kind: 1}
        found: dict[int, int] = {}
        for i in self.inner(unit):
            for kind, count in self.kinds_in(i).items():
                found[kind] = found.get(kind, 0) + count * self.units[i].count
        return found

    def _around(self, unit: int) -> Iterator[int]:
        while unit >= 0:
            yield unit
            unit = self.units[unit].parent


def units_of(gang: Group, top: int) -> Units:
    """The units of a gang that is placed in one domain of tier `top`."""
    units = [Unit(-1, 1, 1, size(gang), top, gang.spread)]
    kinds = tuple(ends(gang))

    def shape_of(part: Group | Workers, parent: int, count: int) -> Shape:
        """`count`: number of copies in one `parent`."""
        around = units[parent]
        if isinstance(part, Workers):
            kind = sum(x.kind >= 0 for x in units)
            units.append(Unit(parent, count, around.total * count, 1, 0, None, kind))
            return Shape(len(units) - 1, part.count)
        tier = around.tier if part.tier is None else min(part.tier, around.tier)
        unit = DISSOLVED
        if tier < around.tier or part.spread is not None:
            one = size(part) // part.count
            units.append(Unit(parent, count, around.total * count, one, tier, part.spread))
            unit = len(units) - 1
        inside, times = (parent, count) if unit == DISSOLVED else (unit, 1)
        return Shape(unit, part.count, tuple(shape_of(x, inside, times * x.count) for x in part.parts))

    shape = Shape(GANG, 1, tuple(shape_of(part, GANG, part.count) for part in gang.parts))
    return Units(tuple(units), shape, kinds, top)
