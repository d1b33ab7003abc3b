"""Stores reservations made by the API, so that they survive a restart of the collector.

Scheduling gates keep their plans in the cluster; the API's reservations are stored only here. A change of
such a gang is written soon after it happens, and the API answers its caller after the write. Each commit to a
file is synced (FULL), because no caller sends a reservation twice.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.cluster.request import size
from hyperscout_placer.messages.placements import failed_of, held_message, placement_of
from hyperscout_placer.messages.requests import request_message, stored_request
from hyperscout_placer.solve.elastic import with_counts
from hyperscout_runtime.bounded_executor import BoundedExecutor

from hyperscout_collector.serve.grpc.placement_checks import API
from hyperscout_collector.store.database import Damage, Database, Kind
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.sql import SqlConnection, SqlDatabase, is_sqlite
from hyperscout_collector.store.writer import Priority, StoreWriter, WriteQueue

_SCHEMA = """
CREATE TABLE gangs (
  gang TEXT PRIMARY KEY,
  request BLOB NOT NULL,   -- hyperscout.v1.PlaceRequest
  placement BLOB NOT NULL  -- hyperscout.v1.Placement
) WITHOUT ROWID;
"""
_MAX_BYTES = 512 * 1024 * 1024  # a million ranks take about 50 MB
_KIND = Kind(
    _SCHEMA,
    1,
    _MAX_BYTES,
    "nothing is reserved",
    "the nodes of their gangs are free: reserve them again",
    synced=True,
)

Row = tuple[str, bytes, bytes]  # gang, request, placement
_Changes = dict[str, Reservation | None]  # by gang; None = removed


class ReservationStore(Protocol):
    """Durable storage of reservations. Every method blocks and may raise StoreError."""

    @property
    def problem(self) -> str:
        """What an operator should know about the stored data; "" = nothing."""

    def load(self) -> list[Reservation]:
        """Returns all reservations. Rows that cannot be read are deleted, and `problem` reports them."""

    def write(self, changed: list[Row], removed: list[str]) -> None:
        """Write all changes in one transaction. After it returns, they survive a power cut."""

    def clear(self) -> None: ...

    def close(self) -> None: ...


def reservation_file(
    path: Path, now_ns: Callable[[], int] = time.time_ns, damage: Damage | None = None
) -> "ReservationTable":
    """Open a SQLite file of reservations. Blocks and raises StoreError."""
    return ReservationTable(Database(path, _KIND, now_ns, damage))


class ReservationTable:
    """A `ReservationStore` in a table of `database`, which `close` closes."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database
        self.close = database.close

    @property
    def problem(self) -> str:
        return self._database.problem

    def load(self) -> list[Reservation]:
        found, bad = [], []
        with self._database.transaction() as db:
            columns = [_stored(db, name) for name in ("gang", "request", "placement")]
            rows = db.execute(f"SELECT {', '.join(columns)} FROM gangs ORDER BY gang").fetchall()  # noqa: S608
        # Outside the transaction, which PostgreSQL breaks off when it is idle for seconds.
        for gang, request, placement in rows:
            held = read_row(gang, request, placement)
            if held is not None:
                found.append(held)
            else:
                bad.append((gang,))
        if bad:
            with self._database.transaction() as db:
                db.executemany(f"DELETE FROM gangs WHERE {columns[0]} = ?", bad)  # noqa: S608
        self._database.dropped(len(bad))
        return found

    def write(self, changed: list[Row], removed: list[str]) -> None:
        with self._database.transaction() as db:
            db.executemany(
                "INSERT INTO gangs VALUES (?, ?, ?) ON CONFLICT (gang)"
                " DO UPDATE SET request = excluded.request, placement = excluded.placement",
                changed,
            )
            db.executemany("DELETE FROM gangs WHERE gang = ?", [(gang,) for gang in removed])

    def clear(self) -> None:
        with self._database.transaction() as db:
            db.execute("DELETE FROM gangs")


def _stored(db: SqlConnection, column: str) -> str:
    """Returns the SQL for a column as bytes. In SQLite, a damaged value may have another type."""
    if is_sqlite(db):
        return f"CAST({column} AS BLOB)"
    return f"convert_to({column}, 'UTF8')" if column == "gang" else column


