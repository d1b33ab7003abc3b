"""`place`: the best placement of a gang, or a refusal that names the shortage.

The required constraints determine the top tier. Then the search runs at that tier with the preferences too.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask, summed
from hyperscout_placer.cluster.forest import Flags, Forest, say_tier
from hyperscout_placer.cluster.kinds import merged, reference_of
from hyperscout_placer.cluster.request import (
    Group,
    Request,
    RequestError,
    checked,
    ends,
    groups_in,
    narrowed,
    size,
    with_spreads,
    within_node,
    without_preferences,
)
from hyperscout_placer.cluster.widths import widths_of
from hyperscout_placer.solve.free import Free
from hyperscout_placer.solve.refusal import refusal
from hyperscout_placer.solve.search import Search
from hyperscout_placer.solve.tables import Work

NO_MASKS: Mapping[str, Mask] = {}


def place(capacity: Capacity, request: Request, masks: Mapping[str, Mask] = NO_MASKS) -> Placement | Refusal:
    """The best placement of the gang, or a refusal.

    Call `capacity.take(...)` to use it. `masks`: by role, the allowed nodes.

    Raises RequestError for an invalid request.
    """
    work = Work()
    found, complete = find_place(capacity, request, masks, work)
    return found or refused(capacity, request, masks, work, proven=complete)


def find_place(
    capacity: Capacity, request: Request, masks: Mapping[str, Mask], work: Work
) -> tuple[Placement | None, bool]:
    """As `place`, without the reason of a refusal: the placement, and whether the search was complete.

    `work`: the limit for all searches that share it. After it they are greedy.
    """
    checked(request, capacity.forest.top)
    if request.impossible:
        return None, True
    asked, replaced = request.gang, request.replaced
    request = within_node(request)
    request = replace(request, gang=merged(request.gang, masks))
    required = without_preferences(request.gang)
    search = Search(_free(capacity, request, masks), work)
    found = search.best(required, range(1, max(1, highest(capacity.forest, request)) + 1))
    if found is None:
        return None, search.complete
    gang = search.split  # an even split keeps its limits from here on
    preferring = replace(request.gang, even=None, spread=gang.spread or request.gang.spread)
    if without_preferences(preferring) != preferring:
        gang, found = _preferring(search, capacity.forest, preferring, gang, found)
    best = _together(search, capacity.forest, asked, gang, found)
    return replace(best, relaxed=(*best.relaxed, *replaced)), search.complete


def refused(
    capacity: Capacity, request: Request, masks: Mapping[str, Mask], work: Work, *, proven: bool
) -> Refusal:
    """The refusal of a request for which `find_place` found no place. `proven`: its search was complete."""
    tops = highest(capacity.forest, request)
    if request.impossible:
        return Refusal(tops, "; ".join((request.impossible, *request.replaced)))

    def find(other: Request, others: Mapping[str, Mask]) -> Placement | None:
        return find_place(capacity, other, others, work)[0]

    answer = refusal(capacity, request, masks, tops, find, proven=proven)
    return replace(answer, reason="; ".join((answer.reason, *request.replaced)))


def _preferring(
    search: Search, forest: Forest, asked: Group, required: Group, found: Placement
) -> tuple[Group, Placement]:
    """The gang with the preferences that can be met at the top of `found`, and its best placement.

    Preferred tiers come first, in the order of the request, each as low as possible; then all spreads.
    """
    top, gang, relaxed = range(found.cost.top, found.cost.top + 1), required, list[str]()
    best, bindings = found, list[tuple[int, int]]()

    def try_with(narrower: Group | None) -> bool:
        nonlocal best, gang
        better = None if narrower is None else search.best(narrower, top)
        if better is None or narrower is None:
            return False
        best, gang = better, narrower
        return True

    for number, group in enumerate(groups_in(asked)):
        limit = found.cost.top if group.tier is None else min(group.tier, found.cost.top)
        if group.preferred is None or group.preferred >= limit:
            continue
        tiers = range(group.preferred, limit)
        met = next((tier for tier in tiers if try_with(narrowed(gang, number, tier))), limit)
        if met < limit:
            bindings.append((number, met))
        if met > group.preferred:
            why = "is impossible" if search.complete else "was not found within the search limit"
            one = size(group) // group.count
            relaxed.append(f"the preferred {say_tier(forest, group.preferred)} of groups of {one} {why}")
    spread: Group | None = with_spreads(asked)
    if spread != without_preferences(asked):
        for number, tier in bindings:
            spread = None if spread is None else narrowed(spread, number, tier)
        if not try_with(spread):
            why = "is impossible" if search.complete else "was not found within the search limit"
            relaxed.append(f"the preferred spread {why} at this tier")
    if found.bound is not None and found.bound.top < found.cost.top:
        best = replace(best, exact=False, bound=found.bound)  # a lower top may be possible
    return gang, replace(best, relaxed=tuple(relaxed))


def _together(search: Search, forest: Forest, asked: Group, gang: Group, found: Placement) -> Placement:
    """Of the placements with the cost of `found`, one with the least widths of the groups of `asked`.

    One group after the other, in the order of the request, is bound to the lowest tier that costs nothing.
    """
    widths = _widths(forest, gang, found)
    sizes = [size(group) // group.count for group in groups_in(gang)]
    if found.exact:
        for number in range(len(widths)):
            for tier in range(widths[number]):
                if search.most_in_one(tier) < sizes[number]:
                    continue
                narrower = narrowed(gang, number, tier)
                better = None if narrower is None else search.as_good(narrower, found.cost)
                if better is not None:
                    found = replace(better, relaxed=found.relaxed)
                    widths = _widths(forest, gang, found)
                    break
            if widths[number] < found.cost.top:  # later groups must not make it wider
                gang = narrowed(gang, number, widths[number]) or gang
    cost = replace(found.cost, widths=_widths(forest, asked, found))
    if found.exact and not search.trials_complete:
        return replace(found, cost=cost, exact=False, bound=replace(cost, widths=()))
    return replace(found, cost=cost)


def _widths(forest: Forest, gang: Group, found: Placement) -> tuple[int, ...]:
    if not any(isinstance(part, Group) for part in gang.parts):
        return ()
    return widths_of(forest, gang, [forest.index[node] for node in found.nodes])


def highest(forest: Forest, request: Request) -> int:
    """The highest allowed tier; 0 = one node. The forest's highest tier + 1: all islands together."""
    if request.mode == "soft":
        return forest.top + 1
    return forest.top if request.gang.tier is None else request.gang.tier


