"""Runs one rank in a separate process, so that a failure of NCCL or CUDA does not affect the agent.

    python -m hyperscout_agent.nccl.worker AGENT_PID

The process reads and writes lines of JSON. It reads a `WorkerOrder`. Rank 0 then writes {"id": HEX} and keeps
running, because the ranks connect to a socket of it. The other ranks read {"id": HEX}. The last line is
{"version", "results": [[operation, bytes, microseconds], ...]}, or {"missing": WHY} when a library or a GPU
is missing, or {"error": WHY}. NCCL's output goes to stderr.
"""

import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TextIO

from hyperscout_agent.nccl.ends_with_agent import AgentGoneError, end_with
from hyperscout_agent.nccl.library import UNIQUE_ID_BYTES, CallError, Cuda, MissingError, Nccl

RANKS = 2
_FLOAT_BYTES = 4
# Both ranks must run the same number of operations, so the counts depend only on the sizes.
_SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """The order for a worker. `library`, `cuda_library`: names or paths of libnccl and libcudart."""

    rank: int
    sizes_bytes: tuple[int, ...]
    library: str
    cuda_library: str

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def of_line(line: str) -> "WorkerOrder":
        """Parse an order. Raises ValueError, KeyError or TypeError when it is malformed."""
        found = json.loads(line)
        sizes = tuple(int(size) for size in found["sizes_bytes"])
        return WorkerOrder(int(found["rank"]), sizes, str(found["library"]), str(found["cuda_library"]))


@dataclass(frozen=True, slots=True)
class Repeats:
    """`warm_ups` operations, then `rounds` rounds of `operations` between two events.

    The result is the median of the rounds.
    """

    warm_ups: int
    rounds: int
    operations: int


def repeats(size_bytes: int) -> Repeats:
    """Return the repeats for a size: enough for microseconds, few enough for 1 GB at 10 Gbit/s."""
    return Repeats(5, 7, 20) if size_bytes <= _SMALL_BYTES else Repeats(1, 3, 2)


class Rank:
    """A communicator with its memory, stream and events on one GPU."""

    def __init__(self, cuda: Cuda, nccl: Nccl, comm: int, rank: int, largest_bytes: int) -> None:
        self._cuda = cuda
        self._nccl = nccl
        self._comm = comm
        self._peer = 1 - rank
        self._source, self._target = cuda.malloc(largest_bytes), cuda.malloc(largest_bytes)
        self._stream = cuda.stream()
        self._events = cuda.event(), cuda.event()
        for pointer in (self._source, self._target):
            cuda.fill(pointer, largest_bytes)

    def measure(self, sizes_bytes: Sequence[int]) -> Iterator[tuple[str, int, float]]:
        """Yield (operation, bytes, microseconds) for each operation and size."""
        for size in sizes_bytes:
            yield "all_reduce", size, self._time_us(size, partial(self._all_reduce, size))
        for size in sizes_bytes:
            yield "sendrecv", size, self._time_us(size, partial(self._send_and_receive, size))

    def end(self) -> None:
        self._nccl.leave(self._comm)
        for pointer in (self._source, self._target):
            self._cuda.free(pointer)
        self._cuda.end_stream(self._stream)

    def _all_reduce(self, size_bytes: int) -> None:
        floats = size_bytes // _FLOAT_BYTES
        self._nccl.all_reduce(self._source, self._target, floats, self._comm, self._stream)

    def _send_and_receive(self, size_bytes: int) -> None:
        self._nccl.send_and_receive(
            self._source, self._target, size_bytes, self._peer, self._comm, self._stream
        )

    def _time_us(self, size_bytes: int, operate: Callable[[], None]) -> float:
        cuda, (begin, end), count = self._cuda, self._events, repeats(size_bytes)
        for _ in range(count.warm_ups):
            operate()
        cuda.synchronize(self._stream)
        times_us = []
        for _ in range(count.rounds):
            cuda.record(begin, self._stream)
            for _ in range(count.operations):
                operate()
            cuda.record(end, self._stream)
            cuda.synchronize(self._stream)
            times_us.append(cuda.elapsed_us(begin, end) / count.operations)
        return statistics.median(times_us)


def run(order: WorkerOrder, told: TextIO, say: Callable[[dict[str, Any]], None]) -> None:
    """Run one rank. Raises MissingError, CallError, and ValueError for an invalid id."""
    nccl, cuda = Nccl(order.library), Cuda(order.cuda_library)
    if cuda.devices() == 0:
        raise MissingError("CUDA finds no GPU")
    cuda.use(0)
    if order.rank == 0:
        unique_id = nccl.unique_id()
        say({"id": unique_id.hex()})
    else:
        unique_id = bytes.fromhex(json.loads(told.readline())["id"])
        if len(unique_id) != UNIQUE_ID_BYTES:
            raise ValueError(f"an id of {len(unique_id)} bytes")
    comm = nccl.join(unique_id, order.rank, RANKS)
    try:
        rank = Rank(cuda, nccl, comm, order.rank, max(order.sizes_bytes))
        results = list(rank.measure(order.sizes_bytes))
    except CallError:
        nccl.abort(comm)  # so that the other rank does not wait for its time-out
        raise
    # Report before leaving the communicator: leaving may hang when the other rank has already ended.
    say({"version": nccl.version(), "results": results})
    rank.end()


def main(arguments: Sequence[str]) -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # NCCL_DEBUG prints to stdout

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        end_with(int(arguments[0]))
        run(WorkerOrder.of_line(sys.stdin.readline()), sys.stdin, say)
    except MissingError as error:
        say({"missing": str(error)})
    except CallError as error:
        say({"error": str(error)})
    except (AgentGoneError, BrokenPipeError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