class Reservations:
    """Reads the API's reservations from `store`, and writes their changes with `writer`.

    The constructor blocks. `shift_ns`: by how much stored times differ from the time of this process. `over`:
    first delete all reservations, because another collector was the leader since. `is_shared`: the store is
    that of all replicas. Raises StoreError if it cannot be read: without its reservations, nodes would be
    reserved twice. A file that cannot be read is one of the `problems`.

    `restored`: the stored reservations that have not expired. `problems`: what could not be read.
    """

    def __init__(
        self,
        store: ReservationStore,
        writer: StoreWriter,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        shift_ns: int = 0,
        over: bool = False,
        is_shared: bool = False,
    ) -> None:
        self._store = store
        self._now_ns = now_ns
        self._shift_ns = shift_ns
        self._ours: set[str] = set()  # gangs that are stored, or waiting in the queue
        stored, self.problems = self._stored(over, is_shared)
        self._encoder = BoundedExecutor("reservations-encoder")
        self.queue: WriteQueue[_Changes] = WriteQueue(
            writer, Priority.RESERVATIONS, "reservations are not saved", self._write, join=_joined
        )
        self.restored = self._restored(stored)

    def _stored(self, over: bool, is_shared: bool) -> tuple[list[Reservation], list[str]]:
        found, problem = [], ""
        try:
            if over:
                self._store.clear()
            found = self._store.load()
        except StoreError as error:
            if is_shared:
                raise
            problem = f"the earlier reservations are unknown: {error}"
        return found, list(filter(None, (self._store.problem, problem)))

    def _restored(self, rows: list[Reservation]) -> list[Reservation]:
        found = []
        changed: _Changes = {}
        now_ns = self._now_ns()
        for stored in rows:
            held = _moved(stored, min(self._shift_ns, now_ns - stored.reserved_ns))
            if held != stored:
                changed[held.gang] = held
            if not 0 < held.expires_ns <= now_ns:
                found.append(held)
                self._ours.add(held.gang)
            else:
                changed[held.gang] = None
        if changed:
            self.queue.put(changed)
        return found

    def follow(self, gang: str, held: Reservation | None) -> None:
        """Record that a gang was added, changed or removed. Gangs of other holders are ignored."""
        if held is not None and held.holder == API:
            self._ours.add(gang)
        elif gang in self._ours:
            self._ours.discard(gang)
            held = None
        else:
            return
        self.queue.put({gang: held})

    async def written(self) -> None:
        """Wait until all changes up to now are on disk. Raises StoreError."""
        await self.queue.written()

    async def _write(self, changes: _Changes) -> bool:
        changed = await self._encoder(_rows, changes)
        removed = [gang for gang, held in changes.items() if held is None]
        await self.queue.in_thread(self._store.write, changed, removed)
        return True


def _moved(held: Reservation, by_ns: int) -> Reservation:
    def moved(at_ns: int) -> int:
        return at_ns and max(at_ns + by_ns, 1)

    failed = tuple(
        replace(x, reported_ns=moved(x.reported_ns), down_ns=moved(x.down_ns)) for x in held.failed
    )
    return replace(
        held, reserved_ns=held.reserved_ns + by_ns, expires_ns=moved(held.expires_ns), failed=failed
    )


def _joined(old: _Changes, new: _Changes) -> _Changes:
    old.update(new)
    return old


def _rows(changes: _Changes) -> list[Row]:
    return [
        (
            gang,
            request_message(held.request, gang).SerializeToString(),
            held_message(held, held.placement.cost.top).SerializeToString(),
        )
        for gang, held in changes.items()
        if held is not None
    ]


def read_row(gang: bytes, request: bytes, placement: bytes) -> Reservation | None:
    """Returns the gang in a row; None = it cannot be read."""
    try:
        asked, message = pb.PlaceRequest.FromString(request), pb.Placement.FromString(placement)
        placed = placement_of(message)
        found = Reservation(
            gang.decode(),
            API,
            with_counts(stored_request(asked), placed.counts),
            placed,
            message.reserved_at.ToNanoseconds(),
            message.expires_at.ToNanoseconds() if message.HasField("expires_at") else 0,
            failed=failed_of(message),
        )
        same = found.gang == message.gang == asked.gang
        return found if same and size(found.request.gang) == len(found.placement.nodes) else None
    except Exception:  # a damaged row may raise anything
        return None
