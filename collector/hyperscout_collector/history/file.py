"""Keeps the history in one SQLite file."""

from pathlib import Path

from hyperscout_collector.history.damage import drop_damaged
from hyperscout_collector.history.store import HistorySize, HistoryTables
from hyperscout_collector.store.database import Damage, Database, Kind
from hyperscout_collector.store.sql import SqlConnection

_SCHEMA = """
CREATE TABLE pictures (
  id INTEGER PRIMARY KEY,        -- increases by one
  at_ns INTEGER NOT NULL,        -- Unix ns; not less than in the previous row
  generation INTEGER NOT NULL,
  span INTEGER NOT NULL,         -- id of the whole picture that its steps begin with
  first_event INTEGER NOT NULL,  -- id of its first event; without events, of the next event
  cause BLOB NOT NULL,           -- hyperscout.v1.Cause
  frame BLOB NOT NULL            -- see hyperscout_topology/frames.py
);
CREATE INDEX pictures_at ON pictures (at_ns);
CREATE INDEX pictures_span ON pictures (span);
CREATE TABLE events (
  id INTEGER PRIMARY KEY,        -- increases by one
  picture INTEGER NOT NULL,
  kind INTEGER NOT NULL,         -- index into KINDS
  thing INTEGER NOT NULL,        -- id in `names` of the object that changed; 0 = several
  flips INTEGER NOT NULL,        -- 1 = the state changed; 0 = only the message changed
  body BLOB NOT NULL             -- hyperscout.v1.HistoryEvent without the fields of its picture
);
CREATE INDEX events_thing ON events (thing, id, flips);
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE mentions (
  name INTEGER NOT NULL, event INTEGER NOT NULL, PRIMARY KEY (name, event)
) WITHOUT ROWID;
"""
_WITHOUT = "the history starts again"
_WITHOUT_ROW = "their generations and events are gone"


class HistoryFile(HistoryTables):
    """A `HistoryStore` in the file `path`. It keeps `size` up to date.

    The constructor blocks and raises StoreError.
    """

    def __init__(
        self,
        path: Path,
        size: HistorySize,
        *,
        max_bytes: int,
        max_age_ns: int,
        now_ns: int,
        damage: Damage | None = None,
    ) -> None:
        limit = "history_max_mib"
        kind = Kind(_SCHEMA, 1, max_bytes, _WITHOUT, _WITHOUT_ROW, size_setting=limit, sealed=True)
        self._file = Database(path, kind, lambda: now_ns, damage)
        super().__init__(self._file, size, max_bytes=max_bytes, max_age_ns=max_age_ns)
        try:
            if self._file.is_checked:
                self._drop_damaged()
            self._begin(now_ns)
            with self._file.using() as db:
                if self._disk_bytes(db) > max_bytes:  # the limit was lowered
                    db.execute("VACUUM")
                    size.bytes = self._disk_bytes(db)
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Check the file, and delete damaged rows, if it was opened without. Raises StoreError."""
        if self._file.is_checked:
            return
        self._file.check()
        if self._drop_damaged():
            self._resume()

    def close(self) -> None:
        """Close the file and release its lock. Never raises; may be called twice."""
        self._file.close()

    def _drop_damaged(self) -> int:
        with self._file.transaction() as db:
            dropped = drop_damaged(db)
        self._file.dropped(dropped)
        return dropped

    def _disk_bytes(self, db: SqlConnection) -> int:
        return _pragma(db, "page_count") * _pragma(db, "page_size")

    def _used_bytes(self, db: SqlConnection) -> int:
        pages = _pragma(db, "page_count") - _pragma(db, "freelist_count")
        return pages * _pragma(db, "page_size")


def _pragma(db: SqlConnection, name: str) -> int:
    (found,) = db.execute(f"PRAGMA {name}").fetchone()
    return int(found)