def _free(capacity: Capacity, request: Request, masks: Mapping[str, Mask]) -> Free:
    forest = capacity.forest
    kinds = list(ends(request.gang))
    most, placed = reference_of(request.gang, masks)
    barred = _barred(forest, request.avoid, request.cluster)
    fits, sums = [], []
    for kind in kinds:
        fit = capacity.fit(kind, masks.get(kind.role), use_down=request.use_down)
        if barred is None:
            fits.append(fit.nodes)
            sums.append(fit.domains)
        else:
            fits.append(np.where(barred, 0, fit.nodes))
            sums.append(summed(forest, fits[-1]))
    # The fit of one kind contains all that matters; several kinds share free resources.
    names = (
        sorted({name for kind in kinds for name, amount in kind.resources if amount})
        if len(kinds) > 1
        else []
    )
    free = np.array([capacity.free(name) for name in names], np.int64).reshape(len(names), len(forest.nodes))
    needs = np.array([[dict(kind.resources).get(name, 0) for name in names] for kind in kinds], np.int64)
    found = [masks.get(kind.role) for kind in kinds]
    lacking = {mask.key: mask.lacking for mask in found if mask is not None and mask.lacking is not None}
    keys = list(lacking)
    prefers = [keys.index(x.key) if x is not None and x.key in lacking else None for x in found]
    fragments = request.packing == "fragments"
    shared = free, needs, list(lacking.values()), prefers
    return Free(forest, kinds.index(most), placed, fits, sums, *shared, fragments)


def _barred(forest: Forest, avoid: frozenset[str], cluster: str) -> Flags | None:
    """(nodes,) the nodes to avoid and those of other clusters; None = none.

    Raises RequestError that names an unknown node or HyperNode.
    """
    if not avoid and not forest.clusters:
        return None
    unknown = avoid.difference(forest.index, *(layer.names for layer in forest.layers))
    if unknown:
        raise RequestError(f"avoid: {min(unknown)!r}: unknown: expected the name of a node or HyperNode")
    return forest.barred(avoid, cluster)
