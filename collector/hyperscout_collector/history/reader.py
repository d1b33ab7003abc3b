"""Answers queries from the history: pages of events, net changes, and topologies.

The net changes between two times are computed from the topologies at these times, so the cost does not depend
on the time between them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from google.protobuf.timestamp_pb2 import Timestamp
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_runtime.units import NS, rfc3339
from hyperscout_topology.diff import Diff
from hyperscout_topology.events import KINDS, ends_in, events
from hyperscout_topology.frames import FrameError, decoded
from hyperscout_topology.proto import event_to_proto, timestamp
from hyperscout_topology.topology import Endpoint, Topology, say

from hyperscout_collector.history.damage import cause_of, event_of
from hyperscout_collector.history.errors import BadHistoryRequestError, HistoryError, NotKeptError
from hyperscout_collector.history.store import names_of
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.page_token import key_of, page_token
from hyperscout_collector.store.sql import SqlConnection, SqlReader, is_sqlite

_PAGE_SIZE = 200
_MAX_PAGE_SIZE = 1000
_MAX_FLAPS = 100
_INVALID_PAGE = "page_token: expected the next_page_token of an earlier page of the same request"
_FLAPPING = 2  # changes: it disappeared and came back once
_AHEAD_NS = 60 * NS  # by which a caller's clock may be ahead


@dataclass(frozen=True, slots=True)
class _Query:
    """A request in terms of the tables. `low` (included) to `high` (excluded): ids of events.

    `names`: ids of all names that an event must mention; None = one of them was never recorded.
    """

    low: int
    high: int
    names: Sequence[int] | None
    kinds: Sequence[int]

    def rows(self, db: SqlConnection, join: str = "", index: str = "") -> tuple[str, list[int]]:
        """Returns the SQL from FROM to the end of the WHERE, for columns of `events AS e`, and its values.

        SQLite has no statistics of the tables: it is told the order of the join, and the index.
        """
        hint = f"INDEXED BY {index}" if index and is_sqlite(db) else ""
        source, text, values = f"events AS e {hint}", "e.id >= ? AND e.id < ?", [self.low, self.high]
        if self.names:
            order = "CROSS" if is_sqlite(db) else ""
            source = f"mentions AS m {order} JOIN events AS e ON e.id = m.event"
            text += " AND m.name = ? AND m.event >= ? AND m.event < ?"
            values += [self.names[0], self.low, self.high]
            for name in self.names[1:]:
                text += " AND EXISTS (SELECT 1 FROM mentions WHERE name = ? AND event = e.id)"
                values.append(name)
        if self.kinds:
            text += f" AND e.kind IN ({', '.join('?' * len(self.kinds))})"
            values += self.kinds
        return f"FROM {source} {join} WHERE {text}", values


class HistoryReader:
    """Reads the tables of a `HistoryTables`.

    `events` and `topology_at` block and raise HistoryError.
    """

    def __init__(self, database: SqlReader, now_ns: Callable[[], int]) -> None:
        self._database = database
        self._now_ns = now_ns
        self.close = database.close

    def topology_at(self, at_ns: int) -> Topology:
        """Returns the topology that was published at that time (Unix ns), with its links."""
        if at_ns > self._now_ns() + _AHEAD_NS:
            raise BadHistoryRequestError(f"at: {rfc3339(at_ns)} is in the future: expected an earlier time")
        with self._reading() as db:
            oldest_ns = _oldest_ns(db)
            row = db.execute(
                "SELECT id FROM pictures WHERE at_ns <= ? ORDER BY at_ns DESC, id DESC LIMIT 1", (at_ns,)
            ).fetchone()
            if row is None:
                raise NotKeptError(
                    f"at: {rfc3339(at_ns)} is before the oldest stored generation, {rfc3339(oldest_ns)}"
                    if oldest_ns
                    else "no generation is recorded yet: try again later"
                )
            frames = _frames(db, row[0])
        return _decoded(frames)

    def events(self, request: pb.ListHistoryRequest) -> pb.ListHistoryResponse:
        """Returns a page of events, newest first."""
        size = request.page_size or _PAGE_SIZE
        if size > _MAX_PAGE_SIZE:
            raise BadHistoryRequestError(f"page_size: {size}: expected at most {_MAX_PAGE_SIZE}")
        if unknown := set(request.kinds).difference(KINDS):
            raise BadHistoryRequestError(
                f"kinds: unknown kind {min(unknown)!r}: expected one of {', '.join(KINDS)}"
            )
        since, until = time_ns(request.since), time_ns(request.until)
        if request.HasField("since") and request.HasField("until") and until <= since:
            raise BadHistoryRequestError("until: expected a time after `since`")
        return self._net(request, size) if request.net else self._page(request, size)

    # Events

    def _page(self, request: pb.ListHistoryRequest, size: int) -> pb.ListHistoryResponse:
        (before,) = _token(request.page_token, 1) or (None,)
        with self._reading() as db:
            answer = pb.ListHistoryResponse(oldest=timestamp(_oldest_ns(db)))
            asked = _asked(db, request)
            if asked.names is None:
                return answer
            if before is None:
                answer.flaps.extend(_flaps(db, asked))
            text, values = asked.rows(db, "JOIN pictures AS p ON p.id = e.picture")
            rows = db.execute(
                f"SELECT e.id, e.body, p.at_ns, p.generation, p.cause {text} AND e.id < ?"
                " ORDER BY e.id DESC LIMIT ?",
                (*values, before if before is not None else asked.high, size + 1),
            ).fetchall()
        found = (_event(*row) for row in rows[:size])
        answer.events.extend(event for event in found if event is not None)
        if len(rows) > size:
            answer.next_page_token = page_token([rows[size - 1][0]])
        return answer

    # Net changes

    def _net(self, request: pb.ListHistoryRequest, size: int) -> pb.ListHistoryResponse:
        ends = _token(request.page_token, 3)
        with self._reading() as db:
            answer = pb.ListHistoryResponse(oldest=timestamp(_oldest_ns(db)))
            asked = _asked(db, request)
            if ends is None:
                found = _ends(db, request)
                if found is None:
                    return answer
                if asked.names is not None:
                    answer.flaps.extend(_flaps(db, asked))
                ends = (*found, 0)
            old, new, skip = ends
            frames = _frames(db, old), _frames(db, new)
        if not all(frames):
            raise NotKeptError("page_token: its generations were deleted: start again without a page_token")
        wanted, about = set(request.kinds), _about(request.about)
        changes = [
            x
            for x in reversed(events(Diff(_decoded(frames[0]), _decoded(frames[1]))))
            if (not wanted or x.kind in wanted) and all(not names_of(x).isdisjoint(names) for names in about)
        ]
        page = changes[skip : skip + size]
        with self._reading() as db:
            for change in page:
                event = event_to_proto(change)
                row = db.execute(
                    "SELECT e.id, p.at_ns, p.generation, p.cause FROM names AS n"
                    " JOIN events AS e ON e.thing = n.id JOIN pictures AS p ON p.id = e.picture"
                    " WHERE n.name = ? AND e.picture <= ? ORDER BY e.id DESC LIMIT 1",
                    (change.thing, new),
                ).fetchone()
                if row is not None:  # events beyond the limit of a kind are not recorded individually
                    _stamp(event, *row)
                answer.events.append(event)
        if skip + size < len(changes):
            answer.next_page_token = page_token([old, new, skip + size])
        return answer

    @contextmanager
    def _reading(self) -> Iterator[SqlConnection]:
        try:
            with self._database.reading() as db:
                yield db
        except StoreError as error:
            raise HistoryError(f"the history: {error}") from error


def _asked(db: SqlConnection, request: pb.ListHistoryRequest) -> _Query:
    low = _first_event(db, time_ns(request.since)) if request.HasField("since") else 0
    high = _first_event(db, time_ns(request.until)) if request.HasField("until") else None
    if high is None:
        high = 1 + (db.execute("SELECT MAX(id) FROM events").fetchone()[0] or 0)
    names = []
    for spellings in _about(request.about):
        ids = (db.execute("SELECT id FROM names WHERE name = ?", (name,)).fetchone() for name in spellings)
        names.append(next((row[0] for row in ids if row is not None), None))
    known = [ident for ident in names if ident is not None]
    kinds = [KINDS.index(kind) for kind in request.kinds]
    return _Query(high if low is None else low, high, known if len(known) == len(names) else None, kinds)


def _about(text: str) -> list[tuple[str, ...]]:
    """Returns what events must mention, each with its spellings: one name, or the two ends of a link."""
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")  # no name has it, and PostgreSQL takes none
    return [_spellings(end) for end in ends_in(text)] if text else []


def _spellings(name: str) -> tuple[str, ...]:
    device, colon, port = name.rpartition(":")
    return (name, say(Endpoint(device, device, port))) if colon else (name,)


def _first_event(db: SqlConnection, at_ns: int) -> int | None:
    """Returns the id of the first event from this time on; None = there is none."""
    row = db.execute(
        "SELECT first_event FROM pictures WHERE at_ns >= ? ORDER BY at_ns, id LIMIT 1", (at_ns,)
    ).fetchone()
    return None if row is None else int(row[0])


def _ends(db: SqlConnection, request: pb.ListHistoryRequest) -> tuple[int, int] | None:
    """Returns the ids of the topologies published just before the two times; None = no record."""
    first = db.execute("SELECT MIN(id) FROM pictures").fetchone()[0]
    before = "SELECT id FROM pictures WHERE at_ns < ? ORDER BY at_ns DESC, id DESC LIMIT 1"
    old, new = first, db.execute("SELECT MAX(id) FROM pictures").fetchone()[0]
    if request.HasField("since"):
        old = (db.execute(before, (time_ns(request.since),)).fetchone() or (first,))[0]
    if request.HasField("until"):
        new = (db.execute(before, (time_ns(request.until),)).fetchone() or (None,))[0]
    return None if old is None or new is None else (old, new)


def _flaps(db: SqlConnection, asked: _Query) -> Iterator[pb.FlapCount]:
    (all_events,) = db.execute("SELECT COALESCE(MAX(id) - MIN(id), 0) FROM events").fetchone()
    many = not asked.kinds and asked.high - asked.low > all_events // 4
    text, values = asked.rows(db, index="events_thing" if many else "")  # a covering index
    rows = db.execute(
        f"SELECT SUM(e.flips), MAX(e.id) {text} AND e.thing > 0 GROUP BY e.thing"
        " HAVING SUM(e.flips) > ? ORDER BY 1 DESC, 2 DESC LIMIT ?",
        (*values, _FLAPPING, _MAX_FLAPS),
    ).fetchall()
    for changes, newest in rows:
        row = db.execute(
            "SELECT e.body, p.at_ns FROM events AS e JOIN pictures AS p ON p.id = e.picture WHERE e.id = ?",
            (newest,),
        ).fetchone()
        event = None if row is None else event_of(row[0])
        if event is None:
            continue  # a damaged row
        at_ns = row[1]
        yield pb.FlapCount(
            hypernode=event.hypernode,
            subject=event.subject if event.HasField("subject") else None,
            peer=event.peer if event.HasField("peer") else None,
            what=event.what or event.kind.removesuffix("Added").removesuffix("Removed").removesuffix("Moved"),
            changes=changes,
            last=timestamp(at_ns),
        )


def _event(ident: int, body: bytes, at_ns: int, generation: int, cause: bytes) -> pb.HistoryEvent | None:
    """Returns a stored event; None = it is damaged."""
    event = event_of(body)
    if event is not None:
        _stamp(event, ident, at_ns, generation, cause)
    return event


def _stamp(event: pb.HistoryEvent, ident: int, at_ns: int, generation: int, cause: bytes) -> None:
    event.id, event.generation = ident, generation
    event.at.FromNanoseconds(at_ns)
    event.cause.CopyFrom(cause_of(cause))


def _frames(db: SqlConnection, picture: int) -> list[bytes]:
    rows = db.execute(
        "SELECT frame FROM pictures WHERE id <= ? AND id >= (SELECT span FROM pictures WHERE id = ?)"
        " ORDER BY id",
        (picture, picture),
    )
    return [frame for (frame,) in rows]


def _decoded(frames: Sequence[bytes]) -> Topology:
    try:
        return decoded(frames[0], frames[1:])
    except FrameError as error:
        raise HistoryError(f"the history cannot be read: {error}") from error


def _oldest_ns(db: SqlConnection) -> int:
    row = db.execute("SELECT at_ns FROM pictures ORDER BY id LIMIT 1").fetchone()
    return row[0] if row else 0


def time_ns(time: Timestamp) -> int:
    """Unix ns of any time that a caller can send, cut to what the database stores."""
    return min(max(time.seconds * NS + time.nanos, 0), 2**63 - 1)


def _token(text: str, count: int) -> tuple[int, ...] | None:
    """Decodes a page token; None = the first page. Raises BadHistoryRequestError."""
    if not text:
        return None
    try:
        found = key_of(text)
    except ValueError as error:
        raise BadHistoryRequestError(_INVALID_PAGE) from error
    if len(found) == count and all(type(x) is int and 0 <= x < 2**62 for x in found):
        return tuple(found)
    raise BadHistoryRequestError(_INVALID_PAGE)
