"""Keeps the encoded messages of one channel: the last deltas, and a snapshot for new readers.

Each message is encoded once for all readers. A new reader gets the kept snapshot and the deltas since then,
so frequent changes do not cost a snapshot per reader. Pure: it uses no clock and no event loop.
"""

import itertools
from collections import deque
from dataclasses import dataclass

from hyperscout_topology.topology import Topology


@dataclass(frozen=True, slots=True)
class Delta:
    """The message from one generation to a later one. `before`: number of the earlier generation."""

    before: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole topology in chunks. `next`: the number of the first delta after it."""

    next: int
    chunks: tuple[bytes, ...]
    size_bytes: int


class Ring:
    """The kept deltas and snapshot.

    Deltas have increasing numbers. The oldest are dropped above `max_deltas` deltas or `max_bytes` bytes. A
    snapshot is kept while all deltas since then are kept and are at most `replay` times its size.
    """

    def __init__(self, max_deltas: int, max_bytes: int, replay: float) -> None:
        self.topology: Topology | None = None  # after the last delta; None = nothing is kept
        self.snapshot: Snapshot | None = None
        self._deltas: deque[Delta] = deque()
        self._first = 0
        self._size_bytes = 0
        self._since_snapshot_bytes = 0
        self._max_deltas = max_deltas
        self._max_bytes = max_bytes
        self._replay = replay

    @property
    def next(self) -> int:
        """The number that the next delta will have."""
        return self._first + len(self._deltas)

    def begin(self, topology: Topology) -> None:
        """Start with a topology, for the first reader."""
        self.clear()
        self.topology = topology

    def clear(self) -> None:
        """Drop all messages; no reader can resume.

        Numbers continue with a gap, so a reader that is still connected is detected as too slow.
        """
        self._first = self.next + 1
        self._deltas.clear()
        self._size_bytes = self._since_snapshot_bytes = 0
        self.topology = self.snapshot = None

    def add(self, topology: Topology, data: bytes) -> None:
        """Add the delta from the last topology to this one."""
        if self.topology is None:
            return
        self._deltas.append(Delta(self.topology.generation, data))
        self._size_bytes += len(data)
        self._since_snapshot_bytes += len(data)
        self.topology = topology
        while len(self._deltas) > self._max_deltas or self._size_bytes > self._max_bytes:
            self._size_bytes -= len(self._deltas.popleft().data)
            self._first += 1
        if self.snapshot is not None and not self._good(self.snapshot):
            self.snapshot = None

    def keep(self, snapshot: Snapshot) -> None:
        """Keep a snapshot for new readers."""
        self._since_snapshot_bytes = sum(len(d.data) for d in self.since(snapshot.next))
        self.snapshot = snapshot if self._good(snapshot) else None

    def _good(self, snapshot: Snapshot) -> bool:
        return self.covers(snapshot.next) and self._since_snapshot_bytes <= snapshot.size_bytes * self._replay

    def covers(self, number: int) -> bool:
        """Whether the ring contains all deltas from this number on."""
        return self._first <= number <= self.next

    def data_of(self, number: int) -> bytes | None:
        """The data of the delta with this number; None = there is none yet. `covers(number)` must hold."""
        index = number - self._first
        return self._deltas[index].data if index < len(self._deltas) else None

    def since(self, number: int) -> list[Delta]:
        return list(itertools.islice(self._deltas, max(0, number - self._first), None))

    def after(self, generation: int) -> int | None:
        """The number of the delta that follows a generation; None = the reader needs a snapshot."""
        if self.topology is None:
            return None
        if generation == self.topology.generation:
            return self.next
        numbers = (i for i, delta in enumerate(self._deltas, self._first) if delta.before == generation)
        return next(numbers, None)
