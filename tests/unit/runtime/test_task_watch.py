"""A task that ends on a defect is noticed; one that is cancelled is not a defect."""

import asyncio

import pytest
from hyperscout_runtime.task_watch import TaskWatch


async def fails() -> None:
    raise ZeroDivisionError


async def call_is_cancelled() -> None:
    """Awaits a future that another task cancels, as gRPC does when a channel is closed."""
    call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    call.cancel()
    await call


@pytest.mark.parametrize(("work", "error"), [(fails, ZeroDivisionError), (call_is_cancelled, RuntimeError)])
async def test_a_task_that_ends_by_itself_is_a_failure(work: object, error: type[Exception]) -> None:
    watch = TaskWatch()
    watch.check()
    watch.add(asyncio.create_task(work(), name="history"))  # type: ignore[operator]
    await watch.failed.wait()
    with pytest.raises(error):
        watch.check()


async def test_a_task_that_is_cancelled_is_no_failure() -> None:
    watch = TaskWatch()
    task = asyncio.create_task(asyncio.Event().wait())
    watch.add(task)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    watch.check()
    assert not watch.failed.is_set()
