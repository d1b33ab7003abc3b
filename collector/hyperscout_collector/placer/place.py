"""`place`: the best placement there is, or a refusal that says what was short.

The lowest tier first. Of its domains that might hold the gang, the one first whose cost may be least; when
the least that any other could cost is no less than what was found, that is the best.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hyperscout_collector.placer.answer import Cost, Placement, Refusal
from hyperscout_collector.placer.capacity import Capacity, Mask, summed
from hyperscout_collector.placer.forest import Flags, Forest, Longs
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
from hyperscout_collector.placer.tables import Alike, Held, Room, Tables
from hyperscout_collector.placer.units import Units, units_of

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
        best: tuple[tuple[int, ...], Tables, int] | None = None
        seen: set[int] = set()
        for bound, domain in _candidates(room, units):
            if best is not None and bound >= best[0]:
                break
            if tier <= room.forest.top:
                number = alike.number(tier, domain)
                if number in seen:
                    continue
                seen.add(number)
            tables = Tables(room, alike, units, tier, domain)
            parts = tables.least()
            if parts is None:
                continue
            cost = _cost_parts(room, units, domain, parts)
            if best is None or cost < best[0]:
                best = cost, tables, domain
        if best is not None:
            return _placement(room, units, best[0], best[1].held())
    return None


def _cost_parts(room: Room, units: Units, domain: int, parts: tuple[int, ...]) -> tuple[int, ...]:
    """All of the cost, from what `Tables.least` says of what is below the domain."""
    tier, forest = units.top, room.forest
    counts, degraded, left = parts[:tier], parts[tier], parts[tier + 1 :]
    if tier <= forest.top:
        degraded += int(forest.layers[tier - 1].degraded[domain])
    placed = units.kinds_in(0)[units.reference]
    return (*counts, degraded, _free(room, units, domain) - placed, *(x - placed for x in left))


def _free(room: Room, units: Units, domain: int) -> int:
    if units.top > room.forest.top:
        return int(room.fits[units.reference].sum())
    return int(room.sums[units.reference][units.top - 1][domain])


def _candidates(room: Room, units: Units) -> Iterator[tuple[tuple[int, ...], int]]:
    """Domains of the top tier that might hold the gang, each with a cost that it cannot go below."""
    forest, tier = room.forest, units.top
    wanted = units.kinds_in(0)
    if tier > forest.top:
        might = np.array([all(room.fits[kind].sum() >= n for kind, n in wanted.items())])
    else:
        might = np.ones(len(forest.layers[tier - 1]), np.bool_)
        for kind, n in wanted.items():
            might &= room.sums[kind][tier - 1] >= n
    found = [(_bound(room, units, domain, wanted), domain) for domain in np.flatnonzero(might).tolist()]
    yield from sorted(found)


def _bound(room: Room, units: Units, domain: int, wanted: Mapping[int, int]) -> tuple[int, ...]:
    forest, tier = room.forest, units.top
    if tier > forest.top:
        start, stop, degraded = 0, len(forest.nodes), 0
    else:
        layer = forest.layers[tier - 1]
        start, stop, degraded = int(layer.start[domain]), int(layer.stop[domain]), int(layer.degraded[domain])
    counts = []
    for t in range(tier - 1, -1, -1):
        fewest = 0
        for kind, n in wanted.items():
            if t == 0:
                sizes = room.fits[kind][start:stop]
            else:
                first, last = np.searchsorted(forest.layers[t - 1].start, (start, stop))
                sizes = room.sums[kind][t - 1][first:last]
            fewest = max(fewest, _fewest(sizes, n))
        counts.append(fewest)
    return (*counts, degraded, _free(room, units, domain) - wanted[units.reference])


def _fewest(sizes: Longs, wanted: int) -> int:
    """How many at least of these together reach it."""
    return int(np.searchsorted(np.cumsum(np.sort(sizes)[::-1]), wanted)) + 1


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
