"""Group children (hosts, domains, switches) by the items (switches above them) that they share.

With single linkage one miswired cable would join two domains. Here majorities of cables decide, in two steps:
 1. An item f *goes with* an item u if more than half of f's children are also connected to u. The sets of
    items that go together, without subsets of other such sets, are the prototypes of groups. Items to which a
    child has less than half as many cables as to another are not counted (*weak* pairs).
 2. Each child joins the prototype with most of its cables. The items of a group are those to which most of
    its children are connected, or most of whose cables lead to the group. Both repeat until nothing changes.
A child whose cables are split evenly is reported as a tie.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
from hyperscout_topology.connected_parts import connected_parts

from hyperscout_inference.fabric.network import (
    distinct,
    distinct_counts,
    distinct_places,
    order_of,
)

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_ROUNDS = 12
# Above this many pairs of items in children, one matrix product is cheaper than listing the pairs.
_PAIRS = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """`group`: (children,) index of each child's group, -1 = without items; groups are numbered by their
    lowest child. `items`: of each group, sorted. `tie`: (children,) whether a tie-break decided."""

    group: Longs
    items: Sequence[tuple[int, ...]]
    tie: Bools

    @classmethod
    def empty(cls, children: int) -> "Grouping":
        """No child has a group."""
        return cls(np.full(children, -1, np.int64), (), np.zeros(children, np.bool_))

    @property
    def count(self) -> int:
        return len(self.items)


def group_children(
    children: int,
    child: Longs,
    item: Longs,
    *,
    voters: Bools | None = None,
    before: Longs | None = None,
    kin: Longs | None = None,
    merge_share: float | None = None,
) -> Grouping:
    """Group `children` children by their items.

    `child`, `item`: (cables,).
    `voters`: (children,) those that form prototypes; the others only join groups.
    `before`: (children,) label of the former group, -1 = none. It decides ties, which are still reported.
    `kin`: (children,) a label from other evidence (the rail of a leaf), -1 = unknown. It decides between
    groups with equally many of a child's items.
    `merge_share`: merge two groups if this share of one's cables ends in the other (partial meshes); None =
    never.
    """
    if not len(child):
        return Grouping.empty(children)
    items = int(item.max()) + 1
    key, cables = distinct_counts(child * items + item)
    pair_child, pair_item = key // items, key % items
    most = np.zeros(children, np.int64)
    np.maximum.at(most, pair_child, cables)
    strong = cables * 2 >= most[pair_child]
    votes = strong if voters is None else strong & voters[pair_child]
    if voters is not None:
        # Items without a voter are grouped by all their children.
        with_voter = np.zeros(items, np.bool_)
        with_voter[pair_item[votes]] = True
        votes |= ~with_voter[pair_item]
    single = np.bincount(child, minlength=children) == 1
    prototypes = _prototypes(pair_child[votes], pair_item[votes], single, items)
    group, tie, rival, sets = _settle(
        children, items, pair_child, pair_item, cables, strong, prototypes, before, kin
    )
    if merge_share is not None:
        merged = _merge(group, items, pair_child, pair_item, cables, merge_share)
        if not np.array_equal(merged, group):
            group, sets = merged, None
    if sets is None:
        sets = _items(group, int(group.max()) + 1, items, pair_child, pair_item, cables, strong)
    return _number(group, tie, rival, sets)


def _prototypes(pair_child: Longs, pair_item: Longs, single: Bools, items: int) -> list[tuple[int, ...]]:
    kind, members = _twins(pair_child, pair_item, items)
    # Items with the same children are represented by the first of them.
    first_of = np.fromiter((m[0] for m in members), np.int64, len(members))
    is_first = np.zeros(items, np.bool_)
    is_first[first_of] = True
    chosen = is_first[pair_item]
    child, item = pair_child[chosen], kind[pair_item[chosen]]
    degree = np.bincount(item, minlength=len(members))
    first, second, shared = _co_occurrence(child, item, len(members))
    # A child with one cable says nothing about which items go together: in an even split the others decide.
    telling = np.bincount(item[~single[child]], minlength=len(members))
    goes = (shared * 2 > degree[first]) | ((shared * 2 == degree[first]) & (shared == telling[first]))
    goes[goes] = ~_word_of_one(first[goes], second[goes], shared[goes], degree, members)
    sets = _maximal_sets(first[goes], second[goes], len(members))
    return sorted(tuple(sorted(m for k in one for m in members[k])) for one in sets)


def _word_of_one(
    first: Longs, second: Longs, shared: Longs, degree: Longs, members: list[list[int]]
) -> Bools:
    """Return which pairs of items that go together do not count, because they share one child alone.

    For example, a host claims ports of leaves X and Y and of an invented leaf Z. Z has no other host, so it
    goes with X and with Y, and would join all hosts of both. Such an item (Z) goes with no item that does not
    go with it, if these items (X, Y) do not go with each other. An item with two children, one of which it
    shares with a single item, does not go with that item either.
    """
    by_one = np.flatnonzero(shared == 1)
    if not len(by_one):
        return np.zeros(len(first), np.bool_)
    going = set(zip(first.tolist(), second.tolist(), strict=True))
    lone: dict[int, set[int]] = {}
    for one, other in zip(first[by_one].tolist(), second[by_one].tolist(), strict=True):
        if (other, one) not in going:
            lone.setdefault(one, set()).add(other)
    split = [one for one, x in lone.items() if degree[one] > 1 and sum(len(members[k]) for k in x) == 1]
    going.difference_update((one, other) for one in split for other in lone[one])
    along: dict[int, set[int]] = {one: set() for one in lone}
    for one, other in going:
        if one != other and one in along:
            along[one].add(other)
    apart = [
        one
        for one, others in lone.items()
        if any(x != y and (x, y) not in going and (y, x) not in going for x in others for y in along[one])
    ]
    dropped = {(one, other) for one in (*split, *apart) for other in lone[one]}
    return np.fromiter(
        (pair in dropped for pair in zip(first.tolist(), second.tolist(), strict=True)), np.bool_
    )


def _twins(pair_child: Longs, pair_item: Longs, items: int) -> tuple[Longs, list[list[int]]]:
    """Group items with equal sets of children. Returns (items,) the kind of each item, -1 = no children; and
    the items of each kind."""
    order = order_of(pair_item)
    child, item = pair_child[order], pair_item[order]
    start = np.flatnonzero(np.r_[True, item[1:] != item[:-1]])
    mark = set_marks(child, start)
    _, inverse = np.unique(mark, return_inverse=True)
    kind = np.full(items, -1, np.int64)
    kind[item[start]] = inverse
    members: list[list[int]] = [[] for _ in range(int(inverse.max()) + 1)]
    for one, k in zip(item[start].tolist(), inverse.tolist(), strict=True):
        members[k].append(one)
    return kind, members


def set_marks(values: Longs, start: Longs) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each run of values (runs begin at `start`); it does not depend on the order."""
    mixed = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64's finish
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.add.reduceat(mixed ^ (mixed >> np.uint64(31)), start)


