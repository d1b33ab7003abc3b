"""Runs NCCL on agents: checks the nodes, starts the ranks, passes on the unique id and ends the run.

A run is between two nodes or within one node. It ends when its call ends, also when the caller disconnects.
The result is an ordinary finding. The call returns when the result is on disk and the nodes are free again.
The state of runs is not stored: when this process stops, the agents' streams end and the agents stop their
ranks.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hyperscout.v1 import finding_pb2
from hyperscout.v1.discovery_pb2 import MeasureNccl, NcclId, StreamFindingsResponse
from hyperscout.v1.measurement_pb2 import RunNcclRequest
from hyperscout_formats.facts.facts import NcclRun
from hyperscout_formats.facts.wire_measured import nccl_to_proto

from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.state import KeyChange
from hyperscout_collector.ingest.streams import Connection, Streams
from hyperscout_collector.serve.grpc.measurement_service import NotNowError, RunFailedError

_log = logging.getLogger(__name__)

PROBE = "nccl"
UNIQUE_ID_BYTES = 128
TIMEOUT_S = 120.0
_WITHIN = "node"  # the finding's subject of a run within one node
_MAX_RUNS = 64
_MAX_REASON_CHARS = 512
_MIN_SIZE_BYTES, _MAX_SIZE_BYTES = 4, 16 << 30
# Time that an agent needs to end its processes and free its GPUs after the request to stop or its time-out.
_CLEAN_UP_S = 10.0
# How often the collector checks that the nodes are still reserved for measuring. A gang that is placed on one
# of them waits no longer than this.
_LOOK_S = 0.5


@dataclass(slots=True, eq=False)
class _Run:
    """One run. `over`: the nodes that have cleaned up.

    `started_ns`: Unix ns by the collector's clock; older findings belong to other runs.
    """

    task_id: int
    nodes: tuple[str, ...]  # by rank
    started_ns: int
    over: set[str] = field(default_factory=set)
    id_sent: bool = False
    result: NcclRun | None = None
    failure: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def subject(self) -> str:
        return self.nodes[1] if len(self.nodes) > 1 else _WITHIN

    @property
    def all_over(self) -> bool:
        return self.over.issuperset(self.nodes)

    def fail(self, why: str) -> None:
        """Mark the run as failed. Only the first reason is kept."""
        if not self.failure:
            self.failure = why[:_MAX_REASON_CHARS]
        self.changed.set()


class NcclRuns:
    """The NCCL runs that are in progress.

    `why_not_free`: why a node must not be used for measuring, None = it can be used. `why_paused`: why
    measuring is paused, None = it is not. `clock_ns`: Unix ns. `new_id`: a random number of 64 bits.
    """

    def __init__(
        self,
        streams: Streams,
        *,
        why_not_free: Callable[[str], str | None],
        why_paused: Callable[[], str | None],
        clock_ns: Callable[[], int],
        new_id: Callable[[], int],
    ) -> None:
        self._streams = streams
        self._why_not_free = why_not_free
        self._why_paused = why_paused
        self._clock_ns = clock_ns
        self._new_id = new_id
        self._by_node: dict[str, _Run] = {}
        self._by_task: dict[int, _Run] = {}

    async def run_nccl(self, request: RunNcclRequest) -> finding_pb2.NcclRun:
        """`run` for the API. Raises MeasurementError."""
        return nccl_to_proto(await self.run(request.nodes, request.sizes_bytes, request.timeout_s))

    async def run(
        self, nodes: Sequence[str], sizes_bytes: Sequence[int] = (), timeout_s: float = 0.0
    ) -> NcclRun:
        """Run NCCL within one node or between two, and return the result. Cancelling ends the run.

        `timeout_s`: 0 = `TIMEOUT_S`; an agent may have a lower limit. Raises NotNowError if the run cannot
        start, RunFailedError if it fails.
        """
        run = self._begin(tuple(nodes), sizes_bytes)
        limit_s = timeout_s or TIMEOUT_S
        _log.info("NCCL run %016x: %s", run.task_id, " and ".join(run.nodes))
        try:
            for rank, node in enumerate(run.nodes):
                self._send(node, measure_nccl=_task(run, rank, sizes_bytes, limit_s))
            try:
                async with asyncio.timeout(limit_s + _CLEAN_UP_S):
                    await self._follow(run)
            except TimeoutError:
                run.fail(f"no end in {limit_s:g} s")
            if run.result is None:
                _log.warning("NCCL run %016x: %s", run.task_id, run.failure)
                await self._end(run)
                raise RunFailedError(run.failure)
            _log.info("NCCL run %016x: done", run.task_id)
            return run.result
        finally:
            self._send_end(run, run.failure or "the call that requested it has ended")
            del self._by_task[run.task_id]
            for node in run.nodes:
                del self._by_node[node]

    def free(self, node: str) -> bool:
        """Whether a run can start on this node now."""
        return self._why_not(node) is None

    # Events

    def take_id(self, node: str, message: NcclId) -> None:
        """Take a message of an agent: the unique id of a run, or the end of the agent's rank.

        An agent can only report for its own node.
        """
        run = self._by_task.get(message.task_id)
        if run is None or node not in run.nodes or node in run.over:
            return
        if not message.unique_id:
            run.over.add(node)
            run.changed.set()
            if message.failure:
                run.fail(f"{node}: {message.failure}")
        elif node == run.nodes[0] and len(run.nodes) > 1 and not run.id_sent:
            run.id_sent = True
            if len(message.unique_id) == UNIQUE_ID_BYTES:
                self._send(run.nodes[1], nccl_id=message)
            else:
                run.fail(f"{node}: an id of {len(message.unique_id)} bytes")

    def disconnected(self, stream: Connection) -> None:
        if (run := self._by_node.get(stream.node)) is not None:
            run.over.add(stream.node)
            run.fail(f"{stream.node}: its agent went away")

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        for change in changes:
            run = self._by_node.get(change.key.node)
            if run is None or change.key != Key(run.nodes[0], PROBE, run.subject):
                continue
            for row in change.after:
                if row in change.before or row.seen_ns < run.started_ns:
                    continue
                if isinstance(row.fact, NcclRun):
                    run.result = row.fact
                    run.changed.set()
                else:
                    run.fail(f"{row.key.node}: {row.reason}")

    # The run

    def _begin(self, nodes: tuple[str, ...], sizes_bytes: Sequence[int]) -> _Run:
        """Check the request and register a new run. Raises NotNowError."""
        if any(not _MIN_SIZE_BYTES <= x <= _MAX_SIZE_BYTES or x % 4 for x in sizes_bytes):
            raise NotNowError("sizes_bytes: each must be a multiple of 4, from 4 to 17179869184 (16 GiB)")
        if why := self._why_paused():
            raise NotNowError(f"measuring is paused {why}: `hyperscout measure resume`")
        for node in nodes:
            if why := self._why_not(node):
                raise NotNowError(f"{node}: {why}")
        if len(self._by_task) >= _MAX_RUNS:
            raise NotNowError(f"{_MAX_RUNS} runs are under way")
        run = _Run(self._new_id(), nodes, self._clock_ns())
        self._by_task[run.task_id] = run
        for node in nodes:
            self._by_node[node] = run
        return run

    def _why_not(self, node: str) -> str | None:
        stream = self._streams.get(node)
        if stream is None:
            return "no agent of this node is connected"
        if PROBE not in stream.hello.probes:
            return "the probe is off on this node (setting nccl.enabled of its agent)"
        if node in self._by_node:
            return "a run is under way on this node"
        return self._why_not_free(node)

    async def _follow(self, run: _Run) -> None:
        """Wait until the run has failed, or has a result and all its nodes are free.

        A failure after the result does not discard the result.
        """
        while not run.all_over if run.result is not None else not run.failure:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await run.changed.wait()
            run.changed.clear()
            if why := self._why_paused():
                run.fail(f"measuring was paused {why}")
            for node in run.nodes:
                if why := self._why_not_free(node):
                    run.fail(f"{node}: {why}")

    async def _end(self, run: _Run) -> None:
        """Stop the other ranks and wait until they have ended, at most `_CLEAN_UP_S`."""
        self._send_end(run, run.failure)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLEAN_UP_S):
                while not run.all_over:
                    await run.changed.wait()
                    run.changed.clear()

    def _send_end(self, run: _Run, why: str) -> None:
        for node in run.nodes:
            if node not in run.over:
                self._send(node, nccl_id=NcclId(task_id=run.task_id, failure=why))

    def _send(
        self, node: str, *, measure_nccl: MeasureNccl | None = None, nccl_id: NcclId | None = None
    ) -> None:
        if (stream := self._streams.get(node)) is not None:
            stream.tell(StreamFindingsResponse(measure_nccl=measure_nccl, nccl_id=nccl_id))


def _task(run: _Run, rank: int, sizes_bytes: Sequence[int], timeout_s: float) -> MeasureNccl:
    ranks = len(run.nodes) if len(run.nodes) > 1 else 0
    return MeasureNccl(
        task_id=run.task_id,
        rank=rank,
        ranks=ranks,
        peer=run.nodes[1 - rank] if ranks else "",
        sizes_bytes=sizes_bytes,
        timeout_s=timeout_s,
    )
