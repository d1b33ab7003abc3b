"""Manages the live stream: its readers, and the deltas and snapshots that they receive.

The hub makes deltas while it has readers and for `RESUME_S` after the last reader left, so that a reader can
resume. Otherwise it is idle. Slow readers receive an `error` event with the problem `too-slow` and are
disconnected.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

from hyperscout_runtime.bounded_executor import BoundedExecutor

from hyperscout_collector.serve.grpc.watchers import Watchers
from hyperscout_collector.serve.http.counters import RestCounters
from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_collector.serve.stream.ring import Ring, Snapshot, encoded_delta, encoded_snapshot

BEAT_S = 15.0  # interval of comments: proxies cut silent connections, and credentials are checked again
RESUME_S = 120.0  # deltas are kept this long after the last reader left
MAX_DELTAS = 512
MAX_BYTES = 16 * 1024 * 1024  # limit of all kept deltas, also if readers have not read them
_SPACING_S = 0.5  # minimum time between deltas: faster changes are combined
_BEAT = b": beat\n\n"


class Reader:
    """One reader of the stream. `next`: the number of its next delta."""

    def __init__(self, since: str) -> None:
        self.next = 0
        self.beat = False
        self.gone = False
        self.wake = asyncio.Event()
        self.since = since

    def leave(self, *_: Any) -> None:
        """The reader disconnected."""
        self.gone = True
        self.wake.set()


class Hub:
    """The live stream. Run `run` as a task.

    `epoch`: a text that is unique to this collector process. `limit`: readers at once. `timer`: monotonic
    seconds.
    """

    def __init__(
        self,
        watchers: Watchers,
        epoch: str,
        limit: int,
        counters: RestCounters,
        *,
        timer: Callable[[], float],
    ) -> None:
        self.epoch = epoch
        self._counters = counters
        self._watchers = watchers
        self._ring = Ring(epoch, MAX_DELTAS, MAX_BYTES)
        self._limit = limit
        self._timer = timer
        self._readers: set[Reader] = set()
        self._left_s = 0.0  # when the last one left
        self._news = asyncio.Event()
        self._making: asyncio.Task[Snapshot] | None = None
        self._ended: ProblemError | None = None
        # Two threads: at most one delta and one snapshot are made at a time, and neither waits for the other.
        self._encode = BoundedExecutor("stream", threads=2)
        watchers.tell(self._news.set)

    def __len__(self) -> int:
        return len(self._readers)

    async def run(self) -> None:
        """Make a delta of each new generation while there are readers."""
        while True:
            with contextlib.suppress(TimeoutError):
                # Without readers there is no time-out; `join` wakes the task.
                async with asyncio.timeout(BEAT_S if self._ring.topology is not None else None):
                    await self._news.wait()
            self._news.clear()
            if not self._wanted():
                self._ring.clear()
                continue
            if await self._advance():
                await asyncio.sleep(_SPACING_S)
            else:
                self._beat()

    def _wanted(self) -> bool:
        return bool(self._readers) or (
            self._ring.topology is not None and self._timer() - self._left_s < RESUME_S
        )

    async def _advance(self) -> bool:
        """Add the delta of a new generation to the ring. Returns whether there was one."""
        old, new = self._ring.topology, self._watchers.current.topology
        if old is None or new is old:
            return False
        self._ring.add(new, await self._encode(encoded_delta, old, new, self._ring.epoch))
        for reader in self._readers:
            reader.wake.set()
        return True

    def _beat(self) -> None:
        for reader in self._readers:
            reader.beat = True
            reader.wake.set()

    def close(self, problem: ProblemError) -> None:
        """End all streams, present and future ones."""
        self._ended = problem
        for reader in self._readers:
            reader.wake.set()

    # One reader

    def join(self, since: str) -> Reader:
        """Add a reader. `since`: the id of the last event that it has, "" = none. Raises ProblemError."""
        if self._ended is not None:
            raise self._ended
        if len(self._readers) >= self._limit:
            raise ProblemError(429, "busy", f"{len(self._readers)} follow already: try again later")
        if self._ring.topology is None:
            self._ring.begin(self._watchers.current.topology)
            self._news.set()
        reader = Reader(since)
        self._readers.add(reader)
        self._counters.readers += 1
        self._counters.readers_total += 1
        return reader

    def leave(self, reader: Reader) -> None:
        self._readers.discard(reader)
        self._counters.readers -= 1
        self._left_s = self._timer()

    async def events(self, reader: Reader) -> AsyncGenerator[bytes]:
        """Yield the bytes to send to a reader, in chunks of about 64 KiB; a delta is always one chunk.

        Ends after the reader has left. Raises ProblemError; the caller sends it as the last event.
        """
        found = self._ring.resumed(reader.since) if reader.since else None
        if found is None:
            snapshot = await self._snapshot()
            reader.next = snapshot.next
            for chunk in snapshot.chunks:
                self._check(reader)
                yield chunk
            self._counters.events_total += 1
        else:
            reader.next = found
            yield _BEAT  # confirms the connection to the reader
        while not reader.gone:
            self._check(reader)
            reader.wake.clear()
            for delta in self._ring.since(reader.next):
                reader.next += 1
                yield delta.data
                self._counters.events_total += 1
                self._check(reader)
            if reader.beat:
                reader.beat = False
                yield _BEAT
            if self._ring.next == reader.next:
                await reader.wake.wait()

    def _check(self, reader: Reader) -> None:
        if self._ended is not None:
            raise self._ended
        if not self._ring.covers(reader.next):
            raise self.too_slow("the changes that come next are not kept any more")

    def too_slow(self, why: str) -> ProblemError:
        """Count a reader that is too slow, and return the problem to send to it."""
        self._counters.dropped_total += 1
        return ProblemError(429, "too-slow", f"{why}: connect again")

    async def _snapshot(self) -> Snapshot:
        """The kept snapshot, or a new one. Readers that join meanwhile share it."""
        if (kept := self._ring.snapshot) is not None:
            return kept
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make())
        return await asyncio.shield(self._making)

    async def _make(self) -> Snapshot:
        ring = self._ring
        topology, number = ring.topology or self._watchers.current.topology, ring.next
        made = await self._encode(encoded_snapshot, topology, ring.epoch, number)
        ring.keep(made)
        return made
