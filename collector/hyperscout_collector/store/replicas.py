"""What replicas share in PostgreSQL beside the evidence: the streams that each has, and their messages.

Each batch of evidence and each change of the streams begins with `begin_batch`, which locks the row of
`sequence` until the commit. So the numbers of batches are committed in their order: a reader that has seen a
number never finds a lower one later. The lock also makes the check of the owner hold until the commit.
Batches of all replicas therefore follow each other; each is short.
"""

import contextlib
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.postgresql import PostgresqlConnection, PostgresqlDatabase
from hyperscout_collector.store.server import PostgresqlServer

if TYPE_CHECKING:
    import psycopg

LEADER: Final = "leader"  # receiver of messages to the leader
STANDBYS: Final = "standbys"  # channel of notifications, beside LEADER
NCCL_ID, SWEEP_FAILED = "nccl_id", "sweep_failed"  # kinds of messages to the leader
DIRECTIVE, FORGET = "directive", "forget"  # to an agent; to the replica that has its stream
_SLICE_S = 0.1  # how long the end of a listener waits
_KEPT_BATCHES = 10_000  # whose deletions are kept for a leader that does not read


@dataclass(frozen=True, slots=True)
class Owner:
    """A replica that takes streams. `replica`: the name of this run of it. `leads`: it is the leader."""

    replica: str
    leads: bool


class NotOwnerError(StoreError):
    """The streams of `nodes` are at another replica. Nothing of the batch is stored."""

    def __init__(self, nodes: Collection[str]) -> None:
        super().__init__(f"another replica has the stream of {', '.join(sorted(nodes)[:8])}")
        self.nodes = frozenset(nodes)


@dataclass(frozen=True, slots=True)
class Claim:
    """A stream begins. `hello`: encoded."""

    node: str
    instance: int
    hello: bytes


@dataclass(frozen=True, slots=True)
class Mark:
    """The stream of `node` that began in the batch `claimed` has ended, or has sent its full state."""

    node: str
    claimed: int
    ended: bool


@dataclass(frozen=True, slots=True)
class LostClaim:
    """A claim of `node` had no answer. A stream that began in a batch later than `after` has ended."""

    node: str
    after: int


Change = Claim | Mark | LostClaim


@dataclass(frozen=True, slots=True)
class StreamRow:
    """The last stream of a node."""

    node: str
    replica: str
    hello: bytes
    claimed: int
    full_state: bool
    ended: bool


@dataclass(frozen=True, slots=True)
class Message:
    """A message about a stream. `receiver`: a replica, or LEADER. `term`: of the leader that sends it."""

    receiver: str
    term: int
    node: str
    claimed: int
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class StreamNews:
    """What changed since a number. `term`: of the present leader. `number`: to ask from next time."""

    number: int
    term: int
    streams: Sequence[StreamRow]
    messages: Sequence[Message]


def begin_batch(db: PostgresqlConnection, owner: Owner, nodes: Sequence[str] = ()) -> int:
    """Take the next number, and check that `owner` may write findings of these nodes.

    The leader may also write those of nodes without a stream. Its own findings have the number 0, since only
    the leader reads by number. Raises NotOwnerError.
    """
    ((number,),) = db.execute("UPDATE sequence SET number = number + 1 RETURNING number").fetchall()
    if owner.leads:
        sql = "SELECT node FROM streams WHERE node = ANY(?) AND replica <> ? AND NOT ended"
    else:
        sql = (
            "SELECT n.node FROM unnest(?::text[]) AS n (node) WHERE NOT EXISTS"
            " (SELECT 1 FROM streams AS s WHERE s.node = n.node AND s.replica = ? AND NOT s.ended)"
        )
    if nodes and (others := db.execute(sql, (list(nodes), owner.replica)).fetchall()):
        raise NotOwnerError([node for (node,) in others])
    return int(number)


def notify(db: PostgresqlConnection, channel: str) -> None:
    """Wake the listeners of a channel when the transaction is committed."""
    db.execute("SELECT pg_notify(?, '')", (f"hyperscout_{channel}",))


