"""Decides which nodes measure each other, and when. Planned pairs go in; tasks for both ends come out.

A planned pair becomes one task for each rail that the two nodes share, one after the other. A node has one
task slot at a time, and neither a node nor the cluster exceeds the limits of the settings (`pair_limits`).
Both ends of a task get the same fresh key, and no two tasks have the same key. A task is done when both ends
report a burst that they had not reported before. A task that is not done in time has failed. Then its rail
backs off, and so does a node with repeated failures; each further back-off is longer. A measured pair rests
too, whatever is planned: otherwise a pair with disagreeing ends would be planned forever.

RDMA tests bandwidth, which is rarely worth its traffic. RDMA tasks run only between nodes that represent
their domains, only while nothing is to be learned, one at a time in the cluster, and each node at most once
per `reverify_s`. UDP tasks of the node then use half of its share until the RDMA traffic is paid for.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence

from hyperscout_formats.facts.facts import LatencyPort
from hyperscout_inference.latency.pairs import ends_agree
from hyperscout_runtime.backoff import doubled_s
from hyperscout_runtime.units import NS

from hyperscout_collector.decisions.measuring.pair_events import (
    AgentConnected,
    AgentGone,
    Assign,
    Event,
    HierarchyChanged,
    Instruction,
    Paused,
    Planned,
    PlanWanted,
    PortsSeen,
    Resumed,
    Stop,
    Tick,
)
from hyperscout_collector.decisions.measuring.pair_limits import PairSettings, Rate, Rests
from hyperscout_collector.decisions.measuring.pair_routes import Route, routes
from hyperscout_collector.decisions.measuring.pair_state import (
    RDMA,
    UDP,
    Agent,
    End,
    Task,
    Work,
    rail_of,
)

KEY_BYTES = 32
_FORGET_EVERY_NS = 60 * NS
_MAX_RESTING = 4096  # bounds the extra pairs that are requested for resting rails
_MAX_LOOKS = 200  # planned pairs for which rails are computed in one tick
_MAX_RDMA = 1000  # waiting for their turn


class PairTasks:
    """The state machine of the measurements. `handle` takes an event and returns instructions for agents.

    `keys` returns a fresh key at each call. `first_id` separates task ids from those of an earlier process
    (its start time, in any unit).
    """

    def __init__(self, settings: PairSettings, first_id: int, keys: Callable[[], bytes]) -> None:
        self.settings = settings
        self.first_id = first_id
        self.keys = keys
        self.paused: str | None = None  # reason of the pause; None = not paused
        self.learning = True
        self.all_tried = False  # each pair of the last plan failed or disagreed repeatedly
        self.failed = 0
        self.measured = 0
        self.rate = Rate(settings.probes_per_s)
        self._agents: dict[str, Agent] = {}
        self._work: list[Work] = []
        self._rdma: deque[tuple[str, str, Route]] = deque(maxlen=_MAX_RDMA)
        self._open: dict[int, Task] = {}
        self._under_way: Counter[tuple[str, ...]] = Counter()  # open tasks by rail and method
        self._representatives: frozenset[str] = frozenset()
        self._news = False  # the input of the planner has changed
        self._again_ns: list[int] = []  # heap: when disagreeing pairs may be retried
        self._planning = False
        self._planned_ns: int | None = None
        self._in_vain = 0  # plans in a row without any task
        self._given = 0  # tasks since the last plan
        self._forgot_ns = 0
        self._count = 0
        self._now_ns = 0
        self._out: list[Instruction] = []
        self._rails = Rests(settings.back_off_s, settings.reverify_s, settings.resting)
        self._nodes = Rests(settings.node_back_off_s, settings.node_back_off_most_s, settings.resting)
        self._rows: Counter[str] = Counter()  # failures in a row by node

    def handle(self, event: Event, now_ns: int) -> list[Instruction]:
        """Returns the instructions for the agents, in the order in which they must be sent."""
        self._now_ns, self._out = now_ns, []
        match event:
            case AgentConnected(node):
                self._drop(node)
                self._agents[node] = Agent()
            case AgentGone(node):
                self._drop(node)
            case PortsSeen(node, ports):
                self._ports_seen(node, ports)
            case Planned():
                self._planned(event)
            case HierarchyChanged():
                self._news = True
            case Paused(reason):
                self._pause(reason)
            case Resumed():
                self.paused, self._news = None, True
            case Tick():
                self._expire()
                self._give_out()
        return self._out

    # -- queries --------------------------------------------------------------------------------------------

    @property
    def agents(self) -> int:
        """Number of agents that can take part."""
        return sum(agent.can for agent in self._agents.values())

    @property
    def in_flight(self) -> int:
        """Number of tasks that are assigned and not done."""
        return len(self._open)

    def wants_plan(self, now_ns: int) -> PlanWanted | None:
        """Returns the plan that is needed now, or None. A plan is requested once until `Planned` arrives."""
        s = self.settings
        while self._again_ns and self._again_ns[0] <= now_ns:
            heapq.heappop(self._again_ns)
            self._news = True
        wait_s = doubled_s(1 if self._news else 1 + self._in_vain, s.replan_s, s.replan_most_s)
        due = self._planned_ns is None or not 0 <= now_ns - self._planned_ns < wait_s * NS
        if self.paused is not None or self._planning or not due or (self._work and not self._news):
            return None
        nodes = tuple(sorted(n for n, x in self._agents.items() if x.can and self._nodes.is_over(n, now_ns)))
        if len(nodes) < 2:
            return None
        self._in_vain = 0 if self._given else self._in_vain + 1
        self._planning, self._news, self._planned_ns, self._given = True, False, now_ns, 0
        # The plan may contain pairs that have open tasks or rest; these are skipped. More pairs make up for
        # them.
        return PlanWanted(nodes, s.batch + len(self._open) + min(len(self._rails), _MAX_RESTING))

    # -- events ---------------------------------------------------------------------------------------------

    def _ports_seen(self, node: str, ports: tuple[LatencyPort, ...]) -> None:
        agent = self._agents.get(node)
        if agent is None:
            return
        could, places, agent.ports = agent.can, agent.places, ports
        self._news = self._news or could != agent.can
        if places != agent.places:
            self._look_again(node)
        for task_id in sorted(agent.open):
            task = self._open[task_id]
            for end in task.ends:
                if end.node == node and end.ok is None:
                    found = end.result(ports)
                    if found is not None and found.at_ns != end.before_ns:
                        end.ok = not found.failure and found.received > 0
            if all(end.ok is not None for end in task.ends):
                self._settle(task_id)

    def _planned(self, plan: Planned) -> None:
        self._planning = False
        if self.paused is not None:
            return
        self.learning = plan.learning
        self.all_tried = bool(plan.wishes) and not self._is_hopeful(plan.wishes)
        self._representatives = frozenset(plan.representatives)
        self._work = [Work(a, b) for a, b in plan.wishes if a != b]

    def _is_hopeful(self, wishes: Sequence[tuple[str, str]]) -> bool:
        """Whether some pair may be measured soon: it was not tried, or did not fail often yet."""
        for a, b in wishes[:_MAX_LOOKS]:
            if (x := self._agents.get(a)) is not None and (y := self._agents.get(b)) is not None:
                rails = [rail_of(a, b, route, UDP) for route in routes(x.ports, y.ports)]
                if any(self._rails.wait_s(rail) < self.settings.hopeless_s for rail in rails):
                    return True
        return False

    def _agreed(self, task: Task) -> bool:
        """Whether both ends measured the same round trip."""
        agents = [self._agents.get(end.node) for end in task.ends]
        found = [end.result(x.ports) for end, x in zip(task.ends, agents, strict=True) if x is not None]
        rtts_us = [one.min_us for one in found if one is not None]
        return len(rtts_us) == len(task.ends) and ends_agree(min(rtts_us), max(rtts_us))

    def _pause(self, reason: str) -> None:
        self.paused = reason
        self._work.clear()
        self._rdma.clear()
        self._open.clear()
        self._under_way.clear()
        for node, agent in self._agents.items():
            agent.open.clear()
            agent.busy_until_ns = 0
            self._out.append(Stop(node, reason))

    def _drop(self, node: str) -> None:
        """Forget an agent and its tasks. No failure is counted."""
        agent = self._agents.pop(node, None)
        if agent is not None:
            self._news = self._news or agent.can
            self._look_again(node)
            for task_id in sorted(agent.open):
                self._close(task_id)

    def _look_again(self, node: str) -> None:
        """Recompute the rails of a node that answers at other places than before."""
        for work in self._work:
            if node in (work.a, work.b):
                work.todo = None
        self._rdma = deque((x for x in self._rdma if node not in x[:2]), maxlen=_MAX_RDMA)

    # -- tasks ----------------------------------------------------------------------------------------------

    def _give_out(self) -> None:
        if self.paused is not None:
            return
        kept: list[Work] = []
        looks = 0
        for i, work in enumerate(self._work):
            if looks >= _MAX_LOOKS or not self.rate.allows(self._now_ns):
                kept += self._work[i:]
                break
            a, b = self._agents.get(work.a), self._agents.get(work.b)
            if a is None or b is None:
                continue  # the next plan will not contain them
            if self._may(a, UDP) and self._may(b, UDP):
                if work.todo is None:
                    looks += 1
                    work.todo = self._look_at(work.a, work.b, a, b)
                if work.todo:
                    self._assign((work.a, work.b), (a, b), work.todo.popleft(), UDP)
            if work.todo is None or work.todo:
                kept.append(work)
        self._work = kept
        self._give_out_rdma()

    def _look_at(self, name_a: str, name_b: str, a: Agent, b: Agent) -> deque[Route]:
        """Returns the rails of a pair that may be measured now.

        One rail suffices to learn where nodes are. Verification covers all rails.
        """
        found = routes(a.ports, b.ports)
        if not self.learning and self._representatives.issuperset((name_a, name_b)):
            self._rdma += [(name_a, name_b, route) for route in found if route.rdma]
        free = [route for route in found if self._is_free(rail_of(name_a, name_b, route, UDP))]
        return deque(free[:1] if self.learning else free)

    def _give_out_rdma(self) -> None:
        while self._rdma and self.rate.allows(self._now_ns) and not self._rdma_is_on():
            name_a, name_b, route = self._rdma[0]
            a, b = self._agents.get(name_a), self._agents.get(name_b)
            rested = all(self._nodes.is_over((RDMA, name), self._now_ns) for name in (name_a, name_b))
            if a is not None and b is not None and rested:
                if not (self._may(a, RDMA) and self._may(b, RDMA)):
                    return
                if self._is_free(rail_of(name_a, name_b, route, RDMA)):
                    self._assign((name_a, name_b), (a, b), route, RDMA)
            self._rdma.popleft()

    def _is_free(self, rail: tuple[str, ...]) -> bool:
        return not self._under_way[rail] and self._rails.is_over(rail, self._now_ns)

    def _may(self, agent: Agent, method: str) -> bool:
        if max(agent.busy_until_ns, agent.paid_until_ns) > self._now_ns:
            return False
        return method == UDP or agent.debt_until_ns <= self._now_ns

    def _rdma_is_on(self) -> bool:
        return any(rail[-1] == RDMA for rail in self._under_way)

    def _assign(self, names: tuple[str, str], agents: tuple[Agent, Agent], route: Route, method: str) -> None:
        s, now_ns = self.settings, self._now_ns
        self._count += 1
        self._given += 1
        task_id = self.first_id + self._count
        key = self.keys()
        ends = (
            End(names[0], route.a, names[1], route.b.interface, method, None),
            End(names[1], route.b, names[0], route.a.interface, method, None),
        )
        slot_s, expires_s = (s.rdma_slot_s, s.rdma_expires_s) if method == RDMA else (s.slot_s, s.expires_s)
        a_first = (agents[0].firsts, names[0]) <= (agents[1].firsts, names[1])
        for agent, end, other in zip(agents, ends, reversed(ends), strict=True):
            known = end.result(agent.ports)
            end.before_ns = None if known is None else known.at_ns
            first = a_first == (end is ends[0])
            agent.firsts += first
            agent.open.add(task_id)
            agent.busy_until_ns = now_ns + round(slot_s * NS)
            self._charge(agent, end.node, method)
            self._out.append(
                Assign(
                    end.node,
                    task_id,
                    end.peer,
                    end.place.interface,
                    end.place.address,
                    end.peer_interface,
                    other.place.address,
                    other.place.udp_port,
                    key,
                    method,
                    s.pings,
                    first,
                    expires_s,
                )
            )
        rail = rail_of(*names, route, method)
        self._open[task_id] = Task(ends, rail, now_ns + round((expires_s + s.report_s) * NS))
        self._under_way[rail] += 1
        self.rate.take(now_ns)

    def _charge(self, agent: Agent, node: str, method: str) -> None:
        cost_ns = self.settings.cost_ns(method)
        if method == RDMA:
            agent.debt_until_ns = self._now_ns + 2 * cost_ns
            self._nodes.measured((RDMA, node), self._now_ns + round(self.settings.reverify_s * NS))
        else:
            share = 2 if agent.debt_until_ns > self._now_ns else 1
            agent.paid_until_ns = self._now_ns + share * cost_ns

    def _settle(self, task_id: int) -> None:
        """Finish a task that both ends have reported, or that has timed out."""
        task = self._close(task_id)
        if all(end.ok for end in task.ends):
            self.measured += 1
            for end in task.ends:
                self._rows.pop(end.node, None)
            if self._agreed(task):
                self._rails.measured(task.rail, self._now_ns + round(self.settings.rest_s * NS))
            else:
                self._rails.failed(task.rail, self._now_ns, self.settings.disagree_s)
                if len(self._again_ns) < _MAX_RESTING:
                    again_ns = self._now_ns + round(self._rails.wait_s(task.rail) * NS)
                    heapq.heappush(self._again_ns, again_ns)
            return
        self.failed += 1
        self._rails.failed(task.rail, self._now_ns)
        if task.rail[-1] == RDMA:
            return  # a missing tool is no reason for the node to back off
        silent = [end.node for end in task.ends if end.ok is None]
        for node in silent or [end.node for end in task.ends]:
            self._rows[node] += 1
            if self._rows[node] >= self.settings.node_failures:
                self._nodes.failed(node, self._now_ns)

    def _close(self, task_id: int) -> Task:
        task = self._open.pop(task_id)
        self._under_way[task.rail] -= 1
        if not self._under_way[task.rail]:
            del self._under_way[task.rail]
        for end in task.ends:
            if (agent := self._agents.get(end.node)) is not None:
                agent.open.discard(task_id)
        return task

    def _expire(self) -> None:
        for task_id in [i for i, task in self._open.items() if task.until_ns <= self._now_ns]:
            self._settle(task_id)
        if not 0 <= self._now_ns - self._forgot_ns < _FORGET_EVERY_NS:
            self._forgot_ns = self._now_ns
            self._rails.forget(self._now_ns)
            self._nodes.forget(self._now_ns)
            self._rows = Counter({n: x for n, x in self._rows.items() if n in self._agents})
