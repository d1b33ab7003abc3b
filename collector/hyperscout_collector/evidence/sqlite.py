"""Stores evidence in one SQLite file. The collector needs no other storage.

Durability. The journal is a WAL with synchronous=NORMAL. A commit reaches the operating system before its ack
is sent, so a killed collector loses nothing that it acknowledged. A power cut can lose the last commits. But
it also cuts the streams, and an agent that reconnects sends its full state, so syncing the disk for each
batch (FULL) would gain nothing. The published topology is different: no agent sends it again, and its names
and generations are already in use. It is written with FULL.

A file that SQLite cannot read is moved aside, never deleted, and the collector starts without it.
"""

import contextlib
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from google.protobuf.message import DecodeError
from hyperscout.v1.finding_pb2 import Finding

from hyperscout_collector.evidence.rows import BadFinding, Key, Row, stored_row
from hyperscout_collector.evidence.state import AgentRow
from hyperscout_collector.evidence.store import (
    Changes,
    Loaded,
    StoredFinding,
    StoreError,
    StoreFullError,
    StoreUnusableError,
)
from hyperscout_collector.store import database

_SCHEMA = """
CREATE TABLE findings (
  node TEXT NOT NULL, probe TEXT NOT NULL, subject TEXT NOT NULL, rank INTEGER NOT NULL,
  observed_ns INTEGER NOT NULL, offset_ns INTEGER NOT NULL, received_ns INTEGER NOT NULL,
  sha256 BLOB,           -- of the text that the finding names
  finding BLOB NOT NULL, -- hyperscout.v1.Finding
  PRIMARY KEY (node, probe, subject, rank)
) WITHOUT ROWID;
CREATE INDEX findings_sha256 ON findings (sha256) WHERE sha256 IS NOT NULL;
CREATE TABLE bulks (sha256 BLOB PRIMARY KEY, size_bytes INTEGER NOT NULL, compressed BLOB NOT NULL);
CREATE TABLE agents (node TEXT PRIMARY KEY, instance TEXT NOT NULL, version TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topology (id INTEGER PRIMARY KEY CHECK (id = 1), json BLOB NOT NULL);
"""
_UNNAMED = "NOT EXISTS (SELECT 1 FROM findings WHERE findings.sha256 = bulks.sha256)"
_WITHOUT = (
    "the collector starts without it: "
    "agents send their findings again, names of HyperNodes are new unless a publisher knows them"
)


