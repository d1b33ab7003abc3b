"""`place`: the best placement of a gang, or a refusal that names the shortage.

The required constraints determine the top tier. Then the search runs at that tier with the preferences too.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask, summed
from hyperscout_placer.cluster.forest import Flags, Forest
from hyperscout_placer.cluster.request import (
    Request,
    RequestError,
    checked,
    ends,
    with_preferences,
    within_node,
    without_preferences,
)
from hyperscout_placer.solve.free import Free
from hyperscout_placer.solve.refusal import refusal
from hyperscout_placer.solve.search import Search
from hyperscout_placer.solve.work import Work

NO_MASKS: Mapping[str, Mask] = {}


def place(capacity: Capacity, request: Request, masks: Mapping[str, Mask] = NO_MASKS) -> Placement | Refusal:
    """The best placement of the gang, or a refusal.

    Call `capacity.take(...)` to use it. `masks`: by role, the allowed nodes.

    Raises RequestError for an invalid request.
    """
    checked(request, capacity.forest.top)
    work = Work()  # limit for all trials together; after it the search is greedy
    found, complete = _found(capacity, request, masks, work)
    if found is not None:
        return found

    def find(other: Request, others: Mapping[str, Mask]) -> Placement | None:
        return _found(capacity, other, others, work)[0]

    return refusal(capacity, request, masks, highest(capacity.forest, request), find, proven=complete)


def _found(
    capacity: Capacity, request: Request, masks: Mapping[str, Mask], work: Work
) -> tuple[Placement | None, bool]:
    """The placement, and whether the search was complete."""
    request = within_node(request)
    required = without_preferences(request.gang)
    search = Search(_free(capacity, request, masks), work)
    found = search.best(required, range(1, max(1, highest(capacity.forest, request)) + 1))
    if found is None or required == request.gang:
        return found, search.complete
    better = search.best(with_preferences(request.gang), range(found.cost.top, found.cost.top + 1))
    if better is None:
        why = "is impossible" if search.complete else "was not found within the search limit"
        return replace(found, relaxed=(f"the preferred spread {why} at this tier",)), search.complete
    if found.bound is not None and found.bound.top < found.cost.top:
        better = replace(better, exact=False, bound=found.bound)  # a lower top may be possible
    return better, search.complete


def highest(forest: Forest, request: Request) -> int:
    """The highest allowed tier; 0 = one node. The forest's highest tier + 1: all islands together."""
    if request.mode == "soft":
        return forest.top + 1
    return forest.top if request.gang.tier is None else request.gang.tier


def _free(capacity: Capacity, request: Request, masks: Mapping[str, Mask]) -> Free:
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
    # The fit of one kind contains all that matters; several kinds share free resources.
    names = (
        sorted({name for kind in kinds for name, amount in kind.resources if amount})
        if len(kinds) > 1
        else []
    )
    free = np.array([capacity.free(name) for name in names], np.int64).reshape(len(names), len(forest.nodes))
    needs = np.array([[dict(kind.resources).get(name, 0) for name in names] for kind in kinds], np.int64)
    return Free(forest, fits, sums, free, needs)


def _barred(forest: Forest, avoid: frozenset[str]) -> Flags | None:
    """(nodes,) the nodes to avoid; None = none.

    Raises RequestError that names an unknown node or HyperNode.
    """
    if not avoid:
        return None
    unknown = avoid.difference(forest.index, *(layer.names for layer in forest.layers))
    if unknown:
        raise RequestError(f"avoid: {min(unknown)!r}: unknown: expected the name of a node or HyperNode")
    return forest.below(avoid)
