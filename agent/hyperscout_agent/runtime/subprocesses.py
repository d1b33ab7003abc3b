"""Runs a tool with a time-out and an output limit, and leaves no process behind.

The tool runs in its own process group, which is killed as a whole, so that a wrapper's child does not
outlive the wrapper.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

_READ_BYTES = 256 * 1024
_STDERR_BYTES = 16 * 1024
# Time to reap a killed process. A process that hangs in the kernel cannot be reaped and is abandoned.
_REAP_S = 5.0


class ToolError(Exception):
    """The tool did not run to its end. The message gives the reason."""


class ToolMissingError(ToolError):
    """The program does not exist, or this user may not run it."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The end of a tool's run. `stderr`: the first 16 KiB at most."""

    exit_code: int  # negative: the number of the signal that ended it
    stderr: bytes


async def run_tool(
    argv: Sequence[str], *, take: Callable[[bytes], None], timeout_s: float, max_output_bytes: int
) -> ToolResult:
    """Run `argv` and pass its stdout to `take` in pieces.

    Raises ToolError when it does not end in time or writes too much, ToolMissingError when it cannot start.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise ToolMissingError(f"{argv[0]}: {error.strerror}") from error
    except OSError as error:
        raise ToolError(f"{argv[0]}: {error}") from error
    stdout = cast("asyncio.StreamReader", process.stdout)
    complaints = asyncio.create_task(_beginning(cast("asyncio.StreamReader", process.stderr)))
    try:
        async with asyncio.timeout(timeout_s):
            await _feed(argv[0], stdout, take, max_output_bytes)
            stderr = await complaints
            return ToolResult(await process.wait(), stderr)
    except TimeoutError:
        raise ToolError(f"{argv[0]}: no end in {timeout_s:g} s") from None
    finally:
        complaints.cancel()
        await asyncio.gather(complaints, return_exceptions=True)
        await end_process(process)


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Kill the group of a process that was started in its own session, and reap the process."""
    kill_group(process)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REAP_S):
            # asyncio reports the end of a process only after its pipes were read to the end.
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(_READ_BYTES):
                    pass
            await process.wait()


def kill_group(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


async def _feed(
    name: str, stdout: asyncio.StreamReader, take: Callable[[bytes], None], limit_bytes: int
) -> None:
    size_bytes = 0
    while piece := await stdout.read(_READ_BYTES):
        size_bytes += len(piece)
        if size_bytes > limit_bytes:
            raise ToolError(f"{name}: more than {limit_bytes} bytes of output")
        take(piece)


async def _beginning(stderr: asyncio.StreamReader) -> bytes:
    """Read stderr to its end, so that the tool does not block on it. Return the beginning."""
    kept = b""
    while piece := await stderr.read(_READ_BYTES):
        kept += piece[: _STDERR_BYTES - len(kept)]
    return kept
