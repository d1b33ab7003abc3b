"""State machine of one gang, from its first gated pod to the end of its last pod.

    pods gather -> owner read -> placed -> plan stored -> gates open -> pods bound -> ... -> released

A gang is placed as a whole or not at all. No gate opens before the plan is stored. Each gate opens onto the
node that the stored plan has for the pod's rank. The machine keeps facts and derives the next step from them
alone, so a collector that starts needs only the pods and the plan. If a gate is open, the machine completes
the plan. If none is open, it drops the plan and places the gang again. A rank moves only while no pod of it
is open. `gang_state.TRANSITIONS` lists how events change the state.
"""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, Self

from hyperscout_formats.text.counts import count
from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_placer.cluster.request import size
from hyperscout_runtime.backoff import doubled_s
from hyperscout_runtime.event_log import EventLog, copied, nanoseconds

from hyperscout_gates.state import events as e
from hyperscout_gates.state.event_handlers import EventHandlers
from hyperscout_gates.state.events import Event, Instruction, Pod
from hyperscout_gates.state.gang import Gang, is_elastic, with_ranks
from hyperscout_gates.state.gang_plan import GangPlan
from hyperscout_gates.state.gang_state import NOWHERE, GangFacts, GateSettings

_SIZE_S = 5.0  # between readings of the owner while pods of an elastic gang have no rank


