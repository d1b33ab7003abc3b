"""Find cables that contradict the majority of their group, and cables that are missing.

Works on any two neighbouring ranks (hosts and leaves, switches and the switches above them): a cable
connects a port of a `child` to a port of an `item`. The majority of a group defines its plan; without a plan
nothing is reported. Two regularities locate a fault: the same port of every child leads to the same item (the
*port plan*), and a child uses the same port of every item (its *slot*).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperscout_inference.grouping.grouping import Bools, Grouping, Longs

# A group has a plan if at least this share of its cables follows it.
_PLAN = 0.8
# Pairs of child and item that may differ from the plan: a share of the pairs, and at least this number.
_OFF_SHARE, _OFF_FEW = 0.2, 4


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


def audit(children: int, cables: Cables, grouping: Grouping, unclaimed: Bools | None = None) -> Audit:
    """Compare every cable of the rank with its group. Nothing is reported of `unclaimed` children, whose
    owner is unknown."""
    if not len(cables.child) or not grouping.count:
        return Audit((), (), (), ())
    return _Auditor(children, cables, grouping, unclaimed).run()


class _Auditor:
    def __init__(self, children: int, cables: Cables, grouping: Grouping, unclaimed: Bools | None) -> None:
        self.cables, self.grouping = cables, grouping
        self.items = int(cables.item.max()) + 1
        self.group = grouping.group[cables.child]
        self.unclaimed = np.zeros(children, np.bool_) if unclaimed is None else unclaimed
        counted = (grouping.group >= 0) & ~self.unclaimed
        self.size = np.bincount(grouping.group[counted], minlength=grouping.count)
        plan = [g * self.items + u for g, items in enumerate(grouping.items) for u in items]
        self.planned = np.array(plan, np.int64)  # sorted: groups ascending, items sorted
        key = self.group * self.items + cables.item
        self.inside = np.isin(key, self.planned) & (self.group >= 0)
        self.members: dict[int, list[int]] = {}
        self.by_child: npt.NDArray[np.intp] | None = None

    def run(self) -> Audit:
        self._port_plan()
        self._slots()
        lacking, surplus = self._lacking()
        strays = self._strays(lacking, surplus)
        missing = [self._missing(c, u) for c, u in lacking]
        dark_ports, dark_slots = self._dark()
        return Audit(
            [m for m in missing if m is not None],
            sorted(strays.values(), key=lambda s: s.row),
            dark_ports,
            dark_slots,
        )

    # -- plans ----------------------------------------------------------------------------------------------

    def _port_plan(self) -> None:
        """Set plan[(group, child port)] = item, for groups in which the same port leads to the same item."""
        c = self.cables
        use = self.inside & (c.child_port >= 0)
        self.plan: dict[tuple[int, int], int] = {}
        self.plan_strength = np.zeros(self.grouping.count)
        self.port_of: dict[tuple[int, int], list[int]] = {}
        if not use.any():
            return
        ports = int(c.child_port.max()) + 1
        place = self.group[use] * ports + c.child_port[use]
        key, votes = np.unique(place * self.items + c.item[use], return_counts=True)
        place = key // self.items
        order = np.lexsort((key, -votes, place))
        lead = order[np.r_[True, place[order][1:] != place[order][:-1]]]
        owner = place[lead] // ports
        # A port that a single child uses is no evidence of a plan.
        weights = np.where(votes[lead] > 1, votes[lead], 0).astype(np.float64)
        follow = np.bincount(owner, weights=weights, minlength=self.grouping.count).astype(np.float64)
        self.plan_strength = self._strength(
            follow, np.bincount(self.group[use], minlength=self.grouping.count)
        )
        firm = (self.plan_strength[owner] >= _PLAN) & (votes[lead] * 2 > self.size[owner]) & (votes[lead] > 1)
        for k, g in zip(lead[firm].tolist(), owner[firm].tolist(), strict=True):
            port, item = int(place[k] % ports), int(key[k] % self.items)
            self.plan[g, port] = item
            self.port_of.setdefault((g, item), []).append(port)

    @staticmethod
    def _strength(follow: npt.NDArray[np.float64], total: Longs) -> npt.NDArray[np.float64]:
        """(groups,) the share of cables that follow a plan; at least the share of all groups where most of
        the group's own follow it, so that one fault in a small group does not hide its plan."""
        share = follow / np.maximum(total, 1)
        overall = follow.sum() / max(1, int(total.sum()))
        return np.where(share >= 0.5, np.maximum(share, overall), share)

    def _slots(self) -> None:
        """Set slot[child] = the port that it uses on most of its items, -1 = none."""
        c = self.cables
        children = len(self.grouping.group)
        self.slot = np.full(children, -1, np.int64)
        self.slot_strength = np.zeros(self.grouping.count)
        self.at: dict[tuple[int, int], int] | None = None
        use = self.inside & (c.item_port >= 0)
        degree = np.bincount(c.child[use], minlength=children)
        if degree.max(initial=0) < 2:
            return  # a slot needs at least two items
        ports = int(c.item_port.max()) + 1
        key, votes = np.unique(c.child[use] * ports + c.item_port[use], return_counts=True)
        child = key // ports
        order = np.lexsort((key, -votes, child))
        lead = order[np.r_[True, child[order][1:] != child[order][:-1]]]
        good = lead[(votes[lead] * 2 > degree[child[lead]]) & (degree[child[lead]] > 1)]
        self.slot[child[good]] = key[good] % ports
        in_slot = self.slot[c.child] == c.item_port
        self.slot_strength = self._strength(
            np.bincount(self.group[use & in_slot], minlength=self.grouping.count).astype(np.float64),
            np.bincount(self.group[use], minlength=self.grouping.count),
        )
        weak = self.slot_strength < _PLAN
        self.slot[(self.grouping.group >= 0) & weak[self.grouping.group]] = -1

    def _holder(self, item: int, port: int) -> int:
        """Return the child on a port of an item, -1 = free."""
        if self.at is None:
            c = self.cables
            self.at = {
                (u, p): child
                for child, u, p in zip(c.child.tolist(), c.item.tolist(), c.item_port.tolist(), strict=True)
            }
        return self.at.get((item, port), -1)

    # -- cables that are lacking or surplus -----------------------------------------------------------------

    def _lacking(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return pairs (child, item), one for each lacking cable, and the pairs with surplus cables."""
        c, g = self.cables, self.grouping
        use = self.inside & ~self.unclaimed[c.child]
        key, count = np.unique(c.child[use] * self.items + c.item[use], return_counts=True)
        child, item = key // self.items, key % self.items
        place = np.searchsorted(self.planned, g.group[child] * self.items + item)
        owner = self.planned // self.items
        order = np.lexsort((-count, place))
        begin = np.searchsorted(place[order], np.arange(len(self.planned) + 1))
        ranked = np.r_[count[order], 0]
        middle = begin[:-1] + self.size[owner] // 2
        expected = np.where(middle < begin[1:], ranked[np.minimum(middle, len(order))], 0)
        even = (self.size[owner] % 2 == 0) & (self.size[owner] > 0)
        usual = np.bincount(count).argmax() if len(count) else 0
        just_above = np.where(middle - 1 < begin[1:], ranked[np.clip(middle - 1, 0, len(order))], 0)
        expected = np.where(
            even & (middle - 1 >= begin[:-1]) & (just_above == usual), np.maximum(expected, usual), expected
        )
        present = begin[1:] - begin[:-1]
        off = np.bincount(place[count != expected[place]], minlength=len(self.planned))
        off += np.where(expected > 0, self.size[owner] - present, 0)
        pairs = np.bincount(owner, weights=self.size[owner], minlength=g.count)
        off_by_group = np.bincount(owner, weights=off, minlength=g.count)
        planned = off_by_group <= np.maximum(_OFF_FEW, _OFF_SHARE * pairs)
        planned |= off.sum() <= _OFF_SHARE / 2 * pairs.sum() if g.count > 2 else False
        self.regular = planned
        lacking: list[tuple[int, int]] = []
        short = (count < expected[place]) & planned[owner[place]]
        for k in np.flatnonzero(short).tolist():
            lacking += [(int(child[k]), int(item[k]))] * int(expected[place[k]] - count[k])
        for p in np.flatnonzero((expected > 0) & (present < self.size[owner]) & planned[owner]).tolist():
            there = set(child[order[begin[p] : begin[p + 1]]].tolist())
            lacking += [
                (one, int(self.planned[p] % self.items))
                for one in self._members(int(owner[p]))
                if one not in there
                for _ in range(int(expected[p]))
            ]
        over = (count > expected[place]) & planned[owner[place]]
        return sorted(lacking), list(zip(child[over].tolist(), item[over].tolist(), strict=True))

    def _members(self, group: int) -> list[int]:
        if not self.members:
            for child, g in enumerate(self.grouping.group.tolist()):
                if g >= 0 and not self.unclaimed[child]:
                    self.members.setdefault(g, []).append(child)
        return self.members.get(group, [])

    # -- verdicts -------------------------------------------------------------------------------------------

    def _strays(self, lacking: list[tuple[int, int]], surplus: list[tuple[int, int]]) -> dict[int, Stray]:
        c = self.cables
        wanted: dict[int, list[int]] = {}
        for child, item in lacking:
            wanted.setdefault(child, []).append(item)
        strays: dict[int, Stray] = {}

        def add(row: int, item: int, confidence: float) -> None:
            child = int(c.child[row])
            if item in wanted.get(child, ()):
                wanted[child].remove(item)
            slot = int(self.slot[child])
            strays[row] = Stray(row, item, slot, confidence)

        # On an item of another group, or against the port plan.
        outside = np.flatnonzero(~self.inside & (self.group >= 0) & ~self.unclaimed[c.child]).tolist()
        for row in outside:
            child, g = int(c.child[row]), int(self.group[row])
            item = self.plan.get((g, int(c.child_port[row])), -1)
            if item < 0 and len(set(wanted.get(child, ()))) == 1:
                item = wanted[child][0]
            add(row, item, 0.5 if self.grouping.tie[child] else 0.9)
        against = []
        for (g, port), item in self.plan.items():
            if self.plan_strength[g] >= _PLAN:
                against.append((g, port, item))
        if against:
            keys = np.array([(g << 32) | port for g, port, _ in against], np.int64)
            order = np.argsort(keys)
            keys, goal = keys[order], np.array([i for _, _, i in against], np.int64)[order]
            mine = (self.group << 32) | c.child_port
            found = np.minimum(np.searchsorted(keys, mine), len(keys) - 1)
            matched = self.inside & (keys[found] == mine)
            wrong = matched & (goal[found] != c.item) & ~self.unclaimed[c.child]
            wrong &= ~self._of_another_plan(matched, matched & ~wrong)[c.child]
            for row in np.flatnonzero(wrong).tolist():
                add(row, int(goal[found[row]]), 0.85)
        self._surplus(surplus, wanted, strays)
        # Two children that have swapped ports of one item.
        sure = (self.slot_strength >= _PLAN)[self.group] & self.inside
        moved = (
            sure & (self.slot[c.child] >= 0) & (self.slot[c.child] != c.item_port) & ~self.unclaimed[c.child]
        )
        for row in np.flatnonzero(moved).tolist():
            child, item = int(c.child[row]), int(c.item[row])
            other = self._holder(item, int(self.slot[child]))
            if (
                row not in strays
                and other not in (-1, child)
                and int(self.slot[other]) == int(c.item_port[row])
            ):
                strays[row] = Stray(row, item, int(self.slot[child]), 0.7)
        self.wanted = wanted
        return strays

    def _of_another_plan(self, matched: Bools, follows: Bools) -> Bools:
        """(children,) those of another model: less than half of the cables follow the port plan, and some
        are on ports that it does not have."""
        c, children = self.cables, len(self.grouping.group)
        cables, elsewhere, good = (
            np.bincount(c.child[rows], minlength=children)
            for rows in (self.inside, self.inside & ~matched, follows)
        )
        return (elsewhere > 0) & (good * 2 < cables)

    def _surplus(
        self, surplus: list[tuple[int, int]], wanted: dict[int, list[int]], strays: dict[int, Stray]
    ) -> None:
        """Add the cables of a child that has a surplus on one item and lacks a cable on another. Without a
        port plan each cable on the first item may be the wrong one."""
        c = self.cables
        for child, item in surplus:
            mine = self._rows_of(child)
            rows = mine[c.item[mine] == item].tolist()
            if wanted.get(child) and not any(row in strays for row in rows):
                goal = wanted[child].pop(0)
                for row in rows:
                    strays[row] = Stray(row, goal, int(self.slot[child]), round(1 / len(rows), 2))

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
        g = int(self.grouping.group[child])
        c = self.cables
        rows = self._rows_of(child)
        own = c.child_port[rows].tolist()
        ports = [p for p in self.port_of.get((g, item), ()) if p not in own]
        slot = int(self.slot[child])
        item_port = slot if slot >= 0 and self._holder(item, slot) < 0 else -1
        # A child with less than half of its group's items may be built that way.
        has = len(set(c.item[rows[self.inside[rows]]].tolist()))
        confidence = 0.9 if 2 * has >= len(self.grouping.items[g]) and not self.grouping.tie[child] else 0.5
        return Missing(child, item, ports[0] if ports else -1, item_port, confidence)

    def _dark(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return `dark_ports` and `dark_slots` of groups with a plan."""
        c = self.cables
        dark_ports: list[tuple[int, int]] = []
        dark_slots: list[tuple[int, int]] = []
        by_group: dict[int, set[int]] = {}
        for g, port in self.plan:
            by_group.setdefault(g, set()).add(port)
        for g, used in sorted(by_group.items()):
            if self.size[g] >= 2 and self.regular[g]:
                dark_ports += [(g, p) for p in range(min(used), max(used)) if p not in used]
        for g in np.flatnonzero((self.slot_strength >= _PLAN) & self.regular[: self.grouping.count]).tolist():
            taken = set(c.item_port[self.inside & (self.group == g)].tolist())
            if len(self.grouping.items[g]) >= 2:
                dark_slots += [(g, p) for p in range(min(taken), max(taken)) if p not in taken]
        return dark_ports, dark_slots


def ports_in_use(devices: npt.NDArray[np.integer], ports: npt.NDArray[np.integer]) -> set[tuple[int, int]]:
    """Return the (device, port) pairs of the cables."""
    return set(zip(devices.tolist(), ports.tolist(), strict=True))
