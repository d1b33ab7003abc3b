"""Opens a SQLite file in the data folder, moves a damaged file aside, and runs transactions.

The journal is a WAL: one connection writes while others read. The owner of a file decides what it contains,
and how to report a failure. Errors are sqlite3's own; functions here classify them.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_log = logging.getLogger(__name__)

_FULL = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_FORBIDDEN = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM})
_BUSY_TIMEOUT_S = 5.0
_JOURNAL_BYTES = 64 * 1024 * 1024  # the WAL is truncated to this after a checkpoint


class OtherFormatError(Exception):
    """The file has another format version. The message names it."""


class InUseError(Exception):
    """Another process uses the file."""


class NotMovedError(Exception):
    """The file is damaged and could not be moved aside. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file. `schema` creates its tables; `version` is written into the file and checked when it is
    opened.

    `synced`: each commit reaches the disk before it returns (FULL); otherwise a power cut may lose the last
    commits. `without`: the consequence of starting without the file, for the message about a damaged file.
    """

    schema: str
    version: int
    max_bytes: int
    without: str
    synced: bool = False


def opened(
    path: Path, kind: Kind, now_ns: Callable[[], int] = time.time_ns
) -> tuple[sqlite3.Connection, str]:
    """Returns a connection that writes, and a problem: "", or where a damaged file was moved to.

    The folder is created if absent. Raises sqlite3.Error, OSError, OtherFormatError, NotMovedError. Blocks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _open(path, kind), ""
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        aside = _set_aside(path, now_ns())
        problem = f"{path} is damaged ({error}); it was moved to {aside.name}: {kind.without}"
        _log.error("%s", problem)
    return _open(path, kind), problem


def locked(path: Path) -> int:
    """Lock the file against other processes (by a lock file beside it). Returns a file descriptor; closing it
    unlocks.

    The folder is created if absent. Raises OSError, InUseError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    found = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(found)
        raise InUseError(
            f"{path}: another collector is using it: end that one, or choose another data folder"
        ) from error
    return found


def reader(path: Path) -> sqlite3.Connection:
    """Returns a connection that only reads, for any thread, one at a time. Raises sqlite3.Error."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_TIMEOUT_S, check_same_thread=False
    )


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit everything in the block, or nothing. Raises sqlite3.Error."""
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    except BaseException:
        # SQLite may already have rolled back (it does when the disk is full).
        with contextlib.suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        raise


def is_full(error: sqlite3.Error) -> bool:
    """Whether the disk or the file has no space left."""
    return _is(error, _FULL)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file is no database, or an incomplete one."""
    return _is(error, _CORRUPT)


def is_forbidden(error: sqlite3.Error) -> bool:
    """Whether the file or its folder may not be written."""
    return _is(error, _FORBIDDEN)


def _open(path: Path, kind: Kind) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
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
            raise OtherFormatError(
                f"{path} has format {version}, this collector reads {kind.version}: "
                "start the version that wrote it, or choose another data folder"
            )
    except BaseException:
        db.close()
        raise
    return db


def _set_aside(path: Path, now_ns: int) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ns // 1_000_000_000))
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    try:
        for suffix in ("", "-wal", "-shm"):
            part = path.with_name(path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
    except OSError as error:
        raise NotMovedError(f"{path} is damaged and cannot be moved: {error.strerror}") from error
    return aside


def _is(error: sqlite3.Error, codes: frozenset[int]) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    return code in codes or code & 0xFF in codes
