"""Leader election of replicas without Kubernetes: an advisory lock of PostgreSQL, on a connection of its own.

At most one replica leads, because the server gives the lock to one session. The session ends when the
connection breaks, and when the server has heard nothing from it for the duration of a lease
(`idle_session_timeout`): so also a leader that was suspended, or that the network cut off, loses the lock. A
leader may write until `renew_deadline_s` after it *sent* its last confirmed statement, as with a Lease; the
server waits longer, from a later time. When the connection breaks, the lock is free at once: the leader
notices that in its next turn, within about `retry_s`, and may not write from then on until it has the lock
again.

What is written to PostgreSQL does not depend on these times: each transaction checks the term (`postgresql`).
A leader whose connection broke takes the lock again. It leads on if no other replica took the term meanwhile.
A leader that the server does not answer for `_PATIENCE` times the duration of a lease is deposed, because
another replica may reach the server.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any

from hyperscout_formats.text.leader import is_address
from hyperscout_kubernetes.client import Fence
from hyperscout_kubernetes.election import LeaseTimes
from hyperscout_kubernetes.errors import NotLeaderError
from hyperscout_kubernetes.lease import boottime
from hyperscout_runtime.event_loops import Notices

from hyperscout_collector.store.errors import StoreError, StoreUnfitError
from hyperscout_collector.store.server import SCHEMA, PostgresqlServer

if TYPE_CHECKING:
    import psycopg

_log = logging.getLogger(__name__)

_LOCK = 0x6C656164  # of pg_try_advisory_lock
_PATIENCE = 2  # durations of a lease
_REMIND_S = 60.0  # how often a problem that lasts is logged
_Term = tuple[int, str]  # number and address of the leader, as stored


class LockElector:
    """A candidate for the lock. Run `run` as a task; call `release` after it has ended.

    `address`: host:port of this replica. `run` and `release` may run on another loop than the one that waits
    for changes.
    """

    used = 0  # numbers of generations are reserved in the store itself

    def __init__(
        self,
        server: PostgresqlServer,
        *,
        address: str,
        times: LeaseTimes,
        rng: Random,
        clock: Callable[[], float] = boottime,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.leading = False  # elected and not deposed
        self.own_terms = 0  # raised each time this replica becomes the leader
        self.problem: str | None = None  # why the server does not answer; None if it does
        self.write_until_s = float("-inf")
        self._server = server
        self._address = address
        self._times = times
        self._rng = rng
        self._clock = clock
        self._sleep = sleep
        self._changed = Notices()
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._has_lock = False
        self._stored: _Term | None = None  # as read last
        self._leader_s = float("-inf")  # when another leader was seen
        self._confirmed_s = float("-inf")  # when the last turn as the leader began
        self._logged_s = float("-inf")  # when the present problem was logged last

    # State, for the rest of the process

    @property
    def may_write(self) -> bool:
        return self.leading and self._clock() < self.write_until_s

    def transitions(self) -> int:
        """Number of terms, as read last."""
        return self._stored[0] if self._stored is not None else 0

    def leader_address(self) -> str:
        """Return the address of another replica that leads; "" if none is known."""
        is_seen = not self.leading and self._clock() < self._leader_s + 3 * self._times.retry_s
        address = self._stored[1] if self._stored is not None and is_seen else ""
        return address if is_address(address) and address != self._address else ""

    def fence(self) -> Fence:
        """Return a fence for the writes of the current term."""
        return _LockFence(self, self._clock)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until `happened` returns True. It is asked when leadership, the permission to write or the
        known leader may have changed."""
        await self._changed.until(happened)

    # Tasks

    async def run(self) -> None:
        """Take part in the election until cancelled. Raises StoreUnfitError."""
        import psycopg

        while True:
            try:
                connection = await self._connected()
                async with asyncio.timeout(self._times.renew_deadline_s / 2):
                    await self._turn(connection)
                if self.problem is not None:
                    _log.info("PostgreSQL answers the election again")
                self.problem = None
            except (psycopg.Error, StoreError, TimeoutError) as error:
                await self._disconnect()
                found = self._server.error(error) if isinstance(error, psycopg.Error) else error
                if isinstance(found, StoreUnfitError):
                    raise found from error
                problem = str(found) or f"{self._server.name} does not answer"
                if self.problem is None or self._clock() >= self._logged_s + _REMIND_S:
                    _log.warning("election: %s", problem)
                    self._logged_s = self._clock()
                self.problem = problem
                limit_s = _PATIENCE * self._times.duration_s
                if self._clock() > self._confirmed_s + limit_s:
                    self._depose(f"the lock was not confirmed for {limit_s} s")
            self._changed.notify()
            await self._sleep(self._times.retry_s * self._rng.uniform(0.8, 1.2))

    async def release(self) -> None:
        """Release the lock. `run` and all writers must have ended."""
        self.leading = False
        await self._disconnect()

    async def _connected(self) -> "psycopg.AsyncConnection[Any]":
        """Returns the connection. A new one may try several hosts, which takes longer than a turn."""
        import psycopg

        if self._connection is None:
            async with asyncio.timeout(self._server.connect_s):
                self._connection = await psycopg.AsyncConnection.connect(
                    self._server.url, autocommit=True, **self._server.parameters()
                )
                idle = f"SET idle_session_timeout = '{self._times.duration_s}s'"
                await self._connection.execute(idle.encode())
        return self._connection

    async def _turn(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        """Take the lock, or confirm that this session has it."""
        sent_s, before = self._clock(), self._stored
        if not self._has_lock:
            (self._has_lock,) = await _row(connection, f"SELECT pg_try_advisory_lock({_LOCK})")
        self._stored = await self._read(connection)
        if not self._has_lock:
            self._leader_s = self._clock()
            self._depose("another replica has the lock")
            return
        if self.leading and before != self._stored and not self._is_own(before):
            self._depose("another replica took the term")
        if not self.leading:
            self.leading = True
            self.own_terms += 1
            _log.info("elected: this replica leads at %s", self._address)
        self._confirmed_s = sent_s
        self.write_until_s = sent_s + self._times.renew_deadline_s

    async def _read(self, connection: "psycopg.AsyncConnection[Any]") -> _Term | None:
        """Returns the stored term; None = no collector has taken one yet."""
        (is_there,) = await _row(connection, f"SELECT to_regclass('{SCHEMA}.leader') IS NOT NULL")
        if not is_there:
            return None
        found = await _row(connection, f"SELECT term, address FROM {SCHEMA}.leader")  # noqa: S608
        if found is None:
            raise self._server.no_leader_row()
        term, address = found
        return (int(term), str(address)) if term else None

    def _is_own(self, before: _Term | None) -> bool:
        """Whether the stored term is new because this leader took it."""
        number = before[0] if before is not None else 0
        return self._stored == (number + 1, self._address)

    def _depose(self, why: str) -> None:
        if self.leading:
            _log.warning("deposed: %s", why)
        self.leading = False
        self.write_until_s = float("-inf")

    async def _disconnect(self) -> None:
        connection, self._connection, self._has_lock = self._connection, None, False
        self.write_until_s = float("-inf")
        if connection is not None:
            await connection.close()


class _LockFence(Fence):
    """Permits writes in one term only, and only while this replica certainly has the lock."""

    def __init__(self, elector: LockElector, clock: Callable[[], float]) -> None:
        self._elector = elector
        self._clock = clock
        self._term = elector.own_terms

    def remaining_s(self) -> float:
        elector = self._elector
        if not elector.leading or elector.own_terms != self._term:
            raise NotLeaderError("another replica may lead now: nothing is written")
        left_s = elector.write_until_s - self._clock()
        if left_s <= 0:
            raise NotLeaderError("the lock could not be confirmed: nothing is written until it is")
        return left_s


async def _row(connection: "psycopg.AsyncConnection[Any]", sql: str) -> Any:
    """Returns the first row; None = there is none."""
    cursor = await connection.execute(sql.encode())
    return await cursor.fetchone()