def forget_old_deletions(db: PostgresqlConnection, number: int) -> None:
    """Bound the deletions that no leader has read. See `is_too_far_behind`."""
    db.execute("DELETE FROM deletions WHERE sequence <= ?", (number - _KEPT_BATCHES,))


def is_too_far_behind(since: int, number: int) -> bool:
    """Whether deletions after `since` may be forgotten."""
    return number - since >= _KEPT_BATCHES


class ReplicaTables:
    """The streams and messages, as `owner` uses them. All methods block and raise StoreError.

    `database`: of the leader's term, where the owner leads. `beats`: a connection for signs of life, which do
    not wait while another replica has the lock of a batch.
    """

    def __init__(self, database: PostgresqlDatabase, beats: PostgresqlDatabase, owner: Owner) -> None:
        self.owner = owner
        self._database = database
        self._beats = beats

    def change(self, changes: Sequence[Change]) -> list[int]:
        """Record changes of own streams, in their order. Returns the number of the batch for each.

        0 = it changes nothing: a newer process of the agent has a stream, or a marked stream is not the
        node's last one. Two claims of one node are of two batches: the number names the stream.
        """
        done: list[int] = []
        claimed: set[str] = set()
        with self._database.transaction() as db:
            number = begin_batch(db, self.owner)
            for change in changes:
                if isinstance(change, Claim):
                    if change.node in claimed:
                        number = begin_batch(db, self.owner)
                    claimed.add(change.node)
                done.append(number if self._change(db, change, number) else 0)
            notify(db, LEADER)
            if claimed:
                db.execute(
                    "INSERT INTO replicas VALUES (?, ?, clock_timestamp()) ON CONFLICT DO NOTHING",
                    (self.owner.replica, self.owner.leads),
                )
                notify(db, STANDBYS)
        return done

    def _change(self, db: PostgresqlConnection, change: Change, number: int) -> bool:
        replica = self.owner.replica
        if isinstance(change, Claim):
            found = db.execute(
                "INSERT INTO streams VALUES (?, ?, ?, ?, ?, FALSE, FALSE, ?) ON CONFLICT (node) DO UPDATE SET"
                " replica = excluded.replica, instance = excluded.instance, hello = excluded.hello,"
                " claimed = excluded.claimed, full_state = FALSE, ended = FALSE, sequence = excluded.sequence"
                " WHERE streams.ended OR streams.instance <= excluded.instance",
                (change.node, replica, change.instance, change.hello, number, number),
            )
        elif isinstance(change, LostClaim):
            found = db.execute(
                "UPDATE streams SET ended = TRUE, sequence = ?"
                " WHERE node = ? AND replica = ? AND claimed > ?",
                (number, change.node, replica, change.after),
            )
        else:
            found = db.execute(
                "UPDATE streams SET full_state = full_state OR ?, ended = ended OR ?, sequence = ?"
                " WHERE node = ? AND replica = ? AND claimed = ?",
                (not change.ended, change.ended, number, change.node, replica, change.claimed),
            )
        return bool(found.rowcount)

    def take_news(self, since: int) -> StreamNews:
        """Returns what changed after the number `since`. The messages to the owner are deleted: keep them."""
        receiver = LEADER if self.owner.leads else self.owner.replica
        with self._database.transaction() as db:
            ((number,),) = db.execute("SELECT number FROM sequence").fetchall()
            streams = db.execute(
                "SELECT node, replica, hello, claimed, full_state, ended FROM streams WHERE sequence > ?",
                (since,),
            ).fetchall()
            taken = db.execute(
                "DELETE FROM messages WHERE receiver = ?"
                " RETURNING id, receiver, term, node, claimed, kind, body",
                (receiver,),
            ).fetchall()
            # After the messages: one of a leader that is elected meanwhile is of this term.
            ((term,),) = db.execute("SELECT term FROM leader").fetchall()
        messages = [Message(*values) for _, *values in sorted(taken)]
        return StreamNews(number, term, [StreamRow(*row) for row in streams], messages)

    def send(self, messages: Sequence[Message]) -> None:
        with self._database.transaction() as db:
            db.executemany(
                "INSERT INTO messages (receiver, term, node, claimed, kind, body) VALUES (?, ?, ?, ?, ?, ?)",
                [(x.receiver, x.term, x.node, x.claimed, x.kind, x.body) for x in messages],
            )
            notify(db, STANDBYS if self.owner.leads else LEADER)

    def beat(self) -> bool:
        """Record a heartbeat of the owner. Returns False if the owner had no row: at its first heartbeat, or
        after the leader removed it as dead.
        """
        with self._beats.transaction() as db:
            # xmax is 0 in a row that this statement inserted, and not in one that it updated.
            found = db.execute(
                "INSERT INTO replicas VALUES (?, ?, clock_timestamp())"
                " ON CONFLICT (replica) DO UPDATE SET seen = excluded.seen RETURNING xmax = 0",
                (self.owner.replica, self.owner.leads),
            ).fetchall()
        return found != [(True,)]

    def leave(self) -> None:
        """End all streams of the owner."""
        with self._database.transaction() as db:
            self._remove(db, [self.owner.replica])

    def remove_dead(self, silence_s: float) -> None:
        """For the leader: end the streams of former leaders, and of replicas that were silent for so long."""
        with self._database.transaction() as db:
            dead = db.execute(
                "SELECT replica FROM replicas WHERE seen < clock_timestamp() - make_interval(secs => ?)"
                " OR leads"
                " UNION SELECT replica FROM streams WHERE NOT ended"
                " AND NOT EXISTS (SELECT 1 FROM replicas WHERE replicas.replica = streams.replica)",
                (silence_s,),
            ).fetchall()
            if names := [name for (name,) in dead if name != self.owner.replica]:
                self._remove(db, names)

    def _remove(self, db: PostgresqlConnection, replicas: Sequence[str]) -> None:
        names = (list(replicas),)
        number = begin_batch(db, self.owner)
        db.execute(
            "UPDATE streams SET ended = TRUE, sequence = ? WHERE replica = ANY(?) AND NOT ended",
            (number, *names),
        )
        db.execute("DELETE FROM replicas WHERE replica = ANY(?)", names)
        notify(db, LEADER)

    def prune(self, streams_number: int, evidence_number: int) -> None:
        """For the leader: delete the traces of streams and findings that it has read up to these numbers, and
        messages to replicas that are gone.
        """
        with self._database.transaction() as db:
            db.execute(
                "DELETE FROM messages WHERE receiver <> ?"
                " AND NOT EXISTS (SELECT 1 FROM replicas WHERE replicas.replica = messages.receiver)",
                (LEADER,),
            )
            db.execute("DELETE FROM streams WHERE ended AND sequence <= ?", (streams_number,))
            db.execute("DELETE FROM deletions WHERE sequence <= ?", (evidence_number,))

    def close(self) -> None:
        """Never raises; may be called twice."""
        self._database.close()
        self._beats.close()


class Listener:
    """Waits for notifications of a channel, on a connection of its own."""

    def __init__(self, server: PostgresqlServer, channel: str) -> None:
        self._server = server
        self._channel = f"hyperscout_{channel}"
        self._use = threading.Lock()
        self._closed = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None

    def wait(self, timeout_s: float) -> None:
        """Block until something changed, at most so long. Without a connection it waits for the time only."""
        import psycopg

        with self._use:
            if self._closed.is_set():
                return
            try:
                if self._connection is None:
                    self._connection = self._server.connect()
                    self._connection.execute(f"LISTEN {self._channel}".encode())
                    return  # something may have changed before
                end_s = time.monotonic() + timeout_s
                while not self._closed.is_set() and time.monotonic() < end_s:
                    if any(True for _ in self._connection.notifies(timeout=_SLICE_S, stop_after=1)):
                        return
            except (psycopg.Error, StoreError):
                self._disconnect()
                self._closed.wait(timeout_s)

    def close(self) -> None:
        """Blocks until a wait in progress has ended. Never raises; may be called twice."""
        self._closed.set()
        with self._use:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):  # it may be in any state
                self._connection.close()
            self._connection = None
