"""Writes the history in its own thread, so that it never delays publication.

A few generations wait in a queue. If the queue or the disk is full, the newest two generations become one,
and the next event of a generation reports the missing ones. A failure here never stops the collector:
`problem` reports it, and the write is retried.
"""

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_topology.events import events
from hyperscout_topology.topology import Topology

from hyperscout_collector.history.causes import Cause
from hyperscout_collector.history.reader import FileReader
from hyperscout_collector.history.reading import HistoryError
from hyperscout_collector.history.settings import HistorySettings
from hyperscout_collector.history.size import HistorySize
from hyperscout_collector.history.store import HistoryStore
from hyperscout_collector.store import database

_log = logging.getLogger(__name__)

_TROUBLE = (
    sqlite3.Error,
    OSError,
    database.InUseError,
    database.OtherFormatError,
    database.NotMovedError,
)
_RETRY_S = 5.0
_OPENING_S = 5.0  # at start, a reader waits this long for the check of the file
_WAITING = 16  # queued generations: each may have a million links
_DAY_NS = 86_400 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A queued generation. `missed`: number of generations that it replaced.

    `only_if_other`: record it only if it differs from the last record, because it is not a new generation.
    """

    topology: Topology
    at_ns: int
    cause: Cause
    missed: int = 0
    only_if_other: bool = False


class Recorder:
    """Records the history and implements `HistoryReader`. Call `offer` on the loop, run `run` as a task, then
    `close`.

    `path`: the file. No other process uses its folder (the evidence's lock ensures it).
    """

    def __init__(self, path: Path, settings: HistorySettings, now_ns: Callable[[], int]) -> None:
        self.size = HistorySize()
        self._path = path
        self._max_bytes = settings.history_max_mib << 20
        self._max_age_ns = int(settings.history_max_days * _DAY_NS)
        self._now_ns = now_ns
        self._store: HistoryStore | None = None
        self._reader: FileReader | None = None
        self._looked = threading.Event()  # the file is open, or opening it failed
        self._line: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "history")
        self._trouble = ""
        self._damaged = ""

    @property
    def problem(self) -> str | None:
        """Why the history is incomplete or not written; None = it is fine."""
        return "; ".join(filter(None, (self._damaged, self._trouble))) or None

    # Reading

    def events(self, request: pb.ListHistoryRequest) -> pb.ListHistoryResponse:
        return self._open_reader().events(request)

    def topology_at(self, at_ns: int) -> Topology:
        return self._open_reader().topology_at(at_ns)

    def _open_reader(self) -> FileReader:
        self._looked.wait(_OPENING_S)
        if (found := self._reader) is None:
            raise HistoryError(self._trouble or "the history is not open yet; ask again")
        return found

    # Writing

    def resume(self, before: Topology, cause: Cause) -> None:
        """Record what was published before this process started, if the file's last record differs."""
        self._put(_Waiting(before, self._now_ns(), cause, only_if_other=True))

    def offer(self, topology: Topology, cause: Cause) -> None:
        """Queue a generation that is published now."""
        self._put(_Waiting(topology, self._now_ns(), cause))

    def _put(self, new: _Waiting) -> None:
        if len(self._line) >= _WAITING:
            old = self._line.pop()
            new = _Waiting(new.topology, new.at_ns, old.cause.joined(new.cause), old.missed + 1)
        self._line.append(new)
        self._wake.set()

    async def run(self) -> None:
        """Record until cancelled."""
        self._wake.set()  # opens the file
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self.flush():
                await asyncio.sleep(_RETRY_S)
                self._wake.set()

    async def flush(self) -> bool:
        """Record the queue. Returns False if a write failed."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            while self._line or self._store is None:
                first = self._line[0] if self._line else None
                try:
                    await loop.run_in_executor(self._thread, self._record, first)
                except _TROUBLE as error:
                    self._lament(error)
                    return False
                self._trouble = ""
                if first is not None:
                    self._line.popleft()
        return True

    def close(self) -> None:
        """Close the file. Never raises."""
        self._thread.shutdown(wait=True)
        self._let_go()

    def _record(self, waiting: _Waiting | None) -> None:
        """Record one generation. Runs in the thread."""
        try:
            store = self._store or self._open()
        finally:
            self._looked.set()
        if waiting is None:
            return
        if waiting.only_if_other and store.newest is not None and not events(store.newest, waiting.topology):
            return
        try:
            store.record(waiting.at_ns, waiting.topology, waiting.cause, waiting.missed)
        except sqlite3.Error as error:
            if database.is_full(error):
                store.fold()
            raise

    def _open(self) -> HistoryStore:
        store = HistoryStore(
            self._path,
            self.size,
            max_bytes=self._max_bytes,
            max_age_ns=self._max_age_ns,
            now_ns=self._now_ns(),
        )
        try:
            self._reader = FileReader(self._path, self._now_ns)
        except BaseException:
            store.close()
            raise
        self._damaged = store.problem or self._damaged
        self._store = store
        return store

    def _let_go(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._reader is not None:
                self._reader.close()
            if self._store is not None:
                self._store.close()
        self._reader = self._store = None

    def _lament(self, error: Exception) -> None:
        self.size.write_failures_total += 1
        words = f"the history is not written: {self._path}: {error}"
        if isinstance(error, sqlite3.Error):
            if database.is_full(error):
                words += ": no room: free some on its disk, or raise history_max_mib"
            elif database.is_forbidden(error):
                words += ": the collector must be allowed to write it and its folder"
            elif database.is_damage(error):
                self._let_go()  # opening it again moves it aside
        if words != self._trouble:
            _log.error("%s", words)
        self._trouble = words
