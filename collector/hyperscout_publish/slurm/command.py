"""Runs a command for a publisher: without a shell, with a time limit, and with the end of its stderr."""

import asyncio
import contextlib
import logging
import os
import shlex
import signal
from collections.abc import Sequence

from hyperscout_publish.publisher.base import PublishError

_log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
_LAST_WORDS_S = 0.5
_TAIL_BYTES = 2000  # of the command's stderr


async def run(what: str, command: Sequence[str], timeout_s: float = TIMEOUT_S) -> None:
    """Run a command, with a separate pipe for its stderr. `what`: its setting. Raises PublishError.

    With asyncio's own pipe, `wait` would wait for processes that the command leaves behind.
    """
    tail = _Tail()
    reading, writing = os.pipe()
    end = os.fdopen(reading, "rb", buffering=0)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: tail, end)
    try:
        await _wait_for(f"{what} `{shlex.join(command)}`", command, timeout_s, tail, writing)
    finally:
        pipe.close()


async def _wait_for(title: str, command: Sequence[str], timeout_s: float, tail: "_Tail", stderr: int) -> None:
    """Start the command and wait for its end. Closes `stderr`. Raises PublishError."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,  # so that a time-out also ends its child processes
        )
    except OSError as error:
        raise PublishError(f"{title}: {error.strerror or error}") from error
    finally:
        os.close(stderr)
    try:
        async with asyncio.timeout(timeout_s):
            status = await process.wait()
            await asyncio.wait([tail.ended], timeout=_LAST_WORDS_S)
    except TimeoutError as error:
        raise PublishError(f"{title}: not finished within {timeout_s:g} s{_shown(tail.data)}") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if status:
        raise PublishError(f"{title}: exit status {status}{_shown(tail.data)}")
    _log.info("%s finished", title)


class _Tail(asyncio.Protocol):
    """The last bytes of the command's stderr. `ended`: set when the last writer has closed the pipe."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.data += data
        del self.data[:-_TAIL_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _shown(tail: bytearray) -> str:
    text = tail.decode("utf-8", "replace").strip()
    return f": {text}" if text else ""
