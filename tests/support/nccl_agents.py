"""Agents with the `nccl` probe alone, each with the lock of its own host, and the client of their runs."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

import grpc
import grpc.aio
from hyperscout.v1 import finding_pb2
from hyperscout.v1.discovery_pb2 import Hello, StreamFindingsRequest
from hyperscout.v1.measurement_pb2 import RunNcclRequest
from hyperscout.v1.measurement_pb2_grpc import MeasurementServiceStub
from hyperscout_agent.findings.scheduler import Scheduler
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.nvml.gpu_use import GpuUse
from hyperscout_agent.probes.nccl import NcclCommands, NcclProbe
from hyperscout_agent.uplink.session import Outbox
from hyperscout_agent.uplink.uplink import Uplink

from support.collector_process import CHANNEL_OPTIONS
from support.nccl_stubs import alive, children
from support.waiting import TIMEOUT_S, eventually

_numbers = itertools.count(1)


class NcclAgent:
    """The probe, the scheduler, the store and the uplink of an agent; `gpus` says what its GPUs do."""

    def __init__(self, node: str, commands: NcclCommands, *, timeout_s: float = TIMEOUT_S) -> None:
        self.gpus: Callable[[], GpuUse] = lambda: GpuUse(8)
        self.store = FindingStore(node)
        self.lock = f"hyperscout-test-{id(self)}-{next(_numbers)}"
        self.outbox = Outbox(self.store.changed)
        triggered = asyncio.Event()
        self.probe = NcclProbe(
            commands,
            timeout_s=timeout_s,
            send=lambda nccl_id: self.outbox.put(StreamFindingsRequest(nccl_id=nccl_id)),
            trigger=triggered.set,
            lock=self.lock,
            gpus=lambda: self.gpus(),  # noqa: PLW0108 - a test changes it
        )
        self.scheduler = Scheduler([self.probe], self.store, rng=Random(1), triggers={"nccl": triggered})
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def node(self) -> str:
        return self.store.node

    def start(self, targets: Sequence[str]) -> None:
        self.uplink = Uplink(
            targets,
            self.store,
            Hello(version="0", probes=["nccl"], instance=next(_numbers)),
            directives={
                "measure_nccl": [self.probe.measure],
                "nccl_id": [self.probe.take_id],
                "stop_measuring": [lambda stop: self.probe.stop(stop.reason)],
            },
            outbox=self.outbox,
            on_end=self.probe.stream_ended,
            rng=Random(1),
            sleep=lambda seconds: asyncio.sleep(min(seconds, 0.1)),
        )
        self._tasks = [asyncio.create_task(self.uplink.run()), asyncio.create_task(self.scheduler.run())]

    async def stop(self) -> None:
        """Its workers are gone when this returns."""
        for task in self._tasks:
            task.cancel()
        runs = [task for task in asyncio.all_tasks() if task.get_name() == "probe-run-nccl"]
        mine = [task for task in runs if task is self.scheduler._runners["nccl"].run]
        await asyncio.gather(*self._tasks, *mine, return_exceptions=True)


async def working(count: int, others: Sequence[int] = ()) -> list[int]:
    """The processes of so many workers under this one, once they run."""
    async with asyncio.timeout(TIMEOUT_S):
        while len(found := [pid for pid in children() if pid not in others]) < count:
            await asyncio.sleep(0.01)
    return found


async def gone(pids: Sequence[int]) -> None:
    """Until none of them runs."""
    await eventually(lambda: not any(map(alive, pids)))


async def none_left(others: Sequence[int] = ()) -> None:
    """Until no worker runs under this process."""
    await eventually(lambda: not any(alive(pid) for pid in children() if pid not in others))


@asynccontextmanager
async def agents(
    commands: NcclCommands, address: str, *nodes: str, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[list[NcclAgent]]:
    """Agents of these nodes, greeted by a collector; in the end none of their workers is left."""
    found = [NcclAgent(node, commands, timeout_s=timeout_s) for node in nodes]
    try:
        for agent in found:
            agent.start([address])
        await connected(found)
        yield found
    finally:
        for agent in found:
            await agent.stop()
        await none_left()


async def connected(found: Sequence[NcclAgent]) -> None:
    await eventually(lambda: all(agent.uplink.stats.connected for agent in found))


@asynccontextmanager
async def service(address: str) -> AsyncIterator[MeasurementServiceStub]:
    async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        yield MeasurementServiceStub(channel)


async def run(
    stub: MeasurementServiceStub, *nodes: str, sizes: Sequence[int] = (8, 1024), timeout_s: float = TIMEOUT_S
) -> finding_pb2.NcclRun:
    request = RunNcclRequest(nodes=nodes, sizes_bytes=sizes, timeout_s=timeout_s)
    return (await stub.RunNccl(request, timeout=2 * TIMEOUT_S)).run
