"""What the collector runs stops in reverse order, and a step that does not end does not block the stop."""

import asyncio
import threading
from typing import Any

import pytest
from hyperscout_collector.app.build import lifecycle as module
from hyperscout_collector.app.build.lifecycle import Lifecycle
from hyperscout_collector.store.writer import Priority, StoreWriter
from support.waiting import TIMEOUT_S, until


async def forever() -> None:
    await asyncio.Event().wait()


async def test_steps_and_tasks_stop_in_reverse_order() -> None:
    order: list[str] = []
    started = asyncio.Event()

    async def task() -> None:
        started.set()
        try:
            await forever()
        finally:
            order.append("task")

    async def step() -> None:
        order.append("async step")

    lifecycle = Lifecycle()
    lifecycle.on_stop("first", lambda: order.append("first"))
    lifecycle.run("task", task())
    lifecycle.on_stop("async step", step)
    await started.wait()
    await lifecycle.stop()
    lifecycle.check()
    assert order == ["async step", "task", "first"]
    assert not lifecycle.failed.is_set()


async def test_a_step_that_does_not_end_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_STOP_S", 0.01)
    monkeypatch.setattr(module, "_CANCEL_S", 0.01)
    stopped, end, started = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        started.set()
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    lifecycle = Lifecycle()
    lifecycle.on_stop("first", stopped.set)
    lifecycle.run("stubborn", stubborn())
    lifecycle.on_stop("endless", forever)
    await started.wait()
    async with asyncio.timeout(TIMEOUT_S):
        await lifecycle.stop()
    assert stopped.is_set()
    assert "endless has not ended 0.01 s after the stop began" in caplog.text
    assert "task stubborn does not end" in caplog.text
    end.set()


async def test_a_transaction_that_hangs_does_not_hold_up_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STOP_S", 0.01)
    writer, begun, go = StoreWriter(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert go.wait(TIMEOUT_S)

    transaction = asyncio.create_task(writer.in_thread(Priority.EVIDENCE, hang))
    await until(begun.is_set, "the transaction has begun")
    lifecycle = Lifecycle()
    lifecycle.on_stop("writer", writer.close)
    lifecycle.on_stop("flush", lambda: transaction)
    async with asyncio.timeout(TIMEOUT_S):
        await lifecycle.stop()
    assert not transaction.done()
    go.set()
    await asyncio.wait([transaction])
    await writer.close()


async def test_all_steps_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STOP_S", 0.1)
    waits: list[float] = []
    wait = asyncio.wait

    async def recording(tasks: Any, *, timeout: float) -> Any:
        waits.append(timeout)
        return await wait(tasks, timeout=timeout)

    monkeypatch.setattr(asyncio, "wait", recording)
    lifecycle = Lifecycle()
    for name in ("third", "second", "first"):
        lifecycle.on_stop(name, forever)
    await lifecycle.stop()
    assert waits[0] <= 0.1
    assert waits[1:] == [module._LEAST_S] * 2


async def test_an_exception_of_a_step_is_raised_after_the_other_steps() -> None:
    stopped = asyncio.Event()

    def fails() -> None:
        raise ValueError("planted")

    lifecycle = Lifecycle()
    lifecycle.on_stop("first", stopped.set)
    lifecycle.on_stop("fails", fails)
    with pytest.raises(ValueError, match="planted"):
        await lifecycle.stop()
    assert stopped.is_set()


async def test_a_task_that_fails_is_reported_at_the_check() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    lifecycle = Lifecycle()
    lifecycle.run("fails", fails())
    async with asyncio.timeout(TIMEOUT_S):
        await lifecycle.failed.wait()
    await lifecycle.stop()
    with pytest.raises(ZeroDivisionError):
        lifecycle.check()
