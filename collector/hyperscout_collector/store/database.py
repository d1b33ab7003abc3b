"""Opens a SQLite file in the data folder, moves a damaged file aside, and maps SQLite's errors.

The journal is a WAL: one connection writes while others read. The owner of a file decides what it contains.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hyperscout_runtime.units import NS

from hyperscout_collector.store.errors import StoreDamagedError, StoreError, StoreFullError

_log = logging.getLogger(__name__)

_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_FORBIDDEN = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
_BUSY_TIMEOUT_S = 5.0
_JOURNAL_BYTES = 64 * 1024 * 1024  # the WAL is truncated to this after a checkpoint


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file. `schema` creates its tables; `version` is written into the file and checked when it is
    opened.

    `without`: the consequence of starting without the file, for the message about a damaged file.
    `size_setting`: the setting that limits its size; "" = none does. `synced`: each commit reaches the disk
    before it returns (FULL); otherwise a power cut may lose the last commits.
    """

    schema: str
    version: int
    max_bytes: int
    without: str
    size_setting: str = ""
    synced: bool = False


class Database:
    """A file that is open for writing and locked against other processes.

    The constructor blocks, creates the folder if absent, and raises StoreError. `connection`: use it only in
    blocks of `transaction` and `using`, in which threads take turns. `problem`: where a damaged file was
    moved to; "" = the file was not damaged.
    """

    def __init__(self, path: Path, kind: Kind, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.path = path
        self.problem = ""
        self._kind = kind
        self._use = threading.RLock()  # SQLite crashes when a connection is closed while a thread uses it
        self._lock_file = _locked(path)
        try:
            self.connection = self._open(now_ns)
        except BaseException as error:
            os.close(self._lock_file)
            if isinstance(error, sqlite3.Error):
                raise self._store_error(error) from error
            raise

    def close(self) -> None:
        """Checkpoint the WAL, close the file and release its lock. Never raises; may be called twice.

        It blocks until the block in progress of `transaction` or `using` has ended.
        """
        with self._use:
            with contextlib.suppress(sqlite3.Error):
                self.connection.close()
            if self._lock_file >= 0:
                os.close(self._lock_file)
                self._lock_file = -1

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit everything in the block, or nothing. Raises StoreError."""
        with self.using() as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            except BaseException as error:
                # SQLite may already have rolled back (it does when the disk is full).
                with contextlib.suppress(sqlite3.Error):
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    if isinstance(error, sqlite3.Error) and _is(error, _FULL):
                        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # frees the space of the journal
                raise

    @contextlib.contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """Wait for other threads that use the connection. Raise StoreError for each error of SQLite."""
        with self._use:
            try:
                yield self.connection
            except sqlite3.Error as error:
                raise self._store_error(error) from error

    def _store_error(self, error: sqlite3.Error) -> StoreError:
        text = f"{self.path}: {error}"
        if _is(error, _FULL):
            more = f", or raise {self._kind.size_setting}" if self._kind.size_setting else ""
            return StoreFullError(f"{text}: no space is left: free space on its disk{more}")
        if _is(error, _FORBIDDEN):
            return StoreError(f"{text}: give the collector the right to write the file and its folder")
        if _is(error, _DAMAGED):
            return StoreDamagedError(
                f"{text}: the file is damaged: restart the collector, which moves it aside"
            )
        return StoreError(text)

    def _open(self, now_ns: Callable[[], int]) -> sqlite3.Connection:
        try:
            return self._connected()
        except sqlite3.DatabaseError as error:
            if not _is(error, _DAMAGED):
                raise
            aside = _set_aside(self.path, now_ns())
            self.problem = (
                f"{self.path} is damaged ({error}); it was moved to {aside.name}: {self._kind.without}"
            )
            _log.error("%s", self.problem)
        return self._connected()

    def _connected(self) -> sqlite3.Connection:
        kind = self._kind
        db = sqlite3.connect(
            self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            found = [row[0] for row in db.execute("PRAGMA quick_check(1)")]
            if found != ["ok"]:
                damage = sqlite3.DatabaseError(str(found[0]))
                damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                raise damage
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {'FULL' if kind.synced else 'NORMAL'}")
            db.execute(f"PRAGMA journal_size_limit = {_JOURNAL_BYTES}")
            (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
            db.execute(f"PRAGMA max_page_count = {max(kind.max_bytes // page_bytes, 1)}")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                db.executescript(f"BEGIN; {kind.schema} PRAGMA user_version = {kind.version}; COMMIT;")
            elif version != kind.version:
                raise StoreError(
                    f"{self.path} has format {version}, this collector reads format {kind.version}: "
                    "start the version that wrote it, or choose another data folder"
                )
        except BaseException:
            db.close()
            raise
        return db


class Reader:
    """A read-only connection to a file that a `Database` has opened. Threads take turns.

    The constructor raises StoreError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=_BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise StoreError(f"{path} cannot be read: {error}") from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read one consistent state of the file, whatever is written meanwhile. Raises StoreError."""
        with self._lock:
            try:
                self._db.execute("BEGIN")
                try:
                    yield self._db
                finally:
                    self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise StoreError(f"{self._path} cannot be read: {error}") from error

    def close(self) -> None:
        """Wait for a read in progress, then close the connection. Never raises."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._db.close()


def _locked(path: Path) -> int:
    """Lock the file by a lock file beside it. Returns a file descriptor; closing it unlocks.

    Raises StoreError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"{path}: {error.strerror}: let the collector write the folder, or choose another data folder"
        ) from error
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(found)
        raise StoreError(
            f"{path}: another collector is using it: end that collector, or choose another data folder"
        ) from error
    return found


def _set_aside(path: Path, now_ns: int) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ns // NS))
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    try:
        for suffix in ("", "-wal", "-shm"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
    except OSError as error:
        raise StoreError(
            f"{path} is damaged and cannot be moved ({error.strerror}): let the collector write its folder"
        ) from error
    return aside


def _is(error: sqlite3.Error, codes: frozenset[int]) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    return code in codes or code & 0xFF in codes
