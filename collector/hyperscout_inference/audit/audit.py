"""Find cables that contradict their like peers, and cables that are missing.

Works on any two neighbouring ranks (hosts and leaves, switches and the switches above them): a cable
connects a port of a `child` to a port of an `item`. Only like children are compared (see `likeness`).

Two regularities locate a fault: the same port of every child leads to the same item (the *port plan*), and a
child uses the same port of every item (its *slot*).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout_topology.link_changes import contains

from hyperscout_inference.audit.likeness import Comparison, Kinds
from hyperscout_inference.fabric.network import distinct_counts, distinct_places, order_of
from hyperscout_inference.grouping.grouping import Bools, Grouping, Longs

# A group has a plan if at least this share of its cables follows it.
_PLAN = 0.8
# Confidence of a deviation from like peers, and of one that has another explanation as good or better: the
# shares that were real on generated fabrics.
INFERRED, EITHER = 0.9, 0.15
_MANY = 8  # with fewer cables on ports of one name, their share shows nothing
_KINDS = 4  # rounds of comparison: each compares the children that were like no others in the rounds before


@dataclass(frozen=True, slots=True, eq=False)
class Cables:
    """Cables from children to items, shape (cables,) each. Port -1 = unknown."""

    child: Longs
    item: Longs
    child_port: Longs
    item_port: Longs


@dataclass(frozen=True, slots=True)
class Missing:
    """A cable that is missing. A port is -1 where neither the port plan nor the slot gives it."""

    child: int
    item: int
    child_port: int
    item_port: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Stray:
    """A cable (by its row) in a wrong port. `item`, `item_port`: the expected ones, -1 = unknown."""

    row: int
    item: int
    item_port: int
    confidence: float


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """The faults of one rank. `dark_ports`: (group, child port) without a cable on every child of the group,
    between ports with cables. `dark_slots`: the same for items, as (group, item port)."""

    missing: Sequence[Missing]
    stray: Sequence[Stray]
    dark_ports: Sequence[tuple[int, int]]
    dark_slots: Sequence[tuple[int, int]]


def audit(
    children: int,
    cables: Cables,
    grouping: Grouping,
    unclaimed: Bools | None = None,
    kinds: Kinds | None = None,
) -> Audit:
    """Compare every cable of the rank with its group. Nothing is reported of `unclaimed` children, whose
    owner is unknown. `kinds`: models whose ports have other names; None = one model."""
    if not len(cables.child) or not grouping.count:
        return Audit((), (), (), ())
    return _Auditor(children, cables, grouping, unclaimed, kinds).run()


class _Auditor:
    def __init__(
        self, children: int, cables: Cables, grouping: Grouping, unclaimed: Bools | None, kinds: Kinds | None
    ) -> None:
        self.cables, self.grouping = cables, grouping
        self.items = int(cables.item.max()) + 1
        self.group = grouping.group[cables.child]
        self.unclaimed = np.zeros(children, np.bool_) if unclaimed is None else unclaimed
        none = np.zeros(children, np.int64)
        self.kinds = kinds or Kinds(none, none > 0, none, (0,))
        plan = [g * self.items + u for g, items in enumerate(grouping.items) for u in items]
        self.inside = contains(np.array(plan, np.int64), self.group * self.items + cables.item)
        self.by_child: npt.NDArray[np.intp] | None = None
        self.named: set[tuple[int, ...]] = set()  # ports of missing cables
        self.orders: dict[int, tuple[int, ...]] = {}  # of a class, the usual order of items

    def run(self) -> Audit:
        self._classes()
        self._port_plan()
        self._slots()
        strays = self._strays()
        missing = [self._missing(c, u) for c, u in self.lacking]
        dark_ports, dark_slots = self._dark()
        return Audit(
            [m for m in missing if m is not None],
            sorted(strays.values(), key=lambda s: s.row),
            dark_ports,
            dark_slots,
        )

    # -- likeness -------------------------------------------------------------------------------------------

    def _classes(self) -> None:
        """Divide the children of each group into classes of like children, the largest first.

        Sets `cls`: (children,) the class, -1 = like no other child; `class_group` and `size`: (classes,);
        `lacking` and `surplus`: pairs (child, item), one for each cable; `lacks`: how often each pair is in
        `lacking`; `half` and `shared`: (children,) see `Comparison`; `regular`: (classes,) whether few cables
        deviate.
        """
        g, c = self.grouping, self.cables
        use = self.inside & ~self.unclaimed[c.child]
        key, count = distinct_counts(c.child[use] * self.items + c.item[use])
        child, item = key // self.items, key % self.items
        self.cls = np.full(len(g.group), -1, np.int64)
        self.half, self.shared = (np.zeros(len(g.group), np.bool_) for _ in range(2))
        self.class_group: list[int] = []
        self.lacking: list[tuple[int, int]] = []
        self.surplus: list[tuple[int, int]] = []
        regular: list[bool] = []
        waiting = (g.group >= 0) & ~self.unclaimed
        for _ in range(_KINDS):
            mine = waiting[child]
            if not mine.any():
                break
            found = Comparison(g, self.kinds, waiting, child[mine], item[mine], count[mine])
            like = found.like
            self.cls[like] = found.cls[like] + len(self.class_group)
            self.half |= found.half
            self.shared |= found.shared
            self.class_group += found.group.tolist()
            regular += found.regular.tolist()
            self.lacking += found.lacking()
            self.surplus += found.surplus()
            waiting &= ~like
        self.regular = np.array(regular, np.bool_)
        self.lacking.sort()
        self.lacks = Counter(self.lacking)
        placed = self.cls[self.cls >= 0]
        self.size = np.bincount(placed, minlength=len(regular))
        self.cable_class = self.cls[c.child]

    # -- plans ----------------------------------------------------------------------------------------------

    def _port_plan(self) -> None:
        """Set plan[(class, child port)] = item, for classes in which the same port leads to the same item."""
        c, classes = self.cables, len(self.class_group)
        use = self.inside & (c.child_port >= 0) & (self.cable_class >= 0)
        self.plan: dict[tuple[int, int], int] = {}
        self.plan_strength = np.zeros(classes)
        self.port_of: dict[tuple[int, int], list[int]] = {}
        if not use.any():
            return
        ports = int(c.child_port.max()) + 1
        place = self.cable_class[use] * ports + c.child_port[use]
        key, votes = distinct_counts(place * self.items + c.item[use])
        place = key // self.items
        order = np.lexsort((key, -votes, place))
        lead = order[np.r_[True, place[order][1:] != place[order][:-1]]]
        owner = place[lead] // ports
        # A port that a single child uses is no evidence of a plan.
        weights = np.where(votes[lead] > 1, votes[lead], 0).astype(np.float64)
        follow = np.bincount(owner, weights=weights, minlength=classes).astype(np.float64)
        self.plan_strength = self._strength(follow, np.bincount(self.cable_class[use], minlength=classes))
        firm = lead[(self.plan_strength[owner] >= _PLAN) & (votes[lead] > 1)]
        lacks = Counter((int(self.cls[child]), item) for child, item in self.lacks)
        columns = place[firm] // ports, place[firm] % ports, key[firm] % self.items, votes[firm]
        for cls, port, item, users in zip(*(x.tolist() for x in columns), strict=True):
            if users * 2 > self.size[cls] - lacks[cls, item]:
                self.plan[cls, port] = item
                self.port_of.setdefault((cls, item), []).append(port)

    @staticmethod
    def _strength(follow: npt.NDArray[np.float64], total: Longs) -> npt.NDArray[np.float64]:
        """(classes,) the share of cables that follow a plan; at least the share of all classes where most of
        the class's own follow it, so that one fault in a small class does not hide its plan."""
        share = follow / np.maximum(total, 1)
        overall = follow.sum() / max(1, int(total.sum()))
        return np.where(share >= 0.5, np.maximum(share, overall), share)

    def _slots(self) -> None:
        """Set slot[child] = the port that it uses on most of its items, -1 = none."""
        c, classes = self.cables, len(self.class_group)
        children = len(self.grouping.group)
        self.slot = np.full(children, -1, np.int64)
        self.slot_strength = np.zeros(classes)
        self.at: dict[tuple[int, int], int] | None = None
        use = self.inside & (c.item_port >= 0) & (self.cable_class >= 0)
        degree = np.bincount(c.child[use], minlength=children)
        if degree.max(initial=0) < 2:
            return  # a slot needs at least two items
        ports = int(c.item_port.max()) + 1
        key, votes = distinct_counts(c.child[use] * ports + c.item_port[use])
        child = key // ports
        order = np.lexsort((key, -votes, child))
        lead = order[np.r_[True, child[order][1:] != child[order][:-1]]]
        good = lead[(votes[lead] * 2 > degree[child[lead]]) & (degree[child[lead]] > 1)]
        self.slot[child[good]] = key[good] % ports
        in_slot = self.slot[c.child] == c.item_port
        self.slot_strength = self._strength(
            np.bincount(self.cable_class[use & in_slot], minlength=classes).astype(np.float64),
            np.bincount(self.cable_class[use], minlength=classes),
        )
        weak = self.slot_strength < _PLAN
        self.slot[(self.cls >= 0) & weak[self.cls]] = -1

    def _holder(self, item: int, port: int) -> int:
        """Return the child on a port of an item, -1 = free."""
        if self.at is None:
            c = self.cables
            self.at = {
                (u, p): child
                for child, u, p in zip(c.child.tolist(), c.item.tolist(), c.item_port.tolist(), strict=True)
            }
        return self.at.get((item, port), -1)

    # -- verdicts -------------------------------------------------------------------------------------------

    def _strays(self) -> dict[int, Stray]:
        c = self.cables
        wanted: dict[int, list[int]] = {}
        for child, item in self.lacking:
            wanted.setdefault(child, []).append(item)
        strays: dict[int, Stray] = {}

        def add(row: int, item: int, confidence: float) -> None:
            child = int(c.child[row])
            if item in wanted.get(child, ()):
                wanted[child].remove(item)
            strays[row] = Stray(row, item, int(self.slot[child]), confidence)

        # On an item of another group, or against the port plan.
        for row in np.flatnonzero(self._outside()).tolist():
            child, cls = int(c.child[row]), int(self.cable_class[row])
            item = self.plan.get((cls, int(c.child_port[row])), -1)
            lacks = {*wanted.get(child, ())}
            item = lacks.pop() if len(lacks) == 1 else item
            add(row, item, EITHER if self.grouping.tie[child] or cls < 0 else INFERRED)
        against = [(cls, port, item) for (cls, port), item in self.plan.items()]
        if against:
            keys = np.array([(cls << 32) | port for cls, port, _ in against], np.int64)
            order = np.argsort(keys)
            keys, goal = keys[order], np.array([i for _, _, i in against], np.int64)[order]
            mine = (self.cable_class << 32) | np.maximum(c.child_port, 0)
            found = np.minimum(np.searchsorted(keys, mine), len(keys) - 1)
            matched = self.inside & (c.child_port >= 0) & (keys[found] == mine)
            wrong = matched & (goal[found] != c.item) & ~self.unclaimed[c.child]
            wrong &= ~self._of_another_plan(matched, matched & ~wrong)[c.child]
            shifted = {child for child in set(c.child[wrong].tolist()) if self._is_shifted(child)}
            for row in np.flatnonzero(wrong).tolist():
                if int(c.child[row]) not in shifted:
                    add(row, int(goal[found[row]]), INFERRED)
        self._surplus(wanted, strays)
        # Two children that have swapped ports of one item.
        sure = self.inside & (self.cable_class >= 0)
        sure[sure] = (self.slot_strength >= _PLAN)[self.cable_class[sure]]
        moved = (
            sure & (self.slot[c.child] >= 0) & (self.slot[c.child] != c.item_port) & ~self.unclaimed[c.child]
        )
        for row in np.flatnonzero(moved).tolist():
            child, item = int(c.child[row]), int(c.item[row])
            other = self._holder(item, int(self.slot[child]))
            is_swapped = other not in (-1, child) and int(self.slot[other]) == int(c.item_port[row])
            if is_swapped and row not in strays:
                strays[row] = Stray(row, item, int(self.slot[child]), 0.7)
        self.wanted = wanted
        return strays

    def _outside(self) -> Bools:
        """(cables,) those to items of other groups. Children are built so where half of the cables on ports
        of this name are, and these are many (management NICs)."""
        mine = (self.group >= 0) & ~self.unclaimed[self.cables.child]
        outside = ~self.inside & mine
        _, port = distinct_places(self.cables.child_port)
        total, astray = np.bincount(port, weights=mine), np.bincount(port, weights=outside)
        return outside & ((total < _MANY) | (astray * 2 < total))[port]

    def _of_another_plan(self, matched: Bools, follows: Bools) -> Bools:
        """(children,) of those with `half` or ports beside the plan, the ones that hardly follow it."""
        c, children = self.cables, len(self.grouping.group)
        cables, elsewhere, good = (
            np.bincount(c.child[rows], minlength=children)
            for rows in (self.inside, self.inside & ~matched, follows)
        )
        return ((elsewhere > 0) | self.half) & (good * 2 < cables)

    def _is_shifted(self, child: int) -> bool:
        """Return whether a child on other ports has its cables in the usual order. Some may be missing."""
        cls = int(self.cls[child])
        if cls not in self.orders:
            mine = np.flatnonzero(self.cls == cls).tolist()
            self.orders[cls] = Counter(map(self._order_of, mine)).most_common(1)[0][0]
        usual = iter(self.orders[cls])
        return all(item in usual for item in self._order_of(child))

    def _order_of(self, child: int) -> tuple[int, ...]:
        """Return the items of its group that a child has cables to, in the order of its ports."""
        c, rows = self.cables, self._rows_of(child)
        rows = rows[self.inside[rows]]
        return tuple(c.item[rows[np.argsort(c.child_port[rows], kind="stable")]].tolist())

    def _surplus(self, wanted: dict[int, list[int]], strays: dict[int, Stray]) -> None:
        """Add the cables of a child that has a surplus on one item and lacks a cable on another. Without a
        port plan each cable on the first item may be the wrong one."""
        c = self.cables
        for child, item in self.surplus:
            mine = self._rows_of(child)
            rows = mine[c.item[mine] == item].tolist()
            if wanted.get(child) and not any(row in strays for row in rows):
                goal = wanted[child].pop(0)
                sure = round(min(EITHER, 1 / len(rows)), 2)
                strays |= {row: Stray(row, goal, int(self.slot[child]), sure) for row in rows}

    def _rows_of(self, child: int) -> npt.NDArray[np.intp]:
        """Return the rows of a child's cables."""
        if self.by_child is None:
            self.by_child = np.argsort(self.cables.child, kind="stable")
            self.sorted_child = self.cables.child[self.by_child]
        begin, end = np.searchsorted(self.sorted_child, (child, child + 1))
        return self.by_child[begin:end]

    def _missing(self, child: int, item: int) -> Missing | None:
        if item not in self.wanted.get(child, ()):
            return None  # a stray cable of this child is the lacking one
        self.wanted[child].remove(item)
        cls, rows = int(self.cls[child]), self._rows_of(child)
        own = self.cables.child_port[rows].tolist()
        plan = self.port_of.get((cls, item), ()) if self._follows(child, rows) else ()
        ports = [p for p in plan if p not in own and (child, p) not in self.named]
        if len(plan) - len({*plan} & {*own}) < self.lacks[child, item]:
            ports = []  # which of the missing cables is on which port is unknown
        slots = [p for p in self._slots_of(child, rows) if self._holder(item, p) < 0]
        item_port = next((p for p in slots if (child, item, p) not in self.named), -1)
        self.named |= {(child, port) for port in ports[:1]} | {(child, item, item_port)}
        unsure = self.grouping.tie[child] or self.half[child] or self.shared[child]
        return Missing(child, item, ports[0] if ports else -1, item_port, EITHER if unsure else INFERRED)

    def _follows(self, child: int, rows: npt.NDArray[np.intp]) -> bool:
        """Return whether most cables of a child follow the port plan."""
        c, cls = self.cables, int(self.cls[child])
        places = zip(c.child_port[rows].tolist(), c.item[rows].tolist(), strict=True)
        return bool(2 * sum(self.plan.get((cls, port)) == item for port, item in places) > len(rows))

    def _slots_of(self, child: int, rows: npt.NDArray[np.intp]) -> list[int]:
        """Return the ports that a child uses on most of its items, ascending."""
        if self.slot[child] >= 0:
            return [int(self.slot[child])]
        c = self.cables
        use = Counter(c.item_port[rows[c.item_port[rows] >= 0]].tolist())
        items = len(set(c.item[rows].tolist()))
        return sorted(port for port, votes in use.items() if items > 1 and votes * 2 > items)

    def _dark(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return `dark_ports` and `dark_slots` of groups with a plan, by their largest class."""
        c = self.cables
        dark_ports: list[tuple[int, int]] = []
        dark_slots: list[tuple[int, int]] = []
        by_class: dict[int, set[int]] = {}
        for cls, port in self.plan:
            by_class.setdefault(cls, set()).add(port)
        largest = np.full(self.grouping.count, -1, np.int64)
        for cls in np.argsort(self.size, kind="stable").tolist():
            largest[self.class_group[cls]] = cls
        order = order_of(self.group)
        bounds = np.searchsorted(self.group[order], np.arange(self.grouping.count + 1))
        for g, cls in enumerate(largest.tolist()):
            if cls < 0 or not self.regular[cls]:
                continue
            if self.size[cls] >= 2 and cls in by_class:
                dark_ports += [(g, p) for p in _gaps(by_class[cls])]
            if self.slot_strength[cls] >= _PLAN and len(self.grouping.items[g]) >= 2:
                rows = order[bounds[g] : bounds[g + 1]]
                taken = set(c.item_port[rows[self.inside[rows]]].tolist())
                dark_slots += [(g, p) for p in _gaps(taken)]
        return dark_ports, dark_slots


def _gaps(used: set[int]) -> list[int]:
    """Return the numbers between the first and the last one in use that are not in use. If they are more than
    a third of those in use (one of four switches), the devices are built that way: none."""
    if max(used) - min(used) >= 2 * len(used):
        return []
    gaps = [p for p in range(min(used), max(used)) if p not in used]
    return gaps if len(gaps) * 3 <= len(used) or len(gaps) == 1 else []
