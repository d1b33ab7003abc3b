"""Measures the speed of collective operations, within this host or between it and one other host.

The probe uses GPUs, so it has strict conditions. It runs only on a collector's request, one run at a time on
a host, and only when NVML reports all GPUs as idle. A run ends at its time-out and with the stream that
requested it. GPU work runs in other processes: the agent does not load CUDA.

Rank 0 of a run reports the finding under the peer's name ("node" for a run within the host). Every rank
notifies the collector when it is done, with the reason of a failure, so that the other rank does not wait.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from hyperscout.v1.discovery_pb2 import MeasureNccl, NcclId, StreamFindingsRequest
from hyperscout.v1.finding_pb2 import NcclRun as NcclRunMessage
from hyperscout_formats.facts.facts import NcclResult, NcclRun
from hyperscout_formats.facts.wire_measured import nccl_to_proto

from hyperscout_agent.findings.probe import (
    Observation,
    ProbeContext,
    ProbeParts,
    Sample,
    Scope,
    data,
    failed,
    nothing,
)
from hyperscout_agent.nccl.host_lock import HostLock, LockedError
from hyperscout_agent.nccl.library import UNIQUE_ID_BYTES
from hyperscout_agent.nccl.pair import NothingThereError, WorkerError, run_worker
from hyperscout_agent.nccl.tool import run_operation
from hyperscout_agent.nccl.worker import RANKS, WorkerOrder
from hyperscout_agent.nvml.gpu_use import (
    GpusUnknownError,
    NoGpusError,
    ReadGpus,
    gpu_use,
    idle_gpus,
)
from hyperscout_agent.runtime.subprocesses import ToolError, ToolMissingError
from hyperscout_agent.runtime.tasks import Wait, wait

_log = logging.getLogger(__name__)

DEFAULT_SIZES: Final = (*(8 << i for i in range(8)), *((64 << 20) << i for i in range(5)))
"""8 B to 1 KiB for latency, 64 MiB to 1 GiB for bandwidth."""
MAX_SIZES: Final = 64
MAX_SIZE_BYTES: Final = 16 << 30
_WITHIN = "node"
_CLEAN_UP_S = 30.0
_ONCE_S = 86_400.0


@dataclass(frozen=True, slots=True)
class NcclCommands:
    """The nccl-tests commands, and the libraries that a worker loads."""

    all_reduce: Sequence[str] = ("all_reduce_perf",)
    sendrecv: Sequence[str] = ("sendrecv_perf",)
    library: str = "libnccl.so.2"
    cuda_library: str = "libcudart.so"


def build(context: ProbeContext) -> ProbeParts:
    """Return the probe, or a handler that rejects runs on a node where the probe is disabled."""
    settings = context.settings.nccl

    def send(nccl_id: NcclId) -> None:
        context.send(StreamFindingsRequest(nccl_id=nccl_id))

    def reject(task: MeasureNccl) -> None:
        send(NcclId(task_id=task.task_id, failure="the nccl probe is off on this node (nccl.enabled)"))

    if not settings.enabled:
        return ProbeParts(None, directives={"measure_nccl": reject})
    probe = NcclProbe(
        NcclCommands(settings.all_reduce, settings.sendrecv, settings.library, settings.cuda_library),
        timeout_s=settings.timeout_s,
        send=send,
        trigger=context.trigger,
        gpus=partial(gpu_use, context.settings.nvlink.library),
        wall_ns=context.now_ns,
    )
    return ProbeParts(
        probe,
        directives={
            "measure_nccl": probe.measure,
            "nccl_id": probe.take_id,
            "stop_measuring": lambda stop: probe.stop(stop.reason),
        },
        stream_ended=probe.stream_ended,
    )


class _RefusedError(Exception):
    """The run is rejected. The message gives the reason."""


@dataclass(slots=True, eq=False)
class _Run:
    """One run. `unique_id`: the id of rank 0, which the collector forwards."""

    task_id: int
    rank: int
    peer: str  # "" = within the host
    sizes_bytes: tuple[int, ...]
    timeout_s: float
    unique_id: "asyncio.Future[bytes]"
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    why_stopped: str = ""

    @property
    def subject(self) -> str:
        return self.peer or _WITHIN


class NcclProbe:
    """Runs only after `measure`. `timeout_s`: maximum seconds of a run, also for the collector's requests.

    `send`: sends a message up the live stream. `gpus`: reads the use of the GPUs (blocks). `lock`: name of a
    lock that all agents of a host share. `clock`: monotonic seconds. `wall_ns`: nanoseconds since 1970.
    """

    name = "nccl"
    scope: Scope = "pair"
    max_findings = 1

    def __init__(
        self,
        commands: NcclCommands,
        *,
        timeout_s: float,
        send: Callable[[NcclId], None],
        trigger: Callable[[], None],
        lock: str = "hyperscout-nccl",
        gpus: ReadGpus,
        wait: Wait = wait,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._commands = commands
        self._limit_s = timeout_s
        self._send = send
        self._trigger = trigger
        self._lock = lock
        self._gpus = gpus
        self._wait = wait
        self._clock = clock
        self._wall_ns = wall_ns
        self._run: _Run | None = None

    @property
    def interval_s(self) -> float | None:
        """None without a run, so that the probe runs only when triggered; else one day."""
        return None if self._run is None else _ONCE_S

    @property
    def timeout_s(self) -> float:
        """The run's own time-out plus time to clean up, in seconds."""
        return self._limit_s + _CLEAN_UP_S

    # Directives of the collector

    def measure(self, task: MeasureNccl) -> None:
        """Start a run, or reject it with a reason. A repeated request is ignored."""
        run = self._run
        if run is not None and run.task_id == task.task_id:
            return
        try:
            if run is not None:
                raise _RefusedError(f"another run is in progress ({_between(run)})")
            self._run = self._accepted(task)
        except _RefusedError as error:
            self._send(NcclId(task_id=task.task_id, failure=str(error)))
        else:
            self._trigger()

    def take_id(self, nccl_id: NcclId) -> None:
        """Take the id of rank 0, or stop the run when the message contains a failure."""
        run = self._run
        if run is None or run.task_id != nccl_id.task_id:
            return
        if len(nccl_id.unique_id) == UNIQUE_ID_BYTES and run.rank > 0:
            if not run.unique_id.done():
                run.unique_id.set_result(nccl_id.unique_id)
        else:
            self.stop(nccl_id.failure or "the collector sent no id")

    def stop(self, reason: str) -> None:
        """Stop the current run, if any."""
        run = self._run
        if run is not None and not run.stopped.is_set():
            run.why_stopped = reason
            run.stopped.set()

    def stream_ended(self) -> None:
        """Stop the run: without a stream the collector can neither use its result nor stop it."""
        self.stop("the stream to the collector ended")

    def _accepted(self, task: MeasureNccl) -> _Run:
        """Validate a request. Raises _RefusedError for an invalid one."""
        ranks, sizes = task.ranks, tuple(task.sizes_bytes) or DEFAULT_SIZES
        if ranks not in (0, RANKS) or task.rank >= max(ranks, 1) or bool(task.peer) != (ranks == RANKS):
            raise _RefusedError(
                f"rank {task.rank} of {ranks} with the peer {task.peer!r}: "
                "expected rank 0 of 0 without a peer, or of 2 with a peer"
            )
        if len(sizes) > MAX_SIZES or not all(4 <= x <= MAX_SIZE_BYTES and x % 4 == 0 for x in sizes):
            raise _RefusedError(
                f"expected at most {MAX_SIZES} sizes, each a multiple of 4 from 4 B to 16 GiB"
            )
        limit_s = task.timeout_s if task.timeout_s > 0 else self._limit_s  # also false for NaN
        return _Run(
            task.task_id,
            task.rank,
            task.peer,
            tuple(sorted(set(sizes))),
            min(limit_s, self._limit_s),
            asyncio.get_running_loop().create_future(),
        )

    # The run

    async def observe(self) -> Observation:
        """Perform the requested run. Without a request the observation is empty."""
        run = self._run
        if run is None:
            return Observation(complete=False)
        try:
            sample = await self._until_stopped(run)
        except Exception as error:
            # A defect in the probe, which the scheduler reports. The collector must not wait for a result.
            self._send(NcclId(task_id=run.task_id, failure=f"the probe crashed: {error}"[:1000]))
            raise
        finally:
            self._run = None
            run.unique_id.cancel()
        failure = "" if sample.payload is not None else sample.reason
        if failure:
            _log.warning("NCCL run %s: %s", _between(run), failure)
        # Both ranks send this. Until then the collector gives this host no other run.
        self._send(NcclId(task_id=run.task_id, failure=failure))
        if run.rank > 0:
            return Observation(complete=False)  # rank 0 reports
        return Observation({run.subject: sample}, complete=False)

    async def _until_stopped(self, run: _Run) -> Sample:
        """Return the run's sample. After a stop, its processes have ended before this returns."""
        working = asyncio.create_task(self._guarded(run), name="nccl-run")
        stopped = asyncio.create_task(run.stopped.wait(), name="nccl-stop")
        try:
            await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else failed(f"stopped: {run.why_stopped}")
        finally:
            for task in (working, stopped):
                task.cancel()
            await _end_of(working)

    async def _guarded(self, run: _Run) -> Sample:
        """Run under the host lock and convert expected errors to samples."""
        try:
            with HostLock(self._lock):
                gpus = await idle_gpus(self._gpus, self._wait)
                return await (self._between_hosts(run) if run.peer else self._within_host(run, gpus))
        except NoGpusError as error:
            return nothing(str(error))
        except NothingThereError as error:
            return nothing(str(error))
        except LockedError:
            return failed("another agent of this host has a run in progress")
        except (GpusUnknownError, WorkerError, ToolError, OSError) as error:
            return failed(str(error))

    async def _between_hosts(self, run: _Run) -> Sample:
        began_s = self._clock()

        async def take_id() -> bytes:
            return await asyncio.shield(run.unique_id)

        version, results = await run_worker(
            WorkerOrder(run.rank, run.sizes_bytes, self._commands.library, self._commands.cuda_library),
            send_id=lambda unique_id: self._send(NcclId(task_id=run.task_id, unique_id=unique_id)),
            take_id=take_id,
            timeout_s=run.timeout_s,
        )
        return data(self._payload(run, "libnccl", version, RANKS, results, began_s))

    async def _within_host(self, run: _Run, gpus: int) -> Sample:
        if gpus < 2:
            return nothing("this host has one GPU: a run within the host needs two")
        began_s = self._clock()
        missing: list[str] = []
        results: list[NcclResult] = []
        version, ranks = "", 0
        for operation, command in (
            ("all_reduce", self._commands.all_reduce),
            ("sendrecv", self._commands.sendrecv),
        ):
            left_s = max(run.timeout_s - (self._clock() - began_s), 0.0)
            try:
                measured = await run_operation(
                    command, operation, run.sizes_bytes, gpus, timeout_s=left_s, wait=self._wait
                )
            except ToolMissingError as error:
                missing.append(str(error))
                continue
            version, ranks = measured.nccl_version, measured.ranks
            results += measured.results
        reason = ", ".join(missing)
        if not results:
            return nothing(f"{reason}: install nccl-tests, or set the paths of its programs")
        payload = self._payload(run, "nccl-tests", version, ranks or gpus, results, began_s)
        return data(payload, reason)

    def _payload(
        self,
        run: _Run,
        method: str,
        version: str,
        ranks: int,
        results: Sequence[NcclResult],
        began_s: float,
    ) -> NcclRunMessage:
        return nccl_to_proto(
            NcclRun(
                run.peer, method, self._wall_ns(), version, ranks, tuple(results), self._clock() - began_s
            )
        )


async def _end_of(task: asyncio.Task[Sample]) -> None:
    """Wait until the task has cleaned up (some seconds), even if this coroutine is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _between(run: _Run) -> str:
    return f"as rank {run.rank} with {run.peer}" if run.peer else "within this host"
