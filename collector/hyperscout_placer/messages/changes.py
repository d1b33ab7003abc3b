"""Converts changes of placed gangs (repairs, new sizes, better places, plans) to messages and JSON."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from hyperscout.v1 import placement_pb2 as pb

from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.cluster.answer import Refusal
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Request, RequestError, size
from hyperscout_placer.cluster.speeds import TierSpeed
from hyperscout_placer.messages.placements import (
    failed_message,
    placement_json,
    placement_message,
    predicted_for,
)
from hyperscout_placer.repair.defrag import MovePlan
from hyperscout_placer.repair.repair import Improvement, Move, Repair
from hyperscout_placer.repair.resize import Resized


def check_repair(
    held: Reservation, new: frozenset[str], cleared: frozenset[str], known: Collection[str]
) -> None:
    """Check the failed and the cleared nodes of a repair. `known`: all nodes. Raises RequestError."""
    remembered = {x.node for x in held.failed}
    if not (new or cleared or remembered):
        raise RequestError(
            "failed_nodes: empty, and the gang remembers no failed nodes: expected the names of the failed "
            "nodes"
        )
    if both := new & cleared:
        raise RequestError(
            f"cleared_nodes: {min(both)[:253]!r} is in failed_nodes, too: give it in one of them"
        )
    nodes = remembered.union(held.placement.nodes, known)
    for field, names in (("failed_nodes", new), ("cleared_nodes", cleared)):
        if unknown := names - nodes:
            raise RequestError(f"{field}: {min(unknown)[:253]!r}: no such node")


# `speeds`: of the tiers of `forest`, on which the change was made.


def repair_message(
    held: Reservation, found: Repair | Refusal, forest: Forest, speeds: Sequence[TierSpeed]
) -> pb.RepairResponse:
    answer = found if isinstance(found, Refusal) else found.placement
    predicted = predicted_for(answer, forest, speeds)
    placement = placement_message(held.gang, held.request, answer, forest, predicted)
    placement.failed_nodes.extend(failed_message(held.failed))
    if isinstance(found, Refusal):
        return pb.RepairResponse(placement=placement)
    return pb.RepairResponse(placement=placement, moves=moves_message(found.moves), kept_tier=found.kept_tier)


def resize_message(
    held: Reservation, found: Resized | Refusal, forest: Forest, speeds: Sequence[TierSpeed]
) -> pb.ResizeResponse:
    """`held`: the reservation before."""
    if isinstance(found, Refusal):
        placement = placement_message(held.gang, held.request, found, forest)
    else:
        predicted = predicted_for(found.placement, forest, speeds)
        placement = placement_message(held.gang, found.request, found.placement, forest, predicted)
        placement.reason = "; ".join(filter(None, (found.lacking, placement.reason)))
    placement.failed_nodes.extend(failed_message(held.failed))
    return pb.ResizeResponse(placement=placement, before=size(held.request.gang))


def improve_message(
    held: Reservation, found: Improvement | None, forest: Forest, speeds: Sequence[TierSpeed]
) -> pb.ImproveResponse:
    if found is None:
        return pb.ImproveResponse(better=False)
    predicted = predicted_for(found.placement, forest, speeds)
    return pb.ImproveResponse(
        better=True,
        moves=moves_message(found.moves),
        placement=placement_message(held.gang, held.request, found.placement, forest, predicted),
        gain=found.gain,
        price=found.price,
    )


def defragment_message(
    gang: str,
    request: Request,
    found: MovePlan | Refusal,
    forest: Forest,
    speeds: Sequence[TierSpeed],
) -> pb.DefragmentResponse:
    if isinstance(found, Refusal):
        return pb.DefragmentResponse(placement=placement_message(gang, request, found, forest))
    predicted = predicted_for(found.placement, forest, speeds)
    return pb.DefragmentResponse(
        placement=placement_message(gang, request, found.placement, forest, predicted),
        gangs=[pb.GangMoves(gang=name, moves=moves_message(moves)) for name, moves in found.moves],
        moved=found.moved,
    )


def moves_message(moves: Iterable[Move]) -> list[pb.Move]:
    return [pb.Move(rank=x.rank, source=x.source, target=x.target) for x in moves]


# JSON of `placements repair -o json` and others


def repair_json(message: pb.RepairResponse) -> dict[str, Any]:
    """The object of `placements repair -o json`."""
    return {
        "moves": moves_json(message.moves),
        "keptTier": message.kept_tier,
        "placement": placement_json(message.placement),
    }


def resize_json(message: pb.ResizeResponse) -> dict[str, Any]:
    """The object of `placements resize -o json`."""
    return {"before": message.before, "placement": placement_json(message.placement)}


def moves_json(moves: Iterable[pb.Move]) -> list[dict[str, Any]]:
    return [{"rank": x.rank, "source": x.source, "target": x.target} for x in moves]
