"""Fills in a placement greedily, where the exact one would take too long. Nothing is taken back.

The result keeps every constraint, but need not be the best. Children are filled one after the other, those
with the most free resources first. Of groups that stay whole in a domain, as many copies are opened as can be
filled.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from hyperscout_placer.cluster.forest import Longs
from hyperscout_placer.cluster.units import GANG, Units
from hyperscout_placer.solve.free import Free
from hyperscout_placer.solve.tables import Held

_Counts = dict[int, int]  # by unit
_TOO_MUCH: Final = 2**62  # more than any node has of a resource


@dataclass(frozen=True, slots=True)
class _Cap:
    """At most `most` workers of the `members` (unit -> its size) in one domain of `tier`."""

    tier: int
    members: dict[int, int]
    most: int


class Greedy:
    """Fills domains of the top tier. `looks`: number of times that a unit was tried in a domain."""

    def __init__(self, free: Free, units: Units) -> None:
        self.looks = 0
        self._free = free
        self._units = units
        self._bounds: dict[tuple[int, int], Longs] = {}  # by tier and unit

    def held(self, domain: int) -> Held | None:
        """The gang below a domain, or None where this method finds no place."""
        return self._open(self._units.top, domain, {GANG: 1}, [])

    def _open(self, tier: int, index: int, units: _Counts, caps: list[_Cap]) -> Held | None:
        """Place all of these units in the children of a domain; None where they do not fit."""
        below, opened = self._units.opened(tier, units)
        caps = [cap for cap in caps if cap.tier < tier]
        for unit, copies in opened.items():
            spread = self._units.units[unit].spread
            if spread is None:
                continue
            if spread.tier >= tier:
                if self._units.units[unit].size > spread.most:
                    return None
                continue
            members = {i: self._units.units[i].size for i in self._units.members(unit, spread.tier)}
            most = copies * spread.most
            if len(members) == 1:
                (size,) = members.values()
                most = copies * (spread.most // size) * size
            caps.append(_Cap(spread.tier, members, most))
        children, left = self._pour(tier, index, below, caps)
        return None if any(left.values()) else Held(index, units, opened, children)

    def _pour(self, tier: int, index: int, units: _Counts, caps: list[_Cap]) -> tuple[list[Held], _Counts]:
        """As many units of the level below as fit into the children, and what is left."""
        left = dict(units)
        children = []
        for child in self._by_free(tier, index):
            if not any(left.values()):
                break
            held = self._fill(tier - 1, child, left, caps)
            if held is not None:
                children.append(held)
                for unit, count in held.units.items():
                    left[unit] -= count
        return sorted(children, key=lambda x: x.index), left

    def _by_free(self, tier: int, index: int) -> list[int]:
        start, stop = self._free.children(tier, index)
        fits = self._free.fit(self._free.reference, tier - 1)[start:stop]
        order: list[int] = (start + np.argsort(-fits, kind="stable")).tolist()
        return order

    def _fill(self, tier: int, index: int, wanted: _Counts, caps: list[_Cap]) -> Held | None:
        """As many of the units as fit into a domain; None = none fit."""
        self.looks += len(wanted)
        most = {unit: min(n, int(self._bound(tier, unit)[index])) for unit, n in wanted.items() if n}
        for cap in caps:
            if cap.tier == tier:
                left = cap.most
                for unit, size in cap.members.items():
                    most[unit] = min(most.get(unit, 0), left // size)
                    left -= most[unit] * size
        most = {unit: n for unit, n in most.items() if n}
        if not most:
            return None
        if tier == 0:
            return self._on_node(index, most)
        if all(self._units.units[unit].tier < tier for unit in most):  # no unit has to stay whole here
            children, rest = self._pour(tier, index, most, [cap for cap in caps if cap.tier < tier])
            poured = {unit: n - rest[unit] for unit, n in most.items() if n > rest[unit]}
            return Held(index, poured, {}, children) if poured else None
        found: Held | None = None
        taken: _Counts = {}
        # One kind after the other, the largest units first; of each as many as fit beside the earlier ones.
        for unit in sorted(most, key=lambda i: (-self._units.units[i].size, i)):
            low, high, middle = 0, most[unit], most[unit]  # try all of them first
            while low < high:
                opened = self._open(tier, index, taken | {unit: middle}, caps)
                if opened is None:
                    high = middle - 1
                else:
                    found, low = opened, middle
                middle = (low + high + 1) // 2
            if low:
                taken[unit] = low
        return found

    def _on_node(self, node: int, most: _Counts) -> Held | None:
        held: _Counts = {}
        free = self._free.free[:, node].copy()
        units = list(most)
        needs = np.array([self._needs(unit) for unit in units], np.int64).reshape(len(units), len(free))
        at = 0
        while len(fine := np.flatnonzero((needs[at:] <= free).all(axis=1))):
            at += int(fine[0])
            needed = needs[at] > 0
            fits = int((free[needed] // needs[at][needed]).min(initial=most[units[at]]))
            held[units[at]] = fits
            free -= fits * needs[at]
            at += 1
        return Held(node, held, {}) if held else None

    def _needs(self, unit: int) -> list[int]:
        """What one copy of a unit needs of each shared resource."""
        kinds = self._units.kinds_in(unit).items()
        rows = [[count * int(need) for need in self._free.needs[kind]] for kind, count in kinds]
        return [min(_TOO_MUCH, sum(column)) for column in zip(*rows, strict=True)]

    def _bound(self, tier: int, unit: int) -> Longs:
        """(domains of a tier,) an upper bound of how many of a unit fit."""
        found = self._bounds.get((tier, unit))
        if found is None:
            kinds = self._units.kinds_in(unit)
            fits = [(self._free.fit(kind, tier), count) for kind, count in kinds.items()]
            each = [fit if count == 1 else fit // count for fit, count in fits]
            found = self._bounds[tier, unit] = each[0] if len(each) == 1 else np.minimum.reduce(each)
        return found


def cost_parts(free: Free, units: Units, held: Held) -> tuple[int, ...]:
    """The cost of a filled domain, as `Parts.unpacked` orders it."""
    top = units.top
    counts, left, lacking, degraded, whole = [0] * top, [0] * top, 0, 0, 0
    todo = [(top - 1, child) for child in held.children]
    while todo:
        tier, at = todo.pop()
        counts[top - 1 - tier] += 1
        left[top - 1 - tier] += int(free.fit(free.reference, tier)[at.index])
        whole += int(tier > 0 and free.whole(tier)[at.index])
        degraded += int(free.degraded(tier)[at.index])
        if tier == 0:
            kinds = {kind for unit in at.units for kind in units.kinds_in(unit)}
            lacking += int(free.lacked(kinds, np.array([at.index]))[0])
        todo += [(tier - 1, child) for child in at.children]
    return (*counts, lacking, degraded, *left, whole)
