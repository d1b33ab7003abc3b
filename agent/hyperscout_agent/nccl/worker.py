"""One rank of a group, in a process of its own: whatever NCCL or CUDA does, the agent kills it and lives.

    python -m hyperscout_agent.nccl.worker AGENT_PID

speaks in lines of JSON: a `WorkerOrder` comes in; rank 0 answers {"id": HEX} and stays, for the ranks meet at
a socket that it holds; the others are told {"id": HEX}. In the end comes {"version", "results": [[operation,
bytes, microseconds], ...]}, or {"missing": WHY} where a library or a GPU is not there, or {"error": WHY}.
Whatever NCCL prints goes to stderr.
"""

import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TextIO

from hyperscout_agent.nccl.library import UNIQUE_ID_BYTES, CallError, Cuda, MissingError, Nccl
from hyperscout_agent.runtime.ends_with_agent import AgentGoneError, end_with

RANKS = 2
_FLOAT_BYTES = 4
# Both ranks must do the same, whatever each of them sees: counts depend on sizes alone.
_SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What a worker shall do."""

    rank: int
    sizes_bytes: tuple[int, ...]
    library: str
    cuda_library: str

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def of_line(line: str) -> "WorkerOrder":
        """Raises ValueError and the like for what our own agent never sends."""
        found = json.loads(line)
        sizes = tuple(int(size) for size in found["sizes_bytes"])
        return WorkerOrder(int(found["rank"]), sizes, str(found["library"]), str(found["cuda_library"]))


@dataclass(frozen=True, slots=True)
class Repeats:
    """`warm_ups`, then `rounds` times `operations` between two events: the median of the rounds counts."""

    warm_ups: int
    rounds: int
    operations: int


def repeats(size_bytes: int) -> Repeats:
    """How often: enough to be sure of microseconds, few enough that a gigabyte over 10 Gbit/s ends."""
    return Repeats(5, 7, 20) if size_bytes <= _SMALL_BYTES else Repeats(1, 3, 2)


class Rank:
    """A communicator and what it needs of one GPU."""

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
        """(operation, bytes, microseconds) for each."""
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
    """Raises MissingError, CallError, and ValueError for an id that is none."""
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
        nccl.abort(comm)  # so that the other rank need not wait for its time-out
        raise
    # Before the farewell: it may hang when the other rank is gone already, and what was measured is measured.
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
