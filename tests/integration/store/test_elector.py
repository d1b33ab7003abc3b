"""The lock of a real PostgreSQL elects a leader, and deposes it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from hyperscout_collector.store.elector import LockElector
from hyperscout_collector.store.errors import StoreError, StoreUnfitError
from hyperscout_collector.store.postgresql import claim
from hyperscout_collector.store.server import PostgresqlServer
from hyperscout_kubernetes.election import LeaseTimes
from hyperscout_kubernetes.errors import NotLeaderError
from hyperscout_kubernetes.lease import boottime
from support.evidence_stores import written
from support.postgresql import USER, Postgresql
from support.waiting import eventually


class Clock:
    """Of the machine, and `ahead_s` seconds."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return boottime() + self.ahead_s


@asynccontextmanager
async def candidate(
    server: PostgresqlServer, clock: Clock | None = None, duration_s: int = 60
) -> AsyncIterator[LockElector]:
    times = LeaseTimes.of(duration_s)
    elector = LockElector(server, address="a:1", times=times, rng=Random(1), clock=clock or Clock())
    task = asyncio.create_task(elector.run())
    try:
        yield elector
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await elector.release()


async def test_a_leader_without_its_server_may_not_write_and_is_deposed(own_postgresql: Postgresql) -> None:
    clock, server = Clock(), own_postgresql.server(own_postgresql.new_database())
    async with candidate(server, clock) as elector:
        await eventually(lambda: elector.may_write)
        fence = elector.fence()
        assert fence.remaining_s() > 0
        own_postgresql.end()
        await eventually(lambda: elector.problem)
        assert (elector.leading, elector.may_write) == (True, False), "the lock is free"
        with pytest.raises(NotLeaderError, match="could not be confirmed"):
            fence.remaining_s()
        clock.ahead_s = 121
        await eventually(lambda: not elector.leading)
        own_postgresql.start()
        await eventually(lambda: elector.may_write)
        assert elector.own_terms == 2


async def test_a_silent_host_is_followed_by_the_next(shared_postgresql: Postgresql) -> None:
    name = shared_postgresql.new_database()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1,{shared_postgresql.folder}"
        url = f"postgresql:///{name}?host={hosts}&port={silent.getsockname()[1]},5432&user={USER}"
        server = PostgresqlServer(f"{url}&connect_timeout=2", shared_postgresql.password_file)
        assert server.connect_s > 4
        async with candidate(server, duration_s=1) as elector:  # a turn is shorter than the timeout
            await eventually(lambda: elector.may_write)


async def test_a_table_of_the_leader_without_a_row(shared_postgresql: Postgresql) -> None:
    name = shared_postgresql.new_database()
    server = shared_postgresql.server(name)
    database = written(server)
    shared_postgresql.execute(name, "DELETE FROM leader")
    expected = "the table hyperscout.leader has no row: restore a back-up"
    with pytest.raises(StoreError, match=expected):
        claim(server, "c2", "", lambda: None)
    with pytest.raises(StoreError, match=expected), database.transaction():
        pass
    database.close()
    async with candidate(server) as elector:
        await eventually(lambda: expected in (elector.problem or ""), lambda: elector.problem)
        assert not elector.leading


async def test_a_missing_database_ends_the_election(shared_postgresql: Postgresql) -> None:
    server = shared_postgresql.server("nosuch")
    elector = LockElector(server, address="a:1", times=LeaseTimes.of(60), rng=Random(1))
    with pytest.raises(StoreUnfitError, match="create it"):
        await elector.run()


async def test_a_problem_that_lasts_is_logged_each_minute(
    own_postgresql: Postgresql, caplog: pytest.LogCaptureFixture
) -> None:
    clock, turns, server = Clock(), asyncio.Queue[None](), own_postgresql.server("postgres")
    own_postgresql.end()

    async def sleep(_delay_s: float) -> None:
        clock.ahead_s += 25
        turns.put_nowait(None)
        await asyncio.Event().wait() if turns.qsize() == 4 else await asyncio.sleep(0)

    times = LeaseTimes.of(60)
    elector = LockElector(server, address="a:1", times=times, rng=Random(1), clock=clock, sleep=sleep)
    task = asyncio.create_task(elector.run())
    await eventually(lambda: turns.qsize() == 4)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert caplog.text.count("election: ") == 2
