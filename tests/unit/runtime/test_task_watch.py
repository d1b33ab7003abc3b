"""A task that ends on a defect is noticed; one that is cancelled is not a defect."""

import asyncio

import pytest
from hyperscout_runtime.task_watch import TaskWatch, run_checked
from support.waiting import TIMEOUT_S


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


async def test_a_group_ends_when_a_call_in_a_task_of_it_is_cancelled() -> None:
    async def run() -> None:
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
            group.create_task(run_checked("uplink", call_is_cancelled()))
            group.create_task(run_checked("scheduler", asyncio.Event().wait()))

    with pytest.raises(ExceptionGroup) as raised:
        await run()
    assert str(raised.value.exceptions[0]) == "uplink ended: a call in it was cancelled"


async def test_a_task_in_a_group_can_be_cancelled() -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_checked("uplink", asyncio.Event().wait()))
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
