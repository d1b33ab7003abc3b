"""Sends generations in one form to its readers: a snapshot, then deltas, through a bounded ring.

Each message is encoded once for all readers, in a thread. A reader is a position in the ring, so slow readers
delay nothing and cost no memory. The deltas that a slow reader still needs are dropped in the end. Then the
reader gets a new snapshot, or `TooSlowError`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_topology.diff import Diff
from hyperscout_topology.topology import Topology

from hyperscout_collector.serve.fanout.ring import Ring, Snapshot


class WatchEndedError(Exception):
    """The collector publishes nothing more.

    `leader`: address of the leader, where the caller can continue; "" = not known yet, None = there is none.
    """

    def __init__(self, reason: str, leader: str | None) -> None:
        super().__init__(reason)
        self.leader = leader


class TooSlowError(Exception):
    """The next delta of a reader is no longer kept."""


@dataclass(frozen=True, slots=True)
class Form:
    """How generations are encoded. Both functions run in a thread.

    `snapshot` returns chunks. `replay`: as of `Ring`. `restarts`: a slow reader gets a new snapshot.
    `resume_s`: deltas are made and kept this long after the last reader left.
    """

    snapshot: Callable[[Topology], Sequence[bytes]]
    delta: Callable[[Diff], bytes]
    max_deltas: int
    max_bytes: int
    replay: float = 0.0
    restarts: bool = True
    resume_s: float = 0.0


@dataclass(slots=True, eq=False)
class Reader:
    """`next`: number of its next delta; -1 = it begins with a snapshot. `gone`: it disconnected.

    `error`: why the replica ends it.
    """

    next: int = -1
    gone: bool = False
    error: Exception | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def disconnect(self, *_: object) -> None:
        self.gone = True
        self.wake.set()


class Channel:
    """The readers of one form. `current()`: the published topology. Without readers it is idle."""

    def __init__(self, form: Form, current: Callable[[], Topology]) -> None:
        self.restarts_total = 0  # times that a slow reader was sent a new snapshot
        self._form = form
        self._current = current
        self._ring = Ring(form.max_deltas, form.max_bytes, form.replay)
        self._readers: set[Reader] = set()
        self._snapshot: asyncio.Task[Snapshot] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._ended: Exception | None = None
        # At most one delta and one snapshot are encoded at a time, and neither waits for the other.
        self._encode = BoundedExecutor("fan-out", threads=2)

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def topology(self) -> Topology | None:
        """The topology after the last delta; None = the channel is idle."""
        return self._ring.topology

    async def advance(self, new: Topology) -> bool:
        """Add the delta to a new topology. Returns whether there was one to make. Calls must not overlap."""
        old = self._ring.topology
        if old is None or old is new:
            return False
        data = await self._encode(self._form.delta, Diff(old, new))
        if self._ring.topology is old:  # else it became idle meanwhile
            self._ring.add(new, data)
            self._wake()
        return True

    def close(self, error: Exception) -> None:
        """End all readers, present and future ones, with an error."""
        self._ended = error
        self.end_present(error)

    def end_present(self, error: Exception) -> None:
        """End the present readers with an error."""
        for reader in self._readers:
            reader.error = error
        self._wake()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.wake.set()

    # Readers

    def join(self, generation: int | None = None) -> Reader:
        """Add a reader. `generation`: the last one that it received. Raises the error of `close`."""
        if self._ended is not None:
            raise self._ended
        if self._expiry is not None:
            self._expiry.cancel()
        if self._ring.topology is None:
            self._ring.begin(self._current())
        found = self._ring.after(generation) if generation is not None else None
        reader = Reader(-1 if found is None else found)
        self._readers.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        self._readers.discard(reader)
        if not self._readers:
            self._expiry = asyncio.get_running_loop().call_later(self._form.resume_s, self._become_idle)

    def _become_idle(self) -> None:
        self._ring.clear()
        self._snapshot = None  # a later reader cannot continue from it

    async def messages(self, reader: Reader, *, beat_s: float | None = None) -> AsyncGenerator[bytes | None]:
        """Yield chunks of snapshots, and deltas; None when there was nothing for `beat_s`.

        Ends after the reader disconnected. Raises the error of `close` or `end_present`, and TooSlowError.
        """
        chunk: bytes | None
        while not reader.gone:
            reader.wake.clear()
            if reader.next < 0:
                for chunk in await self._begin(reader):
                    if not self._keeps_up(reader):
                        break
                    yield chunk
            elif self._keeps_up(reader):
                # Also without a delta this replaces `chunk`, so a waiting reader does not hold its snapshot.
                chunk = self._ring.data_of(reader.next)
                if chunk is not None:
                    reader.next += 1
                    yield chunk
                    continue
                try:
                    async with asyncio.timeout(beat_s):
                        await reader.wake.wait()
                except TimeoutError:
                    yield None

    def _keeps_up(self, reader: Reader) -> bool:
        """Whether the ring has the next delta of a reader. If not, the reader begins anew or is ended."""
        if reader.error is not None:
            raise reader.error
        if self._ring.covers(reader.next):
            return True
        if not self._form.restarts:
            raise TooSlowError
        self.restarts_total += 1
        reader.next = -1
        return False

    async def _begin(self, reader: Reader) -> tuple[bytes, ...]:
        """The chunks of a snapshot. The reader continues with the first delta after it."""
        snapshot = await self._shared_snapshot()
        reader.next = snapshot.next
        return snapshot.chunks

    async def _shared_snapshot(self) -> Snapshot:
        """The kept snapshot, or a new one. Readers that join meanwhile share it."""
        if (kept := self._ring.snapshot) is not None:
            return kept
        if self._snapshot is None:
            self._snapshot = asyncio.create_task(self._new_snapshot())
            self._snapshot.add_done_callback(self._drop_snapshot)
        return await asyncio.shield(self._snapshot)

    def _drop_snapshot(self, task: "asyncio.Task[Snapshot]") -> None:
        if self._snapshot is task:
            self._snapshot = None

    async def _new_snapshot(self) -> Snapshot:
        topology, number = self._ring.topology or self._current(), self._ring.next
        chunks = tuple(await self._encode(self._form.snapshot, topology))
        found = Snapshot(number, chunks, sum(map(len, chunks)))
        self._ring.keep(found)
        return found
