"""Finds and deletes damaged rows of the history when the file is opened.

A step is decoded on top of the pictures before it in its span. Without one of them the later ones would show
a topology that never was, so they are deleted with it.
"""

import sqlite3

from google.protobuf.message import DecodeError
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_topology.events import KINDS

_MAX_ID = 1 << 53  # ids grow by one: a larger one is damaged, and 64 bits would overflow after it
_BAD_PICTURE = f"""
    id < 1 OR id > {_MAX_ID} OR typeof(at_ns) <> 'integer' OR at_ns < 0
    OR typeof(generation) <> 'integer' OR generation < 0
    OR typeof(span) <> 'integer' OR span < 1 OR span > id
    OR typeof(first_event) <> 'integer' OR first_event NOT BETWEEN 1 AND {_MAX_ID}
    OR typeof(cause) <> 'blob' OR typeof(frame) <> 'blob'
"""
_BAD_EVENT = f"""
    id < 1 OR id > {_MAX_ID} OR typeof(picture) <> 'integer'
    OR typeof(kind) <> 'integer' OR kind < 0 OR kind >= {len(KINDS)}
    OR typeof(thing) <> 'integer' OR typeof(flips) <> 'integer' OR flips NOT IN (0, 1)
    OR typeof(body) <> 'blob'
"""


def drop_damaged(db: sqlite3.Connection) -> int:
    """Delete rows that cannot be read. Returns their number. Call it in a transaction."""
    bad = {row[0] for row in db.execute(f"SELECT id FROM pictures WHERE {_BAD_PICTURE}")}  # noqa: S608
    bad |= _out_of_place(db)
    found = sum(_drop_pictures(db, picture) for picture in sorted(bad))
    for table, is_bad in (
        ("events", _BAD_EVENT),
        ("names", "typeof(name) <> 'text'"),
        ("mentions", "typeof(name) <> 'integer' OR typeof(event) <> 'integer'"),
    ):
        found += db.execute(f"DELETE FROM {table} WHERE {is_bad}").rowcount  # noqa: S608
    if found:  # the ids are used again
        db.execute("DELETE FROM events WHERE picture NOT IN (SELECT id FROM pictures)")
        db.execute("DELETE FROM mentions WHERE event NOT IN (SELECT id FROM events)")
    return found


def event_of(body: bytes) -> pb.HistoryEvent | None:
    """Returns a stored event; None = it is damaged."""
    try:
        return pb.HistoryEvent.FromString(body)
    except DecodeError:
        return None


def cause_of(encoded: bytes) -> pb.Cause:
    """Returns a stored cause, empty if it is damaged."""
    try:
        return pb.Cause.FromString(encoded)
    except DecodeError:
        return pb.Cause()


def _out_of_place(db: sqlite3.Connection) -> set[int]:
    """Returns pictures whose span or time does not fit between their neighbours."""
    bad = set()
    rows = db.execute(
        f"SELECT id, span, at_ns FROM pictures WHERE NOT ({_BAD_PICTURE}) ORDER BY id"  # noqa: S608
    ).fetchall()
    times = [None, None, *(at_ns for _, _, at_ns in rows), None, None]
    before, before_span = 0, 0
    for i, (ident, span, at_ns) in enumerate(rows):
        before2_ns, before_ns, _, after_ns, after2_ns = times[i : i + 5]
        if span != ident and (before != ident - 1 or span != before_span):
            bad.add(ident)
        # Of two neighbours in the wrong order a third one tells which is wrong.
        elif before_ns is not None and at_ns < before_ns:
            third_ns = after_ns if after_ns is not None else before2_ns
            if third_ns is None or (before_ns <= third_ns if after_ns is not None else at_ns < third_ns):
                bad.add(ident)
        elif after_ns is not None and at_ns > after_ns:
            third_ns = before_ns if before_ns is not None else after2_ns
            if third_ns is None or (third_ns <= after_ns if before_ns is not None else at_ns > third_ns):
                bad.add(ident)
        before, before_span = ident, span
    return bad


def _drop_pictures(db: sqlite3.Connection, first: int) -> int:
    """Delete a picture and the steps after it, up to the next whole picture."""
    (end,) = db.execute("SELECT MIN(id) FROM pictures WHERE id > ? AND span = id", (first,)).fetchone()
    until = end if end is not None else 1 << 62
    return db.execute("DELETE FROM pictures WHERE id >= ? AND id < ?", (first, until)).rowcount
