"""Who holds which nodes: the one book of placements of a collector, for the API and for scheduling gates.

    published topology --+
    room on nodes -------+-> Capacity -> place -> held (until released, or until it expires)

What is free is the room on a node (what its pods leave, or what evidence says where there is no cluster) less
what is held and has not arrived there yet. Everything happens on the loop; nothing here blocks for long.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from hyperscout_topology.topology import Topology

from hyperscout_placer.book.free_capacity import FreeCapacity
from hyperscout_placer.book.node_capacity import summed
from hyperscout_placer.book.reservation import (
    Held,
    HeldError,
    NoRoomError,
    NotHeldError,
    NotReadyError,
    PlacementsError,
    TooManyError,
    Trial,
    is_where,
    not_arrived,
    places,
)
from hyperscout_placer.cluster.allreduce import TierSpeed
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask, Resources
from hyperscout_placer.cluster.request import Group, Request, RequestError, Workers, size
from hyperscout_placer.repair.repair import Move
from hyperscout_placer.solve.place import NO_MASKS
from hyperscout_placer.solve.place import place as best_place

MAX_GANGS = 10_000
MAX_RANKS = 1_000_000  # of all gangs
OUTCOMES = ("reserved", "fits", "refused")  # "fits": of a dry run
_QUICK = 2_000  # workers
_ATTEMPTS = 3
MAX_NAME_CHARS = 400  # "namespace/kind/name" has up to 383

__all__ = [
    "Held",
    "HeldError",
    "NoRoomError",
    "NotHeldError",
    "NotReadyError",
    "Placements",
    "PlacementsError",
    "TooManyError",
    "Trial",
]

Engine = Callable[[Capacity, Request, Mapping[str, Mask]], Placement | Refusal]


class Placements:
    """`changed(gang, held)` is told of each that came, changed or went (None).

    `decided(seconds)` of each answer, which `decisions` count by `OUTCOMES`. `timer`: monotonic seconds.
    """

    def __init__(
        self,
        *,
        clock_ns: Callable[[], int],
        timer: Callable[[], float] = time.perf_counter,
        engine: Engine = best_place,
    ) -> None:
        self.changed: Callable[[str, Held | None], None] = lambda gang, held: None
        self.decided: Callable[[float], None] = lambda seconds: None
        self.decisions: Counter[str] = Counter()
        self.ranks = 0  # of all gangs
        self._clock_ns = clock_ns
        self._timer = timer
        self._engine = engine
        self._followers: list[Callable[[str, Held | None], None]] = []
        self._held: dict[str, Held] = {}
        self._free = FreeCapacity()

    def follow(self, follower: Callable[[str, Held | None], None]) -> None:
        """Tell also these of what `changed` is told of."""
        self._followers.append(follower)

    async def run(self) -> None:
        """Read large topologies in a thread, until cancelled."""
        await self._free.run()

    # What there is

    @property
    def capacity(self) -> Capacity:
        """What is free now. Raises NotReadyError."""
        capacity = self._free.capacity
        if capacity is None:
            raise NotReadyError(self._free.why_none)
        return capacity

    @property
    def speeds(self) -> Sequence[TierSpeed]:
        """Of the tiers of `capacity`, as `allreduce.predict` wants them."""
        return self._free.speeds

    @property
    def problem(self) -> str | None:
        """Why nothing can be placed on what is published."""
        return self._free.problem

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def get(self, gang: str) -> Held | None:
        return self._held.get(gang)

    def held(self, gang: str) -> Held:
        """Raises NotHeldError."""
        if (held := self._held.get(gang)) is None:
            raise NotHeldError(f"no gang {gang[:MAX_NAME_CHARS]!r} holds nodes")
        return held

    def without(self, gang: str) -> Callable[[], Capacity]:
        """For a thread, as a large gang takes long: a copy of what would be free if that gang held nothing.
        Raises NotReadyError, NotHeldError."""
        held = self.held(gang)
        capacity, room = self.capacity.copy(), self._free.room.copy()

        def freed() -> Capacity:
            waiting = summed(*places(held, not_arrived(held)))
            arrived = summed(*places(held, held.arrived))
            for node in {*waiting, *arrived}:
                if node in capacity.forest.index:
                    free = dict(room.free_on(node, waiting.get(node, {})))
                    if node not in room.unusable:
                        for name, amount in arrived.get(node, {}).items():
                            free[name] = free.get(name, 0) + amount
                    capacity.set_free(node, free)
            return capacity

        return freed

    # What becomes known

    def set_topology(self, topology: Topology) -> None:
        """Another generation was published. What is held stays held."""
        self._free.set_topology(topology)

    def set_default_room(self, room: Resources) -> None:
        """The room on each node that nothing else is said of."""
        self._free.set_default_room(room)

    def set_room(self, room: Mapping[str, Resources]) -> None:
        """The room on all nodes. Raises CapacityError."""
        self._free.set_room(room)

    def set_room_of(self, node: str, room: Resources | None) -> None:
        """The room on one node; None = it is gone. Raises CapacityError."""
        self._free.set_room_of(node, room)

    def set_unusable(self, nodes: Collection[str]) -> None:
        """Nodes without any room, whatever is said of it: they are down, or take no work."""
        self._free.set_unusable(nodes)

    # What is decided

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
        """Place, and hold unless it is a dry run.

        Raises NotReadyError, HeldError, TooManyError, RequestError.
        """
        if not dry_run:
            self._check_new(gang, request)
        began_s = self._timer()
        answer = self._engine(self.capacity, request, masks)
        reserves = not dry_run
        if reserves and isinstance(answer, Placement):
            self._hold(Held(gang, holder, request, answer, self._clock_ns(), expires_ns))
        self._count(answer, self._timer() - began_s, reserves)
        return answer

    async def decide(
        self,
        gang: str,
        request: Request,
        *,
        holder: str,
        masks: Mapping[str, Mask] = NO_MASKS,
        expires_ns: int = 0,
        in_thread: Callable[[Callable[[], Trial]], Awaitable[Trial]],
    ) -> Placement | Refusal:
        """As `place`, but what may take long is decided in a thread, and checked again when it is held.

        Raises NoRoomError, too, where what is free changes faster than that.
        """
        if _is_quick(request):
            return self.place(gang, request, holder=holder, masks=masks, expires_ns=expires_ns)
        for _ in range(_ATTEMPTS):
            self._check_new(gang, request)
            capacity, trial = self.trial(request, masks)
            found = await in_thread(trial)
            if isinstance(found.answer, Refusal):
                self.tried(found)
                return found.answer
            self._check_new(gang, request)
            held = Held(gang, holder, request, found.answer, self._clock_ns(), expires_ns)
            nodes, needs = places(held, range(len(found.answer.nodes)))
            same = self.capacity.forest is capacity.forest
            if same and self._free.room.lacking(nodes, needs) is None:
                self._hold(held)
                self._count(found.answer, found.seconds, reserves=True)
                return found.answer
            if masks and not same:
                break  # they are of that forest
        raise NoRoomError(f"gang {gang!r}: what is free changes faster than a place is found: try again")

    def trial(
        self, request: Request, masks: Mapping[str, Mask] = NO_MASKS
    ) -> tuple[Capacity, Callable[[], Trial]]:
        """A copy of what is free now, and for a thread: where the gang would go in it. Tell `tried` of it.

        Raises NotReadyError.
        """
        capacity = self.capacity.copy()

        def answered() -> Trial:
            began_s = self._timer()
            return Trial(self._engine(capacity, request, masks), self._timer() - began_s)

        return capacity, answered

    def tried(self, trial: Trial) -> None:
        self._count(trial.answer, trial.seconds, reserves=False)

    def _count(self, answer: Placement | Refusal, seconds: float, reserves: bool) -> None:
        outcome = "refused" if isinstance(answer, Refusal) else "reserved" if reserves else "fits"
        self.decisions[outcome] += 1
        self.decided(seconds)

    def restore(self, held: Held) -> None:
        """Hold what was decided before (a stored plan), whether it fits now or not.

        In place of what a gang of that name holds. Raises PlacementsError where its nodes are not one a rank.
        """
        if len(held.placement.nodes) != size(held.request.gang):
            raise PlacementsError(
                f"gang {held.gang!r}: {len(held.placement.nodes)} nodes for {size(held.request.gang)} ranks"
            )
        if held.gang in self._held:
            self._let_go(held.gang)
        self._hold(held)

    def arrive(self, gang: str, ranks: Collection[int]) -> None:
        """Pods of these ranks run where they were placed. Raises NotHeldError."""
        held = self.held(gang)
        new = frozenset(ranks) - held.arrived
        if not new:
            return
        if wrong := [rank for rank in new if not 0 <= rank < len(held.placement.nodes)]:
            raise PlacementsError(f"gang {gang!r} has {len(held.placement.nodes)} ranks, and no {wrong[0]}")
        self._free.refresh(self._free.room.unbook(*places(held, new)))
        self._set(replace(held, arrived=held.arrived | new))

    def move(self, gang: str, moves: Sequence[Move], placement: Placement) -> None:
        """A repair that was decided: the ranks are on their way to other nodes.

        Raises NotHeldError; NoRoomError, and changes nothing, where it does not fit any more.
        """
        held, room = self.held(gang), self._free.room
        moved = frozenset(move.rank for move in moves)
        if not is_where(held, moved, placement):
            raise NoRoomError(f"gang {gang!r} is not where these moves begin: decide anew")
        after = replace(held, placement=placement, arrived=held.arrived - moved)
        left = places(held, moved - held.arrived)
        nodes, needs = places(after, moved)
        touched = room.unbook(*left)
        if lacking := room.lacking(nodes, needs):
            room.book(*left)
            raise NoRoomError(f"gang {gang!r} cannot move as planned: {lacking}: decide anew")
        self._free.refresh(touched | room.book(nodes, needs))
        self._set(after)

    def release(self, gang: str) -> None:
        """Raises NotHeldError."""
        self.held(gang)
        self._let_go(gang)
        self._tell(gang, None)

    def expire(self) -> list[str]:
        """Release what is over; returns its gangs."""
        now_ns = self._clock_ns()
        over = [held.gang for held in self._held.values() if 0 < held.expires_ns <= now_ns]
        for gang in over:
            self.release(gang)
        return over

    # The book

    def _check_new(self, gang: str, request: Request) -> None:
        if not 1 <= len(gang) <= MAX_NAME_CHARS or not gang.isprintable() or " " in gang:
            raise RequestError(
                f"gang: {gang[:MAX_NAME_CHARS]!r}: expected a name of 1 to {MAX_NAME_CHARS} printable "
                "characters"
            )
        if (held := self._held.get(gang)) is not None:
            raise HeldError(
                f"gang {gang!r} holds {held.placement.cost.nodes} nodes already: release it first, or "
                "choose another name"
            )
        if len(self._held) >= MAX_GANGS:
            raise TooManyError(f"{len(self._held)} gangs hold nodes already: release some")
        if self.ranks + size(request.gang) > MAX_RANKS:
            raise TooManyError(f"{self.ranks} workers hold nodes already, {MAX_RANKS} may: release some")

    def _hold(self, held: Held) -> None:
        self._free.refresh(self._free.room.book(*places(held, not_arrived(held))))
        self.ranks += len(held.placement.nodes)
        self._set(held)

    def _let_go(self, gang: str) -> None:
        held = self._held.pop(gang)
        self.ranks -= len(held.placement.nodes)
        self._free.refresh(self._free.room.unbook(*places(held, not_arrived(held))))

    def _set(self, held: Held) -> None:
        self._held[held.gang] = held
        self._tell(held.gang, held)

    def _tell(self, gang: str, held: Held | None) -> None:
        self.changed(gang, held)
        for follower in self._followers:
            follower(gang, held)


def _is_quick(request: Request) -> bool:
    """Whether deciding it takes milliseconds at the most: runs within runs of one kind of worker (groups of
    several sizes take as long as several kinds do), and not too many."""
    part: Group | Workers = request.gang
    while isinstance(part, Group):
        if len(part.parts) != 1:
            return False
        part = part.parts[0]
    return size(request.gang) <= _QUICK
