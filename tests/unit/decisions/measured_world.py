"""Agents that measure, in virtual time: they do what they are told, and report every ten seconds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hyperscout_collector.decisions.measuring.pair_events import (
    AgentConnected,
    AgentGone,
    Assign,
    Event,
    Paused,
    Planned,
    PlanWanted,
    PortsSeen,
    Stop,
    Tick,
)
from hyperscout_collector.decisions.measuring.pair_limits import PairSettings
from hyperscout_collector.decisions.measuring.pair_tasks import PairTasks
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult
from hyperscout_runtime.units import NS

TICK_NS = NS // 5
PUBLISH_S = 10
# Of a ping or its answer, with what is around it on the wire (IPv6): what an agent counts, and a checksum.
WIRE_BYTES = 126


def port(interface: str, address: str, rdma: str = "") -> LatencyPort:
    return LatencyPort(interface, (address,), 4711, rdma)


@dataclass
class World:
    """`answers(task)`: whether an end gets a number for its task. `plan(wanted)`: the pairs to measure."""

    settings: PairSettings = field(default_factory=PairSettings)
    answers: Callable[[Assign], bool | None] = lambda task: True  # None: it never reports
    rtt_us: Callable[[Assign], float] = lambda task: 5.0
    plan: Callable[[PlanWanted], Sequence[tuple[str, str]]] | None = None
    learning: bool = True
    representatives: frozenset[str] = frozenset()
    now_ns: int = 1000 * NS
    ports: dict[str, dict[str, LatencyPort]] = field(default_factory=dict)
    told: list[tuple[int, Assign]] = field(default_factory=list)
    stops: list[tuple[int, Stop]] = field(default_factory=list)
    held: dict[str, dict[int, Assign]] = field(default_factory=dict)  # by node: tasks that are not reported
    plans: list[PlanWanted] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._keys = 0
        self.machine = PairTasks(self.settings, 7, self._key)

    def _key(self) -> bytes:
        self._keys += 1
        return self._keys.to_bytes(32, "big")

    def handle(self, event: Event) -> None:
        for instruction in self.machine.handle(event, self.now_ns):
            if isinstance(instruction, Assign):
                self.told.append((self.now_ns, instruction))
                self.held[instruction.node][instruction.task_id] = instruction
            else:
                self.stops.append((self.now_ns, instruction))
                self.held[instruction.node].clear()

    def connect(self, *nodes: str, rails: int = 1, rdma: bool = False) -> None:
        for node in nodes:
            number = int(node[1:])
            ports = [
                port(f"ib{i}", f"10.{i}.{number >> 8}.{number & 255}", f"mlx5_{i}/1" if rdma else "")
                for i in range(rails)
            ]
            self.held[node] = {}
            self.ports[node] = {one.interface: one for one in ports}
            self.handle(AgentConnected(node))
            self.publish(node)

    def leave(self, node: str) -> None:
        self.held.pop(node)
        self.handle(AgentGone(node))

    def publish(self, node: str) -> None:
        """Report everything that was done so far."""
        for task in list(self.held[node].values()):
            ok = self.answers(task)
            if ok is None:
                continue
            pair = (task.peer, task.peer_interface, task.method)
            rtt_us = self.rtt_us(task)
            result = LatencyResult(*pair, self.now_ns, 16, 16 if ok else 0, rtt_us, rtt_us + 1, 0.1)
            if not ok:
                result = replace(result, min_us=0.0, failure="no answer")
            here = self.ports[node][task.interface]
            kept = [
                r
                for r in here.results
                if (r.peer, r.peer_interface, r.method) != (task.peer, task.peer_interface, task.method)
            ]
            self.ports[node][task.interface] = replace(here, results=(*kept, result))
            del self.held[node][task.task_id]
        self.handle(PortsSeen(node, tuple(self.ports[node].values())))

    def run(self, seconds: float) -> None:
        until_ns = self.now_ns + round(seconds * NS)
        while self.now_ns < until_ns:
            self.now_ns += TICK_NS
            self.handle(Tick())
            if (wanted := self.machine.wants_plan(self.now_ns)) is not None:
                self.plans.append(wanted)
                pairs = all_pairs(wanted) if self.plan is None else self.plan(wanted)
                self.handle(Planned(pairs, self.learning, self.representatives))
            tick = self.now_ns // TICK_NS
            for number, node in enumerate(self.held):
                if (tick + number) % (PUBLISH_S * 5) == 0:
                    self.publish(node)

    def pause(self) -> None:
        self.handle(Paused("by ann"))

    def tasks(self, method: str = "udp") -> dict[int, list[Assign]]:
        """Both ends of each task, by its id."""
        found: dict[int, list[Assign]] = {}
        for _, task in self.told:
            if task.method == method:
                found.setdefault(task.task_id, []).append(task)
        return found

    def bytes_by_node(self) -> dict[str, list[tuple[int, int]]]:
        """When each node saw how many bytes, out and in: both bursts of each of its tasks. A burst has one
        ping more for each two that count, one to find the peer, one to end with."""
        seen: dict[str, list[tuple[int, int]]] = {}
        for at_ns, task in self.told:
            a_burst = (task.pings + task.pings // 2 + 3) * 2 * WIRE_BYTES
            seen.setdefault(task.node, []).append((at_ns, 2 * a_burst))
        return seen


def all_pairs(wanted: PlanWanted) -> list[tuple[str, str]]:
    pairs = [(a, b) for i, a in enumerate(wanted.nodes) for b in wanted.nodes[i + 1 :]]
    return pairs[: wanted.limit]


def most_within(events: Sequence[tuple[int, int]], window_ns: int) -> int:
    """The largest sum of (when, how much) within any window."""
    best = total = first = 0
    for at_ns, amount in events:
        total += amount
        while events[first][0] <= at_ns - window_ns:
            total -= events[first][1]
            first += 1
        best = max(best, total)
    return best
