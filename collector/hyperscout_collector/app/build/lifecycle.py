"""Starts the collector's tasks, watches them, and stops everything in reverse order, in bounded time."""

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

from hyperscout_runtime.task_watch import TaskWatch

from hyperscout_collector.app.status.components import Components

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_STOP_S = 25.0  # shorter than the grace period of the chart's pod, 30 s
_LEAST_S = 0.05  # for a step or task whose turn comes later: enough where nothing is stuck
_CANCEL_S = 5.0
_CANCELS = 3
_TICK_S = 1.0
_CLEANUP_TURNS = 5


class Lifecycle:
    """What runs, and how it stops. `watch` gets the tasks. `failed` is set when a task fails.

    The whole stop takes at most `_STOP_S` seconds. Each step takes what is left of them. The log names a step
    or task that has not ended by then; it is cancelled and not waited for.
    """

    def __init__(self, watch: TaskWatch | None = None) -> None:
        self._steps = AsyncExitStack()
        self._watch = watch or TaskWatch()
        self._end_s = 0.0
        self.failed = self._watch.failed

    def run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a task until the stop."""
        task = asyncio.create_task(work, name=name)
        self._watch.add(task)
        self._steps.push_async_callback(self._cancel, task)

    def on_stop(self, name: str, step: Callable[[], Awaitable[object] | None]) -> None:
        """Call `step` at the stop, before everything that was registered earlier stops."""
        self._steps.push_async_callback(self._bounded, name, step)

    async def enter(self, name: str, context: AbstractAsyncContextManager[_T]) -> _T:
        """Enter a context, and leave it at the stop."""
        found = await context.__aenter__()
        self.on_stop(name, lambda: context.__aexit__(None, None, None))
        return found

    async def stop(self) -> None:
        """Stop everything. Raises what a step raises, after the other steps."""
        self._end_s = asyncio.get_running_loop().time() + _STOP_S
        await self._steps.aclose()

    def check(self) -> None:
        """Raise the exception of the first task that failed, if there is one."""
        self._watch.check()

    @property
    def _left_s(self) -> float:
        return max(self._end_s - asyncio.get_running_loop().time(), _LEAST_S)

    async def _bounded(self, name: str, step: Callable[[], Awaitable[object] | None]) -> None:
        async def run() -> None:
            if inspect.isawaitable(result := step()):
                await result

        task = asyncio.create_task(run(), name=f"end of {name}")  # a cancelled step may take any time to end
        try:
            await asyncio.wait([task], timeout=self._left_s)
        finally:
            is_late = task.cancel()
        if is_late:
            _log.error(
                "%s has not ended %g s after the stop began; the collector stops without it", name, _STOP_S
            )
        else:
            task.result()

    async def _cancel(self, task: "asyncio.Task[None]") -> None:
        """Cancel a task until it ends: a library may swallow a cancellation (`wait_for` before 3.12)."""
        for _ in range(_CANCELS):
            if task.done():
                return
            task.cancel()
            await asyncio.wait([task], timeout=min(self._left_s, _CANCEL_S))
        if not task.done():
            _log.error("task %s does not end; the collector stops without it", task.get_name())


def start(components: Components, lifecycle: Lifecycle) -> None:
    """Start the components, in the order of the flow of data. They stop in reverse order, after a flush."""
    evidence, ingest, inference, publishing = (
        components.evidence,
        components.ingest,
        components.inference,
        components.publishing,
    )
    if (recorder := publishing.recorder) is not None:
        lifecycle.on_stop("history", recorder.close)
    lifecycle.on_stop("writer of the store", evidence.writer.close)
    lifecycle.run("store-writer", evidence.writer.run())
    if components.others is not None:
        lifecycle.run("other-replicas", components.others.run())
    lifecycle.on_stop("numbers of generations", publishing.saver.close)
    lifecycle.on_stop("inference", inference.pipeline.close)
    lifecycle.run("inference", inference.pipeline.run())
    lifecycle.run("sweeps", ingest.sweeps.run())
    lifecycle.run("links", inference.links.run())
    lifecycle.run("measuring", inference.measuring.run())
    lifecycle.run("nccl-schedule", inference.nccl_schedule.run())
    if inference.blueprint is not None:
        lifecycle.run("blueprint", inference.blueprint.run())
    lifecycle.run("placements", publishing.placing.placements.run())
    for name, service in publishing.services.items():
        lifecycle.run(name, service())
    if ingest.devices is not None:
        lifecycle.run("mqtt-devices", ingest.devices.run())
    for state in publishing.runner.states:
        lifecycle.run(f"publisher-{state.publisher.name}", publishing.runner.run(state))
    lifecycle.run("no-hypernodes", components.no_hypernodes.run())
    lifecycle.run("housekeeping", _keep_house(components))
    lifecycle.on_stop("flush of the store", evidence.writer.flush)


async def _keep_house(components: Components) -> None:
    """Do the periodic work, once a second. The clean-up runs less often, because it reads all agents."""
    for turn in itertools.count(1):
        await asyncio.sleep(_TICK_S)
        components.ingest.sweeps.tick()
        components.ingest.seeds.tick()
        components.publishing.placing.tick()
        components.publishing.saver.tick()
        if turn % _CLEANUP_TURNS == 0:
            await components.evidence.cleanup.tick()
