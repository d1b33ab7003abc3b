"""Calls in threads are bounded; a cancelled call counts until its thread is done with it."""

import asyncio
import threading
import weakref

import pytest
from hyperscout_runtime.bounded_executor import BoundedExecutor, BusyError
from support.waiting import until


class Held:
    """A call that waits, with what it holds."""

    def __call__(self) -> None:
        pytest.fail("its caller was cancelled")


async def test_what_is_returned_and_raised_comes_back() -> None:
    executor = BoundedExecutor("test", threads=1, most=1)
    assert await executor(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        await executor(lambda: 1 // 0)
    await until(lambda: executor.calls == 0)
    assert await executor(int) == 0
    executor.close()


async def test_more_than_may_wait_are_turned_away() -> None:
    executor, go = BoundedExecutor("test", threads=1, most=2), threading.Event()
    calls = [asyncio.create_task(executor(go.wait, 10)) for _ in range(2)]
    await until(lambda: executor.calls == 2)
    with pytest.raises(BusyError, match="2 such calls"):
        await executor(int)
    go.set()
    assert await asyncio.gather(*calls) == [True, True]
    executor.close()


async def test_a_caller_that_hangs_up_counts_until_the_thread_is_through() -> None:
    executor, go, begun = BoundedExecutor("test", threads=1, most=2), threading.Event(), threading.Event()

    def works() -> None:
        begun.set()
        go.wait(10)

    at_work = asyncio.create_task(executor(works))
    await until(begun.is_set)
    held = Held()
    gone = weakref.ref(held)
    waits = asyncio.create_task(executor(held))
    del held
    await until(lambda: executor.calls == 2)
    for call in (waits, at_work):
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert executor.calls == 1  # what waited is gone at once, with all that it held
    second = asyncio.create_task(executor(lambda: "second"))
    await until(lambda: executor.calls == 2)
    del call, waits
    assert gone() is None
    with pytest.raises(BusyError):
        await executor(int)
    go.set()
    assert await second == "second"
    await until(lambda: executor.calls == 0)
    executor.close()


def test_a_thread_that_outlives_the_loop_logs_no_error(caplog: pytest.LogCaptureFixture) -> None:
    executor, go, begun = BoundedExecutor("test", threads=1, most=1), threading.Event(), threading.Event()

    def works() -> None:
        begun.set()
        go.wait(10)

    async def hangs_up() -> None:
        call = asyncio.create_task(executor(works))
        await until(begun.is_set)
        call.cancel()
        executor.close()

    asyncio.run(hangs_up())
    go.set()
    executor._threads.shutdown(wait=True)
    assert caplog.records == []
