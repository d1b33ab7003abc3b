"""State machine of one gang, from its first gated pod to the end of its last pod.

    pods gather -> owner read -> placed -> plan stored -> gates open -> pods bound -> ... -> released

A gang is placed as a whole or not at all. No gate opens before the plan is stored. Each gate opens onto the
node that the stored plan has for the pod's rank. The machine keeps facts and derives the next step from them
alone, so a collector that starts needs only the pods and the plan. If a gate is open, the machine completes
the plan. If none is open, it drops the plan and places the gang again. A rank moves only while no pod of it
is open.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_placer.cluster.request import size

from hyperscout_gates.state import events as e
from hyperscout_gates.state.events import Event, Instruction, Pod
from hyperscout_gates.state.gang import Gang
from hyperscout_gates.state.members import Members
from hyperscout_gates.state.plan import Plan, digest_of
from hyperscout_gates.state.tries import Tries

NOWHERE = ""  # the node of a rank without node
_SHOWN = 5  # moved ranks in a message


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Times in seconds."""

    replace_after_s: float = 60.0  # until an unschedulable pod is placed again; doubles up to 4 times
    hot_swap: bool = True
    gather_s: float = 5.0  # wait for more pods of a failed node, so that their ranks move together
    linger_s: float = 60.0  # how long a gang without pods keeps its nodes, while its owner exists
    refused_s: float = 600.0  # how long a node is avoided after a pod could not be scheduled there
    patience_s: float = 15.0  # until a gang reports that pods are missing
    retry_s: float = 1.0  # until a failed request is repeated; doubles each time
    retry_most_s: float = 60.0


