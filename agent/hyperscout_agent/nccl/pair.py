"""Runs a worker process for one rank of an NCCL run between two nodes.

The worker's process group is killed when the run ends, for any reason. The agent validates every answer.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hyperscout_formats.facts.facts import NcclResult
from hyperscout_formats.nvidia.nccl_tests import nccl_version

from hyperscout_agent.nccl.library import UNIQUE_ID_BYTES
from hyperscout_agent.nccl.worker import RANKS, WorkerOrder
from hyperscout_agent.runtime.subprocesses import LineWorker, WorkerEndedError

_LINE_BYTES = 64 * 1024
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
        worker = await LineWorker.start(
            (sys.executable, "-m", "hyperscout_agent.nccl.worker", str(os.getpid())), line_bytes=_LINE_BYTES
        )
    except OSError as error:
        raise WorkerError(f"the worker cannot be started: {error.strerror}") from error
    try:
        async with asyncio.timeout(timeout_s):
            await worker.write(order.to_line())
            if order.rank == 0:
                answer = await _answer(worker)
                if "id" in answer:
                    send_id(_unique_id(answer))
                    answer = await _answer(worker)
            else:
                await worker.write(json.dumps({"id": (await take_id()).hex()}).encode())
                answer = await _answer(worker)
            version, results = _results(answer, order.sizes_bytes)
            with contextlib.suppress(TimeoutError):  # the worker leaves the other rank, which may have ended
                async with asyncio.timeout(_FAREWELL_S):
                    await worker.wait()
            return version, results
    except TimeoutError:
        raise WorkerError(f"the run did not end in {timeout_s:g} s{_quoted(worker.last_line())}") from None
    except WorkerEndedError as error:
        raise WorkerError(f"the worker ended early{_quoted(str(error))}") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WorkerError(f"the worker sent an invalid answer: {str(error)[:200]}") from error
    finally:
        await worker.end()


async def _answer(worker: LineWorker) -> dict[str, Any]:
    found = json.loads(await worker.read())
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
        raise ValueError(f"{len(wanted)} results are missing")
    return nccl_version(answer["version"]), tuple(found)


def _quoted(last_line: str) -> str:
    return f": {last_line}" if last_line else ""
