"""Computes responses of PlacementService in a thread, on a copy of the free resources.

No function changes a reservation: PlacementService applies a computed repair.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_placer.book.drain import Drain, place_around
from hyperscout_placer.book.reservation import (
    Reservation,
    Trial,
    avoiding_failed,
    running_gangs,
    within_tiers,
)
from hyperscout_placer.cluster.answer import Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.request import Request, RequestError
from hyperscout_placer.cluster.speeds import TierSpeed
from hyperscout_placer.messages.changes import defragment_message, improve_message
from hyperscout_placer.messages.demands import Demands
from hyperscout_placer.messages.placements import (
    explanation_message,
    held_message,
    placement_message,
    predicted_for,
)
from hyperscout_placer.repair.defrag import defragment
from hyperscout_placer.repair.repair import Repair, improvement, repair
from hyperscout_placer.repair.resize import Resized, resize
from hyperscout_placer.solve.clusters import place_in_cluster
from hyperscout_placer.solve.elastic import Counts, at_least, counts_of
from hyperscout_placer.solve.explain import explain

_T = TypeVar("_T")


class OutdatedRequestError(Exception):
    """The request of a gang does not fit the current tiers. The caller must place the gang again."""


@dataclass(frozen=True, slots=True)
class Free:
    """The free resources. `capacity`: a copy that belongs to this object only.

    `masks` returns those of the gang. It takes long where there are many nodes and terms.
    """

    capacity: Capacity
    speeds: Sequence[TierSpeed]
    masks: Callable[[], Mapping[str, Mask]] = dict


def tried(gang: str, request: Request, free: Free, trial: Callable[[], Trial]) -> tuple[Trial, pb.Placement]:
    found, forest = trial(), free.capacity.forest
    predicted = predicted_for(found.answer, forest, free.speeds)
    return found, placement_message(gang, request, found.answer, forest, predicted)


def reserved(held: Reservation, free: Free) -> pb.Placement:
    forest = free.capacity.forest
    return held_message(held, forest.top, predicted_for(held.placement, forest, free.speeds))


def explained(
    gang: str, request: Request, free: Free, limit: int, drain: Drain | None = None
) -> pb.ExplainPlacementResponse:
    capacity, masks = free.capacity, free.masks()
    answer = _for_current_tiers(lambda: place_around(drain, place_in_cluster, capacity, request, masks))
    if drain is not None:
        masks = drain.masks_of_others(request, capacity.forest, masks)
    found = explain(capacity, request, answer, masks, limit=limit, speeds=free.speeds)
    return explanation_message(gang, request, found, capacity.forest)


def explained_held(
    held: Reservation, without: Callable[[], Capacity], free: Free, limit: int
) -> pb.ExplainPlacementResponse:
    """`without`: the free resources without the gang; those of `free` do not count."""
    capacity = without()
    return explained(
        held.gang, avoiding_failed(held, capacity.forest), replace(free, capacity=capacity), limit
    )


def repaired(held: Reservation, free: Free) -> Repair | Refusal:
    asked, running = within_tiers(held.request, free.capacity.forest.top), held.placement.nodes
    lost = frozenset(x.node for x in held.failed)
    return _for_current_tiers(lambda: repair(free.capacity, asked, running, lost, free.masks()))


def resized(held: Reservation, counts: Counts, free: Free, drain: Drain | None = None) -> Resized | Refusal:
    if counts == counts_of(held.request):
        return Resized(held.request, held.placement)
    asked, masks = avoiding_failed(held, free.capacity.forest), free.masks()
    if drain is not None:
        masks = drain.masks_of_others(asked, free.capacity.forest, masks)
    return _for_current_tiers(lambda: resize(free.capacity, asked, held.placement.nodes, counts, masks))


def improved(held: Reservation, free: Free) -> pb.ImproveResponse:
    capacity = free.capacity
    asked = avoiding_failed(held, capacity.forest)
    found = _for_current_tiers(lambda: improvement(capacity, asked, held.placement.nodes, free.masks()))
    return improve_message(held, found, capacity.forest, free.speeds)


def defragmented(
    gang: str,
    request: Request,
    book: Sequence[Reservation],
    masks_of: Callable[[Request], Mapping[str, Mask]],
    free: Free,
    most_moves: int,
) -> pb.DefragmentResponse:
    """`book`: all reservations. `masks_of` returns the masks of their requests."""
    request = at_least(request)
    masks: dict[Demands, Mapping[str, Mask]] = {}
    for held in book:
        if (demands := held.request.demands) not in masks:
            masks[demands] = masks_of(held.request)
    gangs = running_gangs(book, free.capacity.forest, lambda held: masks[held.request.demands])
    found = defragment(free.capacity, request, gangs, free.masks(), most_moves=most_moves)
    return defragment_message(gang, request, found, free.capacity.forest, free.speeds)


def _for_current_tiers(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except RequestError as error:
        raise OutdatedRequestError(
            f"the request does not fit the current tiers: {error}; release the gang and place it again"
        ) from error
