"""Starts the collector's tasks, watches them, and stops everything in reverse order, in bounded time."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypeVar

from hyperscout_runtime.task_watch import TaskWatch

from hyperscout_collector.app.status.components import Components

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_STEP_S = 20.0  # the longest step waits 15 s for inference
_CANCEL_S = 5.0
_CANCELS = 3
_TICK_S = 1.0


class Lifecycle:
    """What runs, and how it stops. `failed` is set when a task fails."""

    def __init__(self) -> None:
        self._steps = AsyncExitStack()
        self._watch = TaskWatch()
        self.failed = self._watch.failed

    def run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a task until the stop."""
        task = asyncio.create_task(work, name=name)
        self._watch.add(task)
        self._steps.push_async_callback(_cancel, task)

    def on_stop(self, name: str, step: Callable[[], Awaitable[object] | None]) -> None:
        """Call `step` at the stop, before everything that was registered earlier stops."""
        self._steps.push_async_callback(_bounded, name, step)

    async def enter(self, name: str, context: AbstractAsyncContextManager[_T]) -> _T:
        """Enter a context, and leave it at the stop."""
        found = await context.__aenter__()
        self.on_stop(name, lambda: context.__aexit__(None, None, None))
        return found

    async def stop(self) -> None:
        await self._steps.aclose()

    def check(self) -> None:
        """Raise the exception of the first task that failed, if there is one."""
        self._watch.check()


async def _bounded(name: str, step: Callable[[], Awaitable[object] | None]) -> None:
    try:
        async with asyncio.timeout(_STEP_S) as limit:
            if inspect.isawaitable(result := step()):
                await result
    except TimeoutError:
        if not limit.expired():
            raise
        _log.error("%s did not stop within %g s; the collector stops without it", name, _STEP_S)


async def _cancel(task: "asyncio.Task[None]") -> None:
    """Cancel a task until it ends: a library may swallow a cancellation (`asyncio.wait_for` before 3.12)."""
    for _ in range(_CANCELS):
        if task.done():
            return
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_S)
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
    lifecycle.run("housekeeping", _keep_house(components))
    lifecycle.on_stop("flush of the store", evidence.writer.flush)


async def _keep_house(components: Components) -> None:
    """Do the periodic work, once a second."""
    while True:
        await asyncio.sleep(_TICK_S)
        components.ingest.sweeps.tick()
        components.ingest.seeds.tick()
        components.publishing.placing.tick()
        await components.evidence.cleanup.tick()
