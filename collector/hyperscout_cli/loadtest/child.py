"""Processes of agents. Parent and child exchange lines of JSON by the child's standard input and output.

A child ends when its input ends. So it also ends when the parent is killed.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

_NAME = "agents_process"  # the module of a child
_STOP_TIMEOUT_S = 10.0
_MAX_LINE = 16 << 20
_MAX_STDERR = 4000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KIB = 1024

Message = dict[str, Any]


class LoadTestError(Exception):
    """The load test failed. The message says what was expected."""


class Child:
    """A running child."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, **message: Any) -> None:
        assert self._process.stdin is not None  # noqa: S101 (a pipe)
        self._process.stdin.write(json.dumps(message, default=str).encode() + b"\n")


@asynccontextmanager
async def child(receive: Callable[[Message], None], fail: Callable[[str], None]) -> AsyncIterator[Child]:
    """Run a process of agents. `receive` gets its messages, `fail` its error if it ends too early."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"hyperscout_cli.loadtest.{_NAME}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_MAX_LINE,
        start_new_session=True,  # Ctrl-C reaches only the parent, which then ends its children
    )
    reader = asyncio.create_task(_read(process, receive, fail), name=_NAME)
    try:
        yield Child(process)
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        assert process.stdin is not None  # noqa: S101 (a pipe)
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _read(
    process: asyncio.subprocess.Process,
    receive: Callable[[Message], None],
    fail: Callable[[str], None],
) -> None:
    assert process.stdout is not None  # noqa: S101 (pipes)
    assert process.stderr is not None  # noqa: S101
    errors = asyncio.create_task(_last(process.stderr), name=f"{_NAME} stderr")
    try:
        while line := await process.stdout.readline():
            message = json.loads(line)
            if "error" in message:
                fail(str(message["error"]))
            else:
                receive(message)
        fail(f"the process {_NAME} ended: {await errors}")
    finally:
        errors.cancel()


async def _last(stream: asyncio.StreamReader) -> str:
    """The end of a stream as text."""
    kept = b""
    while part := await stream.read(_MAX_STDERR):
        kept = (kept + part)[-_MAX_STDERR:]
    return kept.decode("utf-8", "replace").strip() or "it wrote no error"


# In the child


def send_to_parent(**message: Any) -> None:
    """Send a message to the parent. A parent that is gone ends this process."""
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        end()


def end() -> NoReturn:
    """End this process at once: thousands of channels would take seconds to close."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(0)


async def messages() -> AsyncIterator[Message]:
    """The parent's messages, until it closes the pipe."""
    reader = asyncio.StreamReader(limit=_MAX_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


# Figures of a process (proc(5))


def rss_mib(pid: int, field: str = "VmRSS") -> float:
    """Resident memory; `VmHWM` = its peak."""
    lines = _of_process(pid, "status").splitlines()
    found = next(line for line in lines if line.startswith(f"{field}:"))
    return int(found.split()[1]) / _KIB


def cpu_s(pid: int) -> float:
    """User and system time so far."""
    fields = _of_process(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _of_process(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError as error:
        raise LoadTestError(f"the process {pid} ended: {error.strerror}") from error
