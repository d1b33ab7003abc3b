"""What each event changes in the facts about a gang: one handler for each event."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hyperscout_formats.text.counts import count, first_few
from hyperscout_placer.solve.elastic import with_counts

from hyperscout_gates.state import events as e
from hyperscout_gates.state.events import Event, Instruction
from hyperscout_gates.state.gang import Gang, is_elastic
from hyperscout_gates.state.gang_plan import GangPlan
from hyperscout_gates.state.gang_state import GangFacts

_SHOWN = 5  # moved ranks in a message


@dataclass(slots=True)
class EventHandlers(GangFacts):
    """`apply` calls the handler of an event. `out`: instructions since the last call of `handle`."""

    out: list[Instruction] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        _HANDLERS[type(event)](self, event)

    def _began(self, _: e.Began) -> None:
        self.begun = True
        if self.plan is not None:
            if self.plan.moves or any(pod.is_open for pod in self.members):
                self.reserve(self.plan)
            else:
                self.drop()

    def _pod_seen(self, event: e.PodSeen) -> None:
        self.members.put(event.pod)
        if not (event.pod.is_alive and event.pod.gated):
            self.maybe_open.discard(event.pod.uid)

    def _pod_gone(self, event: e.PodGone) -> None:
        self.members.remove(event.uid)
        for uids in (self.opening, self.maybe_open, self.deleting):
            uids.discard(event.uid)
        self.backoff.forgive(f"open {event.uid}", f"delete {event.uid}")

    def _owner_read(self, event: e.OwnerRead) -> None:
        self.reading = False
        self.is_over = event.over
        if event.gang is not None:
            self.gang = event.gang
            if self.plan is None:
                self.uid = self.uid or event.gang.uid  # not all pods carry it
            self.backoff.forgive("read")
            return
        self.read_with = set()
        if self.plan is None:
            self.gang = None
        if not (event.over or event.problem):
            return  # the owner exists, and no pod waits
        self.backoff.failed("read", at_least_s=0.0 if event.retry else 10.0)
        if event.problem and not event.retry:
            self.say("Warning", "NoGang", event.problem)

    def _owner_stale(self, _: e.OwnerStale) -> None:
        if self.plan is None:
            self.gang = None
            self.backoff.forgive("read")

    def _placed(self, event: e.Placed) -> None:
        asked, self.asked = self.asked, None
        if isinstance(asked, e.Repair):
            self.plan = replace(asked.plan, placement=event.placement)
            self.lost_since_s = None
        elif isinstance(asked, e.Place | e.Grow):
            gang, placement = asked.gang, replace(event.placement, counts=())
            request = with_counts(gang.request, event.placement.counts)
            accepted = placement.cost.degraded
            plan = GangPlan(self.key, self.uid, gang.kind, request, placement, accepted=accepted)
            if isinstance(asked, e.Grow):
                plan = replace(plan, pods=asked.plan.pods)
            self.has_reservation = True
            self.seat(plan, gang)
            seatless = {u: r for u, r in self.members.seats.items() if not self.members.pods[u].has_seat}
            self.plan = replace(plan, pods=seatless)

    def _not_placed(self, event: e.NotPlaced) -> None:
        self.asked = None
        self.say("Normal", "Waits", f"waits: {event.reason}", every_s=30.0)

    def _nodes_down(self, event: e.NodesDown) -> None:
        self.down = event.nodes

    def _moves(self, event: e.Moves) -> None:
        if self.plan == event.plan and self.can_move:
            accepted = event.placement.cost.degraded
            self.plan = replace(event.plan, placement=event.placement, moves=True, accepted=accepted)
            self.arrived &= self.members.arrived(self.plan.nodes)
        elif self.plan is not None and self.has_reservation:
            self.out.append(e.Release())  # the gang has changed since the move was decided
            self.reserve(self.plan)

    def _plan_stored(self, event: e.PlanStored) -> None:
        self.storing = False
        self.backoff.forgive("store")
        if message := _description(event.plan, self.stored):
            self.say("Normal", "Placed" if self.stored is None else "Moved", message)
        before, now = len(self.stored.nodes if self.stored else ()), len(event.plan.nodes)
        if self.stored is not None and before != now:
            self.say("Normal", "Resized", f"now {count(now, 'worker')} ({before} before)")
        if before > now and event.plan == self.plan:
            self.out.append(e.Shrink(event.plan))
        self.stored = self.plan if event.plan == self.plan else event.plan  # they are compared by identity

    def _plan_not_stored(self, event: e.PlanNotStored) -> None:
        self.storing = False
        self.backoff.failed("store")
        self.say("Warning", "NotStored", f"its plan is not stored: {event.problem}", every_s=60.0)
        if event.rejected and not self.engaged:
            self.drop()
            self.backoff.failed("place", at_least_s=300.0)

    def _plan_deleted(self, _: e.PlanDeleted) -> None:
        self.deleting_plan = self.may_be_stored = False
        self.backoff.forgive("drop")

    def _plan_not_deleted(self, _: e.PlanNotDeleted) -> None:
        self.deleting_plan = False
        self.backoff.failed("drop")

    def _opened(self, event: e.Opened) -> None:
        self.opening.discard(event.uid)
        if event.uid in self.members.seats:
            self.maybe_open.add(event.uid)  # until the watch confirms it
        self.backoff.forgive(f"open {event.uid}")

    def _not_opened(self, event: e.NotOpened) -> None:
        self.opening.discard(event.uid)
        if event.uid not in self.members:
            return
        self.backoff.failed(f"open {event.uid}", at_least_s=30.0 if event.rejected else 0.0)
        if event.rejected:
            self.say("Warning", "NotOpened", event.problem, every_s=60.0)
        else:
            self.maybe_open.add(event.uid)

    def _pod_deleted(self, event: e.PodDeleted) -> None:
        self.deleting.discard(event.uid)
        if (pod := self.members.pods.get(event.uid)) is not None:
            self.members.put(replace(pod, going=True))

    def _pod_not_deleted(self, event: e.PodNotDeleted) -> None:
        self.deleting.discard(event.uid)
        if event.uid in self.members:
            self.backoff.failed(f"delete {event.uid}")

    def _tick(self, _: e.Tick) -> None:
        if self.spare_since_s is not None and self.now_s >= self.spare_since_s + self.linger_s:
            self.plan = self.spare or self.plan
            self.spare_since_s = None

    def _nothing(self, _: e.Turn) -> None:
        """Only the next step depends on this event."""

    # Changes that both events and next steps cause

    def reserve(self, plan: GangPlan) -> None:
        """Reserve the nodes of a plan that was decided earlier."""
        self.has_reservation = self.was_used = True
        self.arrived = self.members.arrived(plan.nodes)
        self.out.append(e.Hold(plan, frozenset(self.arrived)))

    def drop(self) -> None:
        """Release the reservation and forget the plan. No pod may be open."""
        if self.has_reservation:
            self.out.append(e.Release())
        self.plan = self.stored = None
        self.has_reservation = self.was_used = self.clearing = False
        self.arrived.clear()
        self.members.seats.clear()
        self.lost_since_s = None

    def seat(self, plan: GangPlan, gang: Gang) -> None:
        """Give gated pods their ranks. Ranks without a usable node come last, so that others can start."""
        number = len(plan.nodes)
        last = {rank for rank in range(number) if self.is_bad(plan, rank)}
        left_out = self.members.seat(gang, number, plan.pods, last, self.unread)
        if is_elastic(plan.request) and (self.reading or len(gang.ranks) > number):
            return  # they wait until the gang grows
        for pod in left_out:
            workers = count(number, "worker")
            message = f"pod {pod.name} waits: the gang was placed with {workers}, and no rank is left"
            self.say("Warning", "NoRank", message, every_s=60.0)

    def say(self, severity: str, reason: str, message: str, every_s: float = 0.0) -> None:
        if self.backoff.may_say(reason, message, every_s):
            self.out.append(e.Say(severity, reason, message))


def _description(plan: GangPlan, before: GangPlan | None) -> str:
    """Return where a stored plan places the gang, or which ranks it moves; "" = nothing to report."""
    if before is not None:
        pairs = enumerate(zip(before.nodes, plan.nodes, strict=False))
        moved = [f"rank {rank}: {a or 'nowhere'} -> {b}" for rank, (a, b) in pairs if a != b]
        return f"other nodes: {first_few(moved, _SHOWN)}" if moved else ""
    if not plan.placement.exact and plan.placement.hypernode is None:
        return ""
    where = plan.placement.hypernode or "several islands"
    workers, nodes = count(len(plan.nodes), "worker"), count(len(set(plan.nodes)), "node")
    return "; ".join((f"{workers} on {nodes} of {where}", *plan.placement.relaxed))


_HANDLERS: Final[dict[type, Callable[[EventHandlers, Any], None]]] = {
    e.Began: EventHandlers._began,
    e.PodSeen: EventHandlers._pod_seen,
    e.PodGone: EventHandlers._pod_gone,
    e.OwnerRead: EventHandlers._owner_read,
    e.OwnerStale: EventHandlers._owner_stale,
    e.Turn: EventHandlers._nothing,
    e.Placed: EventHandlers._placed,
    e.NotPlaced: EventHandlers._not_placed,
    e.PlanStored: EventHandlers._plan_stored,
    e.PlanNotStored: EventHandlers._plan_not_stored,
    e.PlanDeleted: EventHandlers._plan_deleted,
    e.PlanNotDeleted: EventHandlers._plan_not_deleted,
    e.Opened: EventHandlers._opened,
    e.NotOpened: EventHandlers._not_opened,
    e.PodDeleted: EventHandlers._pod_deleted,
    e.PodNotDeleted: EventHandlers._pod_not_deleted,
    e.NodesDown: EventHandlers._nodes_down,
    e.Moves: EventHandlers._moves,
    e.Tick: EventHandlers._tick,
}
