"""Runs the collector's pair tasks, from the directive to a result.

Each task is validated, waits for the traffic limit, and ends before it expires. Each task is a coroutine
until its key expires or both ends are done. `stop` cancels all tasks. One end of a task measures first. The
other begins when the first reports that it is done, or when it has been silent for a while.
"""

import asyncio
import logging
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from ipaddress import ip_address

from hyperscout.v1.discovery_pb2 import PairTask
from hyperscout_formats.facts.facts import LatencyResult

from hyperscout_agent.ping.bucket import Bucket
from hyperscout_agent.ping.burst import Burst, BurstPlan
from hyperscout_agent.ping.keys import MAX_TASKS, Keyring, LiveTask, plain_address
from hyperscout_agent.ping.packet import KEY_BYTES
from hyperscout_agent.ping.rdma import RdmaPings, RdmaPlan
from hyperscout_agent.ping.responder import Responder
from hyperscout_agent.ping.statistics import Summary
from hyperscout_agent.runtime.tasks import Wait, wait
from hyperscout_agent.runtime.threads import BlockedError, in_thread

_log = logging.getLogger(__name__)

MAX_PINGS = 64
_MIN_PINGS = 3
_MAX_EXPIRES_S = 600.0
_MAX_NAME_BYTES = 253
_MAX_KNOWN = 4096
# Concurrent bursts. One of them exchanges pings; the others search for their peer or end.
_AT_ONCE = 4
# The end that measures second polls at the first interval. It begins when the first end has been silent for
# the second one, or when it has not received any packet for the third one.
_POLL_S = 0.1
_SILENCE_S = 0.6
_NEVER_HEARD_S = 3.0


class TaskError(ValueError):
    """The task is invalid or impossible. The message gives the reason."""


