"""Stores evidence in PostgreSQL, from which another replica takes over.

A batch is one transaction: one statement merges its findings, which it gets as binary arrays. Durability is
the server's (`synchronous_commit`). The server limits the size: the collector bounds what each agent stores.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperscout_formats.text.reporters import DEVICE_PROBE
from hyperscout_runtime.clock import Clock

from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import AgentRow
from hyperscout_collector.evidence.store import (
    MAX_GENERATION,
    Changes,
    EvidenceReader,
    Loaded,
    agent_in,
    row_in,
    shift_since,
)
from hyperscout_collector.store.postgresql import PostgresqlConnection, PostgresqlDatabase
from hyperscout_collector.store.replicas import (
    LEADER,
    Owner,
    begin_batch,
    forget_old_deletions,
    is_too_far_behind,
    notify,
)

_COLUMNS = "node, probe, subject, rank, observed_ns, offset_ns, received_ns, sha256, finding"
# Binary parameters (%b): text takes four times as long. No temporary table: it would need a right of its own,
# and while it exists, the server cannot forget old transactions (datfrozenxid).
_MERGE = f"""
INSERT INTO findings ({_COLUMNS}, sequence, content)
SELECT *, %b::int8, %b::int8
FROM unnest(%b::text[], %b::text[], %b::text[], %b::int4[], %b::int8[], %b::int8[], %b::int8[],
  %b::bytea[], %b::bytea[])
ON CONFLICT (node, probe, subject, rank) DO UPDATE SET
  observed_ns = excluded.observed_ns, offset_ns = excluded.offset_ns, received_ns = excluded.received_ns,
  sha256 = excluded.sha256, finding = excluded.finding,
  sequence = excluded.sequence, content = excluded.content
"""  # noqa: S608
_RENEW = """
UPDATE findings AS f SET observed_ns = n.observed_ns, offset_ns = n.offset_ns, received_ns = n.received_ns,
  sequence = ?
FROM unnest(?::text[], ?::text[], ?::text[], ?::int4[], ?::int8[], ?::int8[], ?::int8[])
  AS n (node, probe, subject, rank, observed_ns, offset_ns, received_ns)
WHERE (f.node, f.probe, f.subject, f.rank) = (n.node, n.probe, n.subject, n.rank)
"""
_DELETE = """
DELETE FROM findings AS f
USING unnest(?::text[], ?::text[], ?::text[], ?::int4[]) AS d (node, probe, subject, rank)
WHERE (f.node, f.probe, f.subject, f.rank) = (d.node, d.probe, d.subject, d.rank) AND f.sequence <= ?
"""
_DELETE_READ = """
DELETE FROM findings AS f
USING unnest(?::text[], ?::text[], ?::text[], ?::int4[], ?::bytea[])
  AS d (node, probe, subject, rank, finding)
