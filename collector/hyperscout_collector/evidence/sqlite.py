"""Stores evidence in one SQLite file. The collector needs no other storage.

Durability. The journal is a WAL with synchronous=NORMAL. A commit reaches the operating system before its ack
is sent, so a killed collector loses nothing that it acknowledged. A power cut can lose the last commits. But
it also cuts the streams, and an agent that reconnects sends its full state, so syncing the disk for each
batch (FULL) would gain nothing. The published topology is different: no agent sends it again, and its names
and generations are already in use. It is written with FULL.

A file that SQLite cannot read is moved aside, never deleted, and the collector starts without it.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from google.protobuf.message import DecodeError
from hyperscout.v1.finding_pb2 import Finding

from hyperscout_collector.evidence.rows import BadFinding, Key, Row, stored_row
from hyperscout_collector.evidence.state import AgentRow
from hyperscout_collector.evidence.store import Changes, Loaded, StoredFinding
from hyperscout_collector.store.database import Database, Kind, Reader

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
    """An `EvidenceStore` in the file `path`. `max_bytes`: largest size of the file.

    One thread writes. `page` and `bulk` may be called from any thread: they use their own connection. The
    constructor blocks and raises StoreError.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = 4 * 1024**3, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.path = path
        self._file = Database(path, Kind(_SCHEMA, 1, max_bytes, _WITHOUT, "evidence_max_mib"), now_ns)
        try:
            self._reader = Reader(path)
        except BaseException:
            self._file.close()
            raise

    # Reading

    def load(self) -> Loaded:
        """Returns everything but the texts. Rows that cannot be read are omitted and reported as problems."""
        problems = [self._file.problem] if self._file.problem else []
        rows: list[Row] = []
        bad = 0
        with self._reader.reading() as db:
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
            problems.append(f"{self.path}: {bad} findings cannot be read and are ignored")
        return Loaded(rows, agents, saved[0] if saved else None, tuple(problems))

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
        with self._reader.reading() as db:
            rows = db.execute(
                "SELECT node, probe, subject, rank, observed_ns, offset_ns, received_ns, finding "  # noqa: S608
                f"FROM findings WHERE {' AND '.join(where)} ORDER BY node, probe, subject, rank LIMIT ?",
                (*values, limit),
            ).fetchall()
        return [StoredFinding(Key(*row[:3]), *row[3:]) for row in rows]

    def bulk(self, sha256: bytes) -> bytes | None:
        with self._reader.reading() as db:
            row = db.execute("SELECT compressed FROM bulks WHERE sha256 = ?", (sha256,)).fetchone()
        return row[0] if row else None

    # Writing

    def apply(self, changes: Changes) -> None:
        with self._file.transaction() as db:
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

    def save_topology(self, topology: bytes) -> None:
        with self._file.using() as db:
            db.execute("PRAGMA synchronous = FULL")
            try:
                with self._file.transaction():
                    db.execute("INSERT OR REPLACE INTO topology VALUES (1, ?)", (topology,))
            finally:
                db.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Close the file and release its lock. Never raises; may be called twice."""
        self._reader.close()
        self._file.close()
