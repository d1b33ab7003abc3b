"""Grants sweep leases to agents: takes events from streams and evidence, and sends instructions to agents.

`decisions.fabric.leases` decides; this module adds the clock and the agents. Sweeps are read in a thread, and
the reading is shared with inference, so the event of a sweep comes a moment after the commit.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from hyperscout.v1.discovery_pb2 import StreamFindingsResponse, SweepLease, SweepRevoke
from hyperscout.v1.topology_pb2 import LeaseStatus
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.reporters import is_fabric
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.event_log import EventLog
from hyperscout_runtime.units import NS
from hyperscout_topology.link_changes import table_of
from hyperscout_topology.proto import timestamp
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.ingest.no_sweeps import NoSweeps
from hyperscout_collector.decisions.fabric.lease_state import LeaseSettings
from hyperscout_collector.decisions.fabric.leases import SweepLeases
from hyperscout_collector.decisions.fabric.sweep_events import (
    AgentConnected,
    AgentGone,
    Event,
    Grant,
    PortsSeen,
    SweepFailed,
    SweepHeld,
    SweepPort,
    SweepSeen,
    Tick,
)
from hyperscout_collector.evidence.guard import EvidenceGuard
from hyperscout_collector.evidence.rows import FAILED, Row, SweepFact
from hyperscout_collector.evidence.snapshot import HeldSweep
from hyperscout_collector.evidence.state import LEASED_PROBES, EvidenceState, KeyChange
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.ingest.streams import Connection, Streams
from hyperscout_collector.store.errors import StoreError

_log = logging.getLogger(__name__)

_MAX_WAITING = 1000  # sweeps that wait to be read; the oldest are dropped, since newer ones replace them
_SILENCE_S = 300.0
_HELD_S = 60  # between two judgements of a held sweep


class Sweeps:
    """The sweep leases. `interval_s`: time between two sweeps of a fabric. `topology()`: as published.

    Run `run` as a task, and call `tick` about once a second.
    """

    def __init__(
        self,
        interval_s: float,
        streams: Streams,
        state: EvidenceState,
        texts: SweepTexts,
        guard: EvidenceGuard,
        clock_ns: Callable[[], int],
        log: EventLog | None = None,
        topology: Callable[[], Topology | None] = lambda: None,
    ) -> None:
        self._streams = streams
        self._state = state
        self._texts = texts
        self._guard = guard
        self._clock_ns = clock_ns
        settings = LeaseSettings(interval_s=interval_s, silence_s=max(_SILENCE_S, 3 * interval_s))
        self._started_ns = clock_ns()
        self._machine = SweepLeases(settings, self._started_ns, log)
        self._unreadable: dict[str, str] = {}  # node -> error in its last sweep
        self._topology = topology
        self._no_sweeps = NoSweeps(self._machine.unswept, streams, state, clock_ns, topology)
        self._held: tuple[str, ...] = ()
        # By node and device: since when no other node has swept what a held sweep shows, Unix ns.
        self._waits: dict[tuple[str, str], int] = {}
        # Nodes and devices whose sweeps no other agent can confirm.
        self.alone: frozenset[tuple[str, str]] = frozenset()
        self._waiting: deque[Row] = deque(maxlen=_MAX_WAITING)
        self._work = asyncio.Event()
        self._in_thread = BoundedExecutor("sweeps")

    # Questions of ingest

    def may_sweep(self, node: str) -> bool:
        return any(lease.node == node for lease in self._machine.leases())

    def refuse_sweep(self, node: str, lease_id: str, port_guid: int | None) -> str | None:
        if self._machine.may_report(node, lease_id):
            if port_guid is None or self._machine.starts_at(lease_id, port_guid):
                return None
            reason = f"the sweep of {node} does not start at the port of its lease {lease_id!r}"
            self._handle(SweepFailed(node, lease_id, reason))
            return reason
        self._handle(SweepFailed(node, lease_id, ""))  # the agent then receives a revocation of the lease
        return f"{node} does not hold the sweep lease {lease_id!r}"

    def holds(self, node: str, lease_id: str) -> bool:
        return self._machine.may_report(node, lease_id)

    def held(self, sweeps: Sequence[HeldSweep]) -> int | None:
        """Inference did not count these sweeps as a whole. Returns when to judge them again, Unix ns.

        None = there are none. It is now if `alone` changed. Otherwise it is later, because `alone` depends on
        the time, and nothing may change in the evidence of a single agent.
        """
        now_ns = self._clock_ns()
        self._held = tuple(one.problem for one in sweeps if one.problem)
        waiting = [one for one in sweeps if one.reason]
        # A device may have a whole and a partial sweep. Both wait while another node answers one of them.
        answered = {(one.node, one.device) for one in waiting if one.is_answered}
        places = dict.fromkeys((one.node, one.device) for one in waiting)
        self._waits = {at: now_ns if at in answered else self._waits.get(at, now_ns) for at in places}
        alone = {(one.node, one.device) for one in waiting if self._is_alone(one, now_ns)} - answered
        for one in sweeps:
            if (one.node, one.device) not in alone:
                self._handle(SweepHeld(one.node, one.lease_id, one.reason, one.is_first, one.is_accused))
        if not alone <= self.alone:
            self.alone |= alone
            return now_ns
        return now_ns + _HELD_S * NS if waiting else None

    def _is_alone(self, sweep: HeldSweep, now_ns: int) -> bool:
        """Whether no other agent can confirm the sweep, or none that was asked has swept."""
        if now_ns - self._waits[sweep.node, sweep.device] >= _SILENCE_S * NS:
            return True
        is_settled = now_ns - self._started_ns >= _SILENCE_S * NS or not self._awaits_agents(sweep.node)
        return is_settled and self._machine.is_alone(sweep.node, sweep.lease_id)

    def _awaits_agents(self, but: str) -> bool:
        """Whether another node with InfiniBand ports in the evidence is not connected. After a start it may
        be on its way back."""
        return any(
            node != but
            and self._streams.get(node) is None
            and any(isinstance(row.fact, InfinibandPort) for row in self._state.rows_of_node(node))
            for node in self._state.nodes
        )

    def unreadable(self, node: str, lease_id: str, reason: str) -> None:
        self._unreadable[node] = reason
        self._handle(SweepFailed(node, lease_id, reason))

    def failed(self, node: str, lease_id: str, reason: str) -> None:
        """Another replica of the collector refused a sweep of this node."""
        self._handle(SweepFailed(node, lease_id, reason))

    # Events

    def connected(self, stream: Connection) -> None:
        self._handle(PortsSeen(stream.node, self._ports(stream.node)))
        self.alone = frozenset()
        self._handle(AgentConnected(stream.node, frozenset(stream.hello.probes)))

    def disconnected(self, stream: Connection) -> None:
        self._drop_problem_of_gone(stream.node)
        self._handle(AgentGone(stream.node))

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        ports = set()
        for change in changes:
            if not change.after:
                self._drop_problem_of_gone(change.key.node)
            if change.key.probe in LEASED_PROBES:
                self._swept(change)
            elif is_fabric(change.key.node) and any(row.sha256 for row in change.after):
                self._unreadable.pop(change.key.node, None)
            elif not change.is_renewal and any(
                isinstance(row.fact, InfinibandPort) for row in (*change.before, *change.after)
            ):
                ports.add(change.key.node)
        for node in sorted(ports):
            self._handle(PortsSeen(node, self._ports(node)))

    def tick(self) -> None:
        self._handle(Tick())
        self._no_sweeps.tick()

    async def run(self) -> None:
        """Read waiting sweeps until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                row = self._waiting.popleft()
                with self._guard.reading("the reading of sweeps", row.key):
                    await self._saw(row)

    # Status

    @property
    def problems(self) -> list[str]:
        unreadable = sorted(self._unreadable.items())
        found = [f"sweep of {node} cannot be read: {why}" for node, why in unreadable] + sorted(self._held)
        return found if self._no_sweeps.problem is None else [self._no_sweeps.problem, *found]

    def leases(self) -> list[LeaseStatus]:
        return [
            LeaseStatus(
                lease_id=lease.lease_id,
                node=lease.node,
                device=lease.device,
                port=lease.port,
                granted_at=timestamp(lease.granted_at_ns),
                last_sweep_at=timestamp(lease.last_sweep_at_ns),
                partial=lease.partial,
                partial_reason=lease.reason,
                unconfirmed=lease.unconfirmed,
            )
            for lease in self._machine.leases()
        ]

    def _ports(self, node: str) -> tuple[SweepPort, ...]:
        return tuple(
            SweepPort(row.fact.device, row.fact.port, row.fact.port_guid)
            for row in self._state.rows_of_node(node)
            if isinstance(row.fact, InfinibandPort)
            and row.fact.state == "ACTIVE"
            and row.fact.link_layer == "InfiniBand"
        )

    def _drop_problem_of_gone(self, node: str) -> None:
        if not self._state.count_of(node):
            self._unreadable.pop(node, None)

    def _swept(self, change: KeyChange) -> None:
        known = set(change.before)
        for row in change.after:
            if row in known:
                continue
            if row.rank == FAILED:
                node, _, subject = row.key
                for lease in self._machine.leases():
                    if lease.node == node and f"{lease.device}/{lease.port}" == subject:
                        self._handle(SweepFailed(node, lease.lease_id, row.reason))
            elif row.sha256:
                self._waiting.append(row)
                self._work.set()

    async def _saw(self, row: Row) -> None:
        fact = row.fact
        if not isinstance(fact, SweepFact):
            return
        try:
            guids = await self._in_thread(self._texts.port_guids, fact.sha256, f"sweep of {row.key.node}")
        except (FormatError, StoreError) as error:
            # The sweep was replaced since, or the store has failed. `status` shows both elsewhere.
            _log.warning("%s", error)
            return
        node = row.key.node
        self._unreadable.pop(node, None)
        self.alone = frozenset(one for one in self.alone if one[0] == node)
        known = self._known_leases()
        self._handle(SweepSeen(node, fact.lease_id, guids, fact.partial, fact.partial_reason, known))

    def _known_leases(self) -> frozenset[str]:
        """The leases whose adapter is published as their node's, with a cable."""
        topology = self._topology()
        ids = {
            f"{row.fact.node_guid:016x}": lease
            for lease in self._machine.leases()
            for row in self._state.rows_of_node(lease.node)
            if isinstance(row.fact, InfinibandPort) and row.fact.device == lease.device
        }
        if topology is None or ids.keys().isdisjoint(devices := set(table_of(topology.links).devices)):
            return frozenset()
        known = {x.id: x.node for x in topology.adapters if x.id in ids and x.id in devices}
        return frozenset(lease.lease_id for id_, lease in ids.items() if known.get(id_) == lease.node)

    def _handle(self, event: Event) -> None:
        for instruction in self._machine.handle(event, self._clock_ns()):
            stream = self._streams.get(instruction.node)
            if stream is None:
                continue
            if isinstance(instruction, Grant):
                lease = SweepLease(
                    lease_id=instruction.lease_id,
                    device=instruction.device,
                    port=instruction.port,
                    interval_s=instruction.interval_s,
                )
                if not instruction.is_repeated:
                    place = instruction.node, instruction.device, instruction.port
                    _log.info("sweep lease %s to %s %s/%d", lease.lease_id, *place)
                stream.tell(StreamFindingsResponse(lease=lease))
            else:
                revoke = SweepRevoke(lease_id=instruction.lease_id, reason=instruction.reason)
                _log.info(
                    "sweep lease %s of %s: %s", instruction.lease_id, instruction.node, instruction.reason
                )
                stream.tell(StreamFindingsResponse(revoke=revoke))