WHERE (f.node, f.probe, f.subject, f.rank, f.finding) = (d.node, d.probe, d.subject, d.rank, d.finding)
"""  # not what a standby wrote since
_TRACE = """
INSERT INTO deletions SELECT *, ? FROM unnest(?::text[], ?::text[], ?::text[], ?::int4[])
ON CONFLICT (node, probe, subject, rank) DO UPDATE SET sequence = excluded.sequence
"""
_NEWS = f"""
SELECT {_COLUMNS.removesuffix("finding")} CASE WHEN content > ? THEN finding END
FROM findings WHERE sequence > ?
"""  # noqa: S608
_UNNAMED = "NOT EXISTS (SELECT 1 FROM findings WHERE findings.sha256 = bulks.sha256)"
_ALL = 2**63 - 1  # numbers of batches
_FETCH = 2000  # rows of a message of the server while everything is loaded


@dataclass(frozen=True, slots=True)
class EvidenceNews:
    """What standbys changed after a number, with times as stored. `number`: to ask from next time.

    `renewed`: key, rank, and observed_ns, offset_ns, received_ns of rows with new times alone. `present`: all
    keys with their ranks, where deletions may be missing in `deleted`; otherwise None. `text_bytes`: as in
    `Loaded`, of the texts of `rows`.
    """

    number: int
    rows: Sequence[Row]
    renewed: Sequence[tuple[Key, int, tuple[int, int, int]]]
    deleted: Sequence[tuple[Key, int]]
    present: frozenset[tuple[Key, int]] | None
    agents: Sequence[AgentRow]
    text_bytes: Mapping[bytes, int]


class PostgresqlStore(EvidenceReader[PostgresqlDatabase]):
    """An `EvidenceStore`. `database` writes, `reader` reads from any thread; their owner closes them.

    `owner`: which replica writes, where several take streams; None = only this collector does. `apply` then
    raises NotOwnerError for findings of a node whose stream another replica has.

    Stored times are by the leader's clock. A standby moves its own to them by what `shift_since` returns.
    """

    def __init__(
        self,
        database: PostgresqlDatabase,
        reader: PostgresqlDatabase,
        clock: Clock | None = None,
        owner: Owner | None = None,
    ) -> None:
        self._database = database
        super().__init__(reader)
        self._clock = clock or Clock()
        self._owner = owner
        # The leader deletes nothing that a standby wrote later, and that it will read.
        self._read_to = 0 if owner is not None and owner.leads else _ALL

    # Reading

    def load(self) -> Loaded:
        """Returns everything but the texts. Rows that cannot be read are deleted, counted and reported."""
        shift_ns = self._shifted()
        rows: list[Row] = []
        bad: list[tuple[Key, int, bytes]] = []
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
                        bad.append((key, numbers[0], encoded))
            found = db.execute("SELECT node, instance, version FROM agents").fetchall()
            agents = [agent for values in found if (agent := agent_in(*values)) is not None]
            topology = db.execute("SELECT encoded FROM topology").fetchone()
            reserved = db.execute("SELECT generation FROM reserved").fetchone()
            lacks_evidence = db.execute("SELECT 1 FROM lacks_evidence").fetchone() is not None
            ((number,),) = db.execute("SELECT number FROM sequence").fetchall()
        self._note_read(number)
        if bad:
            with self._batch() as writing:
                found = _key_columns([(key, rank) for key, rank, _ in bad])
                writing.execute(_DELETE_READ, (*found, [encoded for *_, encoded in bad]))
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
            number,
        )

    def load_nodes(self, nodes: Sequence[str]) -> Loaded:
        """Returns the findings of nodes with times of this process; at a standby without those of devices."""
        others = "" if self._owner is None or self._owner.leads else DEVICE_PROBE
        with self._reader.reading() as db:
            shift_ns = self._shift_ns(db)
            stored = db.execute(
                f"SELECT {_COLUMNS} FROM findings WHERE node = ANY(?) AND probe <> ?",  # noqa: S608
                (list(nodes), others),
            ).fetchall()
            agents = db.execute(
                "SELECT node, instance, version FROM agents WHERE node = ANY(?)", (list(nodes),)
            ).fetchall()
            texts = _text_bytes(db, [row[-2] for row in stored])
        rows = (row_in(Key(*x[:3]), tuple(x[3:7]), x[7], x[8]) for x in stored)
        found = [
            row.renewed(row.observed_ns, row.offset_ns - shift_ns, row.received_ns + shift_ns)
            for row in rows
            if row is not None and (row.sha256 is None or row.sha256 in texts)
        ]
        return Loaded(found, [x for x in (agent_in(*y) for y in agents) if x is not None], text_bytes=texts)

    def news(self, since: int) -> EvidenceNews:
        """Returns what standbys changed after the number `since`. Rows that cannot be read are left out."""
        rows, renewed, present = [], [], None
        with self._reader.reading() as db:
            ((number,),) = db.execute("SELECT number FROM sequence").fetchall()
            stored = db.execute(_NEWS, (since, since)).fetchall() if number > since else []
            trace = "SELECT node, probe, subject, rank FROM deletions WHERE sequence > ?"
            deleted = db.execute(trace, (since,)).fetchall()
            if is_too_far_behind(since, number):
                keys = db.execute("SELECT node, probe, subject, rank FROM findings").fetchall()
                present = frozenset((Key(*key), rank) for *key, rank in keys)
            agents = db.execute(
                "SELECT node, instance, version FROM agents WHERE sequence > ?", (since,)
            ).fetchall()
            texts = _text_bytes(db, [row[-2] for row in stored])
        self._note_read(number)
        for *names, rank, observed_ns, offset_ns, received_ns, sha256, encoded in stored:
            key, times = Key(*names), (observed_ns, offset_ns, received_ns)
            if encoded is None:
                renewed.append((key, rank, times))
            elif (row := row_in(key, (rank, *times), sha256, encoded)) is not None:
                rows.append(row)
        return EvidenceNews(
            number,
            rows,
            renewed,
            [(Key(*key), rank) for *key, rank in deleted],
            present,
            [x for x in (agent_in(*y) for y in agents) if x is not None],
            texts,
        )

    def _note_read(self, number: int) -> None:
        if self._owner is not None and self._owner.leads:
            self._read_to = number

    def _shift_ns(self, db: PostgresqlConnection) -> int:
        """By how much to move stored times to the time of this process, where another one leads."""
        found = db.execute("SELECT now_ns, wall_ns FROM written").fetchone()
        return shift_since(self._clock, *found) if found else 0

    def _shifted(self) -> int:
        """Move all times to the time of this process. Returns by how much, in ns."""
        with self._batch() as db:
            if shift_ns := self._shift_ns(db):
                db.execute("SET LOCAL statement_timeout = 0")  # it writes all rows anew
                db.execute(
                    "UPDATE findings SET offset_ns = offset_ns - ?, received_ns = received_ns + ?",
                    (shift_ns, shift_ns),
                )
                self._stamp(db)
        return shift_ns

    # Writing

    @contextlib.contextmanager
    def _batch(self) -> Iterator[PostgresqlConnection]:
        """A transaction in which no other replica writes evidence."""
        with self._database.transaction() as db:
            if self._owner is not None:
                begin_batch(db, self._owner)
            yield db

    def apply(self, changes: Changes) -> None:
        upserts = {(row.key, row.rank): (row, encoded) for row, encoded in changes.upserts}
        is_standby = self._owner is not None and not self._owner.leads
        number = 0  # of rows that the leader writes
        with self._database.transaction() as db:
            if self._owner is not None:
                begun = begin_batch(db, self._owner, _nodes(changes))
                number = begun if is_standby else 0
            shift_ns = self._shift_ns(db) if is_standby else 0
            db.executemany(
                "INSERT INTO bulks VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                [(b.sha256, b.size_bytes, b.compressed) for b in changes.bulks],
            )
            if changes.deletes:
                db.execute(_DELETE, (*_key_columns(changes.deletes), self._read_to))
            if upserts:
                _merge(db, upserts.values(), number, shift_ns)
            if changes.renewed:
                _renew(db, changes.renewed, number, shift_ns)
            db.executemany(
                "INSERT INTO agents VALUES (?, ?, ?, ?) ON CONFLICT (node) DO UPDATE SET"
                " instance = excluded.instance, version = excluded.version, sequence = excluded.sequence",
                [(a.node, str(a.instance), a.version, number) for a in changes.agents],
            )
            if changes.removed_agents:
                db.execute("DELETE FROM agents WHERE node = ANY(?)", (list(changes.removed_agents),))
            if changes.maybe_unnamed_bulks:
                db.execute(
                    f"DELETE FROM bulks WHERE sha256 = ANY(?) AND {_UNNAMED}",  # noqa: S608
                    (list(changes.maybe_unnamed_bulks),),
                )
            if not is_standby:
                self._stamp(db)
                return
            if changes.deletes:
                db.execute(_TRACE, (number, *_key_columns(changes.deletes)))
                forget_old_deletions(db, number)
            notify(db, LEADER)

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


def _nodes(changes: Changes) -> list[str]:
    """The nodes whose stream these changes come from. A device in a node reports to the leader."""
    keys = {row.key for row, _ in changes.upserts} | {row.key for row in changes.renewed}
    keys |= {key for key, _ in changes.deletes}
    nodes = {key.node for key in keys if key.probe != DEVICE_PROBE}
    return sorted(nodes | {agent.node for agent in changes.agents} | set(changes.removed_agents))


def _text_bytes(db: PostgresqlConnection, digests: Iterable[bytes | None]) -> dict[bytes, int]:
    if not (named := [digest for digest in digests if digest]):
        return {}
    sizes = "SELECT sha256, octet_length(compressed) FROM bulks WHERE sha256 = ANY(?)"
    return dict(db.execute(sizes, (named,)).fetchall())


def _merge(
    db: PostgresqlConnection, upserts: Collection[tuple[Row, bytes]], number: int, shift_ns: int
) -> None:
    """`shift_ns`: how far the times of the rows are ahead of the stored ones."""
    rows = [row for row, _ in upserts]
    encoded = [finding for _, finding in upserts]
    digests = [row.sha256 for row in rows]
    values = [number, number, *_columns(rows, shift_ns), digests, encoded]
    db.raw.execute(_MERGE.encode(), values)


def _renew(db: PostgresqlConnection, rows: Sequence[Row], number: int, shift_ns: int) -> None:
    db.execute(_RENEW, (number, *_columns(rows, shift_ns)))


def _columns(rows: Sequence[Row], shift_ns: int) -> list[list[Any]]:
    return [
        *_key_columns([(row.key, row.rank) for row in rows]),
        [row.observed_ns for row in rows],
        [row.offset_ns + shift_ns for row in rows],
        [row.received_ns - shift_ns for row in rows],
    ]


def _key_columns(keys: Sequence[tuple[Key, int]]) -> list[list[Any]]:
    return [
        [key.node for key, _ in keys],
        [key.probe for key, _ in keys],
        [key.subject for key, _ in keys],
        [rank for _, rank in keys],
    ]
