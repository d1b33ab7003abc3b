"""What the book of placements holds, and what can be said of it."""

from collections.abc import Collection
from dataclasses import dataclass, field

from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.request import Request, Workers, ranks


class PlacementsError(Exception):
    """It is not done; says why, and what to do about it."""


class NotReadyError(PlacementsError):
    """There is no topology, or no room is known yet."""


class HeldError(PlacementsError):
    """A gang of that name holds nodes already."""


class NotHeldError(PlacementsError):
    """No gang of that name holds anything."""


class TooManyError(PlacementsError):
    """The book is full: something has to be released first."""


class NoRoomError(PlacementsError):
    """What was decided does not fit any more: decide anew."""


@dataclass(frozen=True, slots=True)
class Held:
    """A gang that holds nodes. `holder`: "api", or the kind of its workload ("Job"). `arrived`: ranks whose
    pods run on their nodes, so that the room there counts them. Times are Unix ns; `expires_ns` 0 = never."""

    gang: str
    holder: str
    request: Request
    placement: Placement
    reserved_ns: int
    expires_ns: int = 0
    arrived: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Trial:
    """An answer that holds nothing, and how long it took."""

    answer: Placement | Refusal
    seconds: float


def not_arrived(held: Held) -> Collection[int]:
    """Ranks that the room on their nodes does not count yet."""
    everybody = range(len(held.placement.nodes))
    return [rank for rank in everybody if rank not in held.arrived] if held.arrived else everybody


def places(held: Held, which: Collection[int]) -> tuple[list[str], list[Workers]]:
    """Nodes of these ranks, and what the ranks need."""
    nodes, needs = held.placement.nodes, tuple(ranks(held.request.gang))
    return [nodes[rank] for rank in which], [needs[rank] for rank in which]


def is_where(held: Held, moved: Collection[int], placement: Placement) -> bool:
    """Whether that placement is of the same gang, and only these ranks of it are elsewhere."""
    before, after = held.placement.nodes, placement.nodes
    return (
        len(before) == len(after)
        and all(0 <= rank < len(before) for rank in moved)
        and all(
            old == new or rank in moved for rank, (old, new) in enumerate(zip(before, after, strict=True))
        )
    )
