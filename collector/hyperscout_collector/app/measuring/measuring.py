"""Runs latency measurements between agents: sends the pairs that the planner chooses to agents as tasks.

`decisions.measuring.pair_tasks` decides about tasks, and `hyperscout_inference.latency.planner` chooses the
pairs. This module adds the clock, random numbers and the agents. Plans are made in a thread, because a plan
can take a second in a large cluster.

A plan that fails is shown as a problem and does not stop the collector. A pause is kept in memory only. When
the collector stops or another replica leads, the streams end, and all tasks end with them.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random

from hyperscout.v1.discovery_pb2 import MeasurePairs, PairTask, StopMeasuring, StreamFindingsResponse
from hyperscout.v1.measurement_pb2 import GetMeasuringResponse
from hyperscout_formats.facts.facts import LatencyPort
from hyperscout_inference.latency import planner
from hyperscout_inference.latency.known_places import (
    any_unmeasured,
    measured_domains,
    published_domains,
    representatives,
    wired_nodes,
)
from hyperscout_inference.latency.pairs import Longs, PairTable
from hyperscout_inference.latency.tiers import tiers_of
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.units import NS
from hyperscout_topology.proto import timestamp
from hyperscout_topology.topology import Topology

from hyperscout_collector.decisions.measuring.pair_events import (
    MEASURE_PROBE,
    AgentConnected,
    AgentGone,
    Assign,
    Event,
    HierarchyChanged,
    Paused,
    Planned,
    PlanWanted,
    PortsSeen,
    Resumed,
    Tick,
)
from hyperscout_collector.decisions.measuring.pair_limits import PairSettings
from hyperscout_collector.decisions.measuring.pair_tasks import KEY_BYTES, PairTasks
from hyperscout_collector.evidence.state import EvidenceState, KeyChange
from hyperscout_collector.evidence.view import InputsView
from hyperscout_collector.ingest.streams import Connection, Streams
from hyperscout_collector.serve.grpc.measurement_service import NotNowError

_log = logging.getLogger(__name__)

STATES = ("learning", "verifying", "paused", "off")
_TICK_S = 0.2
_PROBES_A_NODE = 12  # times log2(nodes): upper bound of the probes per node that a full topology takes
_OFF = "the setting `measure` is off"
_TOO_FEW_AGENTS = (
    "fewer than two agents can measure: check their setting `latency` and the addresses of compute interfaces"
)


@dataclass(frozen=True, slots=True)
class MeasuringTools:
    """Clocks, random sources and the planner. `clock_ns`: Unix ns; `timer`: monotonic seconds."""

    clock_ns: Callable[[], int]
    timer: Callable[[], float]
    token_bytes: Callable[[int], bytes]  # cryptographically secure
    rng: Random
    plan: Callable[..., Sequence[tuple[str, str]]] = planner.plan


class Measuring:
    """Latency measurements. Run `run` as a task.

    `enabled`: the setting `measure`. `topology()`: the published topology. `learned` is called whenever
    `has_measured_enough` becomes true.
    """

    def __init__(
        self,
        settings: PairSettings,
        streams: Streams,
        state: EvidenceState,
        view: InputsView,
        topology: Callable[[], Topology],
        tools: MeasuringTools,
        *,
        enabled: bool,
        learned: Callable[[], None],
    ) -> None:
        self.problem: str | None = None
        self._settings = settings
        self._streams = streams
        self._state = state
        self._view = view
        self._topology = topology
        self._tools = tools
        self._enabled = enabled
        self._learned = learned
        self._had_enough = False
        self._machine = PairTasks(settings, tools.clock_ns(), lambda: tools.token_bytes(KEY_BYTES))
        self._since_ns = tools.clock_ns()
        self._state_name = self._present_state()
        self._generation = 0
        self._probes_before = 0  # total number of probes when the present learning phase began
        self._trusted_ns: dict[str, int] = {}  # by node: earlier findings come from a former agent process
        self._wanted: PlanWanted | None = None
        self._work = asyncio.Event()
        self._in_thread = BoundedExecutor("measuring")

    # Events

    def connected(self, stream: Connection) -> None:
        if not self._enabled or MEASURE_PROBE not in stream.hello.probes:
            return
        known = self._state.agents.get(stream.node)
        same = known is not None and known.instance == stream.hello.instance
        self._trusted_ns[stream.node] = 0 if same else stream.connected_at_ns
        self._handle(AgentConnected(stream.node))
        self._look_at(stream.node)

    def disconnected(self, stream: Connection) -> None:
        if self._trusted_ns.pop(stream.node, None) is not None:
            self._handle(AgentGone(stream.node))

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        for node in sorted({change.key.node for change in changes if change.key.probe == MEASURE_PROBE}):
            self._look_at(node)

    def _look_at(self, node: str) -> None:
        """Take the ports that the node's present agent process reports.

        Ports that a former process reported are ignored, because that process no longer answers there.
        """
        since_ns = self._trusted_ns.get(node)
        if since_ns is not None:
            rows = (row for row in self._state.rows_of_node(node) if row.received_ns >= since_ns)
            ports = tuple(row.fact for row in rows if isinstance(row.fact, LatencyPort))
            self._handle(PortsSeen(node, ports))

    # Requests of users

    def report(self) -> GetMeasuringResponse:
        machine, table = self._machine, self._view.tables.last
        reason = self._machine.paused or self.problem or (_TOO_FEW_AGENTS if machine.agents < 2 else "")
        return GetMeasuringResponse(
            state=self._present_state(),
            reason=reason if self._enabled else _OFF,
            since=timestamp(self._since_ns),
            agents=machine.agents,
            probes=machine.rate.total,
            probes_per_s=machine.rate.now_per_s(self._now_ns()),
            max_probes_per_s=self._settings.probes_per_s,
            pairs=len(table),
            disagreeing=table.disagreeing,
            failed=machine.failed,
            in_flight=machine.in_flight,
        )

    def has_measured_enough(self) -> bool:
        """Whether the measurements suffice to infer the hierarchy.

        They suffice if measuring is off, if learning has ended, or if at least two agents are connected and
        either each pair of the last plan failed or disagreed repeatedly, or learning has spent the probes
        that are enough for any cluster of this size. So pairs whose ends never agree do not block the others.
        A pause does not make it true.
        """
        if not self._enabled or not self._machine.learning:
            return True
        agents = self._machine.agents
        full = _PROBES_A_NODE * agents * math.log2(max(agents, 2))
        spent = self._machine.rate.total - self._probes_before
        return agents > 1 and (self._machine.all_tried or spent >= full)

    def why_paused(self) -> str | None:
        """Why measuring is paused; None = it is not."""
        return self._machine.paused if self._enabled else None

    def pause(self, reason: str) -> None:
        """Stop all measurements and start none. Raises NotNowError."""
        self._must_be_enabled()
        _log.info("measuring is paused %s", reason)
        self._handle(Paused(reason))

    def resume(self) -> None:
        """Continue measuring. Raises NotNowError."""
        self._must_be_enabled()
        _log.info("measuring is resumed")
        self._handle(Resumed())

    def _must_be_enabled(self) -> None:
        if not self._enabled:
            raise NotNowError(f"nothing is measured: {_OFF}")

    def _present_state(self) -> str:
        if not self._enabled:
            return "off"
        if self._machine.paused is not None:
            return "paused"
        return "learning" if self._machine.learning else "verifying"

    # Periodic work

    async def run(self) -> None:
        """Measure until cancelled. Returns at once if measuring is off."""
        if not self._enabled:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick(), name="measuring-ticks")
            group.create_task(self._make_plans(), name="measuring-plans")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            if (generation := self._topology().generation) != self._generation:
                self._generation = generation
                self._handle(HierarchyChanged())
            self._handle(Tick())
            if (enough := self.has_measured_enough()) and not self._had_enough:
                self._learned()
            self._had_enough = enough
            if (wanted := self._machine.wants_plan(self._now_ns())) is not None:
                self._wanted = wanted
                self._work.set()

    async def _make_plans(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            if (wanted := self._wanted) is None:
                continue
            measured, topology = self._view.measured(), self._topology()
            try:
                planned = await self._in_thread(
                    lambda wanted, measured, topology: self._planned(
                        wanted, self._view.tables.read(measured), topology
                    ),
                    wanted,
                    measured,
                    topology,
                )
            except Exception as error:
                if self.problem is None:
                    _log.exception("planning of measurements fails")
                self.problem = f"nothing is measured, because planning fails: {error!r}"
                planned = Planned((), self._machine.learning)
            else:
                self.problem = None
            if planned.learning and not self._machine.learning:
                self._probes_before = self._machine.rate.total
            self._handle(planned)

    def _planned(self, wanted: PlanWanted, pairs: PairTable, topology: Topology) -> Planned:
        """The pairs to measure next. Runs in the thread.

        The placement of nodes with link evidence is verified by latency; the placement of all other nodes is
        learned from latency.
        """
        wired = wired_nodes(topology)
        known = [node for node in wanted.nodes if node in wired]
        opaque = [node for node in wanted.nodes if node not in wired]
        domains = published_domains(topology, known)
        learned = measured_domains(tiers_of(pairs), opaque) if opaque and len(pairs) else []
        verify = self._plan(known, pairs, domains, wanted.limit, wired=True)
        learn = self._plan(opaque, pairs, learned, wanted.limit, wired=False)
        pairs_wanted = [pair for both in zip_longest(learn, verify) for pair in both if pair is not None]
        return Planned(
            [(a, b) for a, b in pairs_wanted[: wanted.limit]],
            any_unmeasured(pairs, learn),
            representatives(known, domains) | representatives(opaque, learned),
        )

    def _plan(
        self, nodes: Sequence[str], pairs: PairTable, domains: Sequence[Longs], limit: int, *, wired: bool
    ) -> Sequence[tuple[str, str]]:
        if len(nodes) < 2:
            return []
        return self._tools.plan(
            nodes,
            pairs,
            domains,
            wired=wired,
            now_ns=self._tools.clock_ns(),
            reverify_ns=round(self._settings.reverify_s * NS),
            limit=limit,
            seed=self._tools.rng.getrandbits(32),
        )

    def _now_ns(self) -> int:
        """Monotonic ns, so a change of the system clock does not affect waiting times."""
        return round(self._tools.timer() * NS)

    def _handle(self, event: Event) -> None:
        tasks: dict[str, list[PairTask]] = {}
        for instruction in self._machine.handle(event, self._now_ns()):
            if isinstance(instruction, Assign):
                tasks.setdefault(instruction.node, []).append(_task(instruction))
            elif (stream := self._streams.get(instruction.node)) is not None:
                stop = StopMeasuring(reason=instruction.reason)
                stream.tell(StreamFindingsResponse(stop_measuring=stop))
        for node, some in tasks.items():
            if (stream := self._streams.get(node)) is not None:
                stream.tell(StreamFindingsResponse(measure_pairs=MeasurePairs(tasks=some)))
        if (state := self._present_state()) != self._state_name:
            self._state_name, self._since_ns = state, self._tools.clock_ns()


def _task(x: Assign) -> PairTask:
    return PairTask(
        task_id=x.task_id,
        peer=x.peer,
        interface=x.interface,
        address=x.address,
        peer_interface=x.peer_interface,
        peer_address=x.peer_address,
        peer_port=x.peer_port,
        key=x.key,
        method=x.method,
        pings=x.pings,
        first=x.first,
        expires_s=x.expires_s,
    )