class GangMachine(EventHandlers):
    """`handle` takes events and returns instructions. `due_s`: when it needs the next Tick.

    `plan`: the stored plan of the gang. `log`: receives all events.
    """

    def __init__(
        self,
        key: str,
        uid: str,
        settings: GateSettings,
        plan: GangPlan | None = None,
        log: EventLog | None = None,
    ) -> None:
        super().__init__(key, uid, settings, plan, plan, may_be_stored=plan is not None)
        self._log = EventLog("gang") if log is None else log
        self._subject = self._log.subject(key)

    @classmethod
    def restored(cls, facts: GangFacts) -> Self:
        """Return a machine with these facts."""
        machine = cls(facts.key, facts.uid, facts.settings)
        for f in fields(GangFacts):
            setattr(machine, f.name, copied(getattr(facts, f.name)))
        if machine.stored == machine.plan:
            machine.stored = machine.plan
        return machine

    def snapshot(self) -> GangFacts:
        """Return a copy of the facts without pod specs, which may contain secrets."""
        found = GangFacts(**{f.name: copied(getattr(self, f.name)) for f in fields(GangFacts)})
        found.gang = _without_specs(found.gang)
        if found.asked is not None:
            found.asked = replace(found.asked, gang=_without_specs(found.asked.gang))
        return found

    @property
    def due_s(self) -> float | None:
        """Unix seconds of the next Tick; None if the machine only waits for events."""
        return self.backoff.due_s

    def handle(self, events: Iterable[Event], now_s: float) -> list[Instruction]:
        """Process events and return instructions. `now_s`: Unix seconds."""
        events = tuple(events)
        with self._log.handling(self._subject, self, nanoseconds(now_s), [_for_log(x) for x in events]):
            self.out, self.now_s = [], now_s
            self.backoff.begin(now_s)
            for event in events:
                self.apply(event)
            if self.begun and not self.ended:
                self._next()
                if any(isinstance(event, e.Turn) for event in events):
                    self._request_nodes()
        return self.out

    def _request_nodes(self) -> None:
        gang, plan = self.gang, self.plan
        if gang is None or self.asked is not None:
            return
        if plan is not None and self.wants_repair:
            self.asked = e.Repair(gang, plan, self.ranks_to_move(plan), self.bad_nodes)
        elif plan is not None and self.wants_growth:
            self.asked = e.Grow(gang, plan, self.ranks_wanted, self.bad_nodes)
        elif self.wants_place:
            self.asked = e.Place(gang, frozenset(self.refused))
        else:
            return
        self.out.append(self.asked)

    # Next steps

    def _next(self) -> None:
        self.refused = {node: until_s for node, until_s in self.refused.items() if self.now_s < until_s}
        for until_s in self.refused.values():
            self.backoff.wake_at(until_s)
        if self.plan is None and self.may_be_stored:
            self._delete_plan()
        if not self.members.any_alive:
            self._without_pods()
            return
        self.empty_since_s = None
        if self.gang is None and any(pod.gated and pod.is_alive for pod in self.members):
            self._read_owner()
        plan = self.plan
        if plan is None:
            if not self.may_be_stored:
                self._wait_or_adopt()
            return
        self._count_arrived(plan)
        if plan.moves and plan is self.stored and len(self.arrived) == len(plan.nodes):
            plan = self.plan = replace(plan, moves=False)
        if self.clearing:
            self._clear()
        elif plan is not self.stored:
            self._store()
        else:
            for pod in self.members.strays(plan.nodes, bound=plan.moves):
                self._delete(pod)
            self._look_for_stuck()
            if not self.clearing:
                self._open_gates(plan)
                self._look_at_size()

    def _without_pods(self) -> None:
        """Handle a gang without live pods: end it, release its plan, or wait for new pods."""
        if self.plan is None:
            self.ended = not (self.may_be_stored or self.reading)
            return
        if self.empty_since_s is None:
            self.empty_since_s = self.now_s
            self.is_over = False
            self.backoff.forgive("read")
        self._count_arrived(self.plan)
        over_s = self.empty_since_s + (self.linger_s if self.uid or self.plan.moves else 0.0)
        if self.is_over or not self.was_used or self.now_s >= over_s:
            self.drop()
            self._delete_plan()
            return
        self.backoff.wake_at(over_s)
        if self.uid:
            self._read_owner_each(2.0)

    def _wait_or_adopt(self) -> None:
        """Handle a gang without plan. It has none yet, or another client deleted the plan."""
        gang = self.gang
        if gang is None:
            return
        here = self.members.here(gang)
        if self.engaged:
            self._adopt(gang)
        elif here < gang.ready:
            if self.now_s < self.patient_until_s:
                self.backoff.wake_at(self.patient_until_s)
            elif here < (gang.least or gang.ready):
                self.say("Normal", "Waits", f"waits for pods: {here} of {gang.ready} are here", every_s=60.0)
                self._read_owner_each(self.settings.linger_s)
        elif len(self.read_with) < here:
            self._read_owner()  # the pods define best what they need, so read again with all of them

    def _adopt(self, gang: Gang) -> None:
        """Build a plan from the open pods. Ranks without an open pod have no node yet."""
        request = with_ranks(gang.request, 1 + max((rank for rank, _ in self.members.opened()), default=-1))
        nodes = [NOWHERE] * size(request.gang)
        for rank, pod in self.members.opened():
            if rank < len(nodes):
                nodes[rank] = pod.pin
        placement = Placement(tuple(nodes), None, None, Cost(0, (), len(set(nodes)), 0, ()), exact=False)
        self.plan = GangPlan(self.key, self.uid, gang.kind, request, placement)
        self.say(
            "Warning",
            "PlanLost",
            "the plan of this gang was deleted, and the collector rebuilt it from its pods",
        )
        self.reserve(self.plan)
        self._store()

    def _store(self) -> None:
        if self.plan is not None and not self.storing and self.backoff.may("store"):
            self.storing = self.may_be_stored = True
            self.out.append(e.StorePlan(self.plan))

    def _delete_plan(self) -> None:
        if self.may_be_stored and not self.deleting_plan and not self.storing and self.backoff.may("drop"):
            self.deleting_plan = True
            self.out.append(e.DeletePlan())

    def _read_owner(self) -> None:
        if not self.reading and self.backoff.may("read"):
            self.reading = True
            self.read_with = {pod.uid for pod in self.members if pod.gated and pod.is_alive}
            self.out.append(e.ReadOwner())

    def _read_owner_each(self, seconds: float) -> None:
        if self.backoff.may("read again"):
            self.backoff.not_before("read again", seconds)
            self._read_owner()

    # Gates

    def _open_gates(self, plan: GangPlan) -> None:
        """Open each gated pod onto its node. Pods of failed nodes wait for another node."""
        if self.gang is not None:
            self.seat(plan, self.gang)
        lost = False
        ready: list[tuple[Pod, int]] = []
        for uid, rank in self.members.seats.items():
            if uid in self.opening or uid in self.deleting:
                continue
            if uid in self.maybe_open:
                if not self.backoff.has_failed(f"open {uid}"):
                    continue  # it is open, and the watch will confirm it
            elif self.is_bad(plan, rank):
                lost = True
                continue
            elif plan.nodes[rank] in self.down:
                continue
            if self.backoff.may(f"open {uid}"):
                ready.append((self.members.pods[uid], rank))
        if lost and not self.engaged:
            self.drop()  # no gate is open yet, so the whole gang is placed again
            self._delete_plan()
            return
        if not lost:
            self.lost_since_s = None
        elif self.lost_since_s is None:
            self.lost_since_s = self.now_s
        if self.lost_since_s is not None and self.gathers:
            self.backoff.wake_at(self.lost_since_s + self.settings.gather_s)
        if not ready:
            return
        self.was_used = True
        self.opening.update(pod.uid for pod, _ in ready)
        shared = len(plan.nodes), self._coordinator(plan)
        zones = plan.placement.zones or (None,) * len(plan.nodes)
        self.out += [e.Open(pod, rank, plan.nodes[rank], *shared, zones[rank]) for pod, rank in ready]

    def _coordinator(self, plan: GangPlan) -> str:
        """Return the name by which other pods reach rank 0; "" if it has none or its pod is not known."""
        found = ""
        for pod in self.members:
            if self.members.seats.get(pod.uid, pod.rank) == 0:
                found = plan.nodes[0] if pod.host is None else pod.host
                if pod.is_alive:
                    break
        return found

    # Size

    def _look_at_size(self) -> None:
        """Notice the last ranks without a pod, and pods without a rank, of an elastic gang."""
        if self.spare is None:
            self.spare_since_s = None
        else:
            if self.spare_since_s is None:
                self.spare_since_s = self.now_s
            self.backoff.wake_at(self.spare_since_s + self.linger_s)
        if self.plan is None or self.gang is None or not is_elastic(self.plan.request):
            return
        no_rank = (p for p in self.members if p.gated and p.is_alive and p.uid not in self.members.seats)
        if any(no_rank) and self.ranks_wanted <= len(self.plan.nodes):
            self._read_owner_each(_SIZE_S)

    # Failures

    def _look_for_stuck(self) -> None:
        """Find pods that the scheduler cannot place on their nodes, and delete them or restart the gang."""
        unbound = [pod for _, pod in self.members.opened() if not pod.node]
        first_s = self.settings.replace_after_s
        patience_s = doubled_s(1 + self.replaced, first_s, 16 * first_s)
        stuck: list[Pod] = []
        for pod in unbound:
            if pod.stuck_since_s is not None and pod.uid not in self.deleting:
                if self.now_s >= pod.stuck_since_s + patience_s:
                    stuck.append(pod)
                else:
                    self.backoff.wake_at(pod.stuck_since_s + patience_s)
        if not stuck:
            return
        part, first = self.members.any_bound, stuck[0]
        if not all(pod.owned for pod in (stuck if part else unbound)):
            what = f"pod {first.name} cannot be scheduled on {first.pin}, and no controller recreates it"
            self.say("Warning", "Stuck", f"{what}: delete it and create it again", every_s=600.0)
            return
        for pod in stuck:
            self.refused[pod.pin] = self.now_s + self.settings.refused_s
        self.replaced += 1
        what = f"{count(len(stuck), 'pod')} cannot be scheduled on their nodes ({first.name} on {first.pin})"
        if part:
            self.say("Warning", "Replaces", f"{what}: the collector places them on other nodes")
            for pod in stuck:
                self._delete(pod)
        else:
            self.say("Warning", "Replaces", f"{what}: the collector places the whole gang again")
            self.clearing = True
            self._clear()

    def _clear(self) -> None:
        """Delete all open pods while none is bound. Then the gang is placed again."""
        if self.members.any_bound:
            self.clearing = False  # a pod was bound first: the plan stays, and deleted pods return
            return
        if self.opening:
            return
        left = [p for p in self.members if (p.is_open and not p.failed) or p.uid in self.maybe_open]
        for pod in left:
            if pod.is_alive:
                self._delete(pod)
        if not left:
            self.drop()
            self._delete_plan()

    def _delete(self, pod: Pod) -> None:
        if pod.owned and pod.uid not in self.deleting and self.backoff.may(f"delete {pod.uid}"):
            self.deleting.add(pod.uid)
            self.out.append(e.DeletePod(pod))

    # Reservations

    def _count_arrived(self, plan: GangPlan) -> None:
        if not self.has_reservation:
            return
        now = self.members.arrived(plan.nodes)
        if came := now - self.arrived:
            self.out.append(e.Arrive(tuple(sorted(came))))
        if went := self.arrived - now:
            self.out.append(e.Depart(plan, tuple(sorted(went))))
        self.arrived = now


def _for_log(event: Event) -> Event:
    """Return an event without pod specs, which may contain secrets."""
    return replace(event, gang=_without_specs(event.gang)) if isinstance(event, e.OwnerRead) else event


def _without_specs(gang: Gang | None) -> Any:
    return None if gang is None else replace(gang, templates={})
