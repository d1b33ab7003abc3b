"""Runs the nccl-tests programs on the GPUs of this host, and leaves no process or file behind.

Each program writes its file into a separate folder that only this user can access. The folder is always
removed, because the file contains the whole environment.
"""

import asyncio
import contextlib
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hyperscout_formats.nvidia.nccl_tests import MAX_BYTES, NcclTests, parse
from hyperscout_formats.text.errors import FormatError

from hyperscout_agent.nccl.ends_with_agent import bound
from hyperscout_agent.runtime.subprocesses import ToolError, ToolMissingError, last_line, run_tool
from hyperscout_agent.runtime.tasks import Wait, wait

_MAX_OUTPUT_BYTES = 4 * 1024 * 1024  # of text on stdout: NCCL_DEBUG=INFO prints much
_KEPT_BYTES = 2048
_PREFIX = "hyperscout-nccl-"
_CHECK_S = 0.25  # interval between checks of the file's size
_LARGE_BYTES = 1 << 20
# Enough iterations for a median. One gigabyte takes at least a hundredth of a second.
_SMALL_ITERATIONS, _LARGE_ITERATIONS = 100, 20


@dataclass(frozen=True, slots=True)
class Chain:
    """The sizes in bytes that one program run measures: from `first` to `last`, doubling."""

    first: int
    last: int


def chains(sizes_bytes: Sequence[int]) -> list[Chain]:
    """Return the fewest chains with exactly these sizes. A start takes seconds, as can an extra size."""
    left = sorted(set(sizes_bytes))
    found = []
    while left:
        first = last = left.pop(0)
        while 2 * last in left and (last < _LARGE_BYTES) == (2 * last < _LARGE_BYTES):
            last *= 2
            left.remove(last)
        found.append(Chain(first, last))
    return found


async def run_operation(
    command: Sequence[str],
    operation: str,
    sizes_bytes: Sequence[int],
    gpus: int,
    *,
    timeout_s: float,
    wait: Wait = wait,
) -> NcclTests:
    """Measure one operation at these sizes, on all GPUs.

    Raises ToolMissingError when the program is not installed. Raises ToolError when it exceeds `timeout_s`,
    fails, writes an invalid file, computes wrong data or returns no result at any of the sizes.
    """
    if shutil.which(command[0]) is None:
        raise ToolMissingError(f"{command[0]} is not installed")
    parts: list[NcclTests] = []
    try:
        async with asyncio.timeout(timeout_s):
            for chain in chains(sizes_bytes):
                parts.append(await _run_chain(command, operation, chain, gpus, timeout_s, wait))  # noqa: PERF401 - one after the other
    except TimeoutError:
        raise ToolError(f"{command[0]}: still running after {timeout_s:g} s") from None
    wanted = set(sizes_bytes)
    results = [one for part in parts for one in part.results if one.size_bytes in wanted]
    if not results:
        raise ToolError(f"{command[0]}: no result at any of the sizes")
    return NcclTests(parts[0].nccl_version, parts[0].ranks, tuple(results))


async def _run_chain(
    command: Sequence[str], operation: str, chain: Chain, gpus: int, timeout_s: float, wait: Wait
) -> NcclTests:
    iterations = _LARGE_ITERATIONS if chain.first >= _LARGE_BYTES else _SMALL_ITERATIONS
    flags = {
        "-b": chain.first,
        "-e": chain.last,
        "-f": 2,
        "-g": gpus,
        "-w": 5,
        "-n": iterations,
        "-c": 1,
        "-T": math.ceil(timeout_s),
    }
    output = b""  # its end

    def take(piece: bytes) -> None:
        nonlocal output
        output = (output + piece)[-_KEPT_BYTES:]

    with _folder() as folder:
        file = folder / "out.json"
        argv = (*command, *(str(x) for pair in flags.items() for x in pair), "-J", str(file))
        running = asyncio.create_task(
            run_tool(bound(argv), take=take, timeout_s=timeout_s, max_output_bytes=_MAX_OUTPUT_BYTES),
            name="nccl-tests",
        )
        growing = asyncio.create_task(_outgrown(file, wait), name="nccl-tests-file")
        try:
            await asyncio.wait((running, growing), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise ToolError(f"{command[0]}: its JSON file is larger than {MAX_BYTES} bytes")
            result = running.result()
        finally:
            for task in (running, growing):
                task.cancel()
            await asyncio.gather(running, growing, return_exceptions=True)
        if result.exit_code != 0:
            reason = last_line(output) or last_line(result.stderr) or "no output"
            raise ToolError(f"{command[0]}: exit {result.exit_code}: {reason}")
        return _read(file, operation, command[0])


def _read(file: Path, operation: str, name: str) -> NcclTests:
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ToolError(f"{name}: its JSON file is not a regular file")
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ToolError(f"{name}: it wrote no JSON file: install nccl-tests 2.17 or newer") from None
    except OSError as error:
        raise ToolError(f"{name}: its JSON file cannot be read: {error.strerror}") from error
    try:
        found, problems = parse(data, operation, name)
    except FormatError as error:
        raise ToolError(str(error)) from error
    if problems:  # a part of the file is invalid, so the rest is not trusted either
        raise ToolError(str(problems[0]))
    return found


async def _outgrown(file: Path, wait: Wait) -> None:
    """Wait until the file is larger than MAX_BYTES."""
    while True:
        await wait(asyncio.Event(), _CHECK_S)
        with contextlib.suppress(OSError):
            if os.lstat(file).st_size > MAX_BYTES:
                return


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Create a folder that only this user can access, and remove it with its content afterwards.

    Also removes folders of agents that were killed during a run. The folder's name contains the process id.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
