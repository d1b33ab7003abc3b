"""A PostgreSQL database: one connection that writes in one term, or one that reads.

The next use after a broken connection connects again. A transaction that the break interrupted raises
StoreError. If a leader's `COMMIT` has no answer, it asks the server for `_ASK_S` whether it is
committed. Without an answer it raises StoreError: then all of the transaction is stored, or nothing.
The writers of history and reservations repeat it. Agents repeat a batch of evidence.

For that question, each transaction of a leader writes its number into a row of its own connection. PostgreSQL
knows the end of a transaction by its id, too, but after a crash it may give the id of a lost transaction to
another one.
"""

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from hyperscout_collector.store.database import Damage
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.schema import migrate
from hyperscout_collector.store.server import CLAIM_S, PostgresqlServer

if TYPE_CHECKING:
    import psycopg

_log = logging.getLogger(__name__)

NAME = "postgresql"  # of the database in the counts of damage
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_TERM = (
    "WITH numbered AS (INSERT INTO last_writes VALUES (%s, %s, %s)"
    " ON CONFLICT (writer) DO UPDATE SET number = excluded.number)"
    " SELECT term, identity, address FROM leader FOR SHARE"
)
# A write: it waits for the end of the transaction that it asks about, and for the server's synchronous
# standbys, so that they have that transaction, too.
_LAST = (
    "INSERT INTO last_writes VALUES (%s, %s, 0)"
    " ON CONFLICT (writer) DO UPDATE SET term = excluded.term RETURNING number"
)
_SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = current_setting('application_name') AND pid <> pg_backend_pid()"
)
_ASK_S = 10.0  # how long to ask for the end of a transaction: a server that crashed starts meanwhile
_ASK_AGAIN_S = 0.2


class PostgresqlConnection:
    """A connection in a transaction: a `SqlConnection`. `raw`: for what only PostgreSQL has."""

    def __init__(self, raw: "psycopg.Connection[Any]") -> None:
        self.raw = raw

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> "psycopg.Cursor[Any]":
        return self.raw.execute(_translated(sql), values) if values else self.raw.execute(sql.encode())

    def executemany(self, sql: str, values: Iterable[Sequence[Any]], /) -> None:
        self.raw.cursor().executemany(_translated(sql), values)


