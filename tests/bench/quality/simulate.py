"""A trace of jobs on a simulated cluster: one queue for all placers, so that only where jobs go differs.

The queue is first come, first served; behind a head that does not fit, later jobs start where they do not
delay it (EASY backfilling, run times known): they end before the head can start, or leave it its room.
Whether a job fits is asked of the state, never of a placer; a placer only says on which nodes.
"""

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from bench.quality.cluster import CORE, Longs, Scattered, Shape, State, cost
from bench.quality.placers import Ask, Placer, asked
from bench.quality.workload import GPUS_PER_NODE, Job, Trace
from hyperscout_placer.cluster.answer import Cost
from hyperscout_placer.cluster.request import Mode

BEHIND = 100  # jobs behind the head that are looked at
REPAIR_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Start:
    """A job that was placed: `cost` on the state as it was, `lowest` the tier it would have had in an empty
    cluster, `took_s` of the decision."""

    job: Job
    at_s: float
    nodes: Longs
    cost: Cost
    lowest: int
    took_s: float


@dataclass(slots=True)
class Result:
    """`waiting`: jobs that were never placed. `looks`: how free GPUs lay whenever a gang came. `busy`: share
    of GPU time. `beside`: for each placer asked on the same states, its costs where it would have placed."""

    placer: str
    starts: list[Start] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)
    looks: list[Scattered] = field(default_factory=list)
    busy: float = 0.0
    killed: int = 0
    beside: dict[str, list[tuple[Cost, Cost]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Running:
    job: Job
    nodes: Longs
    ends_s: float


@dataclass(slots=True)
class _Promise:
    """To the head of the queue: from `at_s` on it fits into the nodes `first` to `last` (a domain of the tier
    that it asks for), with room for `spare` more nodes. `refused`: jobs that would have broken it."""

    job: Job
    at_s: float
    first: int
    last: int
    spare: int
    refused: set[int] = field(default_factory=set)


class Simulation:
    """`failures`: of a node, a day. `compared`: asked at each decision too, to compare costs on one state."""

    def __init__(
        self,
        shape: Shape,
        trace: Trace,
        placer: Placer,
        mode: Mode,
        *,
        failures: float = 0.0,
        seed: int = 0,
        compared: Sequence[Placer] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.state = State(shape)
        self.result = Result(placer.name, beside={other.name: [] for other in compared})
        self._shape = shape
        self._trace = trace
        self._placer = placer
        self._compared = compared
        self._mode = mode
        self._clock = clock
        self._rng = Random(seed)
        self._failures_s = failures * len(shape.names) / 86400
        self._queue: deque[Job] = deque()
        self._running: dict[int, _Running] = {}
        self._events: list[tuple[float, int, str, int]] = []
        self._order = 0
        self._now = 0.0
        self._promise: _Promise | None = None

    def run(self) -> Result:
        for job in self._trace.jobs:
            self._at(job.arrives_s, "arrive", job.number)
        if self._failures_s:
            self._at(self._rng.expovariate(self._failures_s), "fail", 0)
        while self._events and self._events[0][0] <= self._trace.ends_s:
            self._now = self._events[0][0]
            while self._events and self._events[0][0] == self._now:
                _, _, kind, subject = heapq.heappop(self._events)
                getattr(self, f"_{kind}")(subject)
            self._schedule()
        self._now = self._trace.ends_s
        for one in self._running.values():
            self._count(one, one.ends_s - self._now)
        self.result.busy /= self._trace.ends_s * self._shape.gpus
        self.result.waiting = [job for job in self._queue if not job.first]
        return self.result

    def _at(self, at_s: float, kind: str, subject: int) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, kind, subject))

    def _arrive(self, number: int) -> None:
        job = self._trace.jobs[number]
        self._queue.append(job)
        if job.workers > 1 and not job.first:
            self.result.looks.append(Scattered.of(self.state))

    def _end(self, number: int) -> None:
        one = self._running.get(number)
        if one is not None and one.ends_s == self._now:
            self._stop(number)

    def _stop(self, number: int) -> _Running:
        one = self._running.pop(number)
        need = one.job.need
        self.state.give(one.nodes, need)
        self._placer.give(one.nodes, need)
        for other in self._compared:
            other.give(one.nodes, need)
        if number >= 0:
            self._count(one, max(0.0, one.ends_s - self._now))
        return one

    def _count(self, one: _Running, left_s: float) -> None:
        self.result.busy -= one.job.gpus * left_s

    def _fail(self, _: int) -> None:
        """A node goes down: its jobs start anew with what is left of them, and nothing is placed on it."""
        self._at(self._now + self._rng.expovariate(self._failures_s), "fail", 0)
        node = self._rng.randrange(len(self._shape.names))
        struck = [number for number, one in self._running.items() if node in one.nodes]
        if any(number < 0 for number in struck):
            return
        for number in sorted(struck, reverse=True):
            one = self._stop(number)
            self.result.killed += 1
            left_s = max(1.0, one.ends_s - self._now)
            self._queue.appendleft(Job(number, one.job.arrives_s, left_s, one.job.gpus, True))
        self._order += 1
        repair = Job(-self._order, self._now, REPAIR_S, GPUS_PER_NODE, True)
        self._begin(repair, np.array([node]))
        self._promise = None

    def _schedule(self) -> None:
        while self._queue and (ask := self._asked(self._queue[0])):
            self._place(self._queue.popleft(), ask)
            self._promise = None
        if not self._queue:
            return
        promise = self._promise
        if promise is None or promise.job is not self._queue[0]:
            promise = self._promise = self._promised(self._queue[0])
        behind = (job for job in list(self._queue)[1:] if job.number not in promise.refused)
        for job in itertools.islice(behind, BEHIND):
            ask = self._asked(job)
            if ask is not None and self._place(job, ask, promise):
                self._queue.remove(job)

    def _asked(self, job: Job) -> Ask | None:
        return asked(self.state, job, self._tier(job))

    def _tier(self, job: Job) -> int:
        return self._shape.lowest(job.workers) if self._mode == "hard" else CORE

    def _place(self, job: Job, ask: Ask, promise: _Promise | None = None) -> bool:
        """False: it would take what was promised to the head."""
        began = self._clock()
        nodes = self._placer.choose(self.state, ask)
        took_s = self._clock() - began
        if promise is not None and self._now + job.runs_s > promise.at_s:
            inside = len(np.unique(nodes[(nodes >= promise.first) & (nodes < promise.last)]))
            if inside > promise.spare:
                promise.refused.add(job.number)
                return False
            promise.spare -= inside
        if len(nodes) != job.workers:
            raise AssertionError(f"{self._placer.name}: {len(nodes)} nodes for {job.workers} workers")
        price = cost(self.state, nodes, job.need)
        if self._mode == "hard" and price.top > ask.tier:
            raise AssertionError(f"{self._placer.name}: tier {price.top}, above {ask.tier}")
        for other in self._compared:
            others = cost(self.state, other.choose(self.state, ask), job.need)
            self.result.beside[other.name].append((price, others))
        if not job.first:
            lowest = self._shape.lowest(job.workers)
            self.result.starts.append(Start(job, self._now, nodes, price, lowest, took_s))
        self._begin(job, nodes)
        return True

    def _begin(self, job: Job, nodes: Longs) -> None:
        self.state.take(nodes, job.need)
        self._placer.take(nodes, job.need)
        for other in self._compared:
            other.take(nodes, job.need)
        self._running[job.number] = _Running(job, nodes, self._now + job.runs_s)
        self._at(self._now + job.runs_s, "end", job.number)
        if job.number >= 0:
            self.result.busy += job.gpus * job.runs_s

    def _promised(self, job: Job) -> _Promise:
        """When, as jobs end, the head fits, and into which domain of its tier."""
        tier = self._tier(job)
        start = self._shape.start[tier]
        free = self.state.free.copy()
        room = self.state.fits(job.need)[tier].copy()
        for one in sorted(self._running.values(), key=lambda one: (one.ends_s, one.job.number)):
            nodes = np.unique(one.nodes)
            before = free[nodes] // job.need
            np.add.at(free, one.nodes, one.job.need)
            domains = self._shape.domains(nodes, tier)
            np.add.at(room, domains, free[nodes] // job.need - before)
            fitting = domains[room[domains] >= job.workers]
            if len(fitting):
                d = int(fitting[0])
                spare = int(room[d]) - job.workers
                return _Promise(job, one.ends_s, int(start[d]), int(start[d + 1]), spare)
        raise AssertionError(f"{job.workers} workers do not fit into an empty cluster")
