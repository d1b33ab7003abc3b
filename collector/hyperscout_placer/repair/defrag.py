"""Makes space for a gang that does not fit: finds which running gangs to move, and where, in few moves.

The search tries several target domains, those that need the least first. It removes gangs that run there,
small ones first, until the new gang fits, and puts back those that were not in the way. The ranks that still
collide with the new gang move elsewhere, as few as possible. A plan is valid only if it can be carried out
step by step on a copy of the capacity. The search is bounded, so the plan is the best found, not a proven
optimum.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, CapacityError, Mask, narrowed
from hyperscout_placer.cluster.forest import Flags
from hyperscout_placer.cluster.numa_zones import zone_share
from hyperscout_placer.cluster.request import Request, RequestError, Workers, bounded, checked, ends
from hyperscout_placer.repair.calculations import width
from hyperscout_placer.repair.layout import Layout
from hyperscout_placer.repair.moving import Gang, Moved, move
from hyperscout_placer.repair.repair import Move, moves_of
from hyperscout_placer.repair.view import Changes, View
from hyperscout_placer.solve.place import highest, place

WORK: Final = 300  # placements of the new gang and moves of gangs that are tried
TARGETS: Final = 6  # domains of each tier that are tried

_Gone = Mapping[int, Sequence[int]]  # gang -> ranks
NONE_GONE: Final[_Gone] = {}


@dataclass(frozen=True, slots=True)
class Running:
    """A running gang: its request, its nodes by rank, and by role the nodes it may use."""

    name: str
    request: Request
    nodes: tuple[str, ...]
    masks: Mapping[str, Mask] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MovePlan:
    """A plan that makes a gang fit.

    `moves`: by gang, in an order in which they can be done. The moves of one gang are done at once, onto
    resources that are free by then. A gang that moves ends in no higher tier than before (0 = one node).
    `placement`: of the new gang, after the moves. `moved`: number of workers that move.
    """

    moves: tuple[tuple[str, tuple[Move, ...]], ...]
    placement: Placement
    moved: int


def defragment(
    capacity: Capacity,
    request: Request,
    gangs: Sequence[Running],
    masks: Mapping[str, Mask],
    *,
    most_moves: int = 64,
) -> MovePlan | Refusal:
    """The plan with the fewest moved workers that was found and lets `request` fit.

    `gangs`: the running gangs; their resources are taken from `capacity` already. Raises RequestError.
    """
    checked(request, capacity.forest.top)
    answer = place(capacity, request, masks)
    if isinstance(answer, Placement):
        return MovePlan((), answer, 0)
    if request.impossible:
        return answer
    return _Search(capacity, request, gangs, masks, most_moves).run(answer)


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """A domain. `inside`: (nodes,). `free`, `emptied`: workers of the gang's most numerous kind that fit now,
    and that would fit without the movable gangs."""

    tier: int
    name: str | None
    inside: Flags
    free: int
    emptied: int


class _Search:
    def __init__(
        self,
        capacity: Capacity,
        request: Request,
        gangs: Sequence[Running],
        masks: Mapping[str, Mask],
        most_moves: int,
    ) -> None:
        self._capacity = capacity
        self._forest = capacity.forest
        self._request = request
        self._masks = masks
        self._most_moves = most_moves
        self._layout = Layout.of(request, masks)
        index = self._forest.index
        self._gangs = sorted(gangs, key=lambda gang: gang.name)
        self._layouts = [Layout.of(gang.request, gang.masks) for gang in self._gangs]
        self._at = [[index.get(node, -1) for node in gang.nodes] for gang in self._gangs]
        self._movable = [
            len(gang.nodes) == len(layout) and -1 not in at and self._is_of_today(gang)
            for gang, layout, at in zip(self._gangs, self._layouts, self._at, strict=True)
        ]
        self._work = WORK
        self._why = ""

    def run(self, refused: Refusal) -> MovePlan | Refusal:
        emptied = self._without({i: range(len(self._at[i])) for i, can in enumerate(self._movable) if can})
        if isinstance(place(emptied, self._request, self._masks), Refusal):
            if in_zones := any(zone_share(kind.resources) for kind in ends(self._request.gang)):
                self._why = "devices that other gangs would free are not counted by NUMA zone"
            return self._refused(refused, self._targets(emptied, all_of_them=True), proven=not in_zones)
        best: tuple[tuple[object, ...], MovePlan] | None = None
        targets = self._targets(emptied)
        for target in targets:
            for victims in self._victims(target):
                plan = self._plan(target, victims)
                if plan is None:
                    continue
                rank = (plan.moved, len(plan.moves), plan.placement.cost, plan.moves)
                if best is None or rank < best[0]:
                    best = rank, plan
            if self._work <= 0 or (best is not None and best[1].moved == 1):
                break
        return best[1] if best is not None else self._refused(refused, targets, proven=False)

    def _is_of_today(self, gang: Running) -> bool:
        """Whether the gang's request is valid on the present tiers. Otherwise its moves cannot be planned."""
        try:
            checked(gang.request, self._forest.top)
        except RequestError:
            return False
        return True

    # Target domains

    def _targets(self, emptied: Capacity, *, all_of_them: bool = False) -> list[_Target]:
        """Domains that would do if enough gangs moved, those that need the least first."""
        forest = self._forest
        kind = self._layout.kinds[self._layout.reference_kind]
        wanted = self._layout.placed
        barred = forest.barred(self._request.avoid, self._request.cluster)
        now = View(self._capacity, self._request, self._masks, barred).fit(kind)
        then = View(emptied, self._request, self._masks, barred).fit(kind)
        found: list[_Target] = []
        bound = max(1, highest(forest, self._request))
        for layer in forest.layers[:bound]:
            free, after = now.domains[layer.tier - 1], then.domains[layer.tier - 1]
            enough = np.flatnonzero((after >= wanted) | all_of_them)
            need = np.maximum(1, wanted - free[enough])
            names = forest.names(layer.tier)
            best = enough[np.lexsort((enough, -after[enough], need))][:TARGETS].tolist()
            for at in best:
                inside = forest.inside(layer.tier, at)
                found.append(_Target(layer.tier, names[at], inside, int(free[at]), int(after[at])))
        if bound > forest.top:
            inside = forest.inside(bound, 0)
            found.append(_Target(bound, None, inside, int(now.nodes.sum()), int(then.nodes.sum())))
        return sorted(found, key=lambda target: (max(1, wanted - target.free), target.tier))

    def _inside(self, target: _Target) -> dict[str, Mask]:
        """The masks of the new gang, restricted to the target."""
        roles = {kind.role for kind in self._layout.kinds}
        return narrowed(self._masks, roles, Mask(f"in {target.name}", target.inside))

    # Gangs that leave

    def _victims(self, target: _Target) -> Iterator[_Gone]:
        """Sets of ranks, by gang, without which the new gang fits."""
        there = {
            i: sum(node >= 0 and bool(target.inside[node]) for node in self._at[i])
            for i, movable in enumerate(self._movable)
            if movable
        }
        need = max(1, self._layout.placed - target.free)
        some = [i for i in there if there[i]]
        orders = [
            sorted(some, key=lambda i: (there[i] < need, there[i], i)),
            sorted(some, key=lambda i: (there[i], i)),
            sorted(some, key=lambda i: (len(self._at[i]), i)),
        ]
        tried: list[_Gone] = []
        for order in orders:
            gone = self._enough(target, order)
            if gone is not None and gone not in tried:
                tried.append(gone)
                yield gone

    def _enough(self, target: _Target, order: list[int]) -> _Gone | None:
        """The shortest prefix of `order` without which the gang fits, less gangs and ranks that can stay."""
        masks = self._inside(target)

        def fits(gone: list[int], more: _Gone = NONE_GONE) -> bool:
            self._work -= 1
            capacity = self._without({**{i: range(len(self._at[i])) for i in gone}, **more})
            return isinstance(place(capacity, self._request, masks), Placement)

        low, high = 0, len(order)
        if self._work <= 0 or not fits(order):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if fits(order[:middle]):
                high = middle
            else:
                low = middle
        chosen = order[:high]
        for i in sorted(chosen, key=lambda i: -len(self._at[i])):
            if self._work <= 0:
                break
            rest = [other for other in chosen if other != i]
            if rest and fits(rest):
                chosen = rest
        found: dict[int, Sequence[int]] = {}
        for i in sorted(chosen, key=lambda i: -len(self._at[i])):
            others = [other for other in chosen if other not in found and other != i]
            there = [rank for rank, node in enumerate(self._at[i]) if target.inside[node]]
            low, high = 0, len(there)
            while high - low > 1 and self._work > 0:
                middle = (low + high) // 2
                if fits(others, found | {i: there[:middle]}):
                    high = middle
                else:
                    low = middle
            found[i] = there[:high]
        return found

    def _without(self, gone: _Gone) -> Capacity:
        capacity = self._capacity.copy()
        for i, some in gone.items():
            nodes, needs = self._gangs[i].nodes, self._layouts[i].needs
            capacity.give([nodes[rank] for rank in some], [needs[rank] for rank in some])
        return capacity

    # Moves

    def _plan(self, target: _Target, victims: _Gone) -> MovePlan | None:
        capacity = self._without(victims)
        self._work -= 1
        answer = place(capacity, self._request, self._inside(target))
        if isinstance(answer, Refusal):
            return None
        leaving = self._colliding(capacity, answer, victims)
        if sum(map(len, leaving.values())) > self._most_moves:
            self._why = self._why or (
                f"in {target.name or 'all islands together'} {sum(map(len, leaving.values()))} workers "
                f"would have to move; the limit is {self._most_moves}"
            )
            return None
        barred, changes = self._reserved(answer)
        done: list[tuple[str, tuple[Move, ...]]] = []
        todo = sorted(leaving, key=lambda i: (len(leaving[i]), i))
        while todo:
            stuck = []
            for i in todo:
                found = self._moved(i, leaving[i], barred, changes)
                if found is None:
                    stuck.append(i)
                else:
                    moves, changes = found
                    done.append((self._gangs[i].name, moves))
            if len(stuck) == len(todo):
                self._why = self._why or (
                    f"{self._gangs[stuck[0]].name} would have to leave "
                    f"{target.name or 'its island'} but has no other place in an equally low tier"
                )
                return None
            todo = stuck
        return self._carried_out(done)

    def _colliding(self, capacity: Capacity, answer: Placement, victims: _Gone) -> dict[int, frozenset[int]]:
        """By gang the ranks that cannot stay beside the new gang.

        `capacity`: the capacity without the victims.
        """
        capacity.take(answer.nodes, self._layout.needs)
        found: dict[int, frozenset[int]] = {}
        for i in sorted(victims, key=lambda i: (-len(self._at[i]), i)):
            ranks = []
            for rank in victims[i]:
                try:
                    capacity.take((self._gangs[i].nodes[rank],), (self._layouts[i].needs[rank],))
                except CapacityError:
                    ranks.append(rank)
            if ranks:
                found[i] = frozenset(ranks)
        return found

    def _reserved(self, answer: Placement) -> tuple[Flags, Changes]:
        """Nodes that no rank may move to, and the resources that are free beside the new gang.

        A node is barred if the new gang does not fit on it yet and waits for other ranks to leave. On the
        other nodes the new gang's resources are taken already.
        """
        barred = np.zeros(len(self._forest.nodes), np.bool_)
        view = View(self._capacity, self._request, {}, barred)
        by_node: dict[str, list[Workers]] = {}
        for node, need in zip(answer.nodes, self._layout.needs, strict=True):
            by_node.setdefault(node, []).append(need)
        for node, needs in by_node.items():
            wanted: Counter[str] = Counter()
            for need in needs:
                wanted.update(dict(need.resources))
            at, free = self._forest.index[node], self._capacity.free_of(node)
            if any(free.get(name, 0) < amount for name, amount in wanted.items()):
                barred[at] = True
            else:
                for need in needs:
                    view.take(at, need)
        return barred, view.changes()

    def _moved(
        self, i: int, leaving: frozenset[int], barred: Flags, changes: Changes
    ) -> tuple[tuple[Move, ...], Changes] | None:
        """The moves of a gang, and the changed free resources after them.

        None where it has no other place.
        """
        self._work -= 1
        running, layout = self._gangs[i], self._layouts[i]
        before, request = width(self._forest, self._at[i]), running.request
        if not before and (on_node := bounded(replace(request.gang, tier=0), 0)) is not None:
            request = replace(request, mode="hard", gang=on_node)
        gang = Gang.of(self._capacity, request, running.masks, running.nodes)
        highest = max(1, min(gang.highest, before))
        gang = replace(gang, barred=gang.barred | barred, highest=highest, changes=changes)
        found = move(gang, leaving)
        if not isinstance(found, Moved):
            return None
        view = View(self._capacity, running.request, {}, barred, changes)
        for rank, (old, new) in enumerate(zip(gang.before, found.nodes, strict=True)):
            if old != new:
                if old >= 0:
                    view.give(old, layout.kinds[layout.kind[rank]])
                view.take(new, layout.kinds[layout.kind[rank]])
        return moves_of(self._forest, running.nodes, found.nodes), view.changes()

    def _carried_out(self, moves: list[tuple[str, tuple[Move, ...]]]) -> MovePlan | None:
        """The plan, if it can be carried out step by step and the new gang fits afterwards."""
        moved = sum(len(steps) for _, steps in moves)
        if moved > self._most_moves:
            self._why = self._why or f"{moved} workers would have to move; the limit is {self._most_moves}"
            return None
        needs = {gang.name: layout.needs for gang, layout in zip(self._gangs, self._layouts, strict=True)}
        capacity = self._capacity.copy()
        try:
            for name, steps in moves:
                each = [needs[name][step.rank] for step in steps]
                capacity.give([step.source for step in steps], each)
                capacity.take([step.target for step in steps], each)
        except CapacityError:
            return None
        self._work -= 1
        answer = place(capacity, self._request, self._masks)
        return MovePlan(tuple(moves), answer, moved) if isinstance(answer, Placement) else None

    # Refusal

    def _refused(self, refused: Refusal, targets: list[_Target], *, proven: bool) -> Refusal:
        workers = self._layout.placed
        if proven:  # then no target has enough free resources even without the movable gangs
            targets = sorted(targets, key=lambda target: (-target.emptied, -target.tier))
        text = "no plan was found"
        if proven:
            text = "there is no place even without the movable gangs"
        if targets:
            closest = targets[0]
            where = closest.name or "all islands together"
            text += f"; closest is {where}, where {closest.free} of {workers} workers fit now"
            text += f" and {min(workers, closest.emptied)} could"
            if (name := self._in_the_way(closest)) is not None:
                text += f"; {name} runs there and cannot be moved"
        if self._why and not proven:
            text += f"; {self._why}"
        return Refusal(refused.tier, text, proven)

    def _in_the_way(self, target: _Target) -> str | None:
        """The largest gang there that may not be moved."""
        there = {
            gang.name: sum(node >= 0 and bool(target.inside[node]) for node in at)
            for gang, at, movable in zip(self._gangs, self._at, self._movable, strict=True)
            if not movable
        }
        name = max(there, key=lambda name: (there[name], name), default=None)
        return name if name is not None and there[name] else None
