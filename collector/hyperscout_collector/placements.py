"""Who holds which nodes: the one book of placements of a collector, for the API and for scheduling gates.

    published topology --+
    room on nodes -------+-> Capacity -> place -> held (until released, or until it expires)

What is free is the room on a node (what its pods leave, or what evidence says where there is no cluster) less
what is held and has not arrived there yet. Everything happens on the loop; nothing here blocks for long.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hyperscout_collector.placer.answer import Placement, Refusal
from hyperscout_collector.placer.capacity import Capacity, Mask, Resources
from hyperscout_collector.placer.place import NO_MASKS
from hyperscout_collector.placer.repair import Move
from hyperscout_collector.placer.request import Request
from hyperscout_collector.topology import Topology


class PlacementsError(Exception):
    """It is not done; says why, and what to do about it."""


class NotReadyError(PlacementsError):
    """There is no topology, or no room is known yet."""


class HeldError(PlacementsError):
    """A gang of that name holds nodes already."""


class NotHeldError(PlacementsError):
    """No gang of that name holds anything."""


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


class Placements:
    """`changed(gang, held)` is told of each that came, changed or went (None)."""

    def __init__(self, *, clock_ns: Callable[[], int]) -> None:
        self.changed: Callable[[str, Held | None], None] = lambda gang, held: None
        raise NotImplementedError

    @property
    def capacity(self) -> Capacity:
        """What is free now. Raises NotReadyError."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Held]:
        raise NotImplementedError

    def get(self, gang: str) -> Held | None:
        raise NotImplementedError

    def set_topology(self, topology: Topology) -> None:
        """Another generation was published. What is held stays held."""
        raise NotImplementedError

    def set_room(self, room: Mapping[str, Resources]) -> None:
        """The room on all nodes."""
        raise NotImplementedError

    def set_room_of(self, node: str, room: Resources | None) -> None:
        """The room on one node; None = it is gone."""
        raise NotImplementedError

    def place(
        self,
        gang: str,
        request: Request,
        *,
        holder: str,
        masks: Mapping[str, Mask] = NO_MASKS,
        dry_run: bool = False,
        expires_ns: int = 0,
    ) -> Placement | Refusal:
        """Place, and hold unless it is a dry run. Raises NotReadyError, HeldError, RequestError."""
        raise NotImplementedError

    def restore(self, held: Held) -> None:
        """Hold what was decided before (a stored plan), whether it fits now or not."""
        raise NotImplementedError

    def arrive(self, gang: str, ranks: Collection[int]) -> None:
        """Pods of these ranks run where they were placed. Raises NotHeldError."""
        raise NotImplementedError

    def move(self, gang: str, moves: Sequence[Move], placement: Placement) -> None:
        """A repair that was decided: the ranks are on their way to other nodes. Raises NotHeldError."""
        raise NotImplementedError

    def release(self, gang: str) -> None:
        """Raises NotHeldError."""
        raise NotImplementedError

    def expire(self) -> list[str]:
        """Release what is over; returns its gangs."""
        raise NotImplementedError
