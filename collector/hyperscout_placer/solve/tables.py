"""Computes the exact placement in one domain by dynamic programming; equal subtrees are solved once.

The table of a domain contains, for every number of units of its level, the least cost of holding exactly that
many. It is built from the tables of its children, one child after the other, as the least over what the child
takes. Costs are vectors that are compared part by part. Adding the same vector to both sides keeps their
order, so the best whole consists of best parts, and the table of the top contains the optimum.

A spread allows each of n equal groups at most m workers in a domain. Together the n groups can then have n
times m workers there. If they have no more, dealing the workers out in turn gives no group more than m. So a
spread is a bound on what a domain may hold, and depends only on the number of such groups.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Final

import numpy as np

from hyperscout_placer.cluster.forest import Flags, Longs
from hyperscout_placer.cluster.units import GANG, Units
from hyperscout_placer.solve.costs import NEVER, keep_least
from hyperscout_placer.solve.equal_domains import Alike
from hyperscout_placer.solve.free import Free, Parts

MAX_WORK: Final = 2 * 10**9  # additions of table entries; about one or two seconds
MAX_ENTRIES: Final = 2 * 10**7  # entries of the tables below one domain that are in memory at once
_STEP: Final = 15_000  # fixed cost of a step, in table entries
_Caps = tuple[tuple[int, int], ...]  # spread units, and the number of opened copies of each
_State = tuple[int, ...]


class TooBigError(Exception):
    """The tables or the work for them would exceed the limit."""


class Work:
    """The remaining work for the tables of one request. `looks`: unit trials of greedy searches so far."""

    def __init__(self, most: int = MAX_WORK) -> None:
        self.looks = 0
        self._left = most

    def spend(self, amount: int) -> None:
        """Raises TooBigError when the limit is exceeded, and in every later call."""
        self._left -= amount
        if self._left < 0:
            raise TooBigError


def _at(state: Iterable[Any]) -> Any:
    """The index of all words of a table at a state."""
    return (slice(None), *state)


@dataclass(slots=True, eq=False)
class Held:
    """What a domain or node holds: units of its level by number, and its children in tree order."""

    index: int
    units: dict[int, int]
    opened: dict[int, int]
    children: "Sequence[Held]" = ()


class Trees:
    """Placements of any gang, with a top domain of one tier."""

    def __init__(self, free: Free, alike: Alike, units: Units, work: Work) -> None:
        self._work = work
        self._free = free
        self._alike = alike
        self._units = units

    def might(self) -> Flags:
        """(domains of the top tier,) whether the gang may fit."""
        found = np.ones(self._free.forest.count(self._units.top), np.bool_)
        for kind, count in self._units.kinds_in(GANG).items():
            found &= self._free.fit(kind, self._units.top) >= count
        return found

    def sizes(self, tier: int) -> list[tuple[Longs, int]]:
        """By kind: (domains of a lower tier,) how many workers fit, and how many the gang has."""
        wanted = self._units.kinds_in(GANG)
        return [(self._free.fit(kind, tier), count) for kind, count in wanted.items()]

    def least(
        self, domain: int, best: tuple[int, ...] | None
    ) -> tuple[tuple[int, ...], Callable[[], Held]] | None:
        """The least cost below a domain, as `Parts` orders it, and a function for its choice.

        None where the gang does not fit. `best`: a cost that was found elsewhere. Raises TooBigError.
        """
        tables = Tables(self._free, self._alike, self._units, self._work, domain)
        parts = tables.least()
        return None if parts is None else (parts, tables.held)


class Tables:
    """Tables below one domain of the top tier."""

    def __init__(self, free: Free, alike: Alike, units: Units, work: Work, domain: int) -> None:
        self._free = free
        self._alike = alike
        self._units = units
        self._tier = tier = units.top
        self._domain = domain
        self._levels = [units.level(t) for t in range(tier)]
        self._spreads = {i: unit.spread for i, unit in enumerate(units.units) if unit.spread is not None}
        self._kinds_in = [units.kinds_in(i) for i in range(len(units.units))]
        self._parts = Parts(free, units, domain)
        self._words = self._parts.packing.words
        self._tables: dict[tuple[int, int, _Caps], Longs] = {}
        self._work = work

    def least(self) -> tuple[int, ...] | None:
        """The least cost, as parts; None = the gang does not fit. Raises TooBigError.

        `Parts` lists the parts.
        """
        wanted, caps = self._wanted()
        if wanted is None:
            return None
        found = self._joined(self._tier, self._domain, wanted, caps)[-1][_at(wanted)]
        return None if found[0] >= NEVER else self._parts.unpacked(found)

    def held(self) -> Held:
        """The choice with the least cost. Call it only where `least` returned a cost."""
        self._work = Work(2**62)  # the same computation ran within the limit before
        wanted, caps = self._wanted()
        if wanted is None:
            raise AssertionError("the gang does not fit")
        return self._traced(self._tier, self._domain, {GANG: 1}, wanted, caps)

    # Tables

    def _most(self, tier: int, index: int) -> _State:
        """An upper bound of the units of its level that a domain holds."""
        found = []
        for unit in self._levels[tier]:
            fits = [int(self._free.fit(kind, tier)[index]) // n for kind, n in self._kinds_in[unit].items()]
            found.append(min(self._units.units[unit].total, *fits))
        return tuple(found)

    def _table(self, tier: int, index: int, caps: _Caps) -> Longs:
        """(words, units of each kind of its level ...): the least cost of holding exactly that many."""
        key = (tier, self._alike.number(tier, index), caps)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = self._made(tier, index, caps)
        return found

    def _made(self, tier: int, index: int, caps: _Caps) -> Longs:
        most = self._most(tier, index)
        dims = tuple(n + 1 for n in most)
        self._work.spend(math.prod(dims) * _STEP)
        table = np.full((self._words, *dims), 0, np.int64)
        table[0] = NEVER
        states = list(product(*map(range, dims)))
        own = self._parts.own(tier, index)
        joined: dict[_Caps, Longs] = {}
        full = self._asked(tier, most)[0] if tier else ()
        for state in states:
            if not self._allowed(tier, state, caps):
                continue
            at = _at(state)
            if not any(state):
                table[at] = 0
            elif tier == 0:
                if self._fit_together(index, state):
                    table[at] = own + self._lacks(index, state)
            else:
                wanted, opened = self._asked(tier, state)
                inner = self._inner_caps(tier, caps, opened)
                if inner not in joined:
                    joined[inner] = self._joined(tier, index, full, inner)[-1]
                last = joined[inner]
                if all(w < n for w, n in zip(wanted, last.shape[1:], strict=True)):
                    table[at] = last[_at(wanted)] + own
        np.minimum(table[0], NEVER, out=table[0])
        return table

    def _joined(self, tier: int, index: int, most: _State, caps: _Caps) -> list[Longs]:
        """After each of the children: the least cost of holding exactly that many units, up to `most`.

        The units are those of the level below.
        """
        dims = tuple(n + 1 for n in most)
        children = self._alike.children(tier, index)
        if math.prod(dims) * self._words * (len(children) + 1) > MAX_ENTRIES:
            raise TooBigError
        first = np.zeros((self._words, *dims), np.int64)
        first[0] = NEVER
        first[_at(0 for _ in dims)] = 0
        found = [first]
        for child in children:
            found.append(self._with_child(found[-1], self._table(tier - 1, child, caps)))
        return found

    def _with_child(self, before: Longs, table: Longs) -> Longs:
        after = before.copy()  # the child holds nothing
        options = np.argwhere(table[0] < NEVER)[1:]
        self._work.spend(len(options) * (before.size + _STEP))
        shape = before.shape[1:]
        for option in options.tolist():
            if any(o >= n for o, n in zip(option, shape, strict=True)):
                continue
            there = _at(slice(o, None) for o in option)
            here = _at(slice(0, n - o) for o, n in zip(option, shape, strict=True))
            cost = table[_at(option)].reshape(-1, *(1 for _ in shape))
            keep_least(after[there], before[here] + cost)
        np.minimum(after[0], NEVER, out=after[0])
        return after

    def _lacks(self, node: int, state: _State) -> Longs:
        """(words,) the cost of what a node lacks of the preferences of the workers on it."""
        kinds = {k for unit, n in zip(self._levels[0], state, strict=True) if n for k in self._kinds_in[unit]}
        return self._parts.lacks(kinds, np.array([node]))[:, 0]

    # Units and spreads

    def _asked(self, tier: int, state: _State) -> tuple[_State, Mapping[int, int]]:
        """How many units of the level below these units need, and what was opened for that."""
        held = dict(zip(self._levels[tier], state, strict=True)) if tier < self._tier else {GANG: 1}
        below, opened = self._units.opened(tier, held)
        return tuple(below.get(unit, 0) for unit in self._levels[tier - 1]), opened

    def _wanted(self) -> tuple[_State | None, _Caps]:
        """The need of the children of the top, and their caps; None where it violates a spread."""
        wanted, opened = self._asked(self._tier, ())
        for unit in self._spreads.keys() & opened.keys():
            spread = self._spreads[unit]
            if spread.tier >= self._tier and self._units.units[unit].size > spread.most:
                return None, ()
        return wanted, self._inner_caps(self._tier, (), opened)

    def _inner_caps(self, tier: int, caps: _Caps, opened: Mapping[int, int]) -> _Caps:
        """The spreads that apply to the children: those around, and those of the groups opened here."""
        found = [*caps, *((unit, count) for unit, count in opened.items() if unit in self._spreads)]
        return tuple(sorted((unit, count) for unit, count in found if self._spreads[unit].tier < tier))

    def _allowed(self, tier: int, state: _State, caps: _Caps) -> bool:
        """Whether every spread over domains of this tier allows a domain this state."""
        for unit, copies in caps:
            spread = self._spreads[unit]
            if spread.tier != tier:
                continue
            members = self._units.members(unit, tier)
            sizes = {i: self._units.units[i].size for i in members}
            held = {i: n for i, n in zip(self._levels[tier], state, strict=True) if i in sizes}
            if 0 < sum(n * sizes[i] for i, n in held.items()) < spread.least:
                return False
            if len(held) == 1:
                ((member, count),) = held.items()
                if count > copies * (spread.most // sizes[member]):
                    return False
            elif sum(n * sizes[i] for i, n in held.items()) > copies * spread.most:
                return False
        return True

    def _fit_together(self, node: int, state: _State) -> bool:
        if len(self._free.fits) == 1:
            return True
        left = self._free.free[:, node].copy()
        for unit, count in zip(self._levels[0], state, strict=True):
            for kind, each in self._kinds_in[unit].items():
                left -= count * each * self._free.needs[kind]  # a single kind fits: no overflow
                if (left < 0).any():
                    return False
        return True

    # Tracing the choice back

    def _traced(self, tier: int, index: int, units: dict[int, int], wanted: _State, caps: _Caps) -> Held:
        """What a domain holds that has these units, which need `wanted` of its children."""
        steps = self._joined(tier, index, wanted, caps)
        children = self._alike.children(tier, index)
        opened = self._units.opened(tier, units)[1]
        inner = []
        at = wanted
        for child, before, after in zip(children[::-1], steps[-2::-1], steps[:0:-1], strict=True):
            option = self._taken(before, after, self._table(tier - 1, child, caps), at)
            at = tuple(x - o for x, o in zip(at, option, strict=True))
            if any(option):
                inner.append(self._traced_child(tier - 1, child, option, caps))
        return Held(index, units, opened, sorted(inner, key=lambda held: held.index))

    def _traced_child(self, tier: int, index: int, state: _State, caps: _Caps) -> Held:
        units = {unit: n for unit, n in zip(self._levels[tier], state, strict=True) if n}
        if tier == 0:
            return Held(index, units, {})
        wanted, opened = self._asked(tier, state)
        return self._traced(tier, index, units, wanted, self._inner_caps(tier, caps, opened))

    def _taken(self, before: Longs, after: Longs, table: Longs, at: _State) -> _State:
        """How much the child holds: of the kinds in proportion, so that a group of several kinds is together.

        Of those the least possible, so that the children before it are filled first.
        """
        found: tuple[int, _State] | None = None
        for option in np.argwhere(table[0] < NEVER).tolist():
            if all(o <= x for o, x in zip(option, at, strict=True)):
                left = tuple(x - o for x, o in zip(at, option, strict=True))
                cost = before[_at(left)] + table[_at(option)]
                if np.array_equal(cost, after[_at(at)]):
                    uneven = sum(abs(a * y - b * x) for a, x, b, y in _pairs(option, at))
                    if found is None or (uneven, tuple(option)) < found:
                        found = uneven, tuple(option)
        if found is None:
            raise AssertionError("no option of the table has the cost")
        return found[1]


def _pairs(option: Sequence[int], at: _State) -> Iterator[tuple[int, int, int, int]]:
    """Neighbouring kinds: how many of each an option has, and how many there are in all."""
    both = list(zip(option, at, strict=True))
    for (a, x), (b, y) in pairwise(both):
        yield a, x, b, y
