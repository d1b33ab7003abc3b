"""Runs programs with a time-out and an output limit, and leaves no process and no open pipe behind.

A program runs in its own process group, which is killed as a whole, so that a wrapper's child does not
outlive the wrapper.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

_READ_BYTES = 256 * 1024
_STDERR_BYTES = 16 * 1024
# Time to reap a killed process. On a loaded machine the end of a crashed process takes seconds. A process
# that hangs in the kernel cannot be reaped and is abandoned.
_REAP_S = 20.0
_CANCELLED_S = 2.0  # a killed process ends within milliseconds
# Time for the rest of the stderr of a worker that has ended.
_LAST_LINE_S = 1.0
_MAX_LINE_CHARS = 300


class ToolError(Exception):
    """The tool did not run to its end. The message gives the reason."""


class ToolMissingError(ToolError):
    """The program does not exist, or this user may not run it."""


class WorkerEndedError(Exception):
    """The worker ended. The message is the last line of its stderr, or ""."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The end of a tool's run. `stderr`: the first 16 KiB at most."""

    exit_code: int  # negative: the number of the signal that ended it
    stderr: bytes


class Child:
    """A running program. The caller must call `end`, which also closes the pipes."""

    def __init__(self, process: Process, transport: asyncio.SubprocessTransport) -> None:
        self.process = process
        self._transport = transport

    @property
    def stdin(self) -> asyncio.StreamWriter:
        return cast("asyncio.StreamWriter", self.process.stdin)

    @property
    def stdout(self) -> asyncio.StreamReader:
        return cast("asyncio.StreamReader", self.process.stdout)

    @property
    def stderr(self) -> asyncio.StreamReader:
        return cast("asyncio.StreamReader", self.process.stderr)

    def kill(self) -> None:
        """Kill the process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill the process group and reap the process.

        The pipes are closed even if this call is cancelled, or if the process cannot be reaped in time.
        """
        self.kill()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REAP_S):
                    # asyncio reports the end of a process only after its pipes were read to the end.
                    for stream in (self.process.stdout, self.process.stderr):
                        while stream is not None and await stream.read(_READ_BYTES):
                            pass
                    await self.process.wait()
        except asyncio.CancelledError:
            self._transport.close()  # now asyncio reports the end whatever holds the pipes
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CANCELLED_S):
                    await self.process.wait()
            raise
        finally:
            self._transport.close()


async def start(
    argv: Sequence[str],
    *,
    stdin: int = DEVNULL,
    stdout: int = PIPE,
    stderr: int | None = PIPE,
    limit: int = _READ_BYTES,
) -> Child:
    """Start `argv` in its own session. `limit`: maximum bytes of a line. Raises OSError.

    `asyncio.create_subprocess_exec` does the same, but does not give access to the transport, which has to be
    closed when the process cannot be reaped.
    """
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit, loop),
        *argv,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    return Child(Process(transport, protocol, loop), transport)


async def run_tool(
    argv: Sequence[str], *, take: Callable[[bytes], object], timeout_s: float, max_output_bytes: int
) -> ToolResult:
    """Run `argv` and pass its stdout to `take` in pieces.

    Raises ToolError when it does not end in time or writes too much, ToolMissingError when it cannot start.
    """
    try:
        child = await start(argv)
    except (FileNotFoundError, PermissionError) as error:
        raise ToolMissingError(f"{argv[0]}: {error.strerror}") from error
    except OSError as error:
        raise ToolError(f"{argv[0]}: {error}") from error
    complaints = asyncio.create_task(_beginning(child.stderr))
    size_bytes = 0
    try:
        async with asyncio.timeout(timeout_s):
            while piece := await child.stdout.read(_READ_BYTES):
                size_bytes += len(piece)
                if size_bytes > max_output_bytes:
                    raise ToolError(f"{argv[0]}: more than {max_output_bytes} bytes of output")
                take(piece)
            stderr = await complaints
            return ToolResult(await child.process.wait(), stderr)
    except TimeoutError:
        raise ToolError(f"{argv[0]}: still running after {timeout_s:g} s") from None
    finally:
        complaints.cancel()
        await _end(child, complaints)


class LineWorker:
    """A worker process that exchanges lines with the agent. `line_bytes`: maximum size of a line."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._stderr = b""  # its end
        self._listening = asyncio.create_task(self._listen(), name="worker-stderr")

    @staticmethod
    async def start(argv: Sequence[str], *, line_bytes: int) -> "LineWorker":
        """Start a worker. Raises OSError."""
        return LineWorker(await start(argv, stdin=PIPE, limit=line_bytes))

    @property
    def pid(self) -> int:
        return self._child.process.pid

    async def write(self, line: bytes) -> None:
        """Send one line, without its line end.

        A worker that has ended does not receive it. Then `read` returns its earlier answers, and raises.
        """
        with contextlib.suppress(ConnectionError):
            self._child.stdin.write(line + b"\n")
            await self._child.stdin.drain()

    async def read(self) -> bytes:
        """Return the next line. Raises WorkerEndedError, and ValueError for a line that is too long."""
        try:
            return await self._child.stdout.readuntil()
        except asyncio.LimitOverrunError:
            raise ValueError("a line is longer than the limit") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await self._ended() from None

    async def wait(self) -> None:
        await self._child.process.wait()

    def last_line(self) -> str:
        """Return the last line of stderr so far, or ""."""
        return last_line(self._stderr)

    async def end(self) -> None:
        self._child.kill()  # first, before anything that can block
        self._listening.cancel()
        self._child.stdin.close()
        await _end(self._child, self._listening)

    async def _listen(self) -> None:
        while piece := await self._child.stderr.read(_STDERR_BYTES):
            self._stderr = (self._stderr + piece)[-_STDERR_BYTES:]

    async def _ended(self) -> WorkerEndedError:
        self._child.kill()
        await asyncio.wait((self._listening,), timeout=_LAST_LINE_S)
        return WorkerEndedError(self.last_line())


def first_line(text: bytes) -> str:
    """Return the first line that is not empty, cut to 300 characters, or ""."""
    lines = (line.strip() for line in text.decode(errors="replace").splitlines())
    return next((line[:_MAX_LINE_CHARS] for line in lines if line), "")


def last_line(text: bytes) -> str:
    """Return the last line that is not empty, cut to 300 characters, or "". A line of "#" counts as empty."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip(" #\t\r")]
    return lines[-1][:_MAX_LINE_CHARS] if lines else ""


async def _end(child: Child, reader: "asyncio.Task[object]") -> None:
    """End a child after its stderr reader, which was cancelled. Two tasks must not read one stream."""
    try:
        await asyncio.gather(reader, return_exceptions=True)
    finally:
        await child.end()


async def _beginning(stderr: asyncio.StreamReader) -> bytes:
    """Read stderr to its end, so that the tool does not block on it. Return the beginning."""
    kept = b""
    while piece := await stderr.read(_READ_BYTES):
        kept += piece[: _STDERR_BYTES - len(kept)]
    return kept