def _maximal_sets(first: Longs, second: Longs, items: int) -> list[tuple[int, ...]]:
    """Return the set {second} of each first, without subsets of other sets."""
    order = np.argsort(first * items + second)
    first, second = first[order], second[order]
    start = np.flatnonzero(np.r_[True, first[1:] != first[:-1]])
    _, unique = np.unique(set_marks(second, start), return_index=True)
    bounds = np.r_[start, len(second)]
    sets = sorted(
        {tuple(second[bounds[i] : bounds[i + 1]].tolist()) for i in unique.tolist()},
        key=lambda s: (-len(s), s),
    )
    kept: list[tuple[int, ...]] = []
    holding: dict[int, list[frozenset[int]]] = {}
    for candidate in sets:
        if len(candidate) > 1 or candidate[0] in holding:
            whole = frozenset(candidate)
            if any(whole <= other for other in holding.get(candidate[0], ())):
                continue
        else:
            whole = frozenset(candidate)
        kept.append(candidate)
        for member in candidate:
            holding.setdefault(member, []).append(whole)
    return kept


def _co_occurrence(pair_child: Longs, pair_item: Longs, items: int) -> tuple[Longs, Longs, Longs]:
    """Return (first, second, shared): for all ordered pairs of items, also with themselves, the number of
    children that have both, if any."""
    size = np.bincount(pair_child)
    if np.sum(size.astype(np.int64) ** 2) > _PAIRS:
        used, column = distinct_places(pair_item)
        _, row = distinct_places(pair_child)
        dense = np.zeros((row.max() + 1, len(used)), np.float32)
        dense[row, column] = 1
        product = dense.T @ dense
        first, second = np.nonzero(product)
        return used[first], used[second], product[first, second].astype(np.int64)
    keys = []
    start = np.r_[0, np.cumsum(size)]
    for width in distinct(size[size > 0]).tolist():
        begins = start[:-1][size == width]
        block = pair_item[begins[:, None] + np.arange(width)]
        keys.append((block[:, :, None] * items + block[:, None, :]).ravel())
    key, shared = distinct_counts(np.concatenate(keys))
    return key // items, key % items, shared


