"""Runs a tool under a time-out and an output limit, and leaves nothing of it behind.

The tool gets a process group of its own, which is killed as a whole: a wrapper's child must not
outlive it.
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
# A killed process is reaped within this, unless it hangs in the kernel, where nothing helps.
_REAP_S = 5.0


class ToolError(Exception):
    """The tool could not be run to its end; says why."""


class ToolMissingError(ToolError):
    """There is no such program, or it may not be run."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a tool ended. `stderr` is its beginning, at most 16 KiB."""

    exit_code: int  # negative: the signal that ended it
    stderr: bytes


async def run_tool(
    argv: Sequence[str], *, take: Callable[[bytes], None], timeout_s: float, max_output_bytes: int
) -> ToolResult:
    """Run `argv`, feeding its stdout to `take` piece by piece.

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
    """Kill what is left of a process that was started in a session of its own, and reap it."""
    kill_group(process)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REAP_S):
            # asyncio sees the end of a process, and closes its pipes, only when they were read to the end.
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
    """Read to the end, so that the tool never blocks on it; keep the beginning."""
    kept = b""
    while piece := await stderr.read(_READ_BYTES):
        kept += piece[: _STDERR_BYTES - len(kept)]
    return kept
