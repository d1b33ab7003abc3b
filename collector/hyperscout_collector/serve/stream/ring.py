"""The live stream's events: the last deltas in a ring, and a snapshot that newcomers begin with.

Each event is encoded once, whoever reads. A newcomer gets the last snapshot that was made and the deltas
since then, so a cluster full of changes costs no snapshot a reader. Pure: no clock, no loop.

An event is text/event-stream (WHATWG HTML, 9.2). A snapshot has many `data:` lines and says what it is in its
last line: whoever is cut off within one still gets an event that says so, and none that looks whole.
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
    """From one generation to a later one. `before`, `ident`: what `id:` said of the events around it."""

    before: str
    ident: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`next`: the number of the first delta after it. `chunks` end where lines do."""

    next: int
    chunks: tuple[bytes, ...]
    size_bytes: int


class Ring:
    """Deltas are numbered from 0 on; the oldest go when there are too many or too large ones.

    `epoch`: a text that no other collector has, so that generations of two are not confused.
    """

    def __init__(self, epoch: str, max_deltas: int, max_bytes: int) -> None:
        self.epoch = epoch
        self.topology: Topology | None = None  # where the deltas lead to; None = nobody follows
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
        """Somebody follows from here on."""
        self.clear()
        self.topology = topology

    def clear(self) -> None:
        """Nobody follows, nor may go on. Numbers go on: who still reads is told that it is too late."""
        self._first = self.next + 1
        self._deltas.clear()
        self._size_bytes = self._since_snapshot_bytes = 0
        self.topology = self.snapshot = None

    def ident(self, topology: Topology) -> str:
        return f"{topology.generation}-{self.epoch}"

    def add(self, topology: Topology, data: bytes) -> None:
        """`data`: what `encoded_delta` made of the topology before and this one."""
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
        """For newcomers, as long as the deltas since then are at hand and fewer bytes than half of it."""
        self._since_snapshot_bytes = sum(len(d.data) for d in self.since(snapshot.next))
        self.snapshot = snapshot if self._good(snapshot) else None

    def _good(self, snapshot: Snapshot) -> bool:
        return self.covers(snapshot.next) and self._since_snapshot_bytes <= snapshot.size_bytes // 2

    def covers(self, number: int) -> bool:
        """Whether all deltas from that one on are at hand."""
        return self._first <= number <= self.next

    def since(self, number: int) -> list[Delta]:
        return list(itertools.islice(self._deltas, max(0, number - self._first), None))

    def resumed(self, ident: str) -> int | None:
        """The number of the delta after the event with that id; None = a snapshot is needed.

        A bare generation stands for this collector's own.
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
    """The event that leads from one to the other. For a thread."""
    text = json.dumps(objects.delta(delta(old, new)), separators=(",", ":"))
    return f"id: {new.generation}-{epoch}\nevent: delta\ndata: {text}\n\n".encode()


def encoded_snapshot(topology: Topology, epoch: str, number: int) -> Snapshot:
    """The event with the whole picture. For a thread."""
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
    """The lines of a text that comes in pieces."""
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        yield from whole
    if rest:
        yield rest
