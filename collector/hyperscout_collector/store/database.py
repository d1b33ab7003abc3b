"""Opens a SQLite file in the data folder, moves a damaged file aside, and maps SQLite's errors.

The journal is a WAL: one connection writes while others read. The owner of a file decides what it contains.
"""

import contextlib
import fcntl
import logging
import os
import re
import sqlite3
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hyperscout_runtime.units import NS

from hyperscout_collector.store.errors import StoreDamagedError, StoreError, StoreFullError

_log = logging.getLogger(__name__)

_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_FORBIDDEN = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
# What a damaged header or schema causes while a file is opened. Later these are defects of the collector.
_DAMAGED_AT_OPEN = _DAMAGED | {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_TOOBIG}
_BUSY_TIMEOUT_S = 5.0
_MAX_ASIDE = 1000
_COMMENT_OR_SPACE = re.compile(r"--[^\n]*|\s+")
_PIECE_BYTES = 256 * 1024
_JOURNAL_BYTES = 64 * 1024 * 1024  # the WAL is truncated to this after a checkpoint


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file. `schema` creates its tables; `version` is written into the file and checked when it is
    opened. A new version has another schema: a file with this schema and another version is damaged.

    `without`: the consequence of starting without the file, for the message about a damaged file.
    `without_row`: the same for a row. `later`: statements with IF NOT EXISTS that create what earlier files
    of this version lack. `size_setting`: the setting that limits its size; "" = none does. `synced`: each
    commit reaches the disk before it returns (FULL); otherwise a power cut may lose the last commits.
    `sealed`: closing the file records its checksum, and an unchanged file is opened without a check of its
    content. The owner calls `check` later, because the file may have been damaged before it was closed.
    """

    schema: str
    version: int
    max_bytes: int
    without: str
    without_row: str = ""
    later: str = ""
    size_setting: str = ""
    synced: bool = False
    sealed: bool = False


@dataclass(slots=True)
class Damage:
    """Counts of damage found since the start, by the name of the file.

    `files`: files that were moved aside or were empty. `rows`: rows that were dropped.
    """

    files: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)


class Database:
    """A file that is open for writing and locked against other processes.

    The constructor blocks, creates the folder if absent, and raises StoreError. `connection`: use it only in
    blocks of `transaction` and `using`, in which threads take turns. `problem`: what was damaged, and what
    happened to it; "" = nothing was. `is_checked`: the content of the file was checked.
    """

    def __init__(
        self,
        path: Path,
        kind: Kind,
        now_ns: Callable[[], int] = time.time_ns,
        damage: Damage | None = None,
    ) -> None:
        self.path = path
        self.problem = ""
        self._kind = kind
        self._damage = damage or Damage()
        self._use = threading.RLock()  # SQLite crashes when a connection is closed while a thread uses it
        self._lock_file = _locked(path)
        self.is_checked = not (kind.sealed and _is_sealed(path, self._lock_file))
        self._is_sound = True
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
                if self._kind.sealed and self._is_sound:
                    _seal(self.path, self._lock_file)
                os.close(self._lock_file)
                self._lock_file = -1

    def check(self) -> None:
        """Check the content of a file that was opened without. Raises StoreDamagedError."""
        with self.using() as db:
            _check_integrity(db)
            self.is_checked = True

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

    def dropped(self, rows: int) -> None:
        """Record that rows were damaged, and that the caller removed or ignored them."""
        if rows:
            self._damage.rows[self.path.name] += rows
            more = f": {self._kind.without_row}" if self._kind.without_row else ""
            self._report(f"{self.path}: {rows} damaged rows were dropped{more}")

    def _report(self, problem: str) -> None:
        _log.error("%s", problem)
        self.problem = f"{self.problem}; {problem}" if self.problem else problem

    def _store_error(self, error: sqlite3.Error) -> StoreError:
        text = f"{self.path}: {error}"
        if _is(error, _FULL):
            more = f", or raise {self._kind.size_setting}" if self._kind.size_setting else ""
            return StoreFullError(f"{text}: no space is left: free space on its disk{more}")
        if _is(error, _FORBIDDEN):
            return StoreError(f"{text}: give the collector the right to write the file and its folder")
        if _is(error, _DAMAGED):
            self._is_sound = False
            return StoreDamagedError(
                f"{text}: the file is damaged: restart the collector, which moves it aside"
            )
        return StoreError(text)

    def _open(self, now_ns: Callable[[], int]) -> sqlite3.Connection:
        if _created(self.path):
            self._damage.files[self.path.name] += 1
            self._report(f"{self.path} is empty: {self._kind.without}")
        try:
            return self._connected()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # also SQLite's message may quote damaged text
            if isinstance(error, sqlite3.Error) and not self._is_damaged(error):
                raise
            aside = _set_aside(self.path, now_ns())
            self.is_checked = True
            self._damage.files[self.path.name] += 1
            self._report(
                f"{self.path} is damaged ({error}); it was moved to {aside.name}: {self._kind.without}"
            )
        _created(self.path)
        return self._connected()

    def _is_damaged(self, error: sqlite3.Error) -> bool:
        """Whether an error while the file was opened means that its content is damaged."""
        if _is(error, frozenset({sqlite3.SQLITE_READONLY})):  # the header asks for a newer SQLite
            return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)
        return _is(error, _DAMAGED_AT_OPEN)

    def _connected(self) -> sqlite3.Connection:
        kind = self._kind
        db = sqlite3.connect(
            self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        db.text_factory = _decoded  # messages and the schema may contain damaged text
        try:
            if self.is_checked:
                _check_integrity(db)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {'FULL' if kind.synced else 'NORMAL'}")
            db.execute(f"PRAGMA journal_size_limit = {_JOURNAL_BYTES}")
            (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
            db.execute(f"PRAGMA max_page_count = {max(kind.max_bytes // page_bytes, 1)}")
            self._check_schema(db)
            # A damaged header may make the file read-only, which only a write shows.
            db.executescript(f"BEGIN IMMEDIATE; PRAGMA user_version = {kind.version}; ROLLBACK;")
            db.text_factory = str
        except BaseException:
            db.close()
            raise
        return db

    def _check_schema(self, db: sqlite3.Connection) -> None:
        """Create the tables in a new file; check version and tables of an existing one."""
        kind = self._kind
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == 0 and not _objects(db):
            db.executescript(
                f"BEGIN; {kind.schema} {kind.later} PRAGMA user_version = {kind.version}; COMMIT;"
            )
            return
        with contextlib.closing(sqlite3.connect(":memory:")) as model:
            model.executescript(kind.schema)
            before = _objects(model)
            model.executescript(kind.later)
            now = _objects(model)
        if version != kind.version:
            if _objects(db) in (before, now) or version == 0:
                raise _damage_error(f"its header has format {version}")
            raise StoreError(
                f"{self.path} has format {version}, this collector reads format {kind.version}: "
                "start the version that wrote it, or choose another data folder"
            )
        db.executescript(kind.later)
        if missing := now - _objects(db):
            raise _damage_error(f"its table {min(missing)[1]!r} is not as it was created")


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
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        found = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"{path.parent}: {error.strerror}: let the collector write this folder, or set another `data_dir`"
        ) from error
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(found)
        raise StoreError(
            f"{path}: another collector is using it: end that collector, or choose another data folder"
        ) from error
    return found


def _is_sealed(path: Path, lock_file: int) -> bool:
    """Whether the file is as `_seal` left it. Removes the seal: the file is about to change."""
    seal = os.pread(lock_file, 64, 0)
    os.ftruncate(lock_file, 0)
    return bool(seal) and seal == _checksum(path)


def _seal(path: Path, lock_file: int) -> None:
    """Write the checksum of the file into its lock file. Never raises: without a seal the file is checked."""
    with contextlib.suppress(OSError):
        os.pwrite(lock_file, _checksum(path), 0)


def _checksum(path: Path) -> bytes:
    """Returns size and CRC-32 of a file; b"" = it cannot be read, or its journal contains a part of it."""
    size = checksum = 0
    try:
        journal = path.with_name(f"{path.name}-wal")
        if journal.exists() and journal.stat().st_size:
            return b""
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                size, checksum = size + len(piece), zlib.crc32(piece, checksum)
    except OSError:
        return b""
    return f"{size} {checksum:08x}\n".encode()


def _check_integrity(db: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError if tables or indexes are damaged."""
    found = [row[0] for row in db.execute("PRAGMA integrity_check(1)")]
    if found != ["ok"]:
        raise _damage_error(str(found[0]))


def _created(path: Path) -> bool:
    """Create the file if absent, so that only its owner can read it; SQLite gives its journal the same mode.

    Returns whether the file was there and empty.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        with contextlib.suppress(OSError):  # SQLite reports what is wrong with the path
            return path.stat().st_size == 0
    return False


def _objects(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """Returns the tables and indexes as (type, name, SQL without comments and spaces)."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {(str(kind), str(name), _COMMENT_OR_SPACE.sub("", str(sql))) for kind, name, sql in rows}


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _damage_error(text: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(text)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _set_aside(path: Path, now_ns: int) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ns // NS))
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for i in range(2, _MAX_ASIDE):  # several in one second
        if not aside.exists():
            break
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{i}")
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
