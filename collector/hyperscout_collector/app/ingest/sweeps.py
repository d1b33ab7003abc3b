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
from hyperscout_topology.proto import timestamp

from hyperscout_collector.decisions.fabric.lease_state import LeaseSettings
from hyperscout_collector.decisions.fabric.leases import SweepLeases
from hyperscout_collector.decisions.fabric.sweep_events import (
    AgentConnected,
    AgentGone,
    Event,
    Grant,
    PortsSeen,
    SweepFailed,
    SweepPort,
    SweepSeen,
    Tick,
)
from hyperscout_collector.evidence.guard import EvidenceGuard
from hyperscout_collector.evidence.rows import FAILED, Row, SweepFact
from hyperscout_collector.evidence.state import LEASED_PROBES, EvidenceState, KeyChange
from hyperscout_collector.evidence.sweep_texts import SweepTexts
from hyperscout_collector.ingest.streams import AgentStream, Streams
from hyperscout_collector.store.errors import StoreError

_log = logging.getLogger(__name__)

_MAX_WAITING = 1000  # sweeps that wait to be read; the oldest are dropped, since newer ones replace them
_SILENCE_S = 300.0


class Sweeps:
    """The sweep leases. `interval_s`: time between two sweeps of a fabric.

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
    ) -> None:
        self._streams = streams
        self._state = state
        self._texts = texts
        self._guard = guard
        self._clock_ns = clock_ns
        settings = LeaseSettings(interval_s=interval_s, silence_s=max(_SILENCE_S, 3 * interval_s))
        self._machine = SweepLeases(settings, clock_ns(), log)
        self._unreadable: dict[str, str] = {}  # node -> error in its last sweep
        self._waiting: deque[Row] = deque(maxlen=_MAX_WAITING)
        self._work = asyncio.Event()
        self._in_thread = BoundedExecutor("sweeps")

    # Questions of ingest

    def may_sweep(self, node: str) -> bool:
        return any(lease.node == node for lease in self._machine.leases())

    def refuse_sweep(self, node: str, lease_id: str) -> str | None:
        if self._machine.may_report(node, lease_id):
            return None
        self._handle(SweepFailed(node, lease_id, ""))  # the agent then receives a revocation of the lease
        return f"{node} does not hold the sweep lease {lease_id!r}"

    def unreadable(self, node: str, lease_id: str, reason: str) -> None:
        self._unreadable[node] = reason
        self._handle(SweepFailed(node, lease_id, reason))

    # Events

    def connected(self, stream: AgentStream) -> None:
        self._handle(PortsSeen(stream.node, self._ports(stream.node)))
        self._handle(AgentConnected(stream.node, frozenset(stream.hello.probes)))

    def disconnected(self, stream: AgentStream) -> None:
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
            elif any(isinstance(row.fact, InfinibandPort) for row in (*change.before, *change.after)):
                ports.add(change.key.node)
        for node in sorted(ports):
            self._handle(PortsSeen(node, self._ports(node)))

    def tick(self) -> None:
        self._handle(Tick())

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
        return [f"sweep of {node} cannot be read: {why}" for node, why in sorted(self._unreadable.items())]

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
        self._unreadable.pop(row.key.node, None)
        self._handle(SweepSeen(row.key.node, fact.lease_id, guids, fact.partial, fact.partial_reason))

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
                _log.info(
                    "sweep lease %s to %s %s/%d",
                    instruction.lease_id,
                    instruction.node,
                    instruction.device,
                    instruction.port,
                )
                stream.tell(StreamFindingsResponse(lease=lease))
            else:
                revoke = SweepRevoke(lease_id=instruction.lease_id, reason=instruction.reason)
                _log.info(
                    "sweep lease %s of %s: %s", instruction.lease_id, instruction.node, instruction.reason
                )
                stream.tell(StreamFindingsResponse(revoke=revoke))
