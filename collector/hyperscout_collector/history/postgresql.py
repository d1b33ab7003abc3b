"""Keeps the history in PostgreSQL, in which the next leader continues it."""

from hyperscout_collector.history.store import MENTION_BYTES, HistorySize, HistoryTables, Record
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.postgresql import PostgresqlDatabase
from hyperscout_collector.store.sql import SqlConnection

_TABLES = ("pictures", "events", "names", "mentions")


class PostgresqlHistory(HistoryTables):
    """A `HistoryStore` in `database`, which its owner closes. It keeps `size` up to date.

    `max_bytes` limits the contents of the rows: the server frees the space of deleted rows later.

    The constructor blocks and raises StoreError.
    """

    def __init__(
        self, database: PostgresqlDatabase, size: HistorySize, *, max_bytes: int, max_age_ns: int, now_ns: int
    ) -> None:
        super().__init__(database, size, max_bytes=max_bytes, max_age_ns=max_age_ns)
        self._is_unknown = False  # whether the last record is in the database
        self._contents: int | None = None  # bytes; None = to be measured
        self._begin(now_ns)

    def check(self) -> None:
        """Read the last record again after a write that failed: the server may have committed it."""
        if self._is_unknown:
            self._resume()
            self._is_unknown = False

    def close(self) -> None: ...

    def add(self, record: Record) -> None:
        try:
            super().add(record)
        except StoreError:
            self._is_unknown, self._contents = True, None
            raise

    def _insert(self, db: SqlConnection, record: Record) -> int:
        if self._contents is not None:
            self._contents += record.need_bytes
        return super()._insert(db, record)

    def _delete(self, db: SqlConnection, picture: int, event: int) -> None:
        super()._delete(db, picture, event)
        self._contents = None

    def _disk_bytes(self, db: SqlConnection) -> int:
        tables = " + ".join(f"pg_total_relation_size('{table}')" for table in _TABLES)
        (found,) = db.execute(f"SELECT {tables}").fetchone()
        return int(found)

    def _used_bytes(self, db: SqlConnection) -> int:
        if self._contents is None:
            (found,) = db.execute(
                "SELECT (SELECT COALESCE(SUM(octet_length(frame)), 0) FROM pictures)"
                " + (SELECT COALESCE(SUM(2 * octet_length(body)), 0) FROM events)"
                " + (SELECT COUNT(*) FROM mentions) * ?",
                (MENTION_BYTES,),
            ).fetchone()
            self._contents = int(found)
        return self._contents
