"""Decide which children of a group are alike, and which cables each of them lacks or has in surplus.

For each class and item, the usual number of cables is the median over the children whose cables are close to
the most frequent ones.

- A child is like its class if two conditions hold: it lacks less than half of these cables, or no more than
  it reports as down; and its surplus is less than half of these cables.
- A child is not like its class if it lacks the same number of cables to each of several items, or has the
  same surplus to each: it was built with fewer or more uplinks.
- A child that lacks one of two or two of four cables is like its class, but may have been built so (`half`).
- A child may also have been built so (`shared`) in four cases: other children lack the same two or more
  cables; it has the same ports as another child; its cables are spread as evenly as their number allows,
  as are those of most children of the class, and the items with one cable more differ from child to child;
  or it is a host whose class has one other host, and no third host has as many cables as that one.

The remaining children are compared with each other in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyperscout_inference.fabric.network import distinct, distinct_places
from hyperscout_inference.grouping.grouping import Bools, Grouping, Longs, set_marks

_FEW_CABLES = 4  # half of more cables than these is another model
# Cables of like children that may be lacking or surplus in a class with a plan: a share, and at least this
# number.
_OFF_SHARE, _OFF_FEW = 0.2, 4


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Models of children. `of_child`: (children,) the kind. `several`: (children,) whether another child has
    the same ports. `down`: (children,) number of ports that the child reports as down. `cables`: (kinds,)
    number of cables of a child of the kind; 0 = unknown. `are_hosts`: one agent may invent the cables of a
    child."""

    of_child: Longs
    several: Bools
    down: Longs
    cables: Sequence[int]
    are_hosts: bool = False


