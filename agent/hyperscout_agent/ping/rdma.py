"""Measures latency and bandwidth between RDMA ports with perftest's `ib_send_lat` and `ib_send_bw`.

Each end is client once and server once. Each end reports the numbers of its client run. The perftest
programs connect over plain, unauthenticated TCP, so the agent runs them only for a task, with a time-out,
on a port number derived from the task id.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from hyperscout_formats.infiniband.perftest import parse_bandwidth, parse_latency
from hyperscout_formats.text.errors import FormatError

from hyperscout_agent.ping.bucket import Bucket
from hyperscout_agent.ping.statistics import Summary
from hyperscout_agent.runtime.subprocesses import ToolError, ToolMissingError, first_line, run_tool

_ITERATIONS = 200
_LATENCY_BYTES = 2
_BANDWIDTH_ITERATIONS = 1000
_BANDWIDTH_BYTES = 64 * 1024
# A small message and its acknowledgement, with headers.
_WIRE_BYTES = 128
_TIMEOUT_S = 20.0
_MAX_OUTPUT_BYTES = 64 * 1024
# The other end starts its server at about the same time.
_RETRY_S = 0.5
_PORTS = (20_000, 5_000)  # first port number, number of tasks; a task has four runs, each with its own port
_MEDIAN_OF_DEVIATION = 0.6745  # median absolute deviation / standard deviation of a normal distribution
_PACKAGE = "install it (Debian and RHEL: the package perftest) or set its path"


@dataclass(frozen=True, slots=True)
class RdmaPlan:
    """`port`: the local RDMA port, for example "mlx5_0/1". `first`: this end is the client first."""

    task_id: int
    first: bool
    port: str
    peer_address: str


@dataclass(frozen=True, slots=True)
class RdmaOutcome:
    summary: Summary
    bandwidth_gbps: float = 0.0  # 0 = not measured


class RdmaPings:
    """Runs perftest, one task at a time. `clock`: monotonic seconds."""

    def __init__(
        self,
        *,
        ib_send_lat: Sequence[str],
        ib_send_bw: Sequence[str],
        bucket: Bucket,
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._latency = tuple(ib_send_lat)
        self._bandwidth = tuple(ib_send_bw)
        self._bucket = bucket
        self._timeout_s = timeout_s
        self._clock = clock
        self._sleep = sleep
        self._one_at_a_time = asyncio.Lock()

    async def measure(self, plan: RdmaPlan) -> RdmaOutcome:
        """Measure latency in both turns, then bandwidth if the traffic limit allows it."""
        async with self._one_at_a_time:
            await self._pay(2 * _ITERATIONS * _WIRE_BYTES)  # as client and as server
            try:
                output = await self._turns(plan, 0, self._latency_argv(plan))
                found = parse_latency(output, self._latency[0])
            except ToolMissingError as error:
                return RdmaOutcome(Summary(0, 0, failure=f"{error}: {_PACKAGE}"))
            except (ToolError, FormatError) as error:
                return RdmaOutcome(Summary(_ITERATIONS, 0, failure=str(error)))
            summary = Summary(
                _ITERATIONS,
                found.iterations,
                2 * found.min_us,
                2 * found.typical_us,
                2 * found.deviation_us * _MEDIAN_OF_DEVIATION,
            )
            gbps = 0.0
            if self._bandwidth and self._bucket.borrow(_BANDWIDTH_ITERATIONS * _BANDWIDTH_BYTES):
                # The peer's traffic limit may forbid the test. Then its server does not answer, and the
                # bandwidth stays 0.
                with contextlib.suppress(ToolError, FormatError):
                    output = await self._turns(plan, 2, self._bandwidth_argv(plan))
                    gbps = parse_bandwidth(output, self._bandwidth[0])
            return RdmaOutcome(summary, gbps)

    async def _pay(self, size_bytes: int) -> None:
        """Wait until the bucket grants `size_bytes`, in parts if they exceed what it can grant at once."""
        while size_bytes > 0:
            part = min(size_bytes, self._bucket.most_bytes)
            while not self._bucket.take(part):
                await self._sleep(max(self._bucket.wait_s(part), 0.001))
            size_bytes -= part

    async def _turns(self, plan: RdmaPlan, run: int, argv: Sequence[str]) -> bytes:
        """Run client and server in turn. Returns the client's output. Raises ToolError."""
        first, second = (self._client, self._server) if plan.first else (self._server, self._client)
        output = await first(plan, run, argv)
        return await second(plan, run + 1, argv) or output

    async def _server(self, plan: RdmaPlan, run: int, argv: Sequence[str]) -> bytes:
        """Serve one run. A missing client is not a failure of this end."""
        with contextlib.suppress(ToolError):
            await self._run((*argv, "-p", str(_port(plan.task_id, run))), self._timeout_s)
        return b""

    async def _client(self, plan: RdmaPlan, run: int, argv: Sequence[str]) -> bytes:
        until_s = self._clock() + self._timeout_s / 2
        command = (*argv, "-p", str(_port(plan.task_id, run)), plan.peer_address)
        while True:
            try:
                return await self._run(command, self._timeout_s)
            except ToolMissingError:
                raise
            except ToolError:
                if self._clock() >= until_s:
                    raise
            await self._sleep(_RETRY_S)

    async def _run(self, argv: Sequence[str], timeout_s: float) -> bytes:
        output = bytearray()
        result = await run_tool(
            argv, take=output.extend, timeout_s=timeout_s, max_output_bytes=_MAX_OUTPUT_BYTES
        )
        if result.exit_code != 0:
            reason = first_line(result.stderr + bytes(output)) or "no output"
            raise ToolError(f"{argv[0]}: exit {result.exit_code}: {reason}")
        return bytes(output)

    def _latency_argv(self, plan: RdmaPlan) -> tuple[str, ...]:
        size, iterations = str(_LATENCY_BYTES), str(_ITERATIONS)
        return (*self._latency, *_device(plan.port), "-s", size, "-n", iterations, "-F")

    def _bandwidth_argv(self, plan: RdmaPlan) -> tuple[str, ...]:
        size, iterations = str(_BANDWIDTH_BYTES), str(_BANDWIDTH_ITERATIONS)
        options = ("-s", size, "-n", iterations, "-F", "--report_gbits")
        return (*self._bandwidth, *_device(plan.port), *options)


def _device(port: str) -> tuple[str, ...]:
    device, _, number = port.partition("/")
    return ("-d", device, "-i", number)


def _port(task_id: int, run: int) -> int:
    base, tasks = _PORTS
    return base + 4 * (task_id % tasks) + run
