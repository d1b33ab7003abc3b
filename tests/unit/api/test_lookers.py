"""Calls that take long: who hangs up stops no thread, and makes room for none before it is through."""

import asyncio
import threading
import weakref
from collections.abc import Callable

import pytest
from hyperscout_collector.api.lookers import BusyError, Lookers


class Held:
    """What a call that waits holds."""

    def __call__(self) -> None:
        pytest.fail("the caller hung up")


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0)


async def test_what_is_returned_and_raised_comes_back() -> None:
    lookers = Lookers("test", threads=1, most=1)
    assert await lookers(lambda a, b: a + b, 1, 2) == 3
    with pytest.raises(ZeroDivisionError):
        await lookers(lambda: 1 // 0)
    await until(lambda: lookers.calls == 0)
    assert await lookers(int) == 0
    lookers.close()


async def test_more_than_may_wait_are_turned_away() -> None:
    lookers, go = Lookers("test", threads=1, most=2), threading.Event()
    calls = [asyncio.create_task(lookers(go.wait, 10)) for _ in range(2)]
    await until(lambda: lookers.calls == 2)
    with pytest.raises(BusyError, match="2 such calls"):
        await lookers(int)
    go.set()
    assert await asyncio.gather(*calls) == [True, True]
    lookers.close()


async def test_who_hangs_up_counts_until_the_thread_is_through() -> None:
    lookers, go, begun = Lookers("test", threads=1, most=2), threading.Event(), threading.Event()

    def works() -> None:
        begun.set()
        go.wait(10)

    at_work = asyncio.create_task(lookers(works))
    await until(begun.is_set)
    held = Held()
    gone = weakref.ref(held)
    waits = asyncio.create_task(lookers(held))
    del held
    await until(lambda: lookers.calls == 2)
    for call in (waits, at_work):
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert lookers.calls == 1  # what waited is gone at once, with all that it held
    second = asyncio.create_task(lookers(lambda: "second"))
    await until(lambda: lookers.calls == 2)
    del call, waits
    assert gone() is None
    with pytest.raises(BusyError):
        await lookers(int)
    go.set()
    assert await second == "second"
    await until(lambda: lookers.calls == 0)
    lookers.close()


def test_a_thread_that_outlives_the_loop_troubles_nobody(caplog: pytest.LogCaptureFixture) -> None:
    lookers, go, begun = Lookers("test", threads=1, most=1), threading.Event(), threading.Event()

    def works() -> None:
        begun.set()
        go.wait(10)

    async def hangs_up() -> None:
        call = asyncio.create_task(lookers(works))
        await until(begun.is_set)
        call.cancel()
        lookers.close()

    asyncio.run(hangs_up())
    go.set()
    lookers._threads.shutdown(wait=True)
    assert caplog.records == []