class Comparison:
    """The children `waiting` of each group and kind, as one class, compared with each other.

    `child`, `item`, `count`: (pairs,) sorted by child and item. Results: `group`: (classes,); `cls`:
    (children,), -1 = not compared; `like`: (children,); `half`: (children,) those that lack half of few
    cables; `shared`: (children,) others that may be built so; `regular`: (classes,) whether few cables
    deviate.
    """

    def __init__(
        self, grouping: Grouping, kinds: Kinds, waiting: Bools, child: Longs, item: Longs, count: Longs
    ) -> None:
        children = len(grouping.group)
        mark = grouping.group * len(kinds.cables) + kinds.of_child
        present = distinct(mark[waiting])
        self.group = present // len(kinds.cables)
        self.cls = np.where(waiting, np.searchsorted(present, mark), -1)
        alike = _Alike(self.cls, len(present), child, item, count)
        # Of classes in which all children have the same cables, nothing else needs to be known.
        mixed = alike.mixed[self.cls[child]]
        self._child, self._item, self._count = child[mixed], item[mixed], count[mixed]
        plain = np.bincount(self.cls[child[~mixed]], weights=count[~mixed], minlength=len(present))
        self._expect(kinds, present % len(kinds.cables), alike)
        total = np.bincount(self._owner, weights=self._usual, minlength=len(present))
        same = np.minimum(self._count, self._usual[self._place])
        have = np.bincount(self._child, weights=same, minlength=children)
        over = np.bincount(self._child, weights=self._count - same, minlength=children)
        full = np.where(waiting, total[self.cls], 0)
        lack = full - have
        evenly, uneven = self._spread(children, (lack == 0) & (over == 0))
        down = waiting & (lack > 0) & (lack <= kinds.down)
        others = waiting & ~evenly & ~self._built_otherwise(children)
        half = (lack * 2 == full) & (over * 2 <= full) & (full > 0) & (full <= _FEW_CABLES)
        self.half = others & half & ~down
        self.shared = ((lack > 1) & (alike.several | kinds.several) & ~down) | uneven
        if kinds.are_hosts:
            ranked = np.sort(np.bincount(child, weights=count, minlength=children))
            as_many = children - np.searchsorted(ranked, full)
            self.shared |= waiting & (self._size[self.cls] == 2) & (as_many < 2) & ~down
        near = (lack * 2 < full) & (over * 2 < full)
        self.like = (others & near) | self.half | down | (waiting & ~alike.mixed[self.cls])
        # Deviations of like children, by class. A cable in a wrong place is one.
        off = np.bincount(
            self.cls[self.like], weights=np.maximum(lack, over)[self.like], minlength=len(present)
        )
        cables = np.bincount(self.cls[self.like], weights=full[self.like], minlength=len(present)) + plain
        self.regular = off <= np.maximum(_OFF_FEW, _OFF_SHARE * cables)
        if len(present) > 2 and off.sum() <= _OFF_SHARE / 2 * cables.sum():
            self.regular[:] = True

    def _expect(self, kinds: Kinds, kind: Longs, alike: "_Alike") -> None:
        """Set `_planned`: (places,) all (class, item) with cables, as class * items + item; `_owner`: their
        classes; `_usual`: the usual number of cables, by the children near to the most frequent ones;
        `_place`: (pairs,) the place of each pair."""
        items = int(self._item.max(initial=0)) + 1
        key = self.cls[self._child] * items + self._item
        self._planned, self._place = distinct_places(key)
        self._owner = self._planned // items
        self._items = items
        near = alike.near(self._planned, self._place, self._child, self._count)
        self._size = np.bincount(self.cls[near & (self.cls >= 0)], minlength=len(kind))
        counts = np.where(near[self._child], self._count, 0)
        order = np.lexsort((-counts, self._place))
        begin = np.searchsorted(self._place[order], np.arange(len(self._planned) + 1))
        ranked = np.r_[counts[order], 0]
        size = self._size[self._owner]
        middle = begin[:-1] + size // 2
        self._present = np.bincount(self._place, weights=counts > 0, minlength=len(self._planned)).astype(
            np.int64
        )

        def at(rank: Longs) -> Longs:
            within = (rank >= begin[:-1]) & (rank < begin[1:])
            return np.where(within, ranked[np.clip(rank, 0, len(order))], 0)

        # Of an even number of children, the usual number of all classes decides between the middle two.
        most = int(np.bincount(counts[counts > 0]).argmax()) if counts.any() else 0
        upper = at(middle - 1)
        self._usual = np.where((size % 2 == 0) & (upper == most), np.maximum(at(middle), upper), at(middle))
        self._fill(kinds, kind, ranked[begin[:-1]])

    def _fill(self, kinds: Kinds, kind: Longs, highest: Longs) -> None:
        """Expect the items that half of a class or fewer have, up to the number of cables of its kind."""
        whole = np.array(kinds.cables, np.int64)[kind]
        short = whole - np.bincount(self._owner, weights=self._usual, minlength=len(kind)).astype(np.int64)
        rare = (self._usual == 0) & (self._present > 1)
        for cls in np.flatnonzero((short > 0) & (self._size > 1)).tolist():
            mine = np.flatnonzero(rare & (self._owner == cls))
            for place in mine[np.argsort(-self._present[mine], kind="stable")].tolist():
                if short[cls] >= highest[place]:
                    self._usual[place] = highest[place]
                    short[cls] -= highest[place]

    def _spread(self, children: int, usual: Bools) -> tuple[Bools, Bools]:
        """Find classes whose number of cables is no multiple of their items, and that give the rest to other
        items from child to child: half of the children or fewer have the `usual` cables, most have equally
        many, as evenly as possible, and no two have more (else the most lack some). Returns (children,) those
        that do, and the others of the classes.
        """
        pairs = np.bincount(self._child, minlength=children)
        cables = np.bincount(self._child, weights=self._count, minlength=children)
        most, least = np.zeros(children, np.int64), np.full(children, np.iinfo(np.int64).max)
        np.maximum.at(most, self._child, self._count)
        np.minimum.at(least, self._child, self._count)
        even, uneven = np.zeros(children, np.bool_), np.zeros(children, np.bool_)
        order = np.flatnonzero(pairs)
        order = order[np.argsort(self.cls[order], kind="stable")]
        for mine in np.split(order, np.flatnonzero(np.diff(self.cls[order])) + 1) if len(order) else ():
            middle = np.median(cables[mine])
            if np.count_nonzero(cables[mine] > middle) > 1:
                continue
            whole = (pairs[mine] == pairs[mine].max()) & (cables[mine] == middle)
            evenly = whole & (most[mine] - least[mine] <= 1)
            if 2 * np.count_nonzero(usual[mine]) <= len(mine) < 2 * np.count_nonzero(evenly):
                even[mine], uneven[mine] = evenly, ~evenly
        return even, uneven

    def _built_otherwise(self, children: int) -> Bools:
        """Return the children that lack equally many cables, but not all, to each of two or more items, or
        have equally many in surplus."""
        usual = self._usual[self._place]
        counted = usual > 0
        child, missing = self._child[counted], (usual - self._count)[counted]
        places = np.bincount(self._owner, weights=self._usual > 0, minlength=len(self.group))
        met = np.bincount(child, minlength=children)
        limits = np.iinfo(np.int64)
        least, most = np.full(children, limits.max), np.full(children, limits.min)
        np.minimum.at(least, child, missing)
        np.maximum.at(most, child, missing)
        everywhere = (met >= 2) & (met == np.where(self.cls >= 0, places[self.cls], -1))
        evenly: Bools = everywhere & (least == most) & (most != 0)
        return evenly

    def lacking(self) -> list[tuple[int, int]]:
        """Return pairs (child, item) of regular classes, one for each cable that a like child lacks."""
        found: list[tuple[int, int]] = []
        usual = self._usual[self._place]
        good = self.like & np.where(self.cls >= 0, self.regular[self.cls], False)
        for k in np.flatnonzero((self._count < usual) & good[self._child]).tolist():
            pair = int(self._child[k]), int(self._item[k])
            found += [pair] * int(usual[k] - self._count[k])
        size = np.bincount(self.cls[self.like], minlength=len(self.group))
        there = np.bincount(self._place, weights=self.like[self._child], minlength=len(self._planned))
        partial = (self._usual > 0) & (there < size[self._owner]) & self.regular[self._owner]
        if not partial.any():
            return found
        members: dict[int, list[int]] = {}
        for child in np.flatnonzero(good).tolist():
            members.setdefault(int(self.cls[child]), []).append(child)
        order = np.argsort(self._place, kind="stable")
        bounds = np.searchsorted(self._place[order], np.arange(len(self._planned) + 1))
        for place in np.flatnonzero(partial).tolist():
            holders = set(self._child[order[bounds[place] : bounds[place + 1]]].tolist())
            pair_item, times = int(self._planned[place] % self._items), int(self._usual[place])
            for child in members.get(int(self._owner[place]), ()):
                if child not in holders:
                    found += [(child, pair_item)] * times
        return found

    def surplus(self) -> list[tuple[int, int]]:
        """Return pairs (child, item) of regular classes with more cables than usual."""
        over = (self._count > self._usual[self._place]) & self.like[self._child]
        over &= self.regular[self.cls[self._child]]
        return list(zip(self._child[over].tolist(), self._item[over].tolist(), strict=True))


