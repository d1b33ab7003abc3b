"""Stores evidence in PostgreSQL, from which another replica takes over.

A batch is one transaction: one statement merges its findings, which it gets as binary arrays. Durability is
the server's (`synchronous_commit`). The server limits the size: the collector bounds what each agent stores.
"""

from collections.abc import Collection, Sequence
from typing import Any

from hyperscout_runtime.clock import Clock

from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.store import (
    MAX_GENERATION,
    Changes,
    Loaded,
    StoredFinding,
    agent_in,
    page_of,
    row_in,
    shift_since,
)
from hyperscout_collector.store.postgresql import PostgresqlConnection, PostgresqlDatabase

_COLUMNS = "node, probe, subject, rank, observed_ns, offset_ns, received_ns, sha256, finding"
# Binary parameters (%b): text takes four times as long. No temporary table: it would need a right of its own,
# and while it exists, the server cannot forget old transactions (datfrozenxid).
_MERGE = f"""
INSERT INTO findings ({_COLUMNS})
SELECT * FROM unnest(%b::text[], %b::text[], %b::text[], %b::int4[], %b::int8[], %b::int8[], %b::int8[],
  %b::bytea[], %b::bytea[])
ON CONFLICT (node, probe, subject, rank) DO UPDATE SET
  observed_ns = excluded.observed_ns, offset_ns = excluded.offset_ns, received_ns = excluded.received_ns,
  sha256 = excluded.sha256, finding = excluded.finding
"""  # noqa: S608
_RENEW = """
UPDATE findings AS f SET observed_ns = n.observed_ns, offset_ns = n.offset_ns, received_ns = n.received_ns
FROM unnest(?::text[], ?::text[], ?::text[], ?::int4[], ?::int8[], ?::int8[], ?::int8[])
  AS n (node, probe, subject, rank, observed_ns, offset_ns, received_ns)
WHERE (f.node, f.probe, f.subject, f.rank) = (n.node, n.probe, n.subject, n.rank)
"""
_DELETE = """
DELETE FROM findings AS f
USING unnest(?::text[], ?::text[], ?::text[], ?::int4[]) AS d (node, probe, subject, rank)
WHERE (f.node, f.probe, f.subject, f.rank) = (d.node, d.probe, d.subject, d.rank)
"""
_UNNAMED = "NOT EXISTS (SELECT 1 FROM findings WHERE findings.sha256 = bulks.sha256)"
_FETCH = 2000  # rows of a message of the server while everything is loaded


