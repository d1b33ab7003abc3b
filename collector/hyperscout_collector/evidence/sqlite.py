"""Stores evidence in one SQLite file. The collector needs no other storage.

Durability. The journal is a WAL with synchronous=NORMAL. A commit reaches the operating system before its ack
is sent, so a killed collector loses nothing that it acknowledged. A power cut can lose the last commits. But
it also cuts the streams, and an agent that reconnects sends its full state, so syncing the disk for each
batch (FULL) would gain nothing. The published topology is different: no agent sends it again, and its names
and generations are already in use. It is written with FULL.

A file that SQLite cannot read is moved aside, never deleted, and the collector starts without it. In a file
that SQLite can read, each row is checked at the start. A damaged row is deleted; its agent sends it again.
"""

import hashlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hyperscout_runtime.clock import Clock

from hyperscout_collector.evidence.rows import MAX_TIME_NS, Key, Row
from hyperscout_collector.evidence.state import AgentRow
from hyperscout_collector.evidence.store import (
    MAX_GENERATION,
    Changes,
    EvidenceReader,
    Loaded,
    agent_in,
    bounded_shift,
    row_in,
    shift_since,
)
from hyperscout_collector.store.database import Damage, Database, Kind, Reader

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
_LATER = """
CREATE TABLE IF NOT EXISTS written (  -- when this file was last written
  id INTEGER PRIMARY KEY CHECK (id = 1),
  now_ns INTEGER NOT NULL,            -- by the time of the process, as all times in this file
  wall_ns INTEGER NOT NULL            -- by the machine's clock
);
CREATE TABLE IF NOT EXISTS reserved (id INTEGER PRIMARY KEY CHECK (id = 1), generation INTEGER NOT NULL);
-- has a row if the topology was not inferred from the findings
CREATE TABLE IF NOT EXISTS lacks_evidence (id INTEGER PRIMARY KEY CHECK (id = 1));
"""
_UNNAMED = "NOT EXISTS (SELECT 1 FROM findings WHERE findings.sha256 = bulks.sha256)"
_WITHOUT = (
    "the collector starts without it: "
    "agents send their findings again, names of HyperNodes are new unless a publisher knows them"
)
_WITHOUT_ROW = "agents send their findings again"
_KEYS = {
    "findings": ("node", "probe", "subject", "rank"),
    "bulks": ("sha256",),
    "agents": ("node",),
    "topology": ("id",),
}
_PIECE_BYTES = 1 << 20


class _Text(bytes):
    """A TEXT value as its bytes: a damaged one may be no UTF-8, and may be where a BLOB is expected."""

    __slots__ = ()