class PairTasks:
    """Runs pair tasks.

    `record`: called with each result and its interface. `clock`: monotonic seconds. `wall_ns`: nanoseconds
    since 1970.
    """

    def __init__(
        self,
        responder: Responder,
        keyring: Keyring,
        bucket: Bucket,
        rdma: RdmaPings,
        *,
        rdma_port_of: Callable[[str], str],
        record: Callable[[str, LatencyResult], None],
        clock: Callable[[], float],
        wall_ns: Callable[[], int],
        wait: Wait = wait,
    ) -> None:
        self.bursts: Counter[str] = Counter()  # by outcome
        self.refused: Counter[str] = Counter()  # rejected tasks by reason
        self.dropped: Counter[str] = Counter()  # rejected answers and samples by reason
        self.sent = 0
        self.received = 0
        self.unstamped = 0  # bursts without kernel time stamps
        self._responder = responder
        self._keyring = keyring
        self._bucket = bucket
        self._rdma = rdma
        self._rdma_port_of = rdma_port_of
        self._record = record
        self._clock = clock
        self._wall_ns = wall_ns
        self._wait = wait
        self._turn = threading.Lock()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._paying = asyncio.Lock()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._ends: dict[int, asyncio.Event] = {}  # set when the peer reports that it is done
        self._known: OrderedDict[int, None] = OrderedDict()
        keyring.on_done = self._peer_is_done

    def __len__(self) -> int:
        return len(self._running)

    def take(self, tasks: Iterable[PairTask]) -> None:
        """Start tasks. A known task is ignored. An invalid task is recorded as a failed result."""
        for task in tasks:
            if task.task_id in self._known:
                continue
            try:
                live = self._checked(task)
            except TaskError as error:
                self.refused[_kind(error)] += 1
                _log.debug("task %d: %s", task.task_id, error)
                self._fail(task, str(error))
                continue
            if len(self._running) >= MAX_TASKS or not self._keyring.add(live):
                self.refused["too many"] += 1
                continue
            self._known[task.task_id] = None
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
            self._ends[task.task_id] = asyncio.Event()
            self._responder.wake()
            doing = asyncio.create_task(self._do(task, live), name=f"pair-{task.task_id}")
            self._running[task.task_id] = doing
            # A callback instead of `finally`: a task cancelled before its start would not run its `finally`.
            doing.add_done_callback(partial(self._is_over, task.task_id))

    def stop(self) -> None:
        """Remove all keys and cancel all tasks. Nothing is sent or answered afterwards."""
        self._keyring.forget_all()
        self._responder.rest()
        for doing in self._running.values():
            doing.cancel()

    async def _do(self, task: PairTask, live: LiveTask) -> None:
        try:
            try:
                async with asyncio.timeout(live.expires_s - self._clock()):
                    await self._measure(task, live)
            except TimeoutError:
                self._put(task, Summary(0, 0, failure="no time was left before the task expired"))
            except BlockedError as error:
                self._put(task, Summary(0, 0, failure=f"the burst did not start: {error}"))
            # The other end may still measure.
            if not live.done:
                await self._wait(self._ends[task.task_id], max(0.0, live.expires_s - self._clock()))
        except Exception:
            _log.exception("task %d: unexpected error", task.task_id)

    def _is_over(self, task_id: int, _: object) -> None:
        self._running.pop(task_id, None)
        self._ends.pop(task_id, None)
        self._keyring.forget(task_id)
        if not len(self._keyring):
            self._responder.rest()

    async def _measure(self, task: PairTask, live: LiveTask) -> None:
        if task.method == "rdma":
            port = self._rdma_port_of(task.interface)
            outcome = await self._rdma.measure(RdmaPlan(task.task_id, task.first, port, live.peer_address))
            live.done = True  # both ends have measured
            self._put(task, outcome.summary, outcome.bandwidth_gbps)
            return
        if not live.first:
            await self._first_is_done(live)
        async with self._places:
            plan = await self._paid(_plan(task))
            burst = Burst(plan, self._bucket, self._turn)
            try:
                summary = await in_thread(burst.run, "ping-burst")
            finally:
                burst.stop()
                self.sent += burst.sent
                self.received += burst.received
                self.dropped.update(burst.dropped)
            if summary is not None:
                self.unstamped += not burst.stamped and summary.received > 0
                self.dropped.update(summary.dropped)
                self._put(task, summary)

    async def _first_is_done(self, live: LiveTask) -> None:
        began_s = self._clock()
        patience_s = min(_NEVER_HEARD_S, (live.expires_s - began_s) / 3)
        while not live.done:
            now_s = self._clock()
            if live.heard_s is not None and now_s - live.heard_s > _SILENCE_S:
                return
            if live.heard_s is None and now_s - began_s > patience_s:
                return
            await self._wait(self._ends[live.task_id], _POLL_S)

    async def _paid(self, plan: BurstPlan) -> BurstPlan:
        """Wait until the traffic limit allows the burst. A burst above the limit gets fewer pings."""
        pings = plan.pings
        while plan.cost_bytes > self._bucket.most_bytes:
            pings -= 1
            if pings < _MIN_PINGS:
                raise TimeoutError
            plan = replace(plan, pings=pings)
        async with self._paying:
            while not self._bucket.take(plan.cost_bytes):
                await self._wait(asyncio.Event(), max(self._bucket.wait_s(plan.cost_bytes), 0.001))
        return plan

    def _peer_is_done(self, live: LiveTask) -> None:
        if ended := self._ends.get(live.task_id):
            ended.set()

    def _checked(self, task: PairTask) -> LiveTask:
        """Validate a task. Raises TaskError."""
        if len(task.key) != KEY_BYTES:
            raise TaskError(f"the key has {len(task.key)} bytes, not {KEY_BYTES}")
        if task.method not in ("udp", "rdma"):
            raise TaskError(f"unknown method: {task.method[:40]!r}")
        if not math.isfinite(task.expires_s) or task.expires_s <= 0:
            raise TaskError(f"expires in {task.expires_s} s")
        if not task.peer or max(len(task.peer.encode()), len(task.peer_interface.encode())) > _MAX_NAME_BYTES:
            raise TaskError("the peer's name is empty or too long")
        try:
            address, peer_address = plain_address(task.address), plain_address(task.peer_address)
        except ValueError as error:
            raise TaskError(f"no address: {error}") from error
        if address not in self._responder.addresses_of(task.interface):
            raise TaskError(f"own address: {address} is not one of {task.interface[:40]!r} here")
        if (":" in address) != (":" in peer_address):
            raise TaskError(f"peer's address: {peer_address} cannot be reached from {address}")
        if not _is_host(peer_address):
            raise TaskError(f"peer's address: {peer_address} is not of one host")
        if task.method == "udp" and not 0 < task.peer_port < 65_536:
            raise TaskError(f"peer's port: {task.peer_port}")
        if task.method == "rdma" and not self._rdma_port_of(task.interface):
            raise TaskError(f"RDMA: no such port behind {task.interface[:40]!r}")
        expires_s = self._clock() + min(task.expires_s, _MAX_EXPIRES_S)
        return LiveTask(
            task.task_id, task.key, task.first, task.interface, address, peer_address, expires_s, _pings(task)
        )

    def _fail(self, task: PairTask, reason: str) -> None:
        if task.peer and len(task.peer.encode()) <= _MAX_NAME_BYTES:
            self._put(task, Summary(0, 0, failure=reason))

    def _put(self, task: PairTask, summary: Summary, bandwidth_gbps: float = 0.0) -> None:
        self.bursts["failed" if summary.failure else "measured"] += 1
        result = LatencyResult(
            task.peer,
            task.peer_interface[:_MAX_NAME_BYTES],
            task.method,
            self._wall_ns(),
            summary.sent,
            summary.received,
            summary.min_us,
            summary.median_us,
            summary.jitter_us,
            bandwidth_gbps,
            summary.failure,
        )
        self._record(task.interface, result)


def _plan(task: PairTask) -> BurstPlan:
    return BurstPlan(
        task.task_id,
        task.key,
        task.first,
        task.interface,
        plain_address(task.address),
        plain_address(task.peer_address),
        task.peer_port,
        _pings(task),
    )


def _pings(task: PairTask) -> int:
    return min(max(task.pings, _MIN_PINGS), MAX_PINGS)


def _is_host(address: str) -> bool:
    parsed = ip_address(address)
    return not (parsed.is_multicast or parsed.is_unspecified or address == "255.255.255.255")


def _kind(error: TaskError) -> str:
    """Return the metric label of an error: its text before the first colon, at most 40 characters."""
    return str(error).split(":", 1)[0][:40]
