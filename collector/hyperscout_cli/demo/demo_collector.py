"""Starts the demo's collector in its own process, on a free loopback port. It ends with the demo."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 5.0
_LISTENING = re.compile(rb"listens on (127\.0\.0\.1:\d+)")
_MAP = re.compile(rb"the map at (http://127\.0\.0\.1:\d+/)")  # logged before the other
_LAST_LINES = 15
_MAX_LINE = 64 << 10

# The process asks the kernel (prctl(2), PR_SET_PDEATHSIG = 1) to end it with its parent, so that a killed
# demo leaves no collector behind. Other systems do not support that.
_BOOT = """
import os, signal, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
from hyperscout_cli.main import main
sys.exit(main(sys.argv[2:]))
"""


class DemoError(Exception):
    """The demo failed; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class RunningCollector:
    """Its address, the address of its map ("" = none), and its process id. `ended` is done when it ended."""

    address: str
    map: str
    pid: int
    ended: asyncio.Task[None]


@asynccontextmanager
async def running_collector(folder: Path, settings: dict[str, str]) -> AsyncIterator[RunningCollector]:
    """Run a collector with its files in `folder`. Raises DemoError.

    `settings` are flags of `hyperscout collector`, without their dashes.
    """
    settings = {"listen": "127.0.0.1:0", "data-dir": str(folder)} | settings
    flags = [word for name, value in settings.items() for word in (f"--{name}", value)]
    # The user's settings of another collector must not apply to this one.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HYPERSCOUT_COLLECTOR_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _BOOT, str(os.getpid()), "collector", *flags),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        limit=_MAX_LINE,
    )
    log: list[str] = []
    found: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
    reader = asyncio.create_task(_read_log(process, log, found), name="collector log")
    try:
        try:
            address, at = await asyncio.wait_for(found, START_TIMEOUT_S)
        except TimeoutError as error:
            raise DemoError(f"no collector within {START_TIMEOUT_S:g} s; its log:\n{''.join(log)}") from error
        yield RunningCollector(address, at, process.pid, reader)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        await reader


async def _read_log(
    process: asyncio.subprocess.Process, log: list[str], found: asyncio.Future[tuple[str, str]]
) -> None:
    """Keep the last lines of the log, and find the addresses in it."""
    at = ""
    assert process.stderr is not None  # noqa: S101 (stderr is a pipe)
    while True:
        try:
            line = await process.stderr.readline()
        except ValueError:  # a line over the limit: its rest comes next
            continue
        if not line:
            break
        log.append(line.decode("utf-8", "replace"))
        del log[:-_LAST_LINES]
        if match := _MAP.search(line):
            at = match[1].decode()
        if (match := _LISTENING.search(line)) and not found.done():
            found.set_result((match[1].decode(), at))
    await process.wait()
    if not found.done():
        found.set_exception(
            DemoError(f"the collector ended with exit code {process.returncode}; its log:\n{''.join(log)}")
        )