class SqliteStore(EvidenceReader[Reader]):
    """An `EvidenceStore` in the file `path`. `max_bytes`: largest size of the file.

    One thread writes. `page` and `bulk` may be called from any thread: they use their own connection. The
    constructor blocks and raises StoreError.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int = 4 * 1024**3,
        clock: Clock | None = None,
        damage: Damage | None = None,
    ) -> None:
        self.path = path
        self._clock = clock or Clock()
        kind = Kind(_SCHEMA, 1, max_bytes, _WITHOUT, _WITHOUT_ROW, _LATER, size_setting="evidence_max_mib")
        self._file = Database(path, kind, self._clock.now_ns, damage)
        try:
            super().__init__(Reader(path))
        except BaseException:
            self._file.close()
            raise

    # Reading

    def load(self) -> Loaded:
        """Returns everything but the texts. Damaged rows are deleted, counted and reported as a problem.

        A finding whose text is damaged is deleted with it, because its agent sends a stored text only once.
        """
        shift_ns = self._shifted()
        rows: list[Row] = []
        agents: list[AgentRow] = []
        topology: bytes | None = None
        known: set[tuple[Key, int]] = set()
        bad: list[tuple[str, tuple[bytes, ...]]] = []  # table, key
        texts: dict[bytes, int] = {}
        with self._raw() as db:
            for sha256, size_bytes, compressed in db.execute(
                "SELECT sha256, size_bytes, compressed FROM bulks"
            ):
                if _is_whole(sha256, size_bytes, compressed):
                    texts[sha256] = len(compressed)
                else:
                    bad.append(("bulks", (sha256,)))
            named = {None, *texts}
            for values in db.execute(
                "SELECT node, probe, subject, rank, observed_ns, offset_ns, received_ns, sha256, finding"
                " FROM findings"
            ):
                row = _row(values)
                if row is not None and (row.key, row.rank) not in known and row.sha256 in named:
                    known.add((row.key, row.rank))
                    rows.append(row)
                else:
                    bad.append(("findings", values[:4]))
            for values in db.execute("SELECT node, instance, version FROM agents"):
                agent = _agent(values)
                if agent is not None:
                    agents.append(agent)
                else:
                    bad.append(("agents", values[:1]))
            for ident, saved in db.execute("SELECT id, json FROM topology"):
                if type(saved) is bytes:
                    topology = saved
                else:
                    bad.append(("topology", (ident,)))
            numbers = [number for (number,) in db.execute("SELECT generation FROM reserved")]
            lacks_evidence = db.execute("SELECT 1 FROM lacks_evidence").fetchone() is not None
        self._delete(bad)
        problems = [self._file.problem] if self._file.problem else []
        reserved = max((x for x in numbers if type(x) is int and 0 <= x <= MAX_GENERATION), default=0)
        return Loaded(rows, agents, topology, tuple(problems), shift_ns, texts, reserved, lacks_evidence)

    def _shifted(self) -> int:
        """Move all times to the time of this process. Returns by how much, in ns."""
        numbers = "typeof(observed_ns) = 'integer' AND typeof(offset_ns) = 'integer'"
        with self._file.transaction() as db:
            found = db.execute(
                "SELECT now_ns, wall_ns FROM written"
                " WHERE typeof(now_ns) = 'integer' AND typeof(wall_ns) = 'integer'"
            ).fetchone()
            if found is not None and all(0 <= at_ns < MAX_TIME_NS for at_ns in found):
                shift_ns = shift_since(self._clock, *found)
            else:  # version 0.1 wrote times of the machine's clock
                newest = "SELECT MAX(received_ns) FROM findings WHERE typeof(received_ns) = 'integer'"
                (newest_ns,) = db.execute(newest).fetchone()
                now_ns = self._clock.now_ns()
                shift_ns = 0 if newest_ns is None else bounded_shift(int(min(now_ns - newest_ns, 0)))
            if not shift_ns:
                return 0
            db.execute(
                "UPDATE findings SET offset_ns = offset_ns - ?1, received_ns = received_ns + ?1"  # noqa: S608
                f" WHERE typeof(received_ns) = 'integer' AND {numbers}",
                (shift_ns,),
            )
            self._stamp(db)
        return shift_ns

    def _stamp(self, db: sqlite3.Connection) -> None:
        values = (self._clock.now_ns(), self._clock.wall_ns())
        db.execute("INSERT OR REPLACE INTO written VALUES (1, ?, ?)", values)

    @contextmanager
    def _raw(self) -> Iterator[sqlite3.Connection]:
        """Read with texts as `_Text`."""
        with self._reader.reading() as db:
            db.text_factory = _Text
            try:
                yield db
            finally:
                db.text_factory = str

    def _delete(self, bad: Iterable[tuple[str, tuple[bytes, ...]]]) -> None:
        """Delete damaged rows. Their keys may be no text: they are compared as bytes."""
        count = 0
        with self._file.transaction() as db:
            for table, key in bad:
                where = " AND ".join(f"CAST({name} AS BLOB) IS CAST(? AS BLOB)" for name in _KEYS[table])
                values = [bytes(x) if isinstance(x, bytes) else x for x in key]
                db.execute(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608
                count += 1
        self._file.dropped(count)

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
                "UPDATE findings SET observed_ns = ?, offset_ns = ?, received_ns = ?"
                " WHERE node = ? AND probe = ? AND subject = ? AND rank = ?",
                [
                    (row.observed_ns, row.offset_ns, row.received_ns, *row.key, row.rank)
                    for row in changes.renewed
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
            self._stamp(db)

    def save_topology(self, topology: bytes, reserved: int = 0, *, lacks_evidence: bool = False) -> None:
        self._durable(topology, reserved, lacks_evidence=lacks_evidence)

    def reserve(self, generation: int) -> None:
        self._durable(None, generation)

    def _durable(self, topology: bytes | None, reserved: int, *, lacks_evidence: bool = False) -> None:
        """Write both. After it returns, a power cut does not undo it."""
        with self._file.using() as db:
            db.execute("PRAGMA synchronous = FULL")
            try:
                with self._file.transaction():
                    if topology is not None:
                        db.execute("INSERT OR REPLACE INTO topology VALUES (1, ?)", (topology,))
                        db.execute("DELETE FROM lacks_evidence")
                        db.execute("INSERT INTO lacks_evidence SELECT 1 WHERE ?", (lacks_evidence,))
                    db.execute("INSERT OR REPLACE INTO reserved VALUES (1, ?)", (reserved,))
                    self._stamp(db)
            finally:
                db.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """Close the file and release its lock. Never raises; may be called twice."""
        self._reader.close()
        self._file.close()


def _is_whole(sha256: Any, size_bytes: Any, compressed: Any) -> bool:
    """Whether a stored text is the one that its digest names. It is unpacked in pieces."""
    if type(compressed) is not bytes or type(size_bytes) is not int:
        return False
    inflate, digest, left = zlib.decompressobj(), hashlib.sha256(), size_bytes
    try:
        piece = inflate.decompress(compressed, _PIECE_BYTES)
        while piece and left >= 0:
            digest.update(piece)
            left -= len(piece)
            piece = inflate.decompress(inflate.unconsumed_tail, _PIECE_BYTES)
    except zlib.error:
        return False
    return left == 0 and inflate.eof and digest.digest() == sha256


def _row(values: Sequence[Any]) -> Row | None:
    """Returns the row with these columns; None = it is damaged."""
    *key, rank, observed_ns, offset_ns, received_ns, sha256, encoded = values
    numbers = (rank, observed_ns, offset_ns, received_ns)
    if type(encoded) is not bytes or not all(type(x) is _Text for x in key):
        return None
    if not all(type(number) is int for number in numbers):
        return None
    try:
        node, probe, subject = (x.decode() for x in key)
    except UnicodeDecodeError:
        return None
    return row_in((node, probe, subject), numbers, sha256, encoded)


def _agent(values: Sequence[Any]) -> AgentRow | None:
    """Returns the agent with these columns; None = it is damaged."""
    if not all(type(value) is _Text for value in values):
        return None
    try:
        return agent_in(*(value.decode() for value in values))
    except UnicodeDecodeError:
        return None
