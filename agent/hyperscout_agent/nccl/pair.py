"""Runs a worker process for one rank of an NCCL run between two nodes.

The worker's process group is killed when the run ends, for any reason. The agent validates every answer.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from hyperscout_formats.facts.facts import NcclResult
from hyperscout_formats.nvidia.nccl_tests import nccl_version

from hyperscout_agent.nccl.library import UNIQUE_ID_BYTES
from hyperscout_agent.nccl.worker import RANKS, WorkerOrder
from hyperscout_agent.runtime.subprocesses import end_process, kill_group

_LINE_BYTES = 64 * 1024
_STDERR_BYTES = 4096
_MAX_TIME_US = 1e12
_FAREWELL_S = 5.0
_OPERATIONS = ("all_reduce", "sendrecv")


class WorkerError(Exception):
    """The run failed. The message gives the reason."""


class NothingThereError(Exception):
    """A library or a GPU is missing. The message names it."""


# Rank 0 passes its id to IdOut. The other ranks await it from IdIn.
IdOut = Callable[[bytes], None]
IdIn = Callable[[], Awaitable[bytes]]


async def run_worker(
    order: WorkerOrder, *, send_id: IdOut, take_id: IdIn, timeout_s: float
) -> tuple[str, tuple[NcclResult, ...]]:
    """Run one rank to its end. Returns (NCCL version, results).

    Raises WorkerError and NothingThereError.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hyperscout_agent.nccl.worker", str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_LINE_BYTES,
        )
    except OSError as error:
        raise WorkerError(f"no worker can be started: {error.strerror}") from error
    words = _LastWords()
    listening = asyncio.create_task(words.listen(cast("asyncio.StreamReader", process.stderr)))
    stdin = cast("asyncio.StreamWriter", process.stdin)
    stdout = cast("asyncio.StreamReader", process.stdout)
    try:
        async with asyncio.timeout(timeout_s):
            stdin.write(order.to_line())
            if order.rank == 0:
                answer = await _answer(stdout)
                if "id" in answer:
                    send_id(_unique_id(answer))
                    answer = await _answer(stdout)
            else:
                stdin.write(json.dumps({"id": (await take_id()).hex()}).encode() + b"\n")
                answer = await _answer(stdout)
            version, results = _results(answer, order.sizes_bytes)
            with contextlib.suppress(TimeoutError):  # the worker leaves the other rank, which may have ended
                async with asyncio.timeout(_FAREWELL_S):
                    await process.wait()
            return version, results
    except TimeoutError:
        raise WorkerError(f"no end in {timeout_s:g} s{words.after()}") from None
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        await asyncio.wait((listening,), timeout=1.0)
        raise WorkerError(f"the worker ended early{words.after()}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WorkerError(f"nonsense from the worker: {str(error)[:200]}") from error
    finally:
        kill_group(process)  # first, before anything that can block
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        stdin.close()
        await end_process(process)


async def _answer(stdout: asyncio.StreamReader) -> dict[str, Any]:
    try:
        line = await stdout.readuntil()
    except asyncio.LimitOverrunError as error:
        raise ValueError(f"a line of more than {_LINE_BYTES} bytes") from error
    found = json.loads(line)
    if not isinstance(found, dict):
        raise TypeError("not an object")
    if "missing" in found:
        raise NothingThereError(str(found["missing"])[:300])
    if "error" in found:
        raise WorkerError(str(found["error"])[:300])
    return found


def _unique_id(answer: dict[str, Any]) -> bytes:
    unique_id = bytes.fromhex(answer["id"])
    if len(unique_id) != UNIQUE_ID_BYTES:
        raise ValueError(f"an id of {len(unique_id)} bytes")
    return unique_id


def _results(answer: dict[str, Any], sizes_bytes: Sequence[int]) -> tuple[str, tuple[NcclResult, ...]]:
    """Validate the results: each operation at each size, exactly once.

    The bus bandwidth is the algorithm bandwidth times nccl-tests' factor, which is 1 for two ranks.
    """
    wanted = {(operation, size) for operation in _OPERATIONS for size in sizes_bytes}
    found: list[NcclResult] = []
    for operation, size, time_us in answer["results"]:
        wanted.remove((operation, size))
        if not isinstance(time_us, float) or not 0.0 < time_us < _MAX_TIME_US:
            raise ValueError(f"{operation} of {size} bytes took {time_us} us")
        gbytes_per_s = size / time_us / 1000.0
        factor = 2.0 * (RANKS - 1) / RANKS if operation == "all_reduce" else 1.0
        found.append(NcclResult(operation, size, time_us, gbytes_per_s, gbytes_per_s * factor))
    if wanted:
        raise ValueError(f"{len(wanted)} results did not come")
    return nccl_version(answer["version"]), tuple(found)


class _LastWords:
    """Keeps the end of the worker's stderr, which includes NCCL's output."""

    def __init__(self) -> None:
        self._kept = b""

    async def listen(self, stderr: asyncio.StreamReader) -> None:
        while piece := await stderr.read(_STDERR_BYTES):
            self._kept = (self._kept + piece)[-_STDERR_BYTES:]

    def after(self) -> str:
        """Return ": " and the last line, or "" when there is none."""
        lines = [x.strip() for x in self._kept.decode(errors="replace").splitlines() if x.strip()]
        return f": {lines[-1][:300]}" if lines else ""
