"""A cluster in memory for the state machines of gangs: API server, owners, scheduler, kubelets and a placer.

Everything may come late, fail with or without effect, or be lost with the collector. What must always hold
is judged at every write.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from hyperscout_gates.state import events as e
from hyperscout_gates.state.events import Pod
from hyperscout_gates.state.gang import Gang, is_elastic, with_ranks
from hyperscout_gates.state.gang_plan import GangPlan, from_object, to_object
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_gates.state.machine import GangMachine
from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_placer.cluster.request import Group, Range, Request, Workers, size
from hyperscout_runtime.event_log import EventLog

SETTINGS = GateSettings(replace_after_s=60.0)


def gang_of(
    name: str, size: int, *, ready: int | None = None, seats: bool = True, least: int | None = None
) -> Gang:
    """A Job, or (without seats) plain pods of a label. `least`: pods that are enough."""
    elastic = None if least is None else Range(least, size)
    request = Request(Group(1, (Workers(size, elastic=elastic),)))
    ranks = {f"worker/{i}": i for i in range(size)}
    uid = f"uid-{name}" if seats else ""
    kind = "Job" if seats else "Gang"
    return Gang(f"ns/{kind}/{name}", kind, uid, request, ranks, {}, ready or size, least or 0)


@dataclass(slots=True)
class Job:
    """What makes a gang's pods, and makes them again."""

    gang: Gang
    is_over: bool = False
    makes: bool = True
    made: int = 0


