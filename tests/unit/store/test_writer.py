"""One thread writes: the highest priority first, failed batches again, and never more than the bound."""

import asyncio
import threading

import pytest
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.writer import Priority, StoreWriter, WriteQueue
from support.waiting import TIMEOUT_S, until


class Disk:
    """Writes numbers to a list. `full`: a write fails. 0 always fails."""

    def __init__(
        self, writer: StoreWriter, priority: Priority = Priority.HISTORY, *, repeat: bool = True
    ) -> None:
        self.full = False
        self.wrote: list[int] = []
        self.queue: WriteQueue[int] = WriteQueue(
            writer,
            priority,
            "not written",
            self._write,
            join=lambda old, new: old + new,
            limit=2,
            repeat=repeat,
        )

    async def _write(self, batch: int) -> bool:
        if batch < 0:
            raise ZeroDivisionError
        await self.queue.in_thread(self._append, batch)
        return True

    def _append(self, batch: int) -> None:
        if self.full or not batch:
            raise StoreError("the disk is full")
        self.wrote.append(batch)


async def occupied(writer: StoreWriter) -> tuple["asyncio.Task[None]", threading.Event]:
    """Let a call run in the writer's thread until the event is set."""
    began, go = threading.Event(), threading.Event()

    def busy() -> None:
        began.set()
        assert go.wait(TIMEOUT_S)

    task = asyncio.create_task(writer.in_thread(Priority.EVIDENCE, busy))
    await until(began.is_set)
    return task, go


async def test_a_transaction_that_does_not_end_is_a_problem() -> None:
    now_s = 1000.0
    writer = StoreWriter(lambda: now_s)
    now_s += 100
    assert writer.problem is None
    task, go = await occupied(writer)
    now_s += 59
    assert writer.problem is None
    now_s += 2
    assert "has run for more than 60 s" in (writer.problem or "")
    go.set()
    await task
    await writer.close()
    assert writer.problem is None


async def test_of_what_waits_the_highest_priority_is_written_first() -> None:
    writer, began, go = StoreWriter(), threading.Event(), threading.Event()
    order: list[str] = []

    def slow() -> None:
        began.set()
        assert go.wait(TIMEOUT_S)

    first = asyncio.create_task(writer.in_thread(Priority.HISTORY, slow))
    await until(began.is_set)
    rest = [
        asyncio.create_task(writer.in_thread(priority, order.append, priority.name))
        for priority in (Priority.HISTORY, Priority.TOPOLOGY, Priority.EVIDENCE, Priority.RESERVATIONS)
    ]
    dropped = asyncio.create_task(writer.in_thread(Priority.EVIDENCE, order.append, "dropped"))
    await asyncio.sleep(0)
    dropped.cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, *rest)
    assert order == ["EVIDENCE", "RESERVATIONS", "TOPOLOGY", "HISTORY"]
    await writer.close()


async def test_batches_beyond_the_bound_are_joined() -> None:
    writer = StoreWriter()
    disk = Disk(writer)
    for batch in (1, 2, 3, 4):
        disk.queue.put(batch)
    await writer.flush()
    assert disk.wrote == [1, 9]
    await writer.close()


async def test_a_batch_that_failed_is_written_again_before_newer_ones() -> None:
    writer = StoreWriter()
    disk = Disk(writer)
    disk.full = True
    disk.queue.put(1)
    waiting = asyncio.create_task(disk.queue.written())
    await asyncio.sleep(0)
    assert not await disk.queue.flush()
    with pytest.raises(StoreError, match="not written: the disk is full"):
        await waiting
    assert (disk.queue.problem, disk.queue.failures) == ("not written: the disk is full", 1)
    disk.full = False
    disk.queue.put(2)
    waiting = asyncio.create_task(disk.queue.written())
    await asyncio.sleep(0)
    assert await disk.queue.flush()
    await waiting
    assert (disk.wrote, disk.queue.problem) == ([1, 2], None)
    await disk.queue.written()  # nothing waits
    await writer.close()


async def test_a_caller_that_comes_during_the_write_waits_for_its_end() -> None:
    writer, began, go = StoreWriter(), threading.Event(), threading.Event()
    disk = Disk(writer)
    append = disk._append

    def slowly(batch: int) -> None:
        began.set()
        assert go.wait(TIMEOUT_S)
        append(batch)

    disk._append = slowly  # type: ignore[method-assign]
    running = asyncio.create_task(writer.run())
    disk.queue.put(1)
    await until(began.is_set)
    waiting = asyncio.create_task(disk.queue.written())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    go.set()
    async with asyncio.timeout(TIMEOUT_S):
        await waiting
    assert disk.wrote == [1]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await writer.close()


