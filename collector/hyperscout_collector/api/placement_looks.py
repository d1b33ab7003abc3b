"""What PlacementService only looks at: each works in a thread, on a copy of what is free."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hyperscout.v1 import placement_pb2 as pb

from hyperscout_collector.api.placement_mapping import (
    defragment_message,
    explanation_message,
    held_message,
    improve_message,
    placement_message,
)
from hyperscout_collector.placements import Held, Trial
from hyperscout_collector.placer.allreduce import TierSpeed, predict
from hyperscout_collector.placer.answer import Placement, Refusal
from hyperscout_collector.placer.capacity import Capacity
from hyperscout_collector.placer.defrag import Running, defragment
from hyperscout_collector.placer.explain import explain
from hyperscout_collector.placer.place import NO_MASKS, place
from hyperscout_collector.placer.repair import Repair, improvement, repair
from hyperscout_collector.placer.request import Request, RequestError

_T = TypeVar("_T")


class PresentError(Exception):
    """What a gang asked for once means nothing on the hierarchy of today: place it anew."""


@dataclass(frozen=True, slots=True)
class Free:
    """`capacity`: nobody else's."""

    capacity: Capacity
    speeds: Sequence[TierSpeed]


def tried(gang: str, request: Request, free: Free, trial: Callable[[], Trial]) -> tuple[Trial, pb.Placement]:
    found = trial()
    answer, forest = found.answer, free.capacity.forest
    predicted = predict(forest, free.speeds, answer.nodes) if isinstance(answer, Placement) else None
    return found, placement_message(gang, request, answer, forest, predicted)


def reserved(held: Held, free: Free) -> pb.Placement:
    forest = free.capacity.forest
    return held_message(held, forest.top, predict(forest, free.speeds, held.placement.nodes))


def explained(gang: str, request: Request, free: Free, limit: int) -> pb.ExplainPlacementResponse:
    capacity = free.capacity
    answer = _today(lambda: place(capacity, request))
    found = explain(capacity, request, answer, NO_MASKS, limit=limit, speeds=free.speeds)
    return explanation_message(gang, request, found, capacity.forest)


def repaired(held: Held, lost: frozenset[str], free: Free) -> Repair | Refusal:
    return _today(lambda: repair(free.capacity, held.request, held.placement.nodes, lost, NO_MASKS))


def improved(held: Held, free: Free) -> pb.ImproveResponse:
    capacity = free.capacity
    found = _today(lambda: improvement(capacity, held.request, held.placement.nodes, NO_MASKS))
    return improve_message(held.gang, held.request, found, capacity.forest)


def defragmented(
    gang: str, request: Request, book: Sequence[Held], free: Free, most_moves: int
) -> pb.DefragmentResponse:
    gangs = [Running(held.gang, held.request, held.placement.nodes) for held in book]
    found = defragment(free.capacity, request, gangs, NO_MASKS, most_moves=most_moves)
    return defragment_message(gang, request, found, free.capacity.forest)


def _today(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except RequestError as error:
        raise PresentError(f"what the gang asked for does not go with the present tiers: {error}") from error
