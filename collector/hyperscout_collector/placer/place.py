"""`place`: the best placement there is, or a refusal that says what was short.

The lowest tier first. Of its domains that might hold the gang, the one first whose cost may be least; when
the least that any other could cost is no less than what was found, that is the best.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hyperscout_collector.placer.alike import Alike
from hyperscout_collector.placer.answer import Cost, Placement, Refusal
from hyperscout_collector.placer.candidates import candidates
from hyperscout_collector.placer.capacity import Capacity, Mask, summed
from hyperscout_collector.placer.chain import Chain, levels_of
from hyperscout_collector.placer.forest import Flags, Forest
from hyperscout_collector.placer.ranks import nodes_by_rank
from hyperscout_collector.placer.request import (
    Group,
    Request,
    RequestError,
    checked,
    ends,
    with_preferences,
    without_preferences,
)
from hyperscout_collector.placer.room import Room
from hyperscout_collector.placer.tables import Held, Trees
from hyperscout_collector.placer.units import GANG, Units, units_of

NO_MASKS: Mapping[str, Mask] = {}


def place(capacity: Capacity, request: Request, masks: Mapping[str, Mask] = NO_MASKS) -> Placement | Refusal:
    """Where the gang goes. `capacity.take(...)` makes it so. `masks`: by role, the nodes it may use.

    Raises RequestError for what cannot be meant.
    """
    forest = capacity.forest
    checked(request, forest.top)
    room = _room(capacity, request, masks)
    tops = highest(forest, request)
    required = without_preferences(request.gang)
    found = _best(room, required, range(1, tops + 1))
    if found is None:
        return Refusal(tops)
    if required != request.gang:
        wish = with_preferences(request.gang)
        better = _best(room, wish, range(found.cost.top, found.cost.top + 1))
        if better is None:
            return replace(found, relaxed=("the preferred spread cannot be had at this tier",))
        found = better
    return found


def highest(forest: Forest, request: Request) -> int:
    """The highest top tier that is allowed; one above the forest's: all islands together."""
    if request.mode == "soft":
        return forest.top + 1
    return forest.top if request.gang.tier is None else request.gang.tier


def _room(capacity: Capacity, request: Request, masks: Mapping[str, Mask]) -> Room:
    forest = capacity.forest
    kinds = list(ends(request.gang))
    barred = _barred(forest, request.avoid)
    fits, sums = [], []
    for kind in kinds:
        fit = capacity.fit(kind, masks.get(kind.role), use_down=request.use_down)
        if barred is None:
            fits.append(fit.nodes)
            sums.append(fit.domains)
        else:
            fits.append(np.where(barred, 0, fit.nodes))
            sums.append(summed(forest, fits[-1]))
    # One kind's fit says all; several share what is there.
    names = (
        sorted({name for kind in kinds for name, amount in kind.resources if amount})
        if len(kinds) > 1
        else []
    )
    free = np.array([capacity.free(name) for name in names], np.int64).reshape(len(names), len(forest.nodes))
    needs = np.array([[dict(kind.resources).get(name, 0) for name in names] for kind in kinds], np.int64)
    return Room(forest, fits, sums, free, needs)


def _barred(forest: Forest, avoid: frozenset[str]) -> Flags | None:
    """(nodes,) those that are to be avoided. Raises RequestError that names what is not there."""
    if not avoid:
        return None
    barred = np.zeros(len(forest.nodes), np.bool_)
    domains = {
        name: (layer, i) for layer in forest.layers for i, name in enumerate(layer.names) if name in avoid
    }
    for name in sorted(avoid):
        if name in domains:
            layer, i = domains[name]
            barred[layer.start[i] : layer.stop[i]] = True
        elif name in forest.index:
            barred[forest.index[name]] = True
        else:
            raise RequestError(f"avoid: {name!r}: no node and no HyperNode of that name")
    return barred


def _best(room: Room, gang: Group, tiers: Sequence[int]) -> Placement | None:
    """The best at the lowest of these tiers where there is one."""
    alike = Alike(room)
    for tier in tiers:
        units = units_of(gang, tier)
        levels = levels_of(units)
        solver = Trees(room, alike, units) if levels is None else Chain(room, alike, units, levels)
        best: tuple[tuple[int, ...], Callable[[], Held]] | None = None
        might = solver.might()
        several = np.count_nonzero(might) > 1
        seen: set[int] = set()
        for bound, domain in candidates(room, units, might):
            if best is not None and bound >= best[0]:
                break
            if several:
                if (number := alike.number(tier, domain)) in seen:
                    continue
                seen.add(number)
            found = solver.least(domain)
            if found is not None:
                cost = _cost_parts(room, units, domain, found[0])
                if best is None or cost < best[0]:
                    best = cost, found[1]
        if best is not None:
            return _placement(room, units, best[0], best[1]())
    return None


def _cost_parts(room: Room, units: Units, domain: int, parts: tuple[int, ...]) -> tuple[int, ...]:
    """All of the cost, from the parts of what is below the domain."""
    tier = units.top
    counts, degraded, left = parts[:tier], parts[tier], parts[tier + 1 :]
    degraded += int(room.degraded(tier)[domain])
    placed = units.kinds_in(GANG)[units.reference]
    free = int(room.fit(units.reference, tier)[domain])
    return (*counts, degraded, free - placed, *(x - placed for x in left))


def _placement(room: Room, units: Units, cost: tuple[int, ...], held: Held) -> Placement:
    forest, tier = room.forest, units.top
    nodes = nodes_by_rank(units, held)
    holder = forest.holder(nodes)
    return Placement(
        tuple(forest.nodes[node] for node in nodes),
        holder[0] if holder else None,
        holder[1] if holder else None,
        Cost(tier, cost[: tier - 1], cost[tier - 1], cost[tier], cost[tier + 1 :]),
    )
