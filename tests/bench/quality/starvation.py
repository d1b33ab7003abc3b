"""A large gang against an endless stream of small ones, in simulated time, with the queue of the gates.

The real `Turns`, `Draining`, `PlacementRequests` and `Placements` run. Only the gangs' state machines are
replaced: all pods of a gang exist at once, and they run from the moment at which the gang is placed. A small
gang arrives whenever one starts, so that a few always wait.
"""

import asyncio
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from hyperscout_gates.control.draining import Draining
from hyperscout_gates.control.gang_record import GangRecord
from hyperscout_gates.control.placement_requests import PlacementRequests
from hyperscout_gates.control.turns import Turns
from hyperscout_gates.state.events import Place, Placed, Say
from hyperscout_gates.state.gang import Gang
from hyperscout_gates.state.machine import GangMachine
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.cluster.request import Group, Request, Workers
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology

LARGE = "default/Job/large"
BACKLOG = 3  # small gangs that wait
_QUIET = 3  # rounds of the event loop after which nothing is left to do
_TICK_S = 30.0  # of simulated time
_NODE = {"spec": {"unschedulable": False, "taints": []}, "ready": {"status": "True", "reason": ""}}


@dataclass(frozen=True, slots=True)
class Case:
    """A large gang arrives after `before_s`, and the end is `after_s` later. `runs_s`: of a small gang."""

    topology: Topology
    large: int
    small: int
    runs_s: Callable[[random.Random], float]
    before_s: float
    after_s: float
    priority: int = 0  # of the small gangs
    tier: int | None = None  # the highest tier allowed for the large gang; None = anywhere


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened since the large gang arrived. Times in seconds.

    `longest_s`: the longest remaining time of the gangs that ran then. `waited_s`: until the large gang
    started; None = it did not. `busy`: share of the nodes in use, `small`: number of small gangs that
    started, both until the end. `promised_twice`: nodes that two gangs had at the same time.
    """

    longest_s: float
    waited_s: float | None
    busy: float
    small: int
    promised_twice: int


@dataclass(slots=True)
class _Machine:
    """The part of a gang's state machine that the queue reads."""

    key: str
    gang: Gang
    waits_since_s: float
    priority: int
    plan: Placed | None = None
    reading: bool = False
    refused: dict[str, float] = field(default_factory=dict)


class Simulation:
    def __init__(self, case: Case, drain_after_s: float, seed: int) -> None:
        self.now_s = 1_800_000_000.0
        self.said: list[str] = []
        self._case = case
        self._rng = random.Random(seed)
        nodes = [node for h in case.topology.hypernodes if h.tier == 1 for node in h.nodes]
        objects = {name: {"metadata": {"name": name, "labels": {}}, **_NODE} for name in nodes}
        self.placements = Placements(clock_ns=self._now_ns, timer=lambda: 0.0)
        self.placements.set_topology(case.topology)
        self.placements.set_unused({node: {"pods": 1} for node in nodes})
        self._requests = PlacementRequests(self.placements, NodeMasks(objects.get), self._now_ns)
        self.draining = Draining(self.placements, self._requests, drain_after_s, self._now_ns, self._announce)
        self.turns = Turns(self._give, self.draining, lambda: 0.0)
        self._ends: list[tuple[float, str]] = []
        self._users: dict[str, str] = {}  # gang by node
        self._used_s = 0.0
        self._arrived = self._small = self._promised_twice = 0
        self._large_at_s: float | None = None

    async def run(self) -> Outcome:
        turns = asyncio.create_task(self.turns.run())
        try:
            for _ in range(BACKLOG):
                self._arrive_small()
            await self._until(self.now_s + self._case.before_s)
            arrived_s, used_s, small = self.now_s, self._used_s, self._small
            longest_s = max(end_s for end_s, _ in self._ends) - arrived_s
            self._arrive(LARGE, self._case.large, 0, self._case.tier)
            await self._until(arrived_s + self._case.after_s)
        finally:
            turns.cancel()
        nodes = len(self.placements.capacity.forest.nodes)
        busy = (self._used_s - used_s) / (self._case.after_s * nodes)
        waited_s = None if self._large_at_s is None else self._large_at_s - arrived_s
        return Outcome(longest_s, waited_s, busy, self._small - small, self._promised_twice)

    async def _until(self, until_s: float) -> None:
        await self._settle()
        while self.now_s < until_s:
            next_s = min(self.now_s + _TICK_S, until_s, *(end_s for end_s, _ in self._ends[:1]))
            self._used_s += (next_s - self.now_s) * len(self._users)
            self.now_s = next_s
            while self._ends and self._ends[0][0] <= self.now_s:
                self._end(heapq.heappop(self._ends)[1])
            self.turns.look()
            await self._settle()

    async def _settle(self) -> None:
        for _ in range(_QUIET):
            await asyncio.sleep(0)

    def _arrive_small(self) -> None:
        self._arrived += 1
        self._arrive(f"default/Job/small-{self._arrived:06}", self._case.small, self._case.priority)

    def _arrive(self, key: str, size: int, priority: int, tier: int | None = None) -> None:
        workers = Workers(size, (("pods", 1),))
        request = Request(Group(1, (workers,), tier), "soft" if tier is None else "hard")
        gang = Gang(key, "Job", "u", request, {}, {"worker": {}}, size)
        machine = _Machine(key, gang, self.now_s, priority)
        self.turns.wait(GangRecord(cast("GangMachine", machine)))

    def _give(self, record: GangRecord) -> None:
        machine = cast("_Machine", record.machine)
        on_kept = self.draining.may_use_kept(record)
        answer = self._requests.place(machine.key, Place(machine.gang, frozenset()), on_kept=on_kept)
        if not isinstance(answer, Placed):
            self.turns.refused(record, answer.reason)
            return
        machine.plan = answer
        self.turns.discard(record)
        for node in answer.placement.nodes:
            self._promised_twice += node in self._users
            self._users[node] = machine.key
        heapq.heappush(self._ends, (self.now_s + self._case.runs_s(self._rng), machine.key))
        if machine.key == LARGE:
            self._large_at_s = self.now_s
        else:
            self._small += 1
            self._arrive_small()

    def _end(self, key: str) -> None:
        self.placements.release(key)
        self._users = {node: user for node, user in self._users.items() if user != key}
        self.turns.more_free()

    def _now_ns(self) -> int:
        return int(self.now_s * NS)

    def _announce(self, record: GangRecord, said: Say) -> None:
        self.said.append(f"{record.machine.key}: {said.message}")


def simulate(case: Case, drain_after_s: float, seed: int) -> Outcome:
    return asyncio.run(Simulation(case, drain_after_s, seed).run())