def _settle(
    children: int,
    items: int,
    pair_child: Longs,
    pair_item: Longs,
    cables: Longs,
    strong: Bools,
    prototypes: list[tuple[int, ...]],
    before: Longs | None,
    kin: Longs | None,
) -> tuple[Longs, Bools, Longs, list[tuple[int, ...]] | None]:
    """Assign children to groups and items to groups in turn, until nothing changes or for `_ROUNDS`. Returns
    group, tie and rival of each child, and the items of each group (None = unknown)."""
    group = np.full(children, -1, np.int64)
    tie, rival = np.zeros(children, np.bool_), np.full(children, -1, np.int64)
    sets = prototypes
    for _ in range(_ROUNDS):
        old = group
        group, tie, rival = _join(children, pair_child, pair_item, cables, sets, before, kin, old)
        # A child whose items have all lost their group (an even split) keeps its group, as a tie.
        lost = (group < 0) & (old >= 0)
        group, tie = np.where(lost, old, group), tie | lost
        live = distinct(group[group >= 0])
        renumber = np.full(len(sets), -1, np.int64)
        renumber[live] = np.arange(len(live))
        group = np.where(group >= 0, renumber[group], -1)
        rival = np.where(rival >= 0, renumber[rival], -1)
        new = _items(group, len(live), items, pair_child, pair_item, cables, strong)
        same: dict[tuple[int, ...], int] = {}
        twin = np.array([same.setdefault(s, i) for i, s in enumerate(new)], np.int64)
        if len(same) < len(new):
            group = np.where(group >= 0, twin[group], -1)
        elif new == sets and (np.array_equal(group, old) or not tie.any()):
            return group, tie, rival, new  # the sets are stable; only ties depend on the previous groups
        sets = new
    return group, tie, rival, None


def _join(
    children: int,
    pair_child: Longs,
    pair_item: Longs,
    cables: Longs,
    sets: Sequence[tuple[int, ...]],
    before: Longs | None,
    kin: Longs | None,
    now: Longs,
) -> tuple[Longs, Bools, Longs]:
    """Assign each child to the set with most of its cables. Returns group, tie and rival."""
    size = np.array([len(s) for s in sets], np.int64)
    flat = np.fromiter(chain.from_iterable(sets), np.int64)
    owner = np.repeat(np.arange(len(sets)), size)
    owner = owner[order_of(flat)]
    of_item = np.bincount(flat, minlength=int(pair_item.max()) + 1)
    times, begin = of_item[pair_item], (np.cumsum(of_item) - of_item)[pair_item]
    rows = np.repeat(np.arange(len(pair_item)), times)
    offset = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
    option = owner[begin[rows] + offset]
    key, row_of = distinct_places(pair_child[rows] * len(sets) + option)
    common = np.bincount(row_of)
    agree = np.bincount(row_of, weights=cables[rows]).astype(np.int64)
    child, option = key // len(sets), key % len(sets)
    # Equal numbers of cables are decided by kin, then the former group, then the fewest missing items (and so
    # the fewest missing cables), then the order.
    stays = _alike(before, child, option, now, len(sets))
    akin = _alike(kin, child, option, now, len(sets))
    missing = size[option] - common
    if np.any(child[1:] == child[:-1]):  # else every child has one option, and the rows are sorted
        best = np.lexsort((option, missing, ~stays, ~akin, -agree, child))
        child, option, agree, akin = child[best], option[best], agree[best], akin[best]
    lead = np.flatnonzero(np.r_[True, child[1:] != child[:-1]])
    group = np.full(children, -1, np.int64)
    tie, rival = np.zeros(children, np.bool_), np.full(children, -1, np.int64)
    group[child[lead]] = option[lead]
    follow = lead + 1
    valid = follow < len(child)
    lead, follow = lead[valid], follow[valid]
    even = (child[follow] == child[lead]) & (agree[follow] == agree[lead]) & (akin[follow] == akin[lead])
    # A child with all its cables in both sets (nested sets) contradicts neither.
    degree = np.bincount(pair_child, weights=cables, minlength=children)
    even &= agree[lead] < degree[child[lead]]
    tie[child[lead[even]]] = True
    rival[child[lead[even]]] = option[follow[even]]
    return group, tie, rival


