"""The gate controller: watches pods, feeds the state machines of gangs, and executes their instructions.

    pods, nodes -> free resources -> Placements
    gated pods -> GangMachine -> place, store the plan, open gates

It runs in the leader only. A new leader starts from the pods and the stored plans. Gangs request nodes in the
order of their arrival. A gang that does not fit waits without blocking later gangs that fit. It is tried
again, before all later gangs, each time resources become free.

An exception in a gang's state machine, or in executing its instructions, parks that gang; other gangs
continue. The pause doubles each time. After it, the gang restarts from its pods and its stored plan, as after
a restart of the collector.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from random import Random
from typing import Any, Literal

from hyperscout_kubernetes.client import Kube, Object, RateLimit
from hyperscout_kubernetes.errors import KubeError
from hyperscout_kubernetes.nodes import Nodes, why_down
from hyperscout_kubernetes.reflector import Reflector, by_namespace
from hyperscout_placer.book.placements import Held, NotReadyError, Placements
from hyperscout_placer.cluster.forest import Forest
from hyperscout_runtime.errors import described

from hyperscout_gates.control.announcer import Announcer
from hyperscout_gates.control.asking import Asking
from hyperscout_gates.control.entry import FIRST_PARK_S, Entry
from hyperscout_gates.control.owners import Owners, about, about_pod
from hyperscout_gates.control.pods import PATH, is_ours, keep, seen
from hyperscout_gates.control.writer import Writer
from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang import GangError
from hyperscout_gates.state.machine import GangMachine, GateSettings
from hyperscout_gates.state.plan import Plan
from hyperscout_gates.workloads.node_resources import Room
from hyperscout_gates.workloads.workloads import gang_key, run_of

_log = logging.getLogger(__name__)

# Patches of pods are the purpose of this controller. The server limits them itself with status 429.
_WRITES_PER_S, _BURST = 2000.0, 4000
_EVENTS_PER_S, _EVENTS_BURST = 10.0, 50
_TICK_S = 0.5
_GATHER_S = 0.005  # events within this time are handled together
_PLACE_FOR_S = 0.02  # then the event loop runs other tasks
_LONG_S = 10 * _PLACE_FOR_S
_RETRY_S = 2.0
_PARK_MOST_S = 600.0
_SHOWN = 5  # number of parked gangs to list as problems

Mode = Literal["dry-run", "on"]


class Gates:
    """The gate controller. `services` run until cancelled. `say` prints the results of a dry run."""

    def __init__(
        self,
        kube: Kube,
        nodes: Nodes,
        namespace: str,
        mode: Mode,
        settings: GateSettings,
        say: Callable[[str], None],
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        timer: Callable[[], float] = time.monotonic,
        rng: Random,
    ) -> None:
        self._no_plans: str | None = None
        self._nodes = nodes
        self._settings = settings
        self._dry_run = mode == "dry-run"
        self._say = say
        self._said: dict[str, str] = {}
        self._clock_ns = clock_ns
        self._timer = timer
        self._room = Room()
        fast = kube.paced(RateLimit(_WRITES_PER_S, _BURST, clock=timer))
        slow = kube.paced(RateLimit(_EVENTS_PER_S, _EVENTS_BURST, clock=timer))
        self.pods = Reflector(kube, PATH, keep=keep, changed=self._pod_changed, key=by_namespace, rng=rng)
        self._writer = Writer(fast, namespace, self._written, self.pods.learn, self._now_s)
        self._owners = Owners(kube, lambda: self._asking.forest, timer)
        self._announcer = Announcer(slow, clock_ns=clock_ns)
        self._entries: dict[Entry, None] = {}
        self._wanting: dict[Entry, None] = {}  # gangs that request nodes
        self._by_key: dict[str, list[Entry]] = {}
        self._by_pod: dict[str, Entry] = {}
        self._dirty: deque[Entry] = deque()
        self._flush_due: asyncio.TimerHandle | None = None
        self._begun = False
        self._defect: Exception | None = None
        self._grown = 0  # incremented when resources may have become free
        self._changed_nodes: set[str] = set()  # nodes with changed free resources since the last flush
        self._told: dict[str, Mapping[str, int]] = {}  # free resources by node, as reported to placements
        self._forest: Forest | None = None
        self._turns = asyncio.Event()
        self._reading: set[asyncio.Task[None]] = set()

    def book(self, placements: Placements) -> None:
        """Set where reservations are kept. Call it before any service runs."""
        self._placements = placements
        self._asking = Asking(placements, self._nodes.get, self._clock_ns)
        placements.follow(self._held_changed)

    @property
    def services(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        return {
            "pod-watch": self.pods.run,
            "gates": self.run,
            "gate-writes": self._writer.run,
            "gate-turns": self._give_turns,
            "gate-events": self._announcer.run,
        }

    @property
    def problems(self) -> list[str]:
        """Why gangs may wait indefinitely."""
        not_followed = self.pods.problem and f"pods are not followed: {self.pods.problem}"
        found = [problem for problem in (not_followed, self._no_plans) if problem]
        parked = [x for x in self._entries if x.parked_until_s is not None]
        found += [f"gang {x.machine.key} is parked: {x.problem}" for x in parked[:_SHOWN]]
        if len(parked) > _SHOWN:
            found.append(f"{len(parked) - _SHOWN} more gangs are parked")
        return found

    # Start

    async def run(self) -> None:
        """Wait for pods, nodes and stored plans, then handle time-outs. Raises an exception of `_flush`."""
        await self.pods.synced.wait()
        await self._nodes.reflector.synced.wait()
        plans = [] if self._dry_run else await self._stored()
        self._told = dict(self._room.all())
        self._placements.set_room(self._told)
        self._changed_nodes.clear()
        self._begin(plans)
        while self._defect is None:
            await asyncio.sleep(_TICK_S)
            self._tick()
        raise self._defect

    async def _stored(self) -> list[Plan]:
        while True:
            try:
                plans = await self._writer.plans()
            except KubeError as error:
                if self._no_plans is None:
                    _log.warning("stored plans of gangs cannot be read, and no gate opens: %s", error)
                self._no_plans = f"stored plans of gangs cannot be read, and no gate opens: {error}"
                await asyncio.sleep(max(_RETRY_S, error.retry_after_s))
            else:
                self._no_plans = None
                return plans

    def _begin(self, plans: Iterable[Plan]) -> None:
        """Start all gangs. Those with stored plans reserve their nodes before any other gang is placed."""
        for plan in plans:
            self._enter(GangMachine(plan.key, plan.uid, self._settings, plan))
        with_plans = list(self._entries)
        for pod in self.pods:
            if is_ours(pod):
                self._feed(pod, begins=False)
        self._begun = True
        for entry in self._entries:  # entries with plans come first
            self._look_at_nodes(entry)
            self._tell(entry, e.Began())
        self._flush()
        if with_plans:
            _log.info("%d stored plans of gangs", len(with_plans))

    def _enter(self, machine: GangMachine) -> Entry:
        entry = Entry(machine, machine.stored)
        self._entries[entry] = None
        self._by_key.setdefault(machine.key, []).append(entry)
        return entry

    # Changes of pods, nodes and free resources

    def _pod_changed(self, key: str, before: Object | None, after: Object | None) -> None:
        self._room_changed(self._room.pod(before, after))
        if not self._begun:
            return
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            uid = before["metadata"]["uid"]
            if (entry := self._by_pod.pop(uid, None)) is not None:
                entry.pods.pop(uid, None)
                self._tell(entry, e.PodGone(uid))
        if after is not None and is_ours(after):
            self._feed(after, begins=True)

    def _feed(self, kept: Object, *, begins: bool) -> None:
        """Pass a pod to its gang's state machine. The first pod that is alive creates the machine."""
        uid = kept["metadata"]["uid"]
        try:
            pod = seen(kept)
            entry = self._by_pod.get(uid) or self._entry_for(gang_key(kept), run_of(kept), pod, begins)
        except GangError as error:
            if kept["gate"]["gated"]:
                self._complain(kept, str(error))
            return
        except Exception as error:
            _log.debug("pod %s cannot be read", uid, exc_info=error)
            self._complain(kept, f"pod {kept['metadata']['name']} cannot be read: {described(error)}")
            return
        if entry is not None:
            self._by_pod[uid] = entry
            entry.pods[uid] = kept
            self._tell(entry, e.PodSeen(pod))

    def _entry_for(self, key: str, run: str, pod: e.Pod, begins: bool) -> Entry | None:
        """Return the gang of a pod, created if needed; None if there is none to create.

        Some pods do not carry the uid of their owner (`run` is ""). They match any run of the owner.
        """
        for entry in reversed(self._by_key.get(key, ())):
            if not run or not entry.machine.uid or entry.machine.uid == run:
                return entry
        if not pod.is_alive and begins:
            return None
        entry = self._enter(GangMachine(key, run, self._settings))
        if begins:
            self._tell(entry, e.Began())
        return entry

    def node_changed(self, before: Object | None, after: Object | None) -> None:
        """Handle a node, in its stored form, that appeared, changed or disappeared."""
        self._room_changed(self._room.node(before, after))
        if not self._begun:
            return
        self._asking.nodes_changed()
        self._more_room()
        was = before is None or why_down(before) is not None
        is_down = after is None or why_down(after) is not None
        if was != is_down:
            for entry in self._entries:
                self._look_at_nodes(entry)

    def _look_at_nodes(self, entry: Entry) -> None:
        """Determine which nodes of the gang's plan accept no pods now, and report a change to its machine."""
        plan = entry.machine.plan
        names = set(plan.nodes) if plan is not None else ()
        down = frozenset(name for name in names if self._is_down(name))
        if down != entry.down:
            entry.down = down
            self._tell(entry, e.NodesDown(down))

    def _is_down(self, name: str) -> bool:
        node = self._nodes.get(name)
        return node is None or why_down(node) is not None

    def _room_changed(self, nodes: Collection[str]) -> None:
        if nodes and self._begun:
            self._changed_nodes.update(nodes)
            self._flush_soon()

    def _tell_room(self) -> None:
        """Report changed free resources to the placements.

        It runs after the machines, so that the reservation of a pod that has arrived ends before the free
        resources reduced by that pod are reported.
        """
        grown = False
        for node in self._changed_nodes:
            room = self._room.of(node)
            before = self._told.get(node, {})
            if room is None:
                self._told.pop(node, None)
            else:
                self._told[node] = room
                grown = grown or any(amount > before.get(name, 0) for name, amount in room.items())
            self._placements.set_room_of(node, room)
        self._changed_nodes.clear()
        if grown:
            self._more_room()

    def _more_room(self) -> None:
        self._grown += 1
        self._turns.set()

    def _held_changed(self, gang: str, held: Held | None) -> None:
        if held is None:
            self._more_room()

    def _tick(self) -> None:
        now_s = self._now_s()
        for entry in list(self._entries):
            if entry.parked_until_s is not None:
                if entry.parked_until_s <= now_s and not entry.writes:
                    self._begin_anew(entry)
                continue
            due_s = entry.machine.due_s
            if due_s is not None and due_s <= now_s:
                entry.refused_at = -1
                self._tell(entry, e.Tick())
        try:
            forest = self._asking.forest
        except NotReadyError:
            return
        if forest is self._forest:
            return
        before, self._forest = self._forest, forest
        if before is None or _tiers(before) != _tiers(forest):
            for entry in self._entries:
                self._tell(entry, e.OwnerStale())
        self._more_room()

    # State machines

    def _tell(self, entry: Entry, event: e.Event) -> None:
        if not entry.events:
            self._dirty.append(entry)
        entry.events.append(event)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flush_due is None:
            self._flush_due = asyncio.get_running_loop().call_later(_GATHER_S, self._flush)

    def _flush(self) -> None:
        self._flush_due = None
        try:
            while self._dirty:
                self._handle(self._dirty.popleft())
            self._tell_room()
        except Exception as defect:  # the event loop would only log it; `run` raises it instead
            self._defect = defect

    def _handle(self, entry: Entry) -> None:
        machine = entry.machine
        found, entry.events = entry.events, []
        if entry.left or entry.parked_until_s is not None:
            return
        try:
            before = machine.plan
            for instruction in machine.handle(found, self._now_s()):
                self._do(entry, instruction)
            if machine.plan is not before and machine.plan is not None:
                self._look_at_nodes(entry)
            if machine.ended:
                self._leave(entry)
            elif not machine.wants_nodes:
                self._wanting.pop(entry, None)
            else:
                self._wanting[entry] = None
                if entry.refused_at != self._grown:
                    self._turns.set()
        except Exception as error:
            self._park(entry, error)

    def _park(self, entry: Entry, error: Exception) -> None:
        """Suspend a gang for a while. Its reservation remains."""
        if entry.left:
            _log.error("%s has ended: %s", entry.machine.key, described(error), exc_info=error)
            return
        now_s = self._now_s()
        if now_s >= entry.begun_s + _PARK_MOST_S:
            entry.park_s = FIRST_PARK_S
        entry.problem = described(error)
        entry.parked_until_s = now_s + entry.park_s
        entry.events.clear()
        self._wanting.pop(entry, None)
        _log.error("%s is parked for %g s", entry.machine.key, entry.park_s, exc_info=error)
        entry.park_s = min(2 * entry.park_s, _PARK_MOST_S)
        said = e.Say("Warning", "Parked", f"parked, and tried again later: {entry.problem}")
        try:
            self._announce(entry, said)
        except Exception:
            _log.exception("%s: no Event is written", entry.machine.key)

    def _begin_anew(self, entry: Entry) -> None:
        """Restart a parked gang from its pods and its stored plan, as after a start of the collector."""
        old = entry.machine
        entry.machine = GangMachine(old.key, old.uid, self._settings, entry.stored)
        entry.parked_until_s, entry.begun_s = None, self._now_s()
        entry.refused_at, entry.down = -1, frozenset()
        # The new machine makes a reservation for its open pods, so the old one must be released first.
        held = self._placements.get(entry.name) if entry.name else None
        if held is not None:
            self._placements.release(held.gang)
        entry.events.clear()
        try:
            entry.events += [e.PodSeen(seen(kept)) for kept in entry.pods.values()]
            self._look_at_nodes(entry)
            entry.events.append(e.Began())
        except Exception as error:
            self._park(entry, error)
        self._handle(entry)
        if entry.parked_until_s is not None and held is not None and self._placements.get(held.gang) is None:
            self._placements.restore(held)

    def _leave(self, entry: Entry) -> None:
        entry.left = True
        del self._entries[entry]
        self._wanting.pop(entry, None)
        others = self._by_key[entry.machine.key]
        others.remove(entry)
        if not others:
            del self._by_key[entry.machine.key]
        for uid in entry.pods:
            self._by_pod.pop(uid, None)
        self._said.pop(entry.machine.key, None)
        for kept in entry.pods.values():  # a pod that arrived at the same moment starts a new gang
            if "deletionTimestamp" not in kept["metadata"]:
                self._feed(kept, begins=True)

    def _do(self, entry: Entry, instruction: e.Instruction) -> None:
        asking = self._asking
        if isinstance(instruction, e.Place | e.Repair):
            self._ask(entry, instruction)
        elif isinstance(instruction, e.Hold):
            entry.name = asking.name_for(entry.machine.key, entry.machine.uid)
            asking.hold(entry.name, instruction)
        elif isinstance(instruction, e.Arrive):
            asking.arrive(entry.name, instruction.ranks)
        elif isinstance(instruction, e.Depart):
            asking.depart(entry.name, instruction)
        elif isinstance(instruction, e.Release):
            asking.release(entry.name)
            entry.name = ""
        elif isinstance(instruction, e.ReadOwner):
            task = asyncio.get_running_loop().create_task(self._read(entry))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        elif isinstance(instruction, e.Say):
            self._announce(entry, instruction)
        elif not self._dry_run:
            entry.writes += 1
            self._writer.put(entry, instruction)

    def _written(self, entry: Entry, answer: e.Event) -> None:
        entry.writes -= 1
        if isinstance(answer, e.PlanStored):
            entry.stored = answer.plan
        elif isinstance(answer, e.PlanDeleted):
            entry.stored = None
        self._tell(entry, answer)

    async def _read(self, entry: Entry) -> None:
        machine = entry.machine
        try:
            answer = await self._owners.read(list(entry.pods.values()), machine.uid)
        except Exception as error:
            self._park(entry, error)
        else:
            self._tell(entry, answer)

    # Turns

    async def _give_turns(self) -> None:
        """Give each waiting gang its turn: gangs with lost nodes first, then in the order of arrival."""
        while True:
            await self._turns.wait()
            self._turns.clear()
            waiting = list(self._wanting)
            waiting.sort(key=lambda x: (x.machine.plan is None, x.machine.waits_since_s, x.machine.key))
            began_s = self._timer()
            for entry in waiting:
                if entry.refused_at != self._grown and entry in self._wanting:
                    entry.events.append(e.Turn())
                    self._handle(entry)
                    if entry.events:
                        self._handle(entry)  # handles the response
                if (took_s := self._timer() - began_s) >= _PLACE_FOR_S:
                    # A gang with many roles takes up to a second. The Lease must be renewed between gangs.
                    await asyncio.sleep(took_s if took_s > _LONG_S else 0)
                    began_s = self._timer()

    def _ask(self, entry: Entry, asked: e.Place | e.Repair) -> None:
        if isinstance(asked, e.Repair):
            answer = self._asking.repair(entry.name, asked)
        else:
            entry.name = self._asking.name_for(entry.machine.key, entry.machine.uid)
            answer = self._asking.place(entry.name, asked, dry_run=self._dry_run)
            if self._dry_run and isinstance(answer, e.Placed):
                self._show(entry, answer)
                answer = e.NotPlaced("this is a dry run")
            if isinstance(answer, e.NotPlaced):
                entry.name = ""
        if isinstance(answer, e.NotPlaced):
            entry.refused_at = self._grown
        entry.events.append(answer)

    def _show(self, entry: Entry, answer: e.Placed) -> None:
        """Print what a dry run would do. A gang's unchanged result is printed once."""
        nodes = answer.placement.nodes
        shown = ", ".join(f"{rank} on {node}" for rank, node in enumerate(nodes[:20]))
        more = f" and {len(nodes) - 20} more" if len(nodes) > 20 else ""
        text = f"would place {entry.machine.key}: {shown}{more}\n"
        if self._said.get(entry.machine.key) != text:
            self._said[entry.machine.key] = text
            self._say(text)

    def _announce(self, entry: Entry, said: e.Say) -> None:
        _log.info("%s: %s", entry.machine.key, said.message)
        if self._dry_run or not entry.pods:
            return
        first = min(entry.pods.values(), key=lambda pod: str(pod["metadata"]["name"]))
        owner, pod = about(first), about_pod(first)
        self._announcer.say(owner, said.severity, said.reason, said.message)
        if owner != pod and said.reason != "Placed":
            self._announcer.say(pod, said.severity, said.reason, said.message)

    def _complain(self, kept: Object, problem: str) -> None:
        """Report a gated pod that belongs to no gang."""
        uid = kept["metadata"]["uid"]
        if self._said.get(uid) == problem:
            return
        if len(self._said) > 10_000:
            self._said.clear()
        self._said[uid] = problem
        _log.warning("%s", problem)
        if not self._dry_run:
            self._announcer.say(about_pod(kept), "Warning", "NoGang", problem)

    def _now_s(self) -> float:
        return self._clock_ns() / 1e9


def _tiers(forest: Forest) -> tuple[str, ...]:
    return tuple(layer.tier_name for layer in forest.layers)