class _Alike:
    """The children of each class with equal cables. `mixed`: (classes,) whether not all are equal.
    `several`: (children,) those with the cables of another one."""

    def __init__(self, cls: Longs, classes: int, child: Longs, item: Longs, count: Longs) -> None:
        self._cls = cls
        children = len(cls)
        start = np.flatnonzero(np.r_[True, child[1:] != child[:-1]])
        mark = np.zeros(children, np.uint64)
        mark[child[start]] = set_marks(item * (int(count.max()) + 1) + count, start)
        total = np.bincount(child, weights=count, minlength=children).astype(np.int64)
        mine = np.flatnonzero(cls >= 0)
        order = mine[np.lexsort((mine, mark[mine], cls[mine]))]
        first = np.flatnonzero(
            np.r_[True, (cls[order][1:] != cls[order][:-1]) | (mark[order][1:] != mark[order][:-1])]
        )
        times = np.diff(np.r_[first, len(order)])
        lead = order[first]
        self.several = np.zeros(children, np.bool_)
        self.several[order] = np.repeat(times > 1, times)
        self.mixed = np.bincount(cls[lead], minlength=classes) > 1
        best = np.lexsort((lead, -total[lead], -times, cls[lead]))
        best = best[np.r_[True, cls[lead][best][1:] != cls[lead][best][:-1]]]
        self._sample = lead[best]  # (classes,) a child of the most frequent ones, of these with most cables

    def near(self, planned: Longs, place: Longs, child: Longs, count: Longs) -> Bools:
        """Return (children,) those that lack less than half of the cables of their class's most frequent
        children, and have less than half in surplus. `planned`, `place`: see `Comparison`."""
        cls, children = self._cls, len(self._cls)
        model = np.zeros(len(planned), np.int64)
        own = self._sample[cls[child]] == child
        model[place[own]] = count[own]
        full = np.zeros(len(self.mixed), np.int64)
        np.add.at(full, cls[child[own]], count[own])
        same = np.minimum(count, model[place])
        have = np.bincount(child, weights=same, minlength=children)
        over = np.bincount(child, weights=count - same, minlength=children)
        whole = np.where(cls >= 0, full[cls], 0)
        near: Bools = (cls >= 0) & ((whole - have) * 2 < whole) & (over * 2 < whole)
        return near
