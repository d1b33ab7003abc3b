"""The history file: the topology of each generation, its events, and an index of the names in them.

    pictures   one row per generation; the first of a span is whole, the others are steps
    events     what each generation changed, with the number of flips
    mentions   which events mention a name

The file is bounded by age and size: whole spans are deleted, the oldest first. The last span stays, because
it contains what is published now. One thread writes; readers use their own connection (`reader.py`).
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from hyperscout_topology.events import KINDS, Event, bounded, events, published
from hyperscout_topology.topology import Endpoint, Topology, say

from hyperscout_collector.history.causes import Cause
from hyperscout_collector.history.event_proto import cause_to_proto, event_to_proto
from hyperscout_collector.history.frames import FrameError, packed_step, packed_whole, unpacked, words
from hyperscout_collector.history.size import HistorySize
from hyperscout_collector.store import database

NS = 1_000_000_000
_SCHEMA = """
CREATE TABLE pictures (
  id INTEGER PRIMARY KEY,        -- grows with time, one by one
  at_ns INTEGER NOT NULL,        -- never less than the one before; Unix ns
  generation INTEGER NOT NULL,
  span INTEGER NOT NULL,         -- id of the whole picture that it is told from
  first_event INTEGER NOT NULL,  -- id of its first event, or of the next one's
  cause BLOB NOT NULL,           -- hyperscout.v1.Cause
  frame BLOB NOT NULL            -- see frames.py
);
CREATE INDEX pictures_at ON pictures (at_ns);
CREATE INDEX pictures_span ON pictures (span);
CREATE TABLE events (
  id INTEGER PRIMARY KEY,        -- grows with time, one by one
  picture INTEGER NOT NULL,
  kind INTEGER NOT NULL,         -- index into KINDS
  thing INTEGER NOT NULL,        -- what changed, an id of `names`; 0 = not one thing
  flips INTEGER NOT NULL,        -- 1 = it is another now, 0 = it is only said in other words
  body BLOB NOT NULL             -- hyperscout.v1.HistoryEvent, less what its picture knows
);
CREATE INDEX events_thing ON events (thing, id, flips);
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE mentions (
  name INTEGER NOT NULL, event INTEGER NOT NULL, PRIMARY KEY (name, event)
) WITHOUT ROWID;
"""
_STEPS = 1000  # steps in a span: a reader decodes at most this many
_SPAN_NS = 86_400 * NS  # old data is deleted in steps of a day
_SPAN_SHARE = 8  # a span uses at most this part of the file: only whole spans can be deleted
_FILL = 0.9  # of the file; the rest is for the next writes
_MENTION_BYTES = 32  # in the file: a row of `mentions` takes 13, one with a new name about 45


class HistoryStore:
    """`path`: the file. Blocks, and raises the errors of `database.opened` and `locked`. `size` is kept up to
    date.

    `problem`: what an operator should know about the file; "" = nothing.
    """

    def __init__(
        self, path: Path, size: HistorySize, *, max_bytes: int, max_age_ns: int, now_ns: int
    ) -> None:
        kind = database.Kind(_SCHEMA, 1, max_bytes, "the history begins anew")
        self._lock_file = database.locked(path)
        try:
            self._db, self.problem = database.opened(path, kind, lambda: now_ns)
        except BaseException:
            os.close(self._lock_file)
            raise
        self._size = size
        self._max_bytes = max_bytes
        self._max_age_ns = max_age_ns
        self.newest: Topology | None = None  # the last record
        self._words = b""
        self._whole_bytes = self._step_bytes = self._span_bytes = self._steps = 0
        self._span = self._span_ns = self._last_ns = 0
        try:
            self._begin(now_ns)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file and release its lock. Never raises; may be called twice."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    # Opening

    def _begin(self, now_ns: int) -> None:
        db = self._db
        with database.transaction(db):  # the clock was ahead: no generation is from the future
            db.execute("UPDATE pictures SET at_ns = ? WHERE at_ns > ?", (now_ns, now_ns))
        self._make_room(now_ns, 0)
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        if pages * self._page_bytes() > self._max_bytes:  # the limit was lowered
            db.execute("VACUUM")
        row = db.execute("SELECT span, at_ns FROM pictures ORDER BY id DESC LIMIT 1").fetchone()
        if row is not None:
            self._span, self._last_ns = row
            self._resume()
        self._measure()

    def _resume(self) -> None:
        """Continue the last span, or start a new one if it cannot be read."""
        rows = self._db.execute(
            "SELECT at_ns, frame FROM pictures WHERE span = ? ORDER BY id", (self._span,)
        ).fetchall()
        (self._span_ns, whole), steps = rows[0], [frame for _, frame in rows[1:]]
        try:
            self.newest = unpacked(whole, steps)
            self._words = words(whole)
        except FrameError as error:
            self._span = 0
            self.problem = f"the history goes on with a new picture: {error}"
        self._whole_bytes, self._steps = len(whole), len(steps)
        self._step_bytes = sum(map(len, steps))

    # Writing

    def record(self, at_ns: int, new: Topology, cause: Cause, missed: int = 0) -> None:
        """Add a generation. `missed`: number of generations before it that were not recorded.

        Raises sqlite3.Error; the store is then unchanged.
        """
        at_ns = max(at_ns, self._last_ns)
        old = self.newest
        changes = bounded(events(old, new)) if old is not None else []
        if (head := published(old, new, changes, missed)) is not None:
            changes.append(head)
        else:
            changes = []
        names = [names_of(event) for event in changes]
        cause = cause.about({name for some in names for name in some})
        bodies = [event_to_proto(event).SerializeToString() for event in changes]
        step = packed_step(old, new, self._words) if old is not None and self._goes_on(at_ns) else None
        is_whole = step is None or self._step_bytes + len(step) > self._whole_bytes
        frame = packed_whole(new) if is_whole or step is None else step
        need = len(frame) + 2 * sum(map(len, bodies)) + _MENTION_BYTES * sum(map(len, names))
        self._make_room(at_ns, need)
        with database.transaction(self._db):
            picture = self._insert(at_ns, new.generation, is_whole, cause, frame, changes, names, bodies)
        if is_whole:
            self._span, self._span_ns, self._whole_bytes = picture, at_ns, len(frame)
            self._words = words(frame)
            self._step_bytes = self._steps = self._span_bytes = 0
        else:
            self._steps += 1
            self._step_bytes += len(frame)
        self._span_bytes += need
        self.newest, self._last_ns = new, at_ns
        self._measure()

    def fold(self) -> None:
        """Checkpoint the journal into the file: on a full disk this frees the only space there is.

        Never raises.
        """
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _goes_on(self, at_ns: int) -> bool:
        """Whether the next topology may be a step in the current span."""
        return (
            self._span > 0
            and self._steps < _STEPS
            and at_ns - self._span_ns < _SPAN_NS
            and self._span_bytes < self._max_bytes // _SPAN_SHARE
        )

    def _insert(
        self,
        at_ns: int,
        generation: int,
        is_whole: bool,
        cause: Cause,
        frame: bytes,
        changes: Sequence[Event],
        names: Sequence[set[str]],
        bodies: Sequence[bytes],
    ) -> int:
        db = self._db
        picture = 1 + (db.execute("SELECT MAX(id) FROM pictures").fetchone()[0] or 0)
        event = 1 + (db.execute("SELECT MAX(id) FROM events").fetchone()[0] or 0)
        span = picture if is_whole else self._span
        row = (picture, at_ns, generation, span, event, cause_to_proto(cause).SerializeToString(), frame)
        db.execute("INSERT INTO pictures VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        ids = self._ids({name for some in (*names, (x.thing for x in changes)) for name in some if name})
        db.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
            [
                (event + i, picture, KINDS.index(x.kind), ids.get(x.thing, 0), int(x.is_flip), body)
                for i, (x, body) in enumerate(zip(changes, bodies, strict=True))
            ],
        )
        db.executemany(
            "INSERT INTO mentions VALUES (?, ?)",
            [(ids[name], event + i) for i, some in enumerate(names) for name in sorted(some)],
        )
        return picture

    def _ids(self, names: Iterable[str]) -> dict[str, int]:
        db, found = self._db, {}
        for name in sorted(names):
            db.execute("INSERT OR IGNORE INTO names (name) VALUES (?)", (name,))
            (found[name],) = db.execute("SELECT id FROM names WHERE name = ?", (name,)).fetchone()
        return found

    # Space

    def _make_room(self, now_ns: int, need_bytes: int) -> None:
        """Delete the oldest spans while they are too old, or `need_bytes` do not fit."""
        db = self._db
        while True:
            row = db.execute(
                "SELECT id, at_ns, first_event FROM pictures WHERE id ="
                " (SELECT MIN(span) FROM pictures WHERE span > (SELECT MIN(span) FROM pictures))"
            ).fetchone()
            if row is None:
                return
            picture, at_ns, event = row
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            (free,) = db.execute("PRAGMA freelist_count").fetchone()
            used = (pages - free) * self._page_bytes() + need_bytes
            if at_ns >= now_ns - self._max_age_ns and used <= self._max_bytes * _FILL:
                return
            with database.transaction(db):
                db.execute("DELETE FROM pictures WHERE id < ?", (picture,))
                db.execute("DELETE FROM events WHERE id < ?", (event,))
                db.execute("DELETE FROM mentions WHERE event < ?", (event,))
                db.execute(
                    "DELETE FROM names WHERE NOT EXISTS (SELECT 1 FROM mentions WHERE name = names.id)"
                    " AND NOT EXISTS (SELECT 1 FROM events WHERE thing = names.id)"
                )

    def _page_bytes(self) -> int:
        (found,) = self._db.execute("PRAGMA page_size").fetchone()
        return int(found)

    def _measure(self) -> None:
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        self._size.bytes = pages * self._page_bytes()
        first = self._db.execute("SELECT id, at_ns FROM pictures ORDER BY id LIMIT 1").fetchone()
        (last,) = self._db.execute("SELECT MAX(id) FROM pictures").fetchone()
        self._size.generations = last - first[0] + 1 if first else 0
        self._size.oldest_ns = first[1] if first else 0
        low, high = self._db.execute(
            "SELECT (SELECT MIN(id) FROM events), (SELECT MAX(id) FROM events)"
        ).fetchone()
        self._size.events = high - low + 1 if low is not None else 0


def names_of(event: Event) -> set[str]:
    """Returns the names that match an event: nodes, HyperNodes, devices (id and name), ends of links."""
    found = {event.hypernode, event.node, *event.nodes}
    found.update((event.before, event.after) if "Node" in event.kind else ())
    for end in (event.subject, event.peer):
        if end is not None:
            found |= {end.device, end.name, say(end), say(Endpoint(end.device, end.device, end.port))}
    return found - {""}