class PostgresqlDatabase:
    """A `SqlDatabase` and `SqlReader`: one connection that threads use in turns, made at its first use.

    `term`: each transaction is refused unless this is the term of the leader. None = the term is not checked:
    for reads, for `claim`, for heartbeats, and for all writes of standbys.
    """

    def __init__(
        self, server: PostgresqlServer, term: int | None = None, damage: Damage | None = None
    ) -> None:
        self.server = server
        self.problem = ""
        self._term = term
        self._writer = uuid.uuid4()
        self._number = 0  # of the last transaction that checked the term
        self._damage = damage or Damage()
        self._use = threading.RLock()
        self._connection: psycopg.Connection[Any] | None = None

    def transaction(self) -> contextlib.AbstractContextManager[PostgresqlConnection]:
        """Commit everything in the block, or nothing. Raises StoreError."""
        return self._block("BEGIN", self._term)

    def reading(self) -> contextlib.AbstractContextManager[PostgresqlConnection]:
        """Read one consistent state, whatever is written meanwhile. Raises StoreError."""
        return self._block(_READ, None)

    def dropped(self, rows: int) -> None:
        """Record that rows were damaged, and that the caller removed or ignored them."""
        if rows:
            self._damage.rows[NAME] += rows
            problem = f"{self.server.name}: {rows} damaged rows were dropped"
            _log.error("%s", problem)
            self.problem = f"{self.problem}; {problem}" if self.problem else problem

    def close(self) -> None:
        """Wait for the block in progress, then close the connection. Never raises; may be called twice."""
        with self._use:
            self._disconnect()

    @contextlib.contextmanager
    def _block(self, begin: str, term: int | None) -> Iterator[PostgresqlConnection]:
        import psycopg

        with self._use:
            connection = self._begun(begin, term)
            is_ending = False
            try:
                yield connection
                is_ending = True
                connection.raw.execute("COMMIT")
            except BaseException as error:
                self._roll_back(connection.raw)
                if not isinstance(error, psycopg.Error):
                    raise
                failure = self.server.error(error)
                failure.may_be_stored = is_ending and self._connection is None
                if not (failure.may_be_stored and term is not None and self._is_committed()):
                    raise failure from error

    def _begun(self, begin: str, term: int | None) -> PostgresqlConnection:
        """Returns the connection in a new transaction. Connects again if the connection is broken."""
        import psycopg

        is_new = self._connection is None
        while True:
            raw = self._connection = self._connection or self.server.connect()
            try:
                raw.execute(begin.encode())
                if term is not None:
                    self._check_term(raw, term)
            except BaseException as error:
                self._roll_back(raw)
                if not isinstance(error, psycopg.Error):
                    raise
                if is_new or self._connection is not None:
                    raise self.server.error(error) from error
                _log.info("connecting again: %s", self.server.error(error))
                is_new = True
            else:
                return PostgresqlConnection(raw)

    def _check_term(self, raw: "psycopg.Connection[Any]", term: int) -> None:
        """Refuse the transaction if another collector leads. The lock makes that one wait for its end.

        It also writes the number of the transaction.
        """
        self._number += 1
        row = raw.execute(_TERM, (self._writer, term, self._number)).fetchone()
        if row is None:
            raise self.server.no_leader_row()
        found, identity, address = row
        if found != term:
            raise StoreError(
                f"nothing is written, because {identity} at {address or 'an unknown address'} writes since "
                f"(term {found}, this one is {term}): if it is no replica of this collector, end one of "
                "them, or give each its own database in the setting `store`"
            )

    def _is_committed(self) -> bool:
        """Ask how the last transaction ended, whose connection broke. False = rolled back, or no answer."""
        import psycopg

        end_s = time.monotonic() + _ASK_S
        while True:
            try:
                raw = self._connection = self._connection or self.server.connect()
                ((number,),) = raw.execute(_LAST, (self._writer, self._term)).fetchall()
            except (StoreError, psycopg.Error):
                self._disconnect()
                if time.monotonic() > end_s:
                    return False
                time.sleep(_ASK_AGAIN_S)
            else:
                if number == self._number:
                    _log.info("a transaction was committed before its connection broke")
                return bool(number == self._number)

    def _roll_back(self, raw: "psycopg.Connection[Any]") -> None:
        import psycopg

        with contextlib.suppress(psycopg.Error):
            raw.execute("ROLLBACK")
        if raw.closed or raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):  # it may be in any state
                self._connection.close()
            self._connection = None


def claim(server: PostgresqlServer, identity: str, address: str, check: Callable[[], object]) -> int:
    """Make this collector the one that writes, and return its term. Blocks; raises StoreError.

    It creates or migrates the tables first. `check` raises if this collector may not lead: it is called
    between the read of the term before and its replacement, which fails if another collector replaced it. So
    a collector that is suspended here does not take the term from one that was elected meanwhile.
    """
    database = PostgresqlDatabase(server)
    try:
        with database.transaction() as db:
            migrate(db, server.name)
        while True:
            with database.transaction() as db:
                db.execute(f"SET LOCAL lock_timeout = '{CLAIM_S}s'; SET LOCAL statement_timeout = 0")
                found = db.execute("SELECT term FROM leader").fetchone()
                if found is None:
                    raise server.no_leader_row()
                (term,) = found
                check()
                done = db.execute(
                    "UPDATE leader SET term = ?, identity = ?, address = ? WHERE term = ?",
                    (term + 1, identity, address, term),
                )
                if done.rowcount:
                    # Not those of the leader before, which may still ask for the end of its last writes.
                    db.execute("DELETE FROM last_writes WHERE term < ?", (term,))
                    return int(term) + 1
    finally:
        database.close()


def refuse_used(server: PostgresqlServer) -> None:
    """Raise StoreError if a collector is connected to the database, also if it is a standby. Blocks."""
    database = PostgresqlDatabase(server)
    try:
        with database.reading() as db:
            (sessions,) = db.execute(_SESSIONS).fetchall()[0]
    finally:
        database.close()
    if sessions:
        raise StoreError(f"{server.name}: a collector is connected to it: stop all replicas first")


@lru_cache(maxsize=256)
def _translated(sql: str) -> bytes:
    """Returns a statement with psycopg's placeholders."""
    return sql.replace("%", "%%").replace("?", "%s").encode()
