"""Stores reservations made by the API on disk, so that they survive a restart of the collector.

Scheduling gates keep their plans in the cluster; the API's reservations are stored only here. A change of
such a gang is written soon after it happens, and the API answers its caller after the write. A failed write
is retried. The file is a small SQLite file beside the evidence; the lock of the evidence protects both. Each
commit is synced (FULL), because no caller sends a reservation twice. A file that SQLite cannot read is moved
aside, never deleted.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from google.protobuf.message import DecodeError
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_placer.book.placements import Held
from hyperscout_placer.cluster.request import RequestError
from hyperscout_placer.messages.placements import (
    held_message,
    placement_of,
    request_message,
    stored_request,
)

from hyperscout_collector.store import database

_log = logging.getLogger(__name__)

API = "api"  # holder of the reservations in this file

_SCHEMA = """
CREATE TABLE gangs (
  gang TEXT PRIMARY KEY,
  request BLOB NOT NULL,   -- hyperscout.v1.PlaceRequest
  placement BLOB NOT NULL  -- hyperscout.v1.Placement
) WITHOUT ROWID;
"""
_MAX_BYTES = 512 * 1024 * 1024  # a million ranks take about 50 MB
_KIND = database.Kind(_SCHEMA, 1, _MAX_BYTES, "nothing is reserved", synced=True)
_RETRY_S = 5.0


class NotKeptError(Exception):
    """The write failed and is retried. The message gives the reason."""


class ReservationsError(Exception):
    """The file cannot be used. The message contains the next step."""


class Reservations:
    """`path`: the file.

    The constructor blocks and raises ReservationsError. Call `load` once, then run `run`.
    """

    def __init__(self, path: Path, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.problem: str | None = None  # why the last change is not on disk; None = it is
        self._path = path
        self._now_ns = now_ns
        self._ours: set[str] = set()  # gangs that are in the file, or queued for it
        self._unwritten: dict[str, Held | None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "reservations")
        try:
            self._db, problem = database.opened(path, _KIND, now_ns)
        except (database.OtherFormatError, database.NotMovedError) as error:
            raise ReservationsError(str(error)) from error
        except (sqlite3.Error, OSError) as error:
            raise ReservationsError(f"{path}: {error}: the collector must be able to write it") from error
        self._problems = [problem] if problem else []

    def load(self, *, over: bool = False) -> tuple[list[Held], list[str]]:
        """Returns the reservations that have not expired, and what could not be read. Blocks.

        `over`: first delete all reservations, because another collector was the leader since.
        """
        found, problems, bad = [], list(self._problems), 0
        try:
            if over:
                self._write(None)
            rows = self._db.execute("SELECT gang, request, placement FROM gangs ORDER BY gang").fetchall()
        except sqlite3.Error as error:
            return [], [*problems, f"{self._path}: {error}: what was reserved is not known any more"]
        for gang, request, placement in rows:
            held = read_row(gang, request, placement)
            if held is None:
                bad += 1
            elif not 0 < held.expires_ns <= self._now_ns():
                found.append(held)
                self._ours.add(gang)
            else:
                self._unwritten[gang] = None
                self._wake.set()
        if bad:
            problems.append(f"{self._path}: {bad} reservations cannot be read and were passed over")
        return found, problems

    def follow(self, gang: str, held: Held | None) -> None:
        """Record that a gang was added, changed or removed. Gangs of other holders are ignored."""
        if held is not None and held.holder == API:
            self._ours.add(gang)
        elif gang in self._ours:
            self._ours.discard(gang)
            held = None
        else:
            return
        self._unwritten[gang] = held
        self._wake.set()

    async def run(self) -> None:
        """Write changes until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self.flush():
                await asyncio.sleep(_RETRY_S)
                self._wake.set()

    async def kept(self) -> None:
        """Wait until all changes up to now are on disk. Raises NotKeptError."""
        if not self._unwritten and not self._turn.locked():
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._wake.set()
        await waiting

    async def flush(self) -> bool:
        """Write the pending changes. Returns False if the write failed."""
        async with self._turn:
            changes, self._unwritten = self._unwritten, {}
            waiting, self._waiting = self._waiting, []
            error: Exception | None = None
            try:
                if changes:
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._thread, self._write, changes)
            except sqlite3.Error as found:
                error = found
                self._unwritten = {**changes, **self._unwritten}
                if self.problem is None:
                    _log.error("reservations are not saved: %s: %s", self._path, found)
                self.problem = f"reservations are not saved: {self._path}: {found}"
            else:
                self.problem = None
            for one in waiting:
                if not one.done() and error is None:
                    one.set_result(None)
                elif not one.done():
                    one.set_exception(NotKeptError(self.problem or ""))
            return error is None

    def close(self) -> None:
        """Close the file. Never raises."""
        self._thread.shutdown(wait=True)
        self._db.close()

    def _write(self, changes: Mapping[str, Held | None] | None) -> None:
        """Write changes in the thread. None = delete all reservations."""
        put, gone = [], []
        for gang, held in (changes or {}).items():
            if held is None:
                gone.append((gang,))
            else:
                request = request_message(held.request, gang).SerializeToString()
                put.append((gang, request, held_message(held, held.placement.cost.top).SerializeToString()))
        db = self._db
        with database.transaction(db):
            if changes is None:
                db.execute("DELETE FROM gangs")
            db.executemany("INSERT OR REPLACE INTO gangs VALUES (?, ?, ?)", put)
            db.executemany("DELETE FROM gangs WHERE gang = ?", gone)


def read_row(gang: str, request: bytes, placement: bytes) -> Held | None:
    """Returns the gang in a row; None = it cannot be read."""
    try:
        asked, message = pb.PlaceRequest.FromString(request), pb.Placement.FromString(placement)
        return Held(
            gang,
            API,
            stored_request(asked),
            placement_of(message),
            message.reserved_at.ToNanoseconds(),
            message.expires_at.ToNanoseconds() if message.HasField("expires_at") else 0,
        )
    except (DecodeError, RequestError, ValueError):
        return None