class SqliteStore:
    """`path`: the file; its folder is created if absent. `max_bytes`: largest size of the file.

    One thread writes. `page` and `bulk` may be called from any other thread: they use their own connection.
    Raises StoreUnusableError if another process uses the file or the file's format is newer.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = 4 * 1024**3, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.path = path
        self._now_ns = now_ns
        try:
            self._lock_file = database.locked(path)
        except database.InUseError as error:
            raise StoreUnusableError(str(error)) from error
        except OSError as error:
            raise StoreUnusableError(f"{path}: {error.strerror}: choose another data folder") from error
        try:
            self._take(max_bytes)
        except BaseException:
            os.close(self._lock_file)
            raise

    def _take(self, max_bytes: int) -> None:
        kind = database.Kind(_SCHEMA, 1, max_bytes, _WITHOUT)
        try:
            self._writer, problem = database.opened(self.path, kind, self._now_ns)
        except (database.OtherFormatError, database.NotMovedError) as error:
            raise StoreUnusableError(str(error)) from error
        except sqlite3.Error as error:
            raise _wrapped(self.path, error) from error
        self._problems = [problem] if problem else []
        try:
            self._reader = database.reader(self.path)
        except sqlite3.Error as error:
            self._writer.close()
            raise _wrapped(self.path, error) from error
        self._reader_lock = threading.Lock()

    # Reading

    def load(self) -> Loaded:
        """Returns everything but the texts. Rows that cannot be read are omitted and reported as problems."""
        problems = list(self._problems)
        rows: list[Row] = []
        bad = 0
        with self._reading() as db:
            for rank, observed_ns, offset_ns, received_ns, encoded in db.execute(
                "SELECT rank, observed_ns, offset_ns, received_ns, finding FROM findings"
            ):
                try:
                    rows.append(
                        stored_row(Finding.FromString(encoded), rank, observed_ns, offset_ns, received_ns)
                    )
                except (DecodeError, BadFinding):
                    bad += 1
            agents = [
                AgentRow(node, int(instance), version)
                for node, instance, version in db.execute("SELECT node, instance, version FROM agents")
            ]
            saved = db.execute("SELECT json FROM topology").fetchone()
        if bad:
            problems.append(f"{self.path}: {bad} findings cannot be read and were passed over")
        topology_json = None
        if saved:
            try:
                topology_json = zlib.decompress(saved[0])
            except zlib.error:
                problems.append(f"{self.path}: the published topology cannot be read and was passed over")
        return Loaded(rows, agents, topology_json, tuple(problems))

    def page(
        self, node: str, probe: str, after: tuple[Key, int] | None, limit: int
    ) -> Sequence[StoredFinding]:
        where: list[str] = ["1"]
        values: list[str | int] = []
        if node:
            where.append("node = ?")
            values.append(node)
        if probe:
            where.append("probe = ?")
            values.append(probe)
        if after is not None:
            where.append("(node, probe, subject, rank) > (?, ?, ?, ?)")
            values += [*after[0], after[1]]
        with self._reading() as db:
            rows = db.execute(
                "SELECT node, probe, subject, rank, observed_ns, offset_ns, received_ns, finding "  # noqa: S608
                f"FROM findings WHERE {' AND '.join(where)} ORDER BY node, probe, subject, rank LIMIT ?",
                (*values, limit),
            ).fetchall()
        return [StoredFinding(Key(*row[:3]), *row[3:]) for row in rows]

    def bulk(self, sha256: bytes) -> bytes | None:
        with self._reading() as db:
            row = db.execute("SELECT compressed FROM bulks WHERE sha256 = ?", (sha256,)).fetchone()
        return row[0] if row else None

    # Writing

    def apply(self, changes: Changes) -> None:
        with self._transaction() as db:
            db.executemany(
                "INSERT OR IGNORE INTO bulks VALUES (?, ?, ?)",
                [(b.sha256, b.size_bytes, b.compressed) for b in changes.bulks],
            )
            db.executemany(
                "DELETE FROM findings WHERE node = ? AND probe = ? AND subject = ? AND rank = ?",
                [(*key, rank) for key, rank in changes.deletes],
            )
            db.executemany(
                "INSERT OR REPLACE INTO findings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (*row.key, row.rank, row.observed_ns, row.offset_ns, row.received_ns, row.sha256, encoded)
                    for row, encoded in changes.upserts
                ],
            )
            db.executemany(
                "INSERT OR REPLACE INTO agents VALUES (?, ?, ?)",
                [(a.node, str(a.instance), a.version) for a in changes.agents],
            )
            db.executemany("DELETE FROM agents WHERE node = ?", [(node,) for node in changes.removed_agents])
            db.executemany(
                f"DELETE FROM bulks WHERE sha256 = ? AND {_UNNAMED}",  # noqa: S608
                [(digest,) for digest in changes.maybe_unnamed_bulks],
            )

    def save_topology(self, topology_json: bytes) -> None:
        packed = zlib.compress(topology_json, 1)
        self._writer.execute("PRAGMA synchronous = FULL")
        try:
            with self._transaction() as db:
                db.execute("INSERT OR REPLACE INTO topology VALUES (1, ?)", (packed,))
        finally:
            self._writer.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Checkpoint the WAL, close the file and release its lock. Never raises; may be called twice."""
        for db in (self._reader, self._writer):
            with contextlib.suppress(sqlite3.Error):
                db.close()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            with database.transaction(self._writer):
                yield self._writer
        except sqlite3.Error as error:
            raise _wrapped(self.path, error) from error

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._reader_lock:
            try:
                yield self._reader
            except sqlite3.Error as error:
                raise _wrapped(self.path, error) from error


def _wrapped(path: Path, error: sqlite3.Error) -> StoreError:
    if database.is_full(error):
        return StoreFullError(f"{path}: {error}: no room: free some on its disk, or raise evidence_max_mib")
    if database.is_forbidden(error):
        return StoreUnusableError(
            f"{path}: {error}: the collector must be allowed to write it and its folder"
        )
    if database.is_damage(error):
        return StoreError(f"{path}: {error}: damaged: restart the collector, which moves it aside")
    return StoreError(f"{path}: {error}")
