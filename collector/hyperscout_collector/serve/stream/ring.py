"""Keeps the live stream's events: the last deltas in a ring, and a snapshot for new readers.

Each event is encoded once for all readers. A new reader gets the kept snapshot and the deltas since then, so
frequent changes do not cost a snapshot per reader. Pure: it uses no clock and no event loop.

The format is text/event-stream (WHATWG HTML, 9.2). A snapshot has many `data:` lines, and its `event:` line
comes last. So a reader that is cut off within a snapshot receives an `error` event and never a partial
snapshot.
"""

import itertools
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hyperscout_topology import objects
from hyperscout_topology.delta import delta
from hyperscout_topology.json_text import topology_json
from hyperscout_topology.topology import Topology

_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Delta:
    """The event from one generation to a later one. `before`, `ident`: event ids of the two generations."""

    before: str
    ident: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The event with a whole topology.

    `next`: the number of the first delta after it. Each of `chunks` ends at the end of a line.
    """

    next: int
    chunks: tuple[bytes, ...]
    size_bytes: int


class Ring:
    """The kept deltas and snapshot.

    Deltas have increasing numbers. The oldest are dropped above `max_deltas` deltas or `max_bytes` bytes.
    `epoch`: a text that is unique to this collector process, so that the generations of two processes are not
    confused.
    """

    def __init__(self, epoch: str, max_deltas: int, max_bytes: int) -> None:
        self.epoch = epoch
        self.topology: Topology | None = None  # after the last delta; None = no readers
        self.snapshot: Snapshot | None = None
        self._deltas: deque[Delta] = deque()
        self._first = 0
        self._size_bytes = 0
        self._since_snapshot_bytes = 0
        self._max_deltas = max_deltas
        self._max_bytes = max_bytes

    @property
    def next(self) -> int:
        """The number that the next delta will have."""
        return self._first + len(self._deltas)

    def begin(self, topology: Topology) -> None:
        """Start with a topology, for the first reader."""
        self.clear()
        self.topology = topology

    def clear(self) -> None:
        """Drop all events; no reader can resume.

        Numbers continue with a gap, so a reader that is still connected is detected as too slow.
        """
        self._first = self.next + 1
        self._deltas.clear()
        self._size_bytes = self._since_snapshot_bytes = 0
        self.topology = self.snapshot = None

    def ident(self, topology: Topology) -> str:
        return f"{topology.generation}-{self.epoch}"

    def add(self, topology: Topology, data: bytes) -> None:
        """Add a delta. `data`: the result of `encoded_delta` for the previous topology and this one."""
        if self.topology is None:
            return
        self._deltas.append(Delta(self.ident(self.topology), self.ident(topology), data))
        self._size_bytes += len(data)
        self._since_snapshot_bytes += len(data)
        self.topology = topology
        while len(self._deltas) > self._max_deltas or self._size_bytes > self._max_bytes:
            self._size_bytes -= len(self._deltas.popleft().data)
            self._first += 1
        if self.snapshot is not None and not self._good(self.snapshot):
            self.snapshot = None

    def keep(self, snapshot: Snapshot) -> None:
        """Keep a snapshot for new readers.

        It is kept while all deltas since then are in the ring and are at most half of its size.
        """
        self._since_snapshot_bytes = sum(len(d.data) for d in self.since(snapshot.next))
        self.snapshot = snapshot if self._good(snapshot) else None

    def _good(self, snapshot: Snapshot) -> bool:
        return self.covers(snapshot.next) and self._since_snapshot_bytes <= snapshot.size_bytes // 2

    def covers(self, number: int) -> bool:
        """Whether the ring contains all deltas from this number on."""
        return self._first <= number <= self.next

    def since(self, number: int) -> list[Delta]:
        return list(itertools.islice(self._deltas, max(0, number - self._first), None))

    def resumed(self, ident: str) -> int | None:
        """The number of the delta after the event with this id; None = the reader needs a snapshot.

        An id without an epoch is a generation of this collector process.
        """
        if self.topology is None:
            return None
        wanted = ident if "-" in ident else f"{ident}-{self.epoch}"
        if wanted == self.ident(self.topology):
            return self.next
        for number, one in enumerate(self._deltas, self._first):
            if one.before == wanted:
                return number
        return None


def encoded_delta(old: Topology, new: Topology, epoch: str) -> bytes:
    """The event with the delta between two topologies. Blocks: call it in a thread."""
    text = json.dumps(objects.delta(delta(old, new)), separators=(",", ":"))
    return f"id: {new.generation}-{epoch}\nevent: delta\ndata: {text}\n\n".encode()


def encoded_snapshot(topology: Topology, epoch: str, number: int) -> Snapshot:
    """The event with the whole topology. Blocks: call it in a thread."""
    chunks = tuple(_chunks(topology, epoch))
    return Snapshot(number, chunks, sum(map(len, chunks)))


def _chunks(topology: Topology, epoch: str) -> Iterator[bytes]:
    kept: list[str] = []
    size = 0
    for line in _lines(topology_json(replace(topology, devices={}))):
        kept.append(f"data: {line}\n")
        size += len(line) + 7
        if size >= _CHUNK_BYTES:
            yield "".join(kept).encode()
            kept.clear()
            size = 0
    kept.append(f"id: {topology.generation}-{epoch}\nevent: snapshot\n\n")
    yield "".join(kept).encode()


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """The lines of a text that is given in pieces."""
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        yield from whole
    if rest:
        yield rest