@dataclass(slots=True)
class World:
    """`nodes`: workers that each takes. `sick`: where the scheduler finds no place, whatever the room."""

    nodes: dict[str, int]
    now_s: float = 1000.0
    jobs: dict[str, Job] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)  # on the server
    gang_by_pod: dict[str, str] = field(default_factory=dict)
    plans: dict[str, GangPlan] = field(default_factory=dict)  # on the server
    down: set[str] = field(default_factory=set)
    sick: set[str] = field(default_factory=set)
    machines: dict[str, GangMachine] = field(default_factory=dict)
    held: dict[str, dict[int, str]] = field(default_factory=dict)  # what has not arrived: rank -> node
    to_do: list[tuple[str, e.Instruction]] = field(default_factory=list)
    to_tell: list[tuple[str, e.Event]] = field(default_factory=list)  # by the watch, in order
    said: list[tuple[str, e.Say]] = field(default_factory=list)
    opened: int = 0
    alive: bool = True
    settings: GateSettings = SETTINGS
    version: int = 0
    log: EventLog = field(default_factory=lambda: EventLog("gang"))

    # The cluster

    def submit(self, gang: Gang) -> None:
        self.jobs[gang.key] = Job(gang)

    def missing(self) -> list[tuple[str, str]]:
        """(gang, slot) of pods that their owner is about to make."""
        found = []
        for key, job in self.jobs.items():
            if not job.makes or job.is_over:
                continue
            mine = [self.pods[uid] for uid, gang in self.gang_by_pod.items() if gang == key]
            here = [p for p in mine if uid_counts(p)]
            if job.gang.kind == "Job":
                slots = {p.slot for p in here}
                found += [(key, slot) for slot in job.gang.ranks if slot not in slots]
            else:
                found += [(key, "worker")] * (job.gang.ready - len(here))
        return found

    def make(self, key: str, slot: str) -> None:
        job = self.jobs[key]
        job.made += 1
        place = f"{key.rpartition('/')[2]}-{slot.rpartition('/')[2]}"
        name = f"{place}-{job.made}"
        # A Job's pods are in a subdomain; those of a label use the network of their nodes.
        host = f"{place}.svc" if job.gang.kind == "Job" else None
        pod = Pod(f"pod-{name}", "ns", name, slot, created_s=self.now_s, host=host)
        self.gang_by_pod[pod.uid] = key
        self.put(pod)

    def put(self, pod: Pod) -> None:
        self.version += 1
        pod = replace(pod, version=str(self.version))
        self.pods[pod.uid] = pod
        if self.alive:
            self.to_tell.append((self.gang_by_pod[pod.uid], e.PodSeen(pod)))

    def remove(self, uid: str) -> None:
        self.version += 1
        del self.pods[uid]
        key = self.gang_by_pod.pop(uid)
        if self.alive:
            self.to_tell.append((key, e.PodGone(uid)))

    def used(self, node: str) -> int:
        return sum(1 for p in self.pods.values() if p.node == node and not (p.succeeded or p.failed))

    def schedule(self, uid: str) -> None:
        """What the scheduler makes of a pod that is open."""
        pod = self.pods[uid]
        node = pod.pin
        if node in self.down or node in self.sick or self.used(node) >= self.nodes.get(node, 0):
            if pod.stuck_since_s is None:
                self.put(replace(pod, stuck_since_s=self.now_s))
        else:
            self.put(replace(pod, node=node, stuck_since_s=None))

    def scale(self, key: str, gang: Gang) -> None:
        """The workload has another size: pods that are too many go."""
        self.jobs[key].gang = gang
        for uid in [uid for uid, pod in self.pods.items() if self.gang_by_pod[uid] == key]:
            if self.pods[uid].has_seat and self.pods[uid].slot not in gang.ranks:
                self.remove(uid)

    def open_pods(self) -> list[Pod]:
        return [p for p in self.pods.values() if p.is_open and p.is_alive]

    # The collector

    def crash(self) -> None:
        """Nothing is left but what the server has."""
        self.alive = False
        self.machines.clear()
        self.held.clear()
        self.to_do.clear()
        self.to_tell.clear()

    def start(self) -> None:
        self.alive = True
        for key, plan in self.plans.items():
            self.machines[key] = GangMachine(key, plan.uid, self.settings, plan, self.log)
        for uid, pod in self.pods.items():
            self._machine(self.gang_by_pod[uid]).handle([e.PodSeen(pod)], self.now_s)
        for key in sorted(self.machines):
            self.machines[key].handle([e.NodesDown(frozenset(self.down))], self.now_s)
            self.handle(key, e.Began())

    def _machine(self, key: str) -> GangMachine:
        if key not in self.machines:
            uid = self.jobs[key].gang.uid
            self.machines[key] = GangMachine(key, uid, self.settings, log=self.log)
        return self.machines[key]

    def handle(self, key: str, *events: e.Event) -> None:
        machine = self.machines.get(key)
        if machine is None:
            return
        out = machine.handle(events, self.now_s)
        for instruction in out:
            self._at_once(key, instruction)
        if machine.ended:
            assert key not in self.held, "it ended and holds nodes"
            under_way = [x for k, x in self.to_do if k == key and not isinstance(x, e.Open | e.DeletePod)]
            assert not under_way, "it ended with work under way"
            del self.machines[key]

    def tell(self, index: int = 0) -> None:
        """The watch tells of one thing: of one gang, in order."""
        key, event = self.to_tell.pop(index)
        if key not in self.machines and isinstance(event, e.PodSeen) and event.pod.is_alive:
            self._machine(key)
            self.handle(key, e.NodesDown(frozenset(self.down)), event, e.Began())
        else:
            self.handle(key, event)

    def tellable(self) -> list[int]:
        """The first event that waits, of each pod."""
        seen: set[str] = set()
        found = []
        for index, (_, event) in enumerate(self.to_tell):
            uid = event.pod.uid if isinstance(event, e.PodSeen) else event.uid  # type: ignore[union-attr]
            if uid not in seen:
                seen.add(uid)
                found.append(index)
        return found

    def turn(self) -> None:
        for key in sorted(self.machines, key=lambda k: self.machines[k].waits_since_s):
            if self.machines[key].wants_nodes:
                self.handle(key, e.NodesDown(frozenset(self.down)))
                self.handle(key, e.Turn())

    def set_down(self, node: str, down: bool) -> None:
        (self.down.add if down else self.down.discard)(node)
        for key in list(self.machines):
            self.handle(key, e.NodesDown(frozenset(self.down)))

    def _at_once(self, key: str, instruction: e.Instruction) -> None:
        """What does not ask the server happens at once; the rest waits for its time."""
        if isinstance(instruction, e.Place):
            request = instruction.gang.request
            nodes = self._most([], size(with_ranks(request, 0).gang), size(request.gang), instruction.avoid)
            if nodes is None:
                self.handle(key, e.NotPlaced("no room"))
            else:
                assert key not in self.held
                self.held[key] = dict(enumerate(nodes))
                self.handle(key, e.Placed(placement(nodes, is_elastic(request))))
        elif isinstance(instruction, e.Grow):
            before = list(instruction.plan.nodes)
            nodes = self._most(before, len(before) + 1, instruction.workers, instruction.avoid)
            if nodes is None:
                self.handle(key, e.NotPlaced("no room"))
            else:
                self.held[key] |= {r: n for r, n in enumerate(nodes) if r >= len(before)}
                self.handle(key, e.Placed(placement(nodes, elastic=True)))
        elif isinstance(instruction, e.Shrink):
            self.held[key] = {r: n for r, n in self.held[key].items() if r < len(instruction.plan.nodes)}
        elif isinstance(instruction, e.Repair):
            before = list(instruction.plan.nodes)
            for rank in instruction.ranks:
                before[rank] = ""
            nodes = self._place(before, instruction.avoid)
            if nodes is None:
                self.handle(key, e.NotPlaced("no room"))
            else:
                self.held[key] |= {rank: nodes[rank] for rank in instruction.ranks}
                self.handle(key, e.Placed(placement(nodes)))
        elif isinstance(instruction, e.Hold):
            assert key not in self.held
            nodes = list(instruction.plan.nodes)
            self.held[key] = {r: n for r, n in enumerate(nodes) if r not in instruction.arrived}
        elif isinstance(instruction, e.Arrive):
            for rank in instruction.ranks:
                del self.held[key][rank]
        elif isinstance(instruction, e.Depart):
            for rank in instruction.ranks:
                assert rank not in self.held[key]
                self.held[key][rank] = instruction.plan.nodes[rank]
        elif isinstance(instruction, e.Release):
            del self.held[key]
        elif isinstance(instruction, e.Say):
            self.said.append((key, instruction))
        else:
            self.to_do.append((key, instruction))

    def move(self, key: str, nodes: dict[int, str], *, is_late: bool = False) -> None:
        """Degraded links make ranks move. `is_late`: the gang has changed since that was decided."""
        machine = self.machines[key]
        plan = machine.plan
        assert plan is not None
        assert machine.can_move
        after = [nodes.get(rank, node) for rank, node in enumerate(plan.nodes)]
        self.held[key] |= {rank: node for rank, node in nodes.items() if plan.nodes[rank] != node}
        self.handle(key, e.Moves(replace(plan, accepted=99) if is_late else plan, placement(after)))

    def free(self, node: str) -> int:
        if node in self.down:
            return 0
        held = sum(1 for ranks in self.held.values() for n in ranks.values() if n == node)
        return self.nodes[node] - self.used(node) - held

    def _most(self, nodes: list[str], least: int, most: int, avoid: Iterable[str]) -> list[str] | None:
        """As many more ranks as fit, with `least` to `most` in all."""
        tries = (self._place([*nodes, *[""] * (n - len(nodes))], avoid) for n in range(most, least - 1, -1))
        return next((found for found in tries if found is not None), None)

    def _place(self, nodes: list[str], avoid: Iterable[str]) -> list[str] | None:
        """First fit for the ranks without a node."""
        free = {n: self.free(n) for n in self.nodes if n not in avoid}
        found = list(nodes)
        for rank, node in enumerate(nodes):
            if not node:
                best = next((n for n, room in free.items() if room > 0), None)
                if best is None:
                    return None
                free[best] -= 1
                found[rank] = best
        return found

    # The server's side of an instruction

    def do(self, index: int, outcome: str = "ok") -> None:
        """`outcome`: "ok"; "refused": without effect; "lost": with an effect but no answer, and
        "late": the same without one."""
        key, instruction = self.to_do.pop(index)
        done = outcome in ("ok", "lost") and self._effect(key, instruction)
        answer = self._answer(key, instruction, done and outcome == "ok")
        if answer is not None:
            self.handle(key, answer)

    def _effect(self, key: str, instruction: e.Instruction) -> bool:
        if isinstance(instruction, e.StorePlan):
            self.plans[key] = from_object(to_object(instruction.plan, "own"))
        elif isinstance(instruction, e.DeletePlan):
            assert not [p for p in self._alive(key) if p.is_open], "a plan goes, and a gate is open"
            self.plans.pop(key, None)
        elif isinstance(instruction, e.Open):
            return self._open(key, instruction)
        elif isinstance(instruction, e.DeletePod):
            pod = self.pods.get(instruction.pod.uid)
            if pod is None or pod.version != instruction.pod.version:
                return pod is None
            plan = self.plans.get(key)
            leaves = plan is not None and plan.moves and plan.nodes[pod.rank or 0] != pod.node
            assert not pod.node or leaves, "a pod that runs is deleted only where its rank moves"
            self.remove(pod.uid)
        return True

    def _open(self, key: str, instruction: e.Open) -> bool:
        pod = self.pods.get(instruction.pod.uid)
        if pod is None or not pod.gated:
            return False
        plan = self.plans.get(key)
        assert plan is not None, "a gate opens without a stored plan"
        assert plan.nodes[instruction.rank] == instruction.node, "a gate opens on another plan"
        for other in self._alive(key):
            if other.is_open and other.rank is not None:
                assert other.rank != instruction.rank, "two pods have one rank"
                assert plan.moves or plan.nodes[other.rank] == other.pin, "half a gang on another plan"
        self.opened += 1
        self.put(replace(pod, gated=False, rank=instruction.rank, pin=instruction.node))
        return True

    def _alive(self, key: str) -> list[Pod]:
        return [p for uid, p in self.pods.items() if self.gang_by_pod[uid] == key and p.is_alive]

    def _answer(self, key: str, instruction: e.Instruction, ok: bool) -> e.Event | None:
        if isinstance(instruction, e.ReadOwner):
            job = self.jobs.get(key)
            if not ok:
                return e.OwnerRead(None, problem="no answer", retry=True)
            if job is None or job.is_over:
                return e.OwnerRead(None, over=True)
            return e.OwnerRead(job.gang)
        if isinstance(instruction, e.StorePlan):
            return e.PlanStored(instruction.plan) if ok else e.PlanNotStored("no answer")
        if isinstance(instruction, e.DeletePlan):
            return e.PlanDeleted() if ok else e.PlanNotDeleted("no answer")
        if isinstance(instruction, e.Open):
            uid = instruction.pod.uid
            return e.Opened(uid) if ok else e.NotOpened(uid, "no answer")
        if isinstance(instruction, e.DeletePod):
            uid = instruction.pod.uid
            return e.PodDeleted(uid) if ok else e.PodNotDeleted(uid, "no answer")
        return None

    # Peace

    def settle(self, *, schedule: bool = True, until: Callable[[], bool] = lambda: False) -> None:
        """Nothing fails any more: let everything happen until nothing is left to do."""
        for _ in range(400):
            if until():
                return
            before = self.version
            for key, slot in self.missing():
                self.make(key, slot)
            while self.to_tell or self.to_do:
                while self.to_tell:
                    self.tell()
                if until():
                    return
                if self.to_do:
                    self.do(0)
            if schedule:
                for pod in self.open_pods():
                    if not pod.node:
                        self.schedule(pod.uid)
            self.turn()
            if before == self.version and not self.to_do and not self.to_tell:
                due = [m.due_s for m in self.machines.values() if m.due_s is not None]
                if not due:
                    return
                self.now_s = max(self.now_s + 0.001, min(due))
                for key in list(self.machines):
                    self.handle(key, e.Tick())

    def finish(self, key: str) -> None:
        """Set its live pods to Succeeded."""
        self.jobs[key].is_over = True
        for pod in self._alive(key):
            self.put(replace(pod, succeeded=True))


def uid_counts(pod: Pod) -> bool:
    """Whether its owner is content with it."""
    return pod.is_alive or pod.succeeded


def placement(nodes: Iterable[str], elastic: bool = False) -> Placement:
    found = tuple(nodes)
    counts = (len(found),) if elastic else ()
    return Placement(found, 1, "leaf", Cost(1, (), len(set(found)), 0, (0, 0)), counts=counts)
