"""Keeps the reservations of all gangs: the single book of a collector, for the API and for scheduling gates.

    published topology --------+
    unused resources of nodes -+-> Capacity -> place -> reservation (until it is released or expires)

What is free is the unused resources of a node, less the reservations for workers that have not arrived there.
The unused resources are what the node's pods leave, or what evidence reports where there is no cluster.
Everything runs on the event loop. No call blocks it for long.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from hyperscout_formats.text.counts import count
from hyperscout_runtime.signals import Signal
from hyperscout_topology.topology import Topology

from hyperscout_placer.book.drain import Drain, Engine, place_around
from hyperscout_placer.book.failed_nodes import Failed, after_look
from hyperscout_placer.book.free_capacity import FreeCapacity
from hyperscout_placer.book.reservation import (
    MAX_NAME_CHARS,
    NoReservationError,
    NoRoomError,
    NotReadyError,
    PlacementsError,
    Reservation,
    Trial,
    check_failed,
    check_new,
    check_ranks,
    is_quick,
    is_where,
    not_arrived,
    places,
    with_size,
)
from hyperscout_placer.book.without import Booked, without
from hyperscout_placer.book.zone_choice import kept_zones, restored, shares, with_zones
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask, Resources
from hyperscout_placer.cluster.numa_zones import ZoneDevices
from hyperscout_placer.cluster.request import Request, size
from hyperscout_placer.cluster.speeds import TierSpeed
from hyperscout_placer.repair.repair import Move
from hyperscout_placer.solve.clusters import as_placed, place_in_cluster
from hyperscout_placer.solve.place import NO_MASKS

OUTCOMES = ("reserved", "fits", "refused")  # "fits" is the outcome of a dry run that finds a place
_ATTEMPTS = 3


class Placements:
    """The reservations of all gangs.

    The signal `changed` is emitted with the gang and its new reservation; None = the reservation is removed.
    `decided(seconds)` is called for each decision; `decisions` counts the decisions by `OUTCOMES`. `timer`
    returns monotonic seconds. `drain`: the domain that is kept for a waiting gang; None = none is.
    `single_hosts`: see `Forest.of`.
    """

    def __init__(
        self,
        *,
        clock_ns: Callable[[], int],
        timer: Callable[[], float],
        engine: Engine = place_in_cluster,
        decided: Callable[[float], None] = lambda seconds: None,
        single_hosts: bool = True,
    ) -> None:
        self.drain: Drain | None = None
        self.changed = Signal[[str, Reservation | None]]()
        self.zones_freed = Signal[[]]()  # more workers fit in NUMA zones
        self._decided = decided
        self.decisions: Counter[str] = Counter()
        self.ranks = 0  # of all gangs together
        self._clock_ns = clock_ns
        self._timer = timer
        self._engine = engine
        self._held: dict[str, Reservation] = {}
        self._free = FreeCapacity(single_hosts=single_hosts)

    async def run(self) -> None:
        """Read large topologies in a thread, until cancelled."""
        await self._free.run()

    # State

    @property
    def capacity(self) -> Capacity:
        """The free resources now. Raises NotReadyError."""
        capacity = self._free.capacity
        if capacity is None:
            raise NotReadyError(self._free.why_none)
        return capacity

    def capacity_for(self, request: Request) -> Capacity:
        """The free resources now, with all that the request names. Raises NotReadyError."""
        if named := shares(request):
            self._free.know_shares(named)
        return self.capacity

    def booked(self, request: Request) -> Booked:
        """`capacity_for(request)`, and the gangs whose nodes it lacks. Raises NotReadyError."""
        return Booked(self.capacity_for(request), self._held.values(), self._free.nodes)

    @property
    def speeds(self) -> Sequence[TierSpeed]:
        """Speeds of the tiers of `capacity`, in the form that `allreduce.predict` takes."""
        return self._free.speeds

    @property
    def problem(self) -> str | None:
        """Why nothing can be placed on the published topology, or None."""
        return self._free.problem

    def __iter__(self) -> Iterator[Reservation]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def get(self, gang: str) -> Reservation | None:
        return self._held.get(gang)

    def held(self, gang: str) -> Reservation:
        """The reservation of a gang. Raises NoReservationError."""
        if (held := self._held.get(gang)) is None:
            raise NoReservationError(f"no gang {gang[:MAX_NAME_CHARS]!r} holds nodes")
        return held

    def without(self, gang: str) -> Callable[[], Capacity]:
        """A function that returns what would be free if the gang had no reservation.

        It works on a copy, for a thread: a large gang takes long. Raises NotReadyError, NoReservationError.
        """
        held = self.held(gang)
        return partial(without, [held], self.capacity_for(held.request).copy(), self._free.nodes.copy())

    # Inputs

    def set_topology(self, topology: Topology) -> None:
        """Take over a newly published generation. Reservations stay."""
        self._free.set_topology(topology)

    def set_default_unused(self, unused: Resources) -> None:
        """Set the unused resources of each node for which none are set."""
        self._free.set_default_unused(unused)

    def set_unused(self, unused: Mapping[str, Resources]) -> None:
        """Set the unused resources of all nodes. Raises CapacityError."""
        self._free.set_unused(unused)

    def set_unused_of(self, node: str, unused: Resources | None) -> None:
        """Set the unused resources of one node; None = use the default. Raises CapacityError."""
        self._free.set_unused_of(node, unused)

    def set_zones_of(self, node: str, zones: Sequence[ZoneDevices]) -> None:
        """Set the NUMA zones of a node; () = unknown."""
        if self._free.set_zones_of(node, zones):
            self.zones_freed()

    def set_unusable(self, nodes: Collection[str]) -> None:
        """Set the nodes on which nothing is free, because they are down or accept no work."""
        self._free.set_unusable(nodes)

    # Decisions

    def place(
        self,
        gang: str,
        request: Request,
        *,
        holder: str,
        masks: Mapping[str, Mask] = NO_MASKS,
        dry_run: bool = False,
        expires_ns: int = 0,
        on_kept: bool = False,
    ) -> Placement | Refusal:
        """Place a gang, and reserve the nodes unless it is a dry run. `on_kept`: also use the kept nodes.

        Raises NotReadyError, HeldError, TooManyError, RequestError.
        """
        if not dry_run:
            self._check_new(gang, request)
        began_s = self._timer()
        capacity, drain = self.capacity_for(request), None if on_kept else self.around(request, expires_ns)
        answer = place_around(drain, self._engine, capacity, request, masks)
        reserves = not dry_run
        if isinstance(answer, Placement):
            placed = as_placed(request, answer)
            answer = with_zones(self._free.nodes, placed, answer)
            if reserves:
                self._hold(Reservation(gang, holder, placed, answer, self._clock_ns(), expires_ns))
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
        """Like `place`, but slow decisions run in a thread and are checked again before the reservation.

        Raises the errors of `place`, and NoRoomError where the free resources change faster than a place is
        found.
        """
        if is_quick(request):
            return self.place(gang, request, holder=holder, masks=masks, expires_ns=expires_ns)
        for _ in range(_ATTEMPTS):
            self._check_new(gang, request)
            drain = self.around(request, expires_ns)
            capacity, trial = self.trial(request, masks, expires_ns)
            found = await in_thread(trial)
            if isinstance(found.answer, Refusal):
                self.tried(found)
                return found.answer
            self._check_new(gang, request)
            placed = as_placed(request, found.answer)
            held = Reservation(gang, holder, placed, found.answer, self._clock_ns(), expires_ns)
            nodes, needs = places(held, range(len(found.answer.nodes)))
            same = self.capacity.forest is capacity.forest
            as_before = drain is self.around(request, expires_ns)
            if same and as_before and self._free.nodes.lacking(nodes, needs) is None:
                answer = with_zones(self._free.nodes, placed, found.answer)
                self._hold(replace(held, placement=answer))
                self._count(answer, found.seconds, reserves=True)
                return answer
            if masks and not same:
                break  # the masks belong to the forest of the first attempt
        raise NoRoomError(f"gang {gang!r}: the free resources change faster than a place is found: try again")

    def trial(
        self, request: Request, masks: Mapping[str, Mask] = NO_MASKS, expires_ns: int = 0
    ) -> tuple[Capacity, Callable[[], Trial]]:
        """A copy of the free resources, and a function for a thread that places the gang in that copy.

        Pass the result of the function to `tried`. Raises NotReadyError.
        """
        capacity, drain = self.capacity_for(request).copy(), self.around(request, expires_ns)
        nodes = self._free.nodes.copy() if shares(request) else None

        def answered() -> Trial:
            began_s = self._timer()
            answer = place_around(drain, self._engine, capacity, request, masks)
            if nodes is not None and isinstance(answer, Placement):
                answer = with_zones(nodes, as_placed(request, answer), answer)
            return Trial(answer, self._timer() - began_s)

        return capacity, answered

    def tried(self, trial: Trial) -> None:
        self._count(trial.answer, trial.seconds, reserves=False)

    def around(self, request: Request, expires_ns: int) -> Drain | None:
        """The drain whose nodes a gang must leave free; None if there is none."""
        drain = self.drain
        return drain if drain is not None and drain.keeps_off(request, expires_ns, self.booked) else None

    def _count(self, answer: Placement | Refusal, seconds: float, reserves: bool) -> None:
        outcome = "refused" if isinstance(answer, Refusal) else "reserved" if reserves else "fits"
        self.decisions[outcome] += 1
        self._decided(seconds)

    def restore(self, held: Reservation) -> None:
        """Record a reservation that was decided before (a stored plan), whether it fits now or not.

        It replaces the gang's present reservation. Workers that stay on their nodes keep their NUMA zones.
        Raises PlacementsError unless it has one node for each rank.
        """
        if len(held.placement.nodes) != size(held.request.gang):
            raise PlacementsError(
                f"gang {held.gang!r}: {len(held.placement.nodes)} nodes for {size(held.request.gang)} ranks"
            )
        if (before := self._held.get(held.gang)) is not None:
            self._let_go(held.gang)
        self._hold(restored(self._free.nodes, held, before))

    def arrive(self, gang: str, ranks: Collection[int]) -> None:
        """Record that the pods of these ranks run on their nodes.

        Raises NoReservationError, PlacementsError.
        """
        held = self.held(gang)
        if not (new := frozenset(ranks) - held.arrived):
            return
        if wrong := [rank for rank in new if not 0 <= rank < len(held.placement.nodes)]:
            raise PlacementsError(
                f"gang {gang!r} has {count(len(held.placement.nodes), 'rank')}: there is no rank {wrong[0]}"
            )
        self._free.refresh(self._free.nodes.unbook(*places(held, new)))
        self._set(replace(held, arrived=held.arrived | new))

    def move(self, gang: str, moves: Sequence[Move], placement: Placement) -> None:
        """Apply the moves of a decided repair. The moved ranks have not arrived on their new nodes yet.

        Raises NoReservationError. Raises NoRoomError, and changes nothing, where the moves do not fit.
        """
        held = self.held(gang)
        moved = frozenset(move.rank for move in moves)
        if not is_where(held, moved, placement):
            raise NoRoomError(f"gang {gang!r} has other nodes than these moves start from: plan again")
        placement = kept_zones(placement, held.placement)
        after = replace(held, placement=placement, arrived=held.arrived - moved)
        self._exchange(held, moved, after, moved)

    def resize(self, gang: str, request: Request, placement: Placement) -> None:
        """Change the size of a gang as decided. New ranks have not arrived on their nodes yet.

        Raises NoReservationError, TooManyError, and NoRoomError, where it does not fit.
        """
        held = self.held(gang)
        check_ranks(self.ranks, size(request.gang) - size(held.request.gang))
        self._exchange(held, *with_size(held, request, placement))

    def _exchange(
        self, held: Reservation, left: Collection[int], after: Reservation, came: Collection[int]
    ) -> None:
        """Replace a reservation: its ranks `left` leave their nodes, and the ranks `came` get some."""
        free = self._free.nodes
        leaving = places(held, [rank for rank in left if rank not in held.arrived])
        touched = free.unbook(*leaving)
        if lacking := free.lacking(*places(after, came)):
            free.book(*leaving)
            raise NoRoomError(f"gang {held.gang!r} does not fit as planned: {lacking}: plan it again")
        after = replace(after, placement=with_zones(free, after.request, after.placement))
        self._free.refresh(touched | free.book(*places(after, came)))
        self.ranks += len(after.placement.nodes) - len(held.placement.nodes)
        self._set(after)

    def set_failed(self, gang: str, failed: Failed) -> None:
        """Set the failed nodes that a gang remembers. Raises NoReservationError, TooManyError."""
        held = self.held(gang)
        remembered = sum(len(x.failed) for x in self._held.values()) - len(held.failed) + len(failed)
        check_failed(gang, len(failed), remembered)
        if failed != held.failed:
            self._set(replace(held, failed=failed))

    def is_down(self, node: str) -> bool:
        """Whether a node is down: not usable, with a down link of its own, or not in the topology."""
        forest = self.capacity.forest
        at = forest.index.get(node)
        return at is None or bool(forest.down[at]) or node in self._free.nodes.unusable

    def forget_healthy(self, seen_ns: Callable[[str], int]) -> None:
        """Forget failed nodes that are healthy again. `seen_ns`: as in `after_look`."""
        if self._free.capacity is None:
            return
        for held in [x for x in self if x.failed]:
            failed = after_look(held.failed, self.is_down, seen_ns, self._clock_ns())
            if failed != held.failed:
                self._set(replace(held, failed=failed))

    def release(self, gang: str) -> None:
        """Release a gang's reservation. Raises NoReservationError."""
        self.held(gang)
        self._let_go(gang)
        self.changed(gang, None)

    def expire(self) -> list[str]:
        """Release the expired reservations; returns the names of their gangs."""
        now_ns = self._clock_ns()
        over = [held.gang for held in self._held.values() if 0 < held.expires_ns <= now_ns]
        for gang in over:
            self.release(gang)
        return over

    # Bookkeeping

    def _check_new(self, gang: str, request: Request) -> None:
        check_new(gang, self._held.get(gang), len(self._held))
        check_ranks(self.ranks, size(request.gang))

    def _hold(self, held: Reservation) -> None:
        self._free.refresh(self._free.nodes.book(*places(held, not_arrived(held))))
        self.ranks += len(held.placement.nodes)
        self._set(held)

    def _let_go(self, gang: str) -> None:
        held = self._held.pop(gang)
        self.ranks -= len(held.placement.nodes)
        self._free.refresh(self._free.nodes.unbook(*places(held, not_arrived(held))))

    def _set(self, held: Reservation) -> None:
        self._held[held.gang] = held
        self.changed(held.gang, held)