class PostgresqlStore:
    """An `EvidenceStore`. `database` writes, `reader` reads from any thread; their owner closes them."""

    def __init__(
        self, database: PostgresqlDatabase, reader: PostgresqlDatabase, clock: Clock | None = None
    ) -> None:
        self._database = database
        self._reader = reader
        self._clock = clock or Clock()

    # Reading

    def load(self) -> Loaded:
        """Returns everything but the texts. Rows that cannot be read are deleted, counted and reported."""
        shift_ns = self._shifted()
        rows: list[Row] = []
        bad: list[tuple[Key, int]] = []
        with self._reader.reading() as db:
            texts = dict(db.execute("SELECT sha256, octet_length(compressed) FROM bulks").fetchall())
            named = {None, *texts}
            with db.raw.cursor("findings", binary=True) as cursor:
                cursor.itersize = _FETCH
                for node, probe, subject, *numbers, sha256, encoded in cursor.execute(
                    f"SELECT {_COLUMNS} FROM findings".encode()  # noqa: S608
                ):
                    key = Key(node, probe, subject)
                    row = row_in(key, tuple(numbers), sha256, encoded)
                    if row is not None and row.sha256 in named:
                        rows.append(row)
                    else:
                        bad.append((key, numbers[0]))
            found = db.execute("SELECT node, instance, version FROM agents").fetchall()
            agents = [agent for values in found if (agent := agent_in(*values)) is not None]
            topology = db.execute("SELECT encoded FROM topology").fetchone()
            reserved = db.execute("SELECT generation FROM reserved").fetchone()
            lacks_evidence = db.execute("SELECT 1 FROM lacks_evidence").fetchone() is not None
        if bad:
            with self._database.transaction() as writing:
                _delete(writing, bad)
            self._database.dropped(len(bad))
        problems = [self._database.problem] if self._database.problem else []
        return Loaded(
            rows,
            agents,
            topology[0] if topology else None,
            tuple(problems),
            shift_ns,
            texts,
            min(reserved[0], MAX_GENERATION) if reserved else 0,
            lacks_evidence,
        )

    def _shifted(self) -> int:
        """Move all times to the time of this process. Returns by how much, in ns."""
        with self._database.transaction() as db:
            found = db.execute("SELECT now_ns, wall_ns FROM written").fetchone()
            shift_ns = shift_since(self._clock, *found) if found else 0
            if shift_ns:
                db.execute("SET LOCAL statement_timeout = 0")  # it writes all rows anew
                db.execute(
                    "UPDATE findings SET offset_ns = offset_ns - ?, received_ns = received_ns + ?",
                    (shift_ns, shift_ns),
                )
                self._stamp(db)
        return shift_ns

    def page(
        self, node: str, probe: str, after: tuple[Key, int] | None, limit: int
    ) -> Sequence[StoredFinding]:
        with self._reader.reading() as db:
            return page_of(db, node, probe, after, limit)

    def bulk(self, sha256: bytes) -> bytes | None:
        with self._reader.reading() as db:
            row = db.execute("SELECT compressed FROM bulks WHERE sha256 = ?", (sha256,)).fetchone()
        return row[0] if row else None

    # Writing

    def apply(self, changes: Changes) -> None:
        upserts = {(row.key, row.rank): (row, encoded) for row, encoded in changes.upserts}
        with self._database.transaction() as db:
            db.executemany(
                "INSERT INTO bulks VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                [(b.sha256, b.size_bytes, b.compressed) for b in changes.bulks],
            )
            if changes.deletes:
                _delete(db, changes.deletes)
            if upserts:
                _merge(db, upserts.values())
            if changes.renewed:
                _renew(db, changes.renewed)
            db.executemany(
                "INSERT INTO agents VALUES (?, ?, ?)"
                " ON CONFLICT (node) DO UPDATE SET instance = excluded.instance, version = excluded.version",
                [(a.node, str(a.instance), a.version) for a in changes.agents],
            )
            if changes.removed_agents:
                db.execute("DELETE FROM agents WHERE node = ANY(?)", (list(changes.removed_agents),))
            if changes.maybe_unnamed_bulks:
                db.execute(
                    f"DELETE FROM bulks WHERE sha256 = ANY(?) AND {_UNNAMED}",  # noqa: S608
                    (list(changes.maybe_unnamed_bulks),),
                )
            self._stamp(db)

    def save_topology(self, topology: bytes, reserved: int = 0, *, lacks_evidence: bool = False) -> None:
        with self._database.transaction() as db:
            db.execute(
                "INSERT INTO topology VALUES (1, ?)"
                " ON CONFLICT (id) DO UPDATE SET encoded = excluded.encoded",
                (topology,),
            )
            db.execute("DELETE FROM lacks_evidence")
            if lacks_evidence:
                db.execute("INSERT INTO lacks_evidence VALUES (1)")
            self._reserve(db, reserved)

    def reserve(self, generation: int) -> None:
        with self._database.transaction() as db:
            self._reserve(db, generation)

    def _reserve(self, db: PostgresqlConnection, generation: int) -> None:
        db.execute(
            "INSERT INTO reserved VALUES (1, ?)"
            " ON CONFLICT (id) DO UPDATE SET generation = excluded.generation",
            (generation,),
        )
        self._stamp(db)

    def _stamp(self, db: PostgresqlConnection) -> None:
        db.execute(
            "INSERT INTO written VALUES (1, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET now_ns = excluded.now_ns, wall_ns = excluded.wall_ns",
            (self._clock.now_ns(), self._clock.wall_ns()),
        )

    def close(self) -> None:
        """Close both connections. Never raises; may be called twice."""
        self._reader.close()
        self._database.close()


def _merge(db: PostgresqlConnection, upserts: Collection[tuple[Row, bytes]]) -> None:
    rows = [row for row, _ in upserts]
    encoded = [finding for _, finding in upserts]
    db.raw.execute(_MERGE.encode(), [*_columns(rows), [row.sha256 for row in rows], encoded])


def _renew(db: PostgresqlConnection, rows: Sequence[Row]) -> None:
    db.execute(_RENEW, _columns(rows))


def _columns(rows: Sequence[Row]) -> list[list[Any]]:
    return [
        *_key_columns([(row.key, row.rank) for row in rows]),
        [row.observed_ns for row in rows],
        [row.offset_ns for row in rows],
        [row.received_ns for row in rows],
    ]


def _delete(db: PostgresqlConnection, keys: Sequence[tuple[Key, int]]) -> None:
    db.execute(_DELETE, _key_columns(keys))


def _key_columns(keys: Sequence[tuple[Key, int]]) -> list[list[Any]]:
    return [
        [key.node for key, _ in keys],
        [key.probe for key, _ in keys],
        [key.subject for key, _ in keys],
        [rank for _, rank in keys],
    ]