class GangMachine:
    """`handle` takes events and returns instructions. `due_s`: when it needs the next Tick."""

    def __init__(self, key: str, uid: str, settings: GateSettings, plan: Plan | None = None) -> None:
        self.key = key
        self.uid = uid
        self.gang: Gang | None = None
        self.plan: Plan | None = plan  # the current plan; gates open only if it is also `stored`
        self.stored: Plan | None = plan
        self.members = Members()
        self.ended = False
        self._settings = settings
        self._tries = Tries(settings.retry_s, settings.retry_most_s)
        self._out: list[Instruction] = []
        self._now_s = 0.0
        self._begun = False
        self._is_there = plan is not None  # a plan may be stored
        self._held = False
        self._used = False  # a gate was opened under this plan
        self._arrived: set[int] = set()
        self._opening: set[str] = set()
        self._maybe_open: set[str] = set()  # patched or maybe patched, not confirmed by the watch
        self._deleting: set[str] = set()
        self._reading = self._storing = self._deleting_plan = False
        self._read_with = 0  # number of waiting pods when the owner was read
        self._asked: e.Place | e.Repair | None = None
        self._over = False
        self._clearing = False
        self._down: frozenset[str] = frozenset()
        self._refused: dict[str, float] = {}  # node -> Unix seconds until which it is avoided
        self._replaced = 0
        self._lost_since_s: float | None = None
        self._empty_since_s: float | None = None

    @property
    def due_s(self) -> float | None:
        """Unix seconds of the next Tick; None if the machine only waits for events."""
        return self._tries.due_s

    def handle(self, events: Iterable[Event], now_s: float) -> list[Instruction]:
        """Process events and return instructions. `now_s`: Unix seconds."""
        self._out, self._now_s = [], now_s
        self._tries.begin(now_s)
        turn = False
        for event in events:
            if isinstance(event, e.Turn):
                turn = True
            else:
                self._learn(event)
        if self._begun and not self.ended:
            self._next()
            if turn:
                self._ask()
        return self._out

    # The queue

    @property
    def wants_nodes(self) -> bool:
        """Whether the machine would request nodes if it got a Turn."""
        return self._begun and not self.ended and (self._wants_repair() or self._wants_place())

    @property
    def waits_since_s(self) -> float:
        """When its first pod was created (Unix seconds); defines the order of the queue."""
        return min((pod.created_s for pod in self.members), default=0.0)

    def _ask(self) -> None:
        gang, plan = self.gang, self.plan
        if gang is None or self._asked is not None:
            return
        if plan is not None and self._wants_repair():
            self._asked = e.Repair(gang, plan, self._to_move(plan), self._bad())
        elif self._wants_place():
            self._asked = e.Place(gang, frozenset(self._refused))
        else:
            return
        self._out.append(self._asked)

    def _wants_place(self) -> bool:
        gang = self.gang
        if gang is None or self._reading or self.plan is not None or self._is_there or self._engaged:
            return False
        return self._tries.may("place") and self.members.here(gang) >= gang.ready

    def _wants_repair(self) -> bool:
        plan = self.plan
        if plan is None or plan is not self.stored or self.gang is None or self._clearing or self._storing:
            return False
        if not self._engaged or self._gathers():
            return False
        busy = self._opening | self._maybe_open
        return any(self._is_bad(plan, rank) for uid, rank in self.members.seats.items() if uid not in busy)

    # Events

    def _learn(self, event: Event) -> None:
        if isinstance(event, e.PodSeen):
            self.members.put(event.pod)
            if not (event.pod.is_alive and event.pod.gated):
                self._maybe_open.discard(event.pod.uid)
        elif isinstance(event, e.PodGone):
            self._gone(event.uid)
        elif isinstance(event, e.Began):
            self._begin()
        elif isinstance(event, e.OwnerRead):
            self._read(event)
        elif isinstance(event, e.OwnerStale):
            if self.plan is None:
                self.gang = None
                self._tries.forgive("read")
        elif isinstance(event, e.Placed | e.NotPlaced):
            self._answered(event)
        elif isinstance(event, e.NodesDown):
            self._down = event.nodes
        elif isinstance(event, e.PlanStored | e.PlanNotStored | e.PlanDeleted | e.PlanNotDeleted):
            self._about_plan(event)
        elif isinstance(event, e.Opened | e.NotOpened | e.PodDeleted | e.PodNotDeleted):
            self._about_pod(event)

    def _gone(self, uid: str) -> None:
        self.members.remove(uid)
        for uids in (self._opening, self._maybe_open, self._deleting):
            uids.discard(uid)
        self._tries.forgive(f"open {uid}", f"delete {uid}")

    def _begin(self) -> None:
        self._begun = True
        if self.plan is not None:
            if any(pod.is_open for pod in self.members):
                self._hold(self.plan)
            else:
                self._drop()

    def _read(self, event: e.OwnerRead) -> None:
        self._reading = False
        self._over = event.over
        if event.gang is not None:
            self.gang = event.gang
            if self.plan is None:
                self.uid = self.uid or event.gang.uid  # not all pods carry it
            self._tries.forgive("read")
            return
        if self.plan is None:
            self.gang = None
        if not (event.over or event.problem):
            return  # the owner exists, and no pod waits
        self._tries.failed("read", at_least_s=0.0 if event.retry else 10.0)
        if event.problem and not event.retry:
            self._say("Warning", "NoGang", event.problem)

    def _answered(self, event: e.Placed | e.NotPlaced) -> None:
        asked, self._asked = self._asked, None
        if isinstance(event, e.NotPlaced):
            self._say("Normal", "Waits", f"waits: {event.reason}", every_s=30.0)
        elif isinstance(asked, e.Repair):
            self.plan = replace(asked.plan, placement=event.placement)
            self._lost_since_s = None
        elif isinstance(asked, e.Place):
            gang = asked.gang
            digest = digest_of(gang.request, gang.ranks)
            plan = Plan(self.key, self.uid, gang.kind, digest, gang.request, event.placement)
            self._held = True
            self._seat(plan, gang)
            seatless = {u: r for u, r in self.members.seats.items() if not self.members.pods[u].has_seat}
            self.plan = replace(plan, pods=seatless)

    def _about_plan(self, event: Event) -> None:
        if isinstance(event, e.PlanStored):
            self._storing = False
            self._tries.forgive("store")
            self._tell_of(event.plan, self.stored)
            self.stored = event.plan
        elif isinstance(event, e.PlanNotStored):
            self._storing = False
            self._tries.failed("store")
            self._say("Warning", "NotStored", f"its plan is not stored: {event.problem}", every_s=60.0)
            if event.rejected and not self._engaged:
                self._drop()
                self._tries.failed("place", at_least_s=300.0)
        elif isinstance(event, e.PlanDeleted):
            self._deleting_plan = self._is_there = False
            self._tries.forgive("drop")
        elif isinstance(event, e.PlanNotDeleted):
            self._deleting_plan = False
            self._tries.failed("drop")

    def _about_pod(self, event: Event) -> None:
        if isinstance(event, e.Opened):
            self._opening.discard(event.uid)
            if event.uid in self.members.seats:
                self._maybe_open.add(event.uid)  # until the watch confirms it
            self._tries.forgive(f"open {event.uid}")
        elif isinstance(event, e.NotOpened):
            self._opening.discard(event.uid)
            if event.uid in self.members:
                self._tries.failed(f"open {event.uid}", at_least_s=30.0 if event.rejected else 0.0)
                if event.rejected:
                    self._say("Warning", "NotOpened", event.problem, every_s=60.0)
                else:
                    self._maybe_open.add(event.uid)
        elif isinstance(event, e.PodDeleted):
            self._deleting.discard(event.uid)
            if (pod := self.members.pods.get(event.uid)) is not None:
                self.members.put(replace(pod, going=True))
        elif isinstance(event, e.PodNotDeleted):
            self._deleting.discard(event.uid)
            if event.uid in self.members:
                self._tries.failed(f"delete {event.uid}")

    # Next steps

    def _next(self) -> None:
        self._refused = {node: until_s for node, until_s in self._refused.items() if self._now_s < until_s}
        for until_s in self._refused.values():
            self._tries.wake_at(until_s)
        if self.plan is None and self._is_there:
            self._delete_plan()
        if not self.members.any_alive:
            self._nobody()
            return
        self._empty_since_s = None
        if self.gang is None and any(pod.gated and pod.is_alive for pod in self.members):
            self._read_owner()
        plan = self.plan
        if plan is None:
            if not self._is_there:
                self._wait_or_adopt()
            return
        self._count_arrived(plan)
        if self._clearing:
            self._clear()
        elif plan is not self.stored:
            self._store()
        else:
            for pod in self.members.strays(plan.nodes):
                self._delete(pod)
            self._look_for_stuck()
            if not self._clearing:
                self._open_gates(plan)

    def _nobody(self) -> None:
        """Handle a gang without live pods: end it, release its plan, or wait for new pods."""
        if self.plan is None:
            self.ended = not (self._is_there or self._reading)
            return
        if self._empty_since_s is None:
            self._empty_since_s = self._now_s
            self._over = False
            self._tries.forgive("read")
        self._count_arrived(self.plan)
        over_s = self._empty_since_s + self._settings.linger_s
        if not self.uid or self._over or not self._used or self._now_s >= over_s:
            self._drop()
            self._delete_plan()
            return
        self._tries.wake_at(over_s)
        self._read_owner_each(2.0)

    def _wait_or_adopt(self) -> None:
        """Handle a gang without plan. It has none yet, or another client deleted the plan."""
        gang = self.gang
        if gang is None:
            return
        here = self.members.here(gang)
        if self._engaged:
            self._adopt(gang)
        elif here < gang.ready:
            since_s = max(pod.created_s for pod in self.members) + self._settings.patience_s
            if self._now_s < since_s:
                self._tries.wake_at(since_s)
            else:
                self._say("Normal", "Waits", f"waits for pods: {here} of {gang.ready} are here", every_s=60.0)
                self._read_owner_each(self._settings.linger_s)
        elif self._read_with < here:
            self._read_owner()  # the pods define best what they need, so read again with all of them

    def _adopt(self, gang: Gang) -> None:
        """Build a plan from the open pods. Ranks without an open pod have no node yet."""
        nodes = [NOWHERE] * size(gang.request.gang)
        for rank, pod in self.members.opened():
            if rank < len(nodes):
                nodes[rank] = pod.pin
        placement = Placement(tuple(nodes), None, None, Cost(0, (), len(set(nodes)), 0, ()), exact=False)
        digest = digest_of(gang.request, gang.ranks)
        self.plan = Plan(self.key, self.uid, gang.kind, digest, gang.request, placement)
        self._say("Warning", "PlanLost", "the plan of this gang was gone: made anew from its pods")
        self._hold(self.plan)
        self._store()

    def _store(self) -> None:
        if self.plan is not None and not self._storing and self._tries.may("store"):
            self._storing = self._is_there = True
            self._out.append(e.StorePlan(self.plan))

    def _drop(self) -> None:
        """Release the reservation and forget the plan. No pod may be open."""
        if self._held:
            self._out.append(e.Release())
        self.plan = self.stored = None
        self._held = self._used = self._clearing = False
        self._arrived.clear()
        self.members.seats.clear()
        self._lost_since_s = None

    def _delete_plan(self) -> None:
        if self._is_there and not self._deleting_plan and not self._storing and self._tries.may("drop"):
            self._deleting_plan = True
            self._out.append(e.DeletePlan())

    def _read_owner(self) -> None:
        if not self._reading and self._tries.may("read"):
            self._reading = True
            self._read_with = sum(1 for pod in self.members if pod.gated and pod.is_alive)
            self._out.append(e.ReadOwner())

    def _read_owner_each(self, seconds: float) -> None:
        if self._tries.may("read again"):
            self._tries.not_before("read again", seconds)
            self._read_owner()

    # Gates

    def _seat(self, plan: Plan, gang: Gang) -> None:
        """Give gated pods their ranks. Ranks without a usable node come last, so that others can start."""
        last = {rank for rank in range(len(plan.nodes)) if self._is_bad(plan, rank)}
        for pod in self.members.seat(gang, len(plan.nodes), plan.pods, last):
            self._say(
                "Warning",
                "NoRank",
                f"pod {pod.name} has to wait: the gang was placed with {len(plan.nodes)} workers, which are "
                "all there",
                every_s=60.0,
            )

    def _open_gates(self, plan: Plan) -> None:
        """Open each gated pod onto its node. Pods of failed nodes wait for another node."""
        if self.gang is not None:
            self._seat(plan, self.gang)
        lost = False
        ready: list[e.Open] = []
        for uid, rank in self.members.seats.items():
            if uid in self._opening or uid in self._deleting:
                continue
            if uid in self._maybe_open:
                if not self._tries.has_failed(f"open {uid}"):
                    continue  # it is open, and the watch will confirm it
            elif self._is_bad(plan, rank):
                lost = True
                continue
            elif plan.nodes[rank] in self._down:
                continue
            if self._tries.may(f"open {uid}"):
                ready.append(e.Open(self.members.pods[uid], rank, plan.nodes[rank]))
        if lost and not self._engaged:
            self._drop()  # no gate is open yet, so the whole gang is placed again
            self._delete_plan()
            return
        if not lost:
            self._lost_since_s = None
        elif self._lost_since_s is None:
            self._lost_since_s = self._now_s
        if self._lost_since_s is not None and self._gathers():
            self._tries.wake_at(self._lost_since_s + self._settings.gather_s)
        self._used = self._used or bool(ready)
        self._opening.update(instruction.pod.uid for instruction in ready)
        self._out += ready

    @property
    def _engaged(self) -> bool:
        """Whether a gate is open or may be open."""
        if self._opening or self._maybe_open:
            return True
        return any(pod.is_open and not pod.failed for pod in self.members)

    # Failures

    def _is_bad(self, plan: Plan, rank: int) -> bool:
        node = plan.nodes[rank]
        return node == NOWHERE or node in self._refused or (self._settings.hot_swap and node in self._down)

    def _bad(self) -> frozenset[str]:
        return frozenset(self._refused) | self._down

    def _to_move(self, plan: Plan) -> tuple[int, ...]:
        """Return the ranks on bad nodes that have no bound pod and no pod on its way."""
        fixed = {rank for rank, _ in self.members.opened()} | self.members.done()
        busy = self._opening | self._maybe_open
        fixed |= {rank for uid, rank in self.members.seats.items() if uid in busy}
        return tuple(r for r in range(len(plan.nodes)) if r not in fixed and self._is_bad(plan, r))

    def _gathers(self) -> bool:
        """Whether more pods of a failed node are about to lose it, so that all ranks move together."""
        if self._lost_since_s is None or self._now_s >= self._lost_since_s + self._settings.gather_s:
            return False
        bad = self._bad()
        return any((pod.node or pod.pin) in bad for _, pod in self.members.opened())

    def _look_for_stuck(self) -> None:
        """Find pods that the scheduler cannot place on their nodes, and delete them or restart the gang."""
        unbound = [pod for _, pod in self.members.opened() if not pod.node]
        patience_s = self._settings.replace_after_s * 2.0 ** min(self._replaced, 4)
        stuck: list[Pod] = []
        for pod in unbound:
            if pod.stuck_since_s is not None and pod.uid not in self._deleting:
                if self._now_s >= pod.stuck_since_s + patience_s:
                    stuck.append(pod)
                else:
                    self._tries.wake_at(pod.stuck_since_s + patience_s)
        if not stuck:
            return
        part, first = self.members.any_bound, stuck[0]
        if not all(pod.owned for pod in (stuck if part else unbound)):
            what = f"pod {first.name} cannot be scheduled on {first.pin}, and nobody would make it again"
            self._say("Warning", "Stuck", f"{what}: delete and create it", every_s=600.0)
            return
        for pod in stuck:
            self._refused[pod.pin] = self._now_s + self._settings.refused_s
        self._replaced += 1
        what = f"{len(stuck)} pods cannot be scheduled where they are to run ({first.name} on {first.pin})"
        if part:
            self._say("Warning", "Replaces", f"{what}: they are made again for other nodes")
            for pod in stuck:
                self._delete(pod)
        else:
            self._say("Warning", "Replaces", f"{what}: the gang is placed anew")
            self._clearing = True
            self._clear()

    def _clear(self) -> None:
        """Delete all open pods while none is bound. Then the gang is placed again."""
        if self.members.any_bound:
            self._clearing = False  # a pod was bound first: the plan stays, and deleted pods return
            return
        if self._opening:
            return
        left = [p for p in self.members if (p.is_open and not p.failed) or p.uid in self._maybe_open]
        for pod in left:
            if pod.is_alive:
                self._delete(pod)
        if not left:
            self._drop()
            self._delete_plan()

    def _delete(self, pod: Pod) -> None:
        if pod.owned and pod.uid not in self._deleting and self._tries.may(f"delete {pod.uid}"):
            self._deleting.add(pod.uid)
            self._out.append(e.DeletePod(pod))

    # Reservations

    def _hold(self, plan: Plan) -> None:
        self._held = self._used = True
        self._arrived = self.members.arrived(plan.nodes)
        self._out.append(e.Hold(plan, frozenset(self._arrived)))

    def _count_arrived(self, plan: Plan) -> None:
        if not self._held:
            return
        now = self.members.arrived(plan.nodes)
        if came := now - self._arrived:
            self._out.append(e.Arrive(tuple(sorted(came))))
        if went := self._arrived - now:
            self._out.append(e.Depart(plan, tuple(sorted(went))))
        self._arrived = now

    # Events for users

    def _tell_of(self, plan: Plan, before: Plan | None) -> None:
        if before is not None:
            pairs = enumerate(zip(before.nodes, plan.nodes, strict=False))
            moved = [f"rank {rank}: {a or 'nowhere'} -> {b}" for rank, (a, b) in pairs if a != b]
            if moved:
                more = f" and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
                self._say("Normal", "Moved", f"other nodes: {', '.join(moved[:_SHOWN])}{more}")
        elif plan.placement.exact or plan.placement.hypernode is not None:
            where = plan.placement.hypernode or "several islands"
            nodes = len(set(plan.nodes))
            self._say("Normal", "Placed", f"{len(plan.nodes)} workers on {nodes} nodes of {where}")

    def _say(self, severity: str, reason: str, message: str, every_s: float = 0.0) -> None:
        if self._tries.may_say(reason, message, every_s):
            self._out.append(e.Say(severity, reason, message))
