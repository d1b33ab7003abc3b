"""The placer, done the slow and obvious way: what its engine is judged by.

`brute_place` goes through all sets of nodes, cheapest first, and tries out ranks one by one until they sit.
`verify` judges any placement, of any size, rule by rule, and reckons its cost anew. Nothing here shares an
idea with the engine; `placer_cpsat.py` is a third opinion.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.request import (
    Group,
    Request,
    Spread,
    Workers,
    checked,
    groups_in,
    ranks,
    size,
    without_preferences,
)

from support.placer_facts import NO_MASKS, Facts, Free, Room, copies

__all__ = ["NO_MASKS", "Facts", "Free", "Room", "all_required", "brute_place", "verify"]

MAX_SETS = 1 << 14  # sets of nodes that the brute force goes through


# --- brute force --------------------------------------------------------------------------------------------


def brute_place(room: Room, request: Request, masks: Mapping[str, Mask] = NO_MASKS) -> Placement | Refusal:
    """As `place`, for some dozen workers on up to a dozen usable nodes. Ties are not broken by name."""
    facts = Facts(room, checked(request, len(room.forest.layers)), masks)
    found, asked = lowest_even(
        request.gang, facts.highest, lambda gang, low, high: _cheapest(facts, gang, high, low)
    )
    if found is None:
        return Refusal(facts.highest, reason="brute force found no place")
    top = facts.top_of(found)
    found, relaxed = with_preferred(asked, found, top, lambda gang: _cheapest(facts, gang, top))
    names = tuple(facts.forest.nodes[node] for node in found)
    cost = facts.cost(found)
    if cost.top > facts.tiers:
        return Placement(names, None, None, cost, relaxed=relaxed)
    layer = facts.forest.layers[cost.top - 1]
    return Placement(names, cost.top, layer.names[facts.domain_of[cost.top][found[0]]], cost, relaxed=relaxed)


T = TypeVar("T")


def with_preferred(
    asked: Group, found: T, top: int, find: Callable[[Group], T | None]
) -> tuple[T, tuple[str, ...]]:
    """The best with what is preferred: one tier after the other, then all spreads; and what was dropped."""
    bound, relaxed = without_preferences(asked), []
    bindings = []
    for number, group in enumerate(groups_in(asked)):
        highest = top if group.tier is None else min(top, group.tier)
        if group.preferred is None or group.preferred >= highest:
            continue
        for tier in range(group.preferred, highest + 1):
            if tier == highest:
                break
            better = find(_bound_to(bound, number, tier))
            if better is not None:
                found, bound = better, _bound_to(bound, number, tier)
                bindings.append((number, tier))
                break
        if tier > group.preferred:
            relaxed.append(f"tier {group.preferred} of group {number}")
    spread = all_required(asked)
    for number, tier in bindings:
        spread = _bound_to(spread, number, tier)
    if all_required(asked) != without_preferences(asked):
        better = find(spread)
        if better is None:
            relaxed.append("spread")
        found = found if better is None else better
    return found, tuple(relaxed)


def all_required(group: Group) -> Group:
    spread = None if group.spread is None else replace(group.spread, required=True)
    parts = tuple(all_required(part) if isinstance(part, Group) else part for part in group.parts)
    return replace(group, parts=parts, spread=spread, preferred=None)


def lowest_even(
    gang: Group, highest: int, find: Callable[[Group, int, int], T | None]
) -> tuple[T | None, Group]:
    """The best at the lowest top, split over as few domains as can be; and the gang with that split."""
    if gang.even is None:
        return find(without_preferences(gang), 1, highest), gang
    for top in range(1, max(1, highest) + 1):
        for domains in range(1, size(gang) + 1):
            split = evenly(gang, domains)
            found = find(without_preferences(split), top, top)
            if found is not None:
                return found, split
    return None, gang


def evenly(gang: Group, domains: int) -> Group:
    """Split over so many domains: each has as many as the others, or one more."""
    assert gang.even is not None
    one = next(_whole(gang, gang.even))
    few, rest = divmod(size(gang) // one, domains)
    return replace(gang, even=None, spread=Spread((few + (rest > 0)) * one, gang.even, True, few * one))


def _whole(group: Group, tier: int) -> Iterator[int]:
    for part in group.parts:
        if isinstance(part, Workers):
            yield 1
        elif part.tier is not None and part.tier <= tier:
            yield size(part) // part.count
        else:
            yield from _whole(part, tier)


def _cheapest(facts: Facts, gang: Group, highest: int, lowest: int = 1) -> tuple[int, ...] | None:
    """Nodes by rank. A cost goes by the nodes that are used, so the cheapest set that holds the gang it is:
    where a part of a set holds the gang, that part is cheaper and was tried before."""
    count = range(len(facts.forest.nodes))
    usable = [node for node in count if any(facts.fit(kind, node) for kind in facts.kinds)]
    for top in range(lowest, max(1, highest) + 1):
        column = facts.domain_of[top]
        domains = [tuple(n for n in usable if column[n] == d) for d in sorted({column[n] for n in usable})]
        # Where all of a domain does not hold it, no part of it does.
        domains = [nodes for nodes in domains if _Attempt(facts, gang, nodes).run()]
        costs = []
        for nodes in domains:
            if 1 << len(nodes) > MAX_SETS:
                raise ValueError(f"{len(nodes)} usable nodes are too many to go through all sets of them")
            sizes = range(1, 2 if facts.on_node else min(len(nodes), size(gang)) + 1)
            costs += [(facts.cost_of_set(chosen), chosen) for chosen in _sets(nodes, sizes)]
        for cost, chosen in sorted(costs):
            found = _Attempt(facts, gang, chosen).run()
            if found is not None:
                assert cost.top == top
                return _least_wide(facts, gang, [c for other, c in costs if other == cost], found)
    return None


def _least_wide(
    facts: Facts, gang: Group, sets: Sequence[tuple[int, ...]], found: tuple[int, ...]
) -> tuple[int, ...]:
    """On one of these sets, which cost the same: one group after the other as close together as it can be."""
    for number in range(len(list(facts.widths(gang, [found])))):
        for width in range(list(facts.widths(gang, [found]))[number]):
            bound = _bound_to(gang, number, width)
            better = next((x for x in (_Attempt(facts, bound, c).run() for c in sets) if x is not None), None)
            if better is not None:
                found = better
                break
        gang = _bound_to(gang, number, list(facts.widths(gang, [found]))[number])
    return found


def _bound_to(gang: Group, number: int, tier: int) -> Group:
    """The gang with its group of that number, as they are written, bound to a tier as well."""
    numbers = itertools.count()

    def of(group: Group) -> Group:
        parts: list[Group | Workers] = []
        for part in group.parts:
            if isinstance(part, Workers):
                parts.append(part)
                continue
            at = part.tier if next(numbers) != number else min(tier, tier if part.tier is None else part.tier)
            parts.append(of(replace(part, tier=at)))
        return replace(group, parts=tuple(parts))

    return of(gang)


def _sets(nodes: Sequence[int], sizes: range) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(nodes, n) for n in sizes)


@dataclass(frozen=True, slots=True)
class Open:
    group: Group
    again: bool  # right after another copy of the same


@dataclass(frozen=True, slots=True)
class Close:
    group: Group


@dataclass(frozen=True, slots=True)
class Put:
    kind: Workers
    again: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """A group that is being filled: its nodes, and how many of its workers are in which domain."""

    group: Group
    domain: int
    nodes: tuple[int, ...]
    counts: tuple[int, ...] = ()


class _Attempt:
    """Whether a gang fits onto a set of nodes: rank by rank, taking back what leads nowhere."""

    def __init__(self, facts: Facts, gang: Group, nodes: tuple[int, ...]) -> None:
        self.facts = facts
        self.nodes = nodes
        # The gang's own tier bounds the top, which the caller sees to.
        self.steps = list(_steps(replace(gang, tier=None)))
        self.names = sorted({name for kind in facts.kinds for name, _ in kind.resources})
        self.needs = {kind: tuple(dict(kind.resources).get(n, 0) for n in self.names) for kind in facts.kinds}
        self.dead: set[tuple[object, ...]] = set()

    def run(self) -> tuple[int, ...] | None:
        for kind in self.facts.kinds:  # there is no use in trying where not even this is enough
            wanted = sum(count for end, count in copies(self.facts.request.gang) if end == kind)
            if sum(self.facts.fit(kind, node) for node in self.nodes) < wanted:
                return None
        free = tuple(tuple(self.facts.free[node].get(name, 0) for name in self.names) for node in self.nodes)
        return self._from(0, free, (), -1)

    def _from(
        self, at: int, free: tuple[tuple[int, ...], ...], stack: tuple[Frame, ...], last: int
    ) -> tuple[int, ...] | None:
        """Nodes for the ranks from step `at` on. `last`: where the one before went; if it was of the same
        kind, this goes no further back: what is alike need not be tried in every order."""
        if at == len(self.steps):
            return ()
        step = self.steps[at]
        least = last if not isinstance(step, Close) and step.again else -1
        key = (at, free, tuple((f.domain, f.nodes, f.counts) for f in stack), least)
        if key in self.dead:
            return None
        found = None
        if isinstance(step, Close):
            spread, counts = stack[-1].group.spread, Counter(stack[-1].counts)
            if spread is None or all(count >= spread.least for count in counts.values()):
                found = self._from(at + 1, free, stack[:-1], stack[-1].domain)
        elif isinstance(step, Open):
            for domain, nodes in self._domains(step.group, stack):
                if domain >= least:
                    frame = Frame(step.group, domain, nodes)
                    found = self._from(at + 1, free, (*stack, frame), -1)
                    if found is not None:
                        break
        else:
            for i in (n for n in range(len(self.nodes)) if n >= least and self.nodes[n] in stack[-1].nodes):
                now, counted = self._taken(free, i, step.kind), self._counted(stack, self.nodes[i])
                if now is None or counted is None:
                    continue
                rest = self._from(at + 1, now, counted, i)
                if rest is not None:
                    found = (self.nodes[i], *rest)
                    break
        if found is None:
            self.dead.add(key)
        return found

    def _domains(self, group: Group, stack: tuple[Frame, ...]) -> list[tuple[int, tuple[int, ...]]]:
        """Where a group may be, as the nodes that then remain."""
        around = stack[-1].nodes if stack else self.nodes
        if group.tier is None:
            return [(-1, around)]
        column = self.facts.domain_of[group.tier]
        domains = sorted({column[node] for node in around})
        return [(d, tuple(node for node in around if column[node] == d)) for d in domains]

    def _taken(
        self, free: tuple[tuple[int, ...], ...], at: int, kind: Workers
    ) -> tuple[tuple[int, ...], ...] | None:
        left = tuple(a - b for a, b in zip(free[at], self.needs[kind], strict=True))
        if min(left) < 0 or not self.facts.usable[kind][self.nodes[at]]:
            return None
        return (*free[:at], left, *free[at + 1 :])

    def _counted(self, stack: tuple[Frame, ...], node: int) -> tuple[Frame, ...] | None:
        """One worker more on that node, in all groups around it; None where one has too many there."""
        frames = []
        for frame in stack:
            spread = frame.group.spread
            if spread is None:
                frames.append(frame)
                continue
            domain = self.facts.domain_of[spread.tier][node]
            if frame.counts.count(domain) >= spread.most:
                return None
            frames.append(replace(frame, counts=tuple(sorted((*frame.counts, domain)))))
        return tuple(frames)


def _steps(part: Group | Workers) -> Iterator[Open | Close | Put]:
    for copy in range(part.count):
        if isinstance(part, Workers):
            yield Put(part, copy > 0)
            continue
        yield Open(part, copy > 0)
        for inner in part.parts:
            yield from _steps(inner)
        yield Close(part)


# --- the judge ----------------------------------------------------------------------------------------------


def verify(
    room: Room, request: Request, placement: Placement, masks: Mapping[str, Mask] = NO_MASKS
) -> list[str]:
    """What is wrong with a placement, in words; nothing = it is one, and costs what it says. `room`: before
    the gang was put there. Whether a better one exists is not looked at."""
    facts = Facts(room, request, masks)
    forest = facts.forest
    kinds = list(ranks(request.gang))
    if len(placement.nodes) != len(kinds):
        return [f"{len(placement.nodes)} nodes for {len(kinds)} ranks"]
    unknown = sorted({name for name in placement.nodes if name not in forest.index})
    if unknown:
        return [f"no such nodes: {unknown}"]
    nodes = [forest.index[name] for name in placement.nodes]
    wrong = []
    wanted: dict[int, Counter[str]] = {}
    for rank, (kind, node) in enumerate(zip(kinds, nodes, strict=True)):
        if not facts.usable[kind][node]:
            wrong.append(f"rank {rank}: {forest.nodes[node]} is down, avoided or masked")
        wanted.setdefault(node, Counter()).update(dict(kind.resources))
    for node, amounts in wanted.items():
        for name, amount in amounts.items():
            if amount > facts.free[node].get(name, 0):
                wrong.append(f"{forest.nodes[node]}: {amount} {name} of {facts.free[node].get(name, 0)}")
    top = facts.top_of(nodes)
    if top > max(1, facts.highest):
        wrong.append(f"top tier {top}, allowed is {facts.highest}")
    if facts.on_node and len(set(nodes)) > 1:
        wrong.append(f"{len(set(nodes))} nodes, allowed is one")
    wrong += _wrong_groups(facts, replace(request.gang, tier=None), nodes, "gang", not placement.relaxed)
    if not placement.relaxed:
        wrong += _wrong_preferred(facts, request.gang, [nodes])
    if placement.relaxed and without_preferences(request.gang) == request.gang:
        wrong.append(f"relaxed: {placement.relaxed}, but nothing is only preferred")
    wrong += _wrong_order(request.gang, nodes, "gang")
    if (even := request.gang.even) is not None:
        one = next(_whole(request.gang, even))
        held = {count // one for count in Counter(facts.domain_of[even][node] for node in nodes).values()}
        if max(held) - min(held) > 1:
            wrong.append(f"from {min(held)} to {max(held)} in domains of tier {even}")
    cost = facts.cost(nodes)
    if placement.cost != cost:
        wrong.append(f"cost is {cost}, said is {placement.cost}")
    holder = (None, None)
    if top <= facts.tiers:
        holder = (top, forest.layers[top - 1].names[facts.domain_of[top][nodes[0]]])
    if (placement.tier, placement.hypernode) != holder:
        wrong.append(f"held by {holder}, said is {(placement.tier, placement.hypernode)}")
    if placement.exact and placement.bound not in (None, cost):
        wrong.append(f"exact, but the bound is {placement.bound}")
    if not placement.exact and (placement.bound is None or placement.bound > cost):
        wrong.append(f"bound {placement.bound} of a cost of {cost}")
    return wrong


def _wrong_groups(
    facts: Facts, group: Group, nodes: Sequence[int], where: str, preferred: bool
) -> Iterator[str]:
    """`nodes`: of all copies of the group."""
    for copy, run in enumerate(_runs(nodes, group.count)):
        name = f"{where} {copy}"
        if group.tier is not None and len({facts.domain_of[group.tier][node] for node in run}) > 1:
            yield f"{name}: not in one domain of tier {group.tier}"
        spread = group.spread
        if spread is not None and (spread.required or preferred):
            (domain, most), *_ = Counter(facts.domain_of[spread.tier][node] for node in run).most_common(1)
            if most > spread.most:
                yield f"{name}: {most} workers in domain {domain} of tier {spread.tier}, not {spread.most}"
        at = 0
        for i, part in enumerate(group.parts):
            if isinstance(part, Group):
                yield from _wrong_groups(facts, part, run[at : at + size(part)], f"{name}.{i}", preferred)
            at += size(part)


def _wrong_preferred(facts: Facts, gang: Group, copies: Sequence[Sequence[int]]) -> Iterator[str]:
    for number, (group, width) in enumerate(zip(groups_in(gang), facts.widths(gang, copies), strict=True)):
        if group.preferred is not None and width > group.preferred:
            yield f"group {number}: up to tier {width}, preferred is {group.preferred}"


def _wrong_order(part: Group | Workers, nodes: Sequence[int], where: str) -> Iterator[str]:
    """Ranks follow the tree: alike workers one by one, alike groups by their first node."""
    runs = list(_runs(nodes, part.count))
    firsts = [run[0] for run in runs]
    if firsts != sorted(firsts):
        yield f"{where}: ranks do not follow the tree: {firsts}"
    for copy, run in enumerate(runs):
        at = 0
        for i, inner in enumerate(part.parts if isinstance(part, Group) else ()):
            yield from _wrong_order(inner, run[at : at + size(inner)], f"{where} {copy}.{i}")
            at += size(inner)


def _runs(nodes: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    each = len(nodes) // count
    for copy in range(count):
        yield nodes[copy * each : (copy + 1) * each]
