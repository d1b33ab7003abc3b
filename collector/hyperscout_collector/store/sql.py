"""The part of SQL that the collector uses with SQLite files and with PostgreSQL.

An owner of tables writes its statements once, with `?` for values. Both databases accept
`INSERT ... ON CONFLICT`. Where they differ, an owner asks `is_sqlite`.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol


class SqlRows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """A connection in a transaction."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> SqlRows: ...

    def executemany(self, sql: str, values: Iterable[Sequence[Any]], /) -> object: ...


class SqlDatabase(Protocol):
    """A database that one collector writes.

    `problem`: what was damaged, and what happened to it; "" = nothing was.
    """

    @property
    def problem(self) -> str: ...

    def transaction(self) -> AbstractContextManager[SqlConnection]:
        """Commit everything in the block, or nothing. Raises StoreError."""

    def dropped(self, rows: int) -> None:
        """Record that rows were damaged, and that the caller removed or ignored them."""

    def close(self) -> None: ...


class SqlReader(Protocol):
    """A connection that reads, from any thread."""

    def reading(self) -> AbstractContextManager[SqlConnection]:
        """Read one consistent state, whatever is written meanwhile. Raises StoreError."""

    def close(self) -> None: ...


def is_sqlite(db: SqlConnection) -> bool:
    """Whether a statement may use what only SQLite accepts."""
    return isinstance(db, sqlite3.Connection)
