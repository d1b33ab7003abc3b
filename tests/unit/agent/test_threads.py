"""Calls that hang in the kernel."""

import asyncio
import threading

import pytest
from hyperscout_agent.runtime.threads import BlockedError, in_thread


async def test_calls_that_do_not_return_are_bounded() -> None:
    """A probe whose file hangs is started again and again."""
    released = threading.Event()
    before = threading.active_count()
    hanging = [asyncio.create_task(in_thread(released.wait, "hanging")) for _ in range(100)]
    try:
        for _ in range(3):
            await asyncio.sleep(0)
        ended = [call for call in hanging if call.done()]
        assert {type(call.exception()) for call in ended} == {BlockedError}
        assert len(hanging) - len(ended) == threading.active_count() - before < len(hanging)
        for call in hanging:
            call.cancel()
        with pytest.raises(BlockedError, match=r"earlier calls \(hanging\) have not returned"):
            await in_thread(lambda: 1, "hanging")
        assert await in_thread(lambda: 2, "another") == 2
    finally:
        released.set()
    while threading.active_count() > before:
        await asyncio.sleep(0)
    assert await in_thread(lambda: 3, "hanging") == 3


async def test_the_error_of_the_call_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0, "division")