async def test_a_batch_that_its_sender_repeats_is_dropped() -> None:
    writer = StoreWriter()
    disk = Disk(writer, Priority.EVIDENCE, repeat=False)
    disk.full = True
    disk.queue.put(1)
    assert await disk.queue.flush()
    disk.full = False
    disk.queue.put(2)
    assert await disk.queue.flush()
    assert (disk.wrote, disk.queue.failures) == ([2], 1)
    await writer.close()


async def test_a_waiter_learns_that_an_earlier_batch_was_dropped() -> None:
    writer = StoreWriter()
    disk = Disk(writer, Priority.EVIDENCE, repeat=False)
    for batch in (0, 2):
        disk.queue.put(batch)
    waiting = asyncio.create_task(disk.queue.written())
    await asyncio.sleep(0)
    assert await disk.queue.flush()
    with pytest.raises(StoreError, match="not written"):
        await waiting
    assert disk.wrote == [2], "the second batch is not held up"
    await writer.close()


async def test_a_waiter_learns_that_the_collector_stops() -> None:
    writer = StoreWriter()
    disk = Disk(writer, Priority.EVIDENCE, repeat=False)
    first, go = await occupied(writer)
    disk.queue.put(1)
    waiting = asyncio.create_task(disk.queue.written())
    writing = asyncio.create_task(disk.queue.flush())
    for _ in range(5):
        await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(StoreError, match=r"^not written: the collector is stopping$"):
        await waiting
    go.set()
    await first
    await writer.close()


async def test_a_defect_in_one_queue_ends_the_task_of_all() -> None:
    writer = StoreWriter()
    disk, other = Disk(writer), Disk(writer)
    running = asyncio.create_task(writer.run())
    other.queue.put(1)
    await other.queue.written()
    disk.queue.put(-1)
    with pytest.raises(ZeroDivisionError):
        await running
    other.queue.put(2)
    for _ in range(5):
        await asyncio.sleep(0)
    assert other.wrote == [1]
    await writer.close()


async def test_a_write_that_is_cancelled_is_not_lost() -> None:
    writer = StoreWriter()
    disk = Disk(writer)
    first, go = await occupied(writer)
    disk.queue.put(1)
    writing = asyncio.create_task(disk.queue.flush())
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    go.set()
    await first
    assert disk.wrote == []
    await writer.flush()
    assert disk.wrote == [1]
    await writer.close()


async def test_closing_during_a_transaction_leaves_the_loop_free() -> None:
    writer, began, go, ended = StoreWriter(), threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        assert go.wait(60)
        ended.set()

    writing = asyncio.create_task(writer.in_thread(Priority.HISTORY, slow))
    await until(began.is_set)
    closing = asyncio.create_task(writer.close())
    await asyncio.sleep(0)
    assert not closing.done()
    go.set()
    await closing
    await writing
    assert ended.is_set()


async def test_a_batch_that_may_wait_is_written_with_the_next_that_may_not() -> None:
    writer = StoreWriter()
    disk = Disk(writer)
    task = asyncio.create_task(writer.run())
    for batch in (1, 2):
        disk.queue.put(batch, within_s=3600)
    for _ in range(10):
        await asyncio.sleep(0)
    assert disk.wrote == []
    disk.queue.put(4)
    await until(lambda: disk.wrote == [1, 2 + 4])
    disk.queue.put(8, within_s=3600)
    await writer.flush()
    assert disk.wrote == [1, 2 + 4, 8], "a flush waits for nothing"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await writer.close()


async def test_a_batch_that_may_wait_is_written_when_its_time_has_come() -> None:
    writer = StoreWriter()
    disk = Disk(writer)
    task = asyncio.create_task(writer.run())
    for batch in (1, 2):
        disk.queue.put(batch, within_s=1e-6)
        await until(lambda batch=batch: disk.wrote[-1:] == [batch])  # type: ignore[misc]
    disk.queue.put(4, within_s=3600)
    disk.queue.put(8, within_s=1e-6)
    await until(lambda: disk.wrote == [1, 2, 4, 8])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await writer.close()