def _alike(label: Longs | None, child: Longs, option: Longs, now: Longs, groups: int) -> Bools:
    """(child,) whether a child's label is the most frequent one in the group of its `option`, by the groups
    of `now`."""
    if label is None or not (label >= 0).any():
        return np.zeros(len(child), np.bool_)
    usual = np.full(groups, -1, np.int64)
    known = (now >= 0) & (label >= 0)
    if known.any():
        width = int(label.max()) + 1
        key, votes = np.unique(now[known] * width + label[known], return_counts=True)
        order = np.lexsort((key, -votes))[::-1]
        usual[key[order] // width] = key[order] % width  # the last write of a group has most votes
    alike: Bools = (label[child] == usual[option]) & (label[child] >= 0)
    return alike


def _items(
    group: Longs, groups: int, items: int, pair_child: Longs, pair_item: Longs, cables: Longs, strong: Bools
) -> list[tuple[int, ...]]:
    """Return the items of each group: those to which most of its children have a strong pair, and those with
    most of their cables in it."""
    size = np.bincount(group[group >= 0], minlength=groups)
    degree = np.bincount(pair_item, weights=cables, minlength=items)
    owner = group[pair_child]
    placed = owner >= 0
    key, row_of = distinct_places(owner[placed] * items + pair_item[placed])
    votes = np.bincount(row_of, weights=strong[placed], minlength=len(key))
    own_cables = np.bincount(row_of, weights=cables[placed], minlength=len(key))
    g, i = key // items, key % items
    keep = (votes * 2 > size[g]) | (own_cables * 2 > degree[i])
    g, i = g[keep], i[keep]
    bounds = np.searchsorted(g, np.arange(groups + 1))
    rows = i.tolist()
    return [tuple(rows[bounds[k] : bounds[k + 1]]) for k in range(groups)]


def _merge(
    group: Longs, items: int, pair_child: Longs, pair_item: Longs, cables: Longs, share: float
) -> Longs:
    """Merge groups with more cables between them than miswiring explains. Returns (children,) groups."""
    groups = int(group.max()) + 1
    # An item belongs to the group with most of its cables.
    owner = group[pair_child]
    key, inverse = distinct_places(owner * items + pair_item)
    weight = np.bincount(inverse, weights=cables).astype(np.int64)
    order = np.lexsort((key // items, -weight, key % items))
    lead = order[np.r_[True, (key[order] % items)[1:] != (key[order] % items)[:-1]]]
    home = np.full(items, -1, np.int64)
    home[key[lead] % items] = key[lead] // items
    total = np.bincount(owner, weights=cables, minlength=groups)
    crossing = home[pair_item] != owner
    flow, inverse = distinct_places(owner[crossing] * groups + home[pair_item[crossing]])
    heavy = np.bincount(inverse, weights=cables[crossing]) >= share * total[flow // groups]
    roots = connected_parts(groups, flow[heavy] // groups, flow[heavy] % groups)
    return np.where(group >= 0, roots[group], -1)


def _number(group: Longs, tie: Bools, rival: Longs, items: Sequence[tuple[int, ...]]) -> Grouping:
    """Number groups by their lowest child: the result does not depend on the order of the input. `items`: of
    each group."""
    placed = np.flatnonzero(group >= 0)
    labels, first = np.unique(group[placed], return_index=True)
    ranked = labels[np.argsort(first, kind="stable")]
    rank = np.full(int(labels.max()) + 1 if len(labels) else 0, -1, np.int64)
    rank[ranked] = np.arange(len(labels))
    renamed = np.where(group >= 0, rank[group], -1)
    rivals = np.where((rival >= 0) & (rival < len(rank)), rank[np.minimum(rival, len(rank) - 1)], -1)
    # A tie between two groups that were merged is no tie.
    real = tie & (rivals != renamed)
    return Grouping(renamed, tuple(items[label] for label in ranked.tolist()), real)
