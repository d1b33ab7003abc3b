"""The gate controller: watches pods, feeds the state machines of gangs, and executes their instructions.

    pods, nodes -> free resources -> Placements
    gated pods -> GangMachine -> place, store the plan, open gates

It runs in the leader only. A new leader starts from the pods and the stored plans. Gangs request nodes by
priority and arrival. A gang that does not fit waits, and later gangs that fit pass it. It is tried again,
before them, each time resources become free. `Draining` keeps a domain for the first that has waited long.

An exception in a gang's state machine, or in executing its instructions, parks that gang; other gangs
continue. The pause doubles each time. After it, the gang restarts from its pods and its stored plan, as after
a restart of the collector.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable
from random import Random
from typing import Any, Literal

from hyperscout_kubernetes.client import Kube, Object, RateLimit
from hyperscout_kubernetes.event_recorder import EventRecorder
from hyperscout_kubernetes.nodes import Nodes, why_down
from hyperscout_kubernetes.reflector import Reflector, by_namespace
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import NotReadyError, Reservation
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_runtime.errors import described
from hyperscout_runtime.event_log import EventLog
from hyperscout_runtime.event_loops import Debouncer
from hyperscout_runtime.units import NS

from hyperscout_gates.control.free_report import FreeReport
from hyperscout_gates.control.gang_record import GangRecord, GangRecords
from hyperscout_gates.control.mover import Mover
from hyperscout_gates.control.owners import Owners
from hyperscout_gates.control.placement_requests import PlacementRequests
from hyperscout_gates.control.pods import PATH, is_ours, keep, seen
from hyperscout_gates.control.queue import Queue
from hyperscout_gates.control.reports import Reports
from hyperscout_gates.control.writer import GangWriter
from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang import GangError
from hyperscout_gates.state.gang_plan import GangPlan
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_gates.state.machine import GangMachine
from hyperscout_gates.workloads.membership import membership

_log = logging.getLogger(__name__)

# Patches of pods are the purpose of this controller. The server limits them itself with status 429.
_WRITES_PER_S, _BURST = 2000.0, 4000
_EVENTS_PER_S, _EVENTS_BURST = 10.0, 50
_TICK_S = 0.5
_GATHER_S = 0.005  # events within this time are handled together

Mode = Literal["dry-run", "on"]


class Gates:
    """The gate controller. `services` run until cancelled.

    `say` prints the results of a dry run. `log` receives the events of the gangs' state machines.
    """

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        namespace: str,
        mode: Mode,
        settings: GateSettings,
        say: Callable[[str], None],
        placements: Placements,
        masks: NodeMasks,
        log: EventLog,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        timer: Callable[[], float] = time.monotonic,
        rng: Random,
    ) -> None:
        self._log = log
        self._nodes = nodes
        self._settings = settings
        self._dry_run = mode == "dry-run"
        self._clock_ns = clock_ns
        self._free = FreeReport()
        fast = kube.paced(RateLimit(_WRITES_PER_S, _BURST, clock=timer))
        slow = kube.paced(RateLimit(_EVENTS_PER_S, _EVENTS_BURST, clock=timer))
        self.pods = Reflector(kube, PATH, keep=keep, changed=self._pod_changed, key=by_namespace, rng=rng)
        labelled_by = placements if settings.pod_labels else None
        self._writer = GangWriter(fast, namespace, self._written, self.pods.learn, clock_ns, labelled_by)
        self._placements = placements
        self._requests = PlacementRequests(placements, masks, clock_ns)
        self._owners = Owners(kube, self._requests.forest, timer)
        self._recorder = EventRecorder(slow, clock_ns=clock_ns)
        self._reports = Reports(self._recorder, say, dry_run=self._dry_run)
        records = self._records = GangRecords()
        self._mover = Mover(settings.degradation, self._requests, self._reports, self._tell, self._now_s)
        self._dirty: deque[GangRecord] = deque()
        self._flush_soon = Debouncer(self._flush, _GATHER_S)
        self._begun = False
        self._defect: Exception | None = None
        self._forest: Forest | None = None
        self._tiers: list[str] | None = None
        self.queue = Queue(
            placements, self._requests, records, settings, self._reports, self._give_turn, clock_ns, timer
        )
        self._turns = self.queue.turns
        self._reading: set[asyncio.Task[None]] = set()
        placements.changed.subscribe(self._reservation_changed)
        placements.zones_freed.subscribe(self._turns.more_free)

    @property
    def services(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        return {
            "pod-watch": self.pods.run,
            "gates": self.run,
            "gate-writes": self._writer.run,
            "gate-moves": self._mover.run,
            "gate-events": self._recorder.run,
            **self.queue.services,
        }

    @property
    def problems(self) -> list[str]:
        """Why gangs may wait indefinitely."""
        not_followed = self.pods.problem and f"pods are not followed: {self.pods.problem}"
        return [x for x in (not_followed, self._writer.problem) if x] + self._records.problems

    # Start

    async def run(self) -> None:
        """Wait for pods, nodes and stored plans, then handle time-outs. Raises an exception of `_flush`."""
        await self.pods.synced.wait()
        await self._nodes.reflector.synced.wait()
        plans = [] if self._dry_run else await self._writer.stored_plans()
        self._free.report_all(self._placements)
        self._begin(plans)
        while self._defect is None:
            await asyncio.sleep(_TICK_S)
            self._tick()
        raise self._defect

    def _begin(self, plans: Iterable[GangPlan]) -> None:
        """Start all gangs. Those with stored plans reserve their nodes before any other gang is placed."""
        for plan in plans:
            self._records.add(GangMachine(plan.key, plan.uid, self._settings, plan, self._log))
        for pod in self.pods:
            if is_ours(pod):
                self._feed(pod, begins=False)
        self._begun = True
        self._turns.begin(self._records)
        for record in self._records:  # those with plans come first
            self._look_at_nodes(record)
            self._tell(record, e.Began())
        self._flush()

    # Changes of pods, nodes and free resources

    def _pod_changed(self, key: str, before: Object | None, after: Object | None) -> None:
        self._free_changed(self._free.resources.pod(before, after))
        if not self._begun:
            return
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            uid = before["metadata"]["uid"]
            if (record := self._records.by_pod.pop(uid, None)) is not None:
                record.pods.pop(uid, None)
                self._tell(record, e.PodGone(uid))
        if after is not None and is_ours(after):
            self._feed(after, begins=True)

    def _feed(self, kept: Object, *, begins: bool) -> None:
        """Pass a pod to its gang's state machine. The first pod that is alive creates the machine."""
        uid = kept["metadata"]["uid"]
        try:
            pod = seen(kept)
            record = self._records.by_pod.get(uid) or self._record_for(kept, pod, begins)
        except GangError as error:
            if kept["gate"]["gated"]:
                self._reports.complain(kept, str(error))
            return
        except Exception as error:
            _log.debug("pod %s cannot be read", uid, exc_info=error)
            self._reports.complain(kept, f"pod {kept['metadata']['name']} cannot be read: {described(error)}")
            return
        if record is not None:
            self._records.by_pod[uid] = record
            record.pods[uid] = kept
            self._tell(record, e.PodSeen(pod))

    def _record_for(self, kept: Object, pod: e.Pod, begins: bool) -> GangRecord | None:
        """Return the gang of a pod, created if needed; None if there is none to create. Raises GangError."""
        member = membership(kept)
        if (record := self._records.find(member.key, member.run)) is not None:
            return record
        if not pod.is_alive and begins:
            return None
        record = self._records.add(GangMachine(member.key, member.run, self._settings, log=self._log))
        if begins:
            self._tell(record, e.Began())
        return record

    def node_changed(self, before: Object | None, after: Object | None) -> None:
        """Handle a node, in its stored form, that appeared, changed or disappeared."""
        self._free_changed(self._free.resources.node(before, after))
        if not self._begun:
            return
        self._turns.more_free()
        was = before is None or why_down(before) is not None
        is_down = after is None or why_down(after) is not None
        if was != is_down:
            for record in self._records:
                self._look_at_nodes(record)

    def _look_at_nodes(self, record: GangRecord) -> None:
        """Determine which nodes of the gang's plan accept no pods now, and report a change to its machine."""
        plan = record.machine.plan
        names = set(plan.nodes) if plan is not None else ()
        down = frozenset(x for x in names if (node := self._nodes.get(x)) is None or why_down(node))
        if down != record.down:
            record.down = down
            self._tell(record, e.NodesDown(down))

    def _free_changed(self, nodes: Collection[str]) -> None:
        if nodes and self._begun:
            self._free.changed.update(nodes)
            self._flush_soon()

    def _reservation_changed(self, gang: str, held: Reservation | None) -> None:
        if held is None:
            self._turns.more_free()

    def _tick(self) -> None:
        now_s = self._now_s()
        self._mover.look(self._records)
        for record in list(self._records):
            if record.parked_until_s is not None:
                if record.parked_until_s <= now_s and not record.writes:
                    self._begin_anew(record)
                continue
            due_s = record.machine.due_s
            if due_s is not None and due_s <= now_s:
                record.refused_at = -1
                self._tell(record, e.Tick())
        self._turns.look()
        try:
            forest = self._requests.forest()
        except NotReadyError:
            return
        if forest is self._forest:
            return
        self._forest = forest
        tiers = [layer.tier_name for layer in forest.layers]
        if tiers != self._tiers:
            self._tiers = tiers
            for record in self._records:
                self._tell(record, e.OwnerStale())
        self._turns.more_free()

    # State machines

    def _tell(self, record: GangRecord, event: e.Event) -> None:
        if not record.events:
            self._dirty.append(record)
        record.events.append(event)
        self._flush_soon()

    def _flush(self) -> None:
        try:
            while self._dirty:
                self._handle(self._dirty.popleft())
            # After the machines: the reservation of a pod that has arrived ends before the placements learn
            # of the resources that this pod uses.
            if self._free.report(self._placements):
                self._turns.more_free()
        except Exception as defect:  # the event loop would only log it; `run` raises it instead
            self._defect = defect

    def _handle(self, record: GangRecord) -> None:
        machine = record.machine
        found, record.events = record.events, []
        if record.left or record.parked_until_s is not None:
            return
        try:
            before = machine.plan
            for instruction in machine.handle(found, self._now_s()):
                self._do(record, instruction)
            if machine.plan is not before and machine.plan is not None:
                self._look_at_nodes(record)
            if machine.ended:
                self._leave(record)
            elif machine.wants_nodes:
                self._turns.wait(record)
            else:
                self._turns.discard(record)
        except Exception as error:
            self._park(record, error)

    def _park(self, record: GangRecord, error: Exception) -> None:
        """Suspend a gang for a while. Its reservation remains."""
        if record.left:
            _log.error("%s has ended: %s", record.machine.key, described(error), exc_info=error)
            return
        paused_s = record.park(described(error), self._now_s())
        self._turns.discard(record)
        _log.error("%s is parked for %g s", record.machine.key, paused_s, exc_info=error)
        said = e.Say("Warning", "Parked", f"parked, and tried again later: {record.problem}")
        try:
            self._reports.announce(record, said)
        except Exception:
            _log.exception("%s: no Event is written", record.machine.key)

    def _begin_anew(self, record: GangRecord) -> None:
        """Restart a parked gang from its pods and its stored plan, as after a start of the collector."""
        record.begin_anew(self._settings, self._log, self._now_s())
        # The new machine makes a reservation for its open pods, so the old one must be released first.
        held = self._placements.get(record.name) if record.name else None
        if held is not None:
            self._placements.release(held.gang)
        record.events.clear()
        try:
            record.events += [e.PodSeen(seen(kept)) for kept in record.pods.values()]
            self._look_at_nodes(record)
            record.events.append(e.Began())
        except Exception as error:
            self._park(record, error)
        self._handle(record)
        if record.parked_until_s is not None and held is not None and self._placements.get(held.gang) is None:
            self._placements.restore(held)

    def _leave(self, record: GangRecord) -> None:
        record.left = True
        self._records.remove(record)
        self._turns.discard(record)
        self._reports.forget(record)
        for kept in record.pods.values():  # a pod that arrived at the same moment starts a new gang
            if "deletionTimestamp" not in kept["metadata"]:
                self._feed(kept, begins=True)

    def _do(self, record: GangRecord, instruction: e.Instruction) -> None:
        if isinstance(instruction, e.Place | e.Repair | e.Grow):
            self._ask(record, instruction)
        elif isinstance(instruction, e.Hold | e.Arrive | e.Depart | e.Shrink | e.Release):
            record.name = self._requests.update(record.name, instruction)
        elif isinstance(instruction, e.ReadOwner):
            task = asyncio.get_running_loop().create_task(self._read(record))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        elif isinstance(instruction, e.Say):
            self._reports.announce(record, instruction)
        elif not self._dry_run:
            record.writes += 1
            self._writer.put(record, instruction)

    def _written(self, record: GangRecord, answer: e.Event) -> None:
        record.writes -= 1
        if isinstance(answer, e.PlanStored | e.PlanDeleted):
            record.stored = answer.plan if isinstance(answer, e.PlanStored) else None
        self._tell(record, answer)

    async def _read(self, record: GangRecord) -> None:
        try:
            answer = await self._owners.read(list(record.pods.values()), record.machine.uid)
        except Exception as error:
            self._park(record, error)
        else:
            self._tell(record, answer)

    def _give_turn(self, record: GangRecord) -> None:
        record.events.append(e.Turn())
        self._handle(record)
        if record.events:
            self._handle(record)  # handles the response

    def _ask(self, record: GangRecord, asked: e.Place | e.Repair | e.Grow) -> None:
        if isinstance(asked, e.Repair):
            answer = self._requests.repair(record.name, asked)
        elif isinstance(asked, e.Grow):
            answer = self._requests.grow(record.name, asked)
        else:
            record.name = self._requests.name_for(record.machine.key, record.machine.uid)
            on_kept = self.queue.draining.may_use_kept(record)
            answer = self._requests.place(
                record.name, asked, record.machine.priority, dry_run=self._dry_run, on_kept=on_kept
            )
            if self._dry_run and isinstance(answer, e.Placed):
                self._reports.show(record, answer)
                answer = e.NotPlaced("this is a dry run")
            if isinstance(answer, e.NotPlaced):
                record.name = ""
        if isinstance(answer, e.NotPlaced):
            self._turns.refused(record, answer.reason)
        record.events.append(answer)

    def _now_s(self) -> float:
        return self._clock_ns() / NS
