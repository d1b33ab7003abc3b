"""Agents with the `nccl` probe alone, each with the host's lock of a host of its own, and their workers."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from random import Random

from hyperscout_agent.findings import FindingStore
from hyperscout_agent.gpu_use import GpuUse
from hyperscout_agent.probes.nccl import NcclCommands, NcclProbe
from hyperscout_agent.scheduler import Scheduler
from hyperscout_agent.session import Directives
from hyperscout_agent.uplink import Uplink

from support.nccl_stubs import alive, children

WAIT_S = 20.0
_numbers = itertools.count(1)


class NcclAgent:
    """The probe, the scheduler, the store and the uplink of an agent; `gpus` says what its GPUs do."""

    def __init__(self, node: str, commands: NcclCommands, *, timeout_s: float = WAIT_S) -> None:
        self.gpus: Callable[[], GpuUse] = lambda: GpuUse(8)
        self.store = FindingStore(node)
        self.lock = f"hyperscout-test-{id(self)}-{next(_numbers)}"
        self.probe = NcclProbe(
            commands,
            timeout_s=timeout_s,
            send=lambda nccl_id: self.uplink.send_id(nccl_id),  # noqa: PLW0108 - there is none yet
            trigger=lambda: self.scheduler.trigger("nccl"),
            lock=self.lock,
            gpus=lambda: self.gpus(),  # noqa: PLW0108 - a test changes it
        )
        self.scheduler = Scheduler([self.probe], self.store, rng=Random(1))
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def node(self) -> str:
        return self.store.node

    def start(self, targets: Sequence[str]) -> None:
        self.uplink = Uplink(
            targets,
            self.store,
            version="0",
            probes=["nccl"],
            instance=next(_numbers),
            directives=Directives(
                measure_nccl=self.probe.measure,
                nccl_id=self.probe.take_id,
                stop_measuring=lambda stop: self.probe.stop(stop.reason),
            ),
            on_end=self.probe.stream_ended,
            rng=Random(1),
            sleep=lambda seconds: asyncio.sleep(min(seconds, 0.1)),
        )
        self._tasks = [asyncio.create_task(self.uplink.run()), asyncio.create_task(self.scheduler.run())]

    async def stop(self) -> None:
        """Its workers are gone when this returns."""
        for task in self._tasks:
            task.cancel()
        looks = [task for task in asyncio.all_tasks() if task.get_name() == "look-nccl"]
        mine = [task for task in looks if task is self.scheduler._runners["nccl"].look]
        await asyncio.gather(*self._tasks, *mine, return_exceptions=True)


async def working(count: int, others: Sequence[int] = ()) -> list[int]:
    """The processes of so many workers under this one, once they run."""
    async with asyncio.timeout(WAIT_S):
        while len(found := [pid for pid in children() if pid not in others]) < count:
            await asyncio.sleep(0.01)
    return found


async def gone(pids: Sequence[int]) -> None:
    """Until none of them runs."""
    async with asyncio.timeout(WAIT_S):
        while any(map(alive, pids)):
            await asyncio.sleep(0.01)


async def none_left(others: Sequence[int] = ()) -> None:
    """Until no worker runs under this process."""
    async with asyncio.timeout(WAIT_S):
        while any(alive(pid) for pid in children() if pid not in others):
            await asyncio.sleep(0.01)
