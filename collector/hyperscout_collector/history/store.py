"""The history: the topology of each generation, its events, and an index of the names in them.

    pictures   one row per generation; the first of a span is whole, the others are steps
    events     what each generation changed, with the number of flips
    mentions   which events mention a name

The tables are in a SQLite file (`file.py`) or in PostgreSQL (`postgresql.py`). They are bounded by age and
size: whole spans are deleted, the oldest first. The last span stays, because it contains what is published
now. One thread writes; readers use their own connection (`reader.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hyperscout_runtime.units import NS
from hyperscout_topology.diff import Diff
from hyperscout_topology.events import KINDS, Event, bounded, events, first_published, published
from hyperscout_topology.frames import FrameError, decoded, dictionary_of, encoded_step, encoded_whole
from hyperscout_topology.proto import event_to_proto
from hyperscout_topology.topology import Endpoint, Topology, say

from hyperscout_collector.history.causes import Cause, cause_to_proto
from hyperscout_collector.store.sql import SqlConnection, SqlDatabase

_MAX_STEPS = 1000  # steps in a span: a reader decodes at most this many
_SPAN_NS = 86_400 * NS  # old data is deleted in steps of a day
_SPAN_SHARE = 8  # a span uses at most this part of the file: only whole spans can be deleted
_FILL = 0.9  # of the file; the rest is for the next writes
_NAMES = 500  # in a statement
MENTION_BYTES = 32  # in the file: a row of `mentions` takes 13, one with a new name about 45


@dataclass(slots=True)
class HistorySize:
    """The size of the history, updated by its writer. `oldest_ns`: Unix ns, 0 = nothing is recorded."""

    bytes: int = 0  # on disk
    generations: int = 0
    events: int = 0
    oldest_ns: int = 0
    write_failures_total: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """A generation, encoded for the file. `need_bytes`: the space that it takes, at most."""

    at_ns: int
    topology: Topology
    cause: Cause
    is_whole: bool
    frame: bytes
    changes: Sequence[Event]
    names: Sequence[set[str]]  # that each change mentions
    bodies: Sequence[bytes]  # the encoded changes
    need_bytes: int


class HistoryStore(Protocol):
    """Durable storage of the history. Every method blocks and may raise StoreError.

    `newest`: the last record. `problem`: what an operator should know about the stored data; "" = nothing.
    """

    newest: Topology | None

    @property
    def problem(self) -> str: ...

    def encode(self, at_ns: int, new: Topology, cause: Cause, missed: int = 0) -> Record:
        """Encode a generation that comes after `newest`. `missed`: number of generations before it that were
        not recorded.

        It takes seconds of CPU time for a large topology, and does not use the file.
        """

    def delete_oldest(self, now_ns: int, need_bytes: int) -> bool:
        """Delete the oldest day if it is too old, or `need_bytes` do not fit. Returns False if it stays."""

    def add(self, record: Record) -> None:
        """Write a record in one transaction."""

    def check(self) -> None:
        """Check the stored data, if opening it did not. It takes seconds for a large history."""

    def close(self) -> None: ...


class HistoryTables(ABC):
    """A `HistoryStore` in the tables of `database`. It keeps `size` up to date.

    A subclass knows its kind of database, and calls `_begin` in its constructor, which blocks and raises
    StoreError.
    """

    def __init__(self, database: SqlDatabase, size: HistorySize, *, max_bytes: int, max_age_ns: int) -> None:
        self._database = database
        self._undecoded = ""
        self._size = size
        self._max_bytes = max_bytes
        self._max_age_ns = max_age_ns
        self.newest: Topology | None = None  # the last record
        self._dictionary = b""
        self._whole_bytes = self._step_bytes = self._span_bytes = self._steps = 0
        self._span = self._span_ns = self._last_ns = 0

    @property
    def problem(self) -> str:
        return "; ".join(filter(None, (self._database.problem, self._undecoded)))

    @abstractmethod
    def check(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _disk_bytes(self, db: SqlConnection) -> int:
        """Returns the size of the tables on disk."""

    @abstractmethod
    def _used_bytes(self, db: SqlConnection) -> int:
        """Returns the size of what they contain: of that, deletion frees space for new rows."""

    # Opening

    def _begin(self, now_ns: int) -> None:
        with self._database.transaction() as db:  # the clock was ahead: no generation is from the future
            db.execute("UPDATE pictures SET at_ns = ? WHERE at_ns > ?", (now_ns, now_ns))
        while self.delete_oldest(now_ns, 0):
            pass
        self._resume()

    def _resume(self) -> None:
        """Continue the last span, or start a new one if it cannot be read."""
        self.newest, self._span = None, 0
        with self._database.transaction() as db:
            self._measure(db)
            row = db.execute("SELECT span, at_ns FROM pictures ORDER BY id DESC LIMIT 1").fetchone()
            if row is None:
                return
            self._span, self._last_ns = row
            rows = db.execute(
                "SELECT at_ns, frame FROM pictures WHERE span = ? ORDER BY id", (self._span,)
            ).fetchall()
        (self._span_ns, whole), steps = rows[0], [frame for _, frame in rows[1:]]
        try:
            self.newest = decoded(whole, steps)
            self._dictionary = dictionary_of(whole)
        except FrameError as error:
            self._span = 0
            self._undecoded = f"the history continues with a new whole topology: {error}"
        self._whole_bytes, self._steps = len(whole), len(steps)
        self._step_bytes = sum(map(len, steps))

    # Writing

    def encode(self, at_ns: int, new: Topology, cause: Cause, missed: int = 0) -> Record:
        at_ns = max(at_ns, self._last_ns)
        diff = Diff(self.newest, new) if self.newest is not None else None
        changes = _recorded(diff, new, missed)
        names = [names_of(event) for event in changes]
        cause = cause.about({name for some in names for name in some})
        bodies = [event_to_proto(event).SerializeToString() for event in changes]
        step = encoded_step(diff, self._dictionary) if diff is not None and self._goes_on(at_ns) else None
        is_whole = step is None or self._step_bytes + len(step) > self._whole_bytes
        frame = encoded_whole(new) if is_whole or step is None else step
        need = len(frame) + 2 * sum(map(len, bodies)) + MENTION_BYTES * sum(map(len, names))
        return Record(at_ns, new, cause, is_whole, frame, changes, names, bodies, need)

    def add(self, record: Record) -> None:
        with self._database.transaction() as db:
            picture = self._insert(db, record)
            self._measure(db)
        if record.is_whole:
            self._span, self._span_ns, self._whole_bytes = picture, record.at_ns, len(record.frame)
            self._dictionary = dictionary_of(record.frame)
            self._step_bytes = self._steps = self._span_bytes = 0
        else:
            self._steps += 1
            self._step_bytes += len(record.frame)
        self._span_bytes += record.need_bytes
        self.newest, self._last_ns = record.topology, record.at_ns

    def _goes_on(self, at_ns: int) -> bool:
        """Whether the next topology may be a step in the current span."""
        return (
            self._span > 0
            and self._steps < _MAX_STEPS
            and at_ns - self._span_ns < _SPAN_NS
            and self._span_bytes < self._max_bytes // _SPAN_SHARE
        )

    def _insert(self, db: SqlConnection, record: Record) -> int:
        names = record.names
        picture = 1 + (db.execute("SELECT MAX(id) FROM pictures").fetchone()[0] or 0)
        event = 1 + (db.execute("SELECT MAX(id) FROM events").fetchone()[0] or 0)
        span = picture if record.is_whole else self._span
        cause = cause_to_proto(record.cause).SerializeToString()
        row = (picture, record.at_ns, record.topology.generation, span, event, cause, record.frame)
        db.execute("INSERT INTO pictures VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        ids = _ids(
            db, {name for some in (*names, (x.thing for x in record.changes)) for name in some if name}
        )
        db.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
            [
                (event + i, picture, KINDS.index(x.kind), ids.get(x.thing, 0), int(x.is_flip), body)
                for i, (x, body) in enumerate(zip(record.changes, record.bodies, strict=True))
            ],
        )
        db.executemany(
            "INSERT INTO mentions VALUES (?, ?)",
            [(ids[name], event + i) for i, some in enumerate(names) for name in sorted(some)],
        )
        return picture

    # Space

    def delete_oldest(self, now_ns: int, need_bytes: int) -> bool:
        with self._database.transaction() as db:
            row = db.execute(
                "SELECT id, at_ns, first_event FROM pictures WHERE id ="
                " (SELECT MIN(span) FROM pictures WHERE span > (SELECT MIN(span) FROM pictures))"
            ).fetchone()
            if row is None:
                return False
            picture, at_ns, event = row
            used = self._used_bytes(db) + need_bytes
            if at_ns >= now_ns - self._max_age_ns and used <= self._max_bytes * _FILL:
                return False
            self._delete(db, picture, event)
        return True

    def _delete(self, db: SqlConnection, picture: int, event: int) -> None:
        """Delete the pictures and events before these."""
        db.execute("DELETE FROM pictures WHERE id < ?", (picture,))
        db.execute("DELETE FROM events WHERE id < ?", (event,))
        db.execute("DELETE FROM mentions WHERE event < ?", (event,))
        db.execute(
            "DELETE FROM names WHERE NOT EXISTS (SELECT 1 FROM mentions WHERE name = names.id)"
            " AND NOT EXISTS (SELECT 1 FROM events WHERE thing = names.id)"
        )

    def _measure(self, db: SqlConnection) -> None:
        self._size.bytes = self._disk_bytes(db)
        first = db.execute("SELECT id, at_ns FROM pictures ORDER BY id LIMIT 1").fetchone()
        (last,) = db.execute("SELECT MAX(id) FROM pictures").fetchone()
        self._size.generations = last - first[0] + 1 if first else 0
        self._size.oldest_ns = first[1] if first else 0
        # Two queries of one row each: SQLite reads a whole index for both in one.
        low, high = db.execute("SELECT (SELECT MIN(id) FROM events), (SELECT MAX(id) FROM events)").fetchone()
        self._size.events = high - low + 1 if low is not None else 0


def _ids(db: SqlConnection, names: Iterable[str]) -> dict[str, int]:
    """Returns the id of each name; new names get one."""
    ordered, found = sorted(names), dict[str, int]()
    db.executemany(
        "INSERT INTO names (name) VALUES (?) ON CONFLICT (name) DO NOTHING", [(name,) for name in ordered]
    )
    for start in range(0, len(ordered), _NAMES):
        some = ordered[start : start + _NAMES]
        marks = ", ".join("?" * len(some))
        found.update(db.execute(f"SELECT name, id FROM names WHERE name IN ({marks})", some).fetchall())  # noqa: S608
    return found


def _recorded(diff: Diff | None, new: Topology, missed: int) -> list[Event]:
    """Returns the events of a generation. `diff`: None = it is the first."""
    if diff is None:
        return [first_published(new, missed)]
    changes = bounded(events(diff))
    head = published(diff, changes, missed)
    return [*changes, head] if head is not None else []


def names_of(event: Event) -> set[str]:
    """Returns the names that match an event: nodes, HyperNodes, devices (id and name), ends of links."""
    found = {event.hypernode, event.node, *event.nodes}
    found.update((event.before, event.after) if "Node" in event.kind else ())
    for end in (event.subject, event.peer):
        if end is not None:
            names = say(end), *(say(Endpoint(end.device, name, end.port)) for name in (end.device, end.name))
            found |= {end.device, end.name, *names}
    return found - {""}
