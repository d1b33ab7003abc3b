"""What the book of placements holds, and what can be said of it."""

from dataclasses import dataclass, field

from hyperscout_collector.placer.answer import Placement, Refusal
from hyperscout_collector.placer.request import Request


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
