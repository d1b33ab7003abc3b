"""The end of a child process, in particular when something prevents a clean end."""

import asyncio
import os
import signal

import pytest
from hyperscout_agent.runtime.subprocesses import LineWorker, WorkerEndedError, start
from support.fake_time import settle
from support.waiting import eventually


async def test_the_process_is_reaped_although_the_end_is_cancelled() -> None:
    """Otherwise its transport and its process would give a ResourceWarning when the event loop ends."""
    child = await start(("sh", "-c", "setsid sleep 100 & echo $!; wait"))
    holder = int(await child.stdout.readline())  # it keeps the pipe open, outside of the process group
    await eventually(lambda: os.getsid(holder) == holder)
    ending = asyncio.create_task(child.end())
    await settle()
    assert not ending.done()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert child._transport.is_closing()
    assert child.process.returncode is not None
    os.kill(holder, signal.SIGKILL)


async def test_a_worker_that_ends_leaves_its_last_words() -> None:
    worker = await LineWorker.start(("sh", "-c", "read line; echo $line; echo no more >&2"), line_bytes=100)
    try:
        await worker.write(b"hello")
        assert await worker.read() == b"hello\n"
        with pytest.raises(WorkerEndedError, match="no more"):
            await worker.read()
    finally:
        await worker.end()


async def test_the_answer_of_a_worker_that_ended_is_read_after_a_later_write() -> None:
    """A rank without NCCL reports so and ends, before the agent writes the id of the other rank."""
    worker = await LineWorker.start(("sh", "-c", "echo missing"), line_bytes=100)
    try:
        await worker.wait()
        for _ in range(2):
            await worker.write(b"late")
        assert await worker.read() == b"missing\n"
        with pytest.raises(WorkerEndedError):
            await worker.read()
    finally:
        await worker.end()
