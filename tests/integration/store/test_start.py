"""What a collector starts from: the topology, the term and the reservations in the store."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.build.ingest import Storage, open_storage
from hyperscout_collector.app.placing.reservations import Reservations, ReservationTable
from hyperscout_collector.app.publication.saver import ahead
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.store import EvidenceStore
from hyperscout_collector.store import server as server_module
from hyperscout_collector.store.postgresql import claim
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_runtime.errors import StartError
from hyperscout_topology.frames import encoded_whole
from hyperscout_topology.topology import Topology
from support.builders import gang
from support.collectors import collector_settings
from support.evidence_stores import postgresql_evidence, written
from support.postgresql import Postgresql
from support.topologies import leaves
from support.waiting import eventually

WAITS = "the start waits for PostgreSQL"


@pytest.fixture
def name(shared_postgresql: Postgresql) -> str:
    """The name of an empty database."""
    return shared_postgresql.new_database()


def context_of(folder: Path, postgresql: Postgresql | None = None, name: str = "", **more: Any) -> Context:
    if postgresql is not None:
        more |= {"store": postgresql.url(name), "store_password_file": postgresql.password_file}
    return Context(collector_settings(folder, **more), None)


@asynccontextmanager
async def opened(context: Context, previous: Topology | None = None, used: int = 0) -> AsyncIterator[Storage]:
    try:
        yield await open_storage(context, previous, (), used)
    finally:
        await context.lifecycle.stop()


def crashed(store: EvidenceStore) -> None:
    """The leader saved number 100, published a few more, and crashed."""
    store.load()
    store.save_topology(encoded_whole(replace(leaves(("saved",)), generation=100)), ahead(100))
    store.close()


@pytest.mark.parametrize(
    ("is_shared", "followed", "used", "expected", "number"),
    [
        pytest.param(True, 105, 0, "followed", 1101, id="published, but not saved"),
        pytest.param(True, 100, 0, "saved", 1101, id="the same: the saved one is complete"),
        pytest.param(True, 95, 1200, "saved", 1201, id="the store is newer"),
        pytest.param(True, None, 0, "saved", 1101, id="none was followed"),
        pytest.param(False, 105, 0, "followed", 1101, id="file: the leader's"),
        pytest.param(False, 95, 1200, "followed", 1201, id="file: it is of an earlier term"),
        pytest.param(False, None, 0, "saved", 1101, id="file: after a crash"),
    ],
)
async def test_the_newest_topology_gets_a_number_that_none_had(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    *,
    is_shared: bool,
    followed: int | None,
    used: int,
    expected: str,
    number: int,
) -> None:
    if is_shared:
        postgresql: Postgresql = request.getfixturevalue("shared_postgresql")
        name = postgresql.new_database()
        crashed(postgresql_evidence(postgresql.server(name)))
        context = context_of(tmp_path, postgresql, name)
    else:
        context = context_of(tmp_path)
        context.settings.data_dir.mkdir()
        crashed(SqliteStore(context.settings.data_dir / "evidence.db"))
    previous = None if followed is None else replace(leaves(("followed",)), generation=followed)
    async with opened(context, previous, used) as storage:
        assert storage.published is not None
        found = storage.published.hypernodes[0]
        assert (found.nodes, storage.published.generation) == ((expected,), number)


async def reserve(postgresql: Postgresql, name: str) -> None:
    """As a former leader."""
    database, writer = written(postgresql.server(name)), StoreWriter()
    reservations = Reservations(ReservationTable(database), writer, is_shared=True)
    placed = Placement(("n01",), 1, "leaf-a", Cost(1, (), 1, 0, ()))
    reservations.follow("train", Reservation("train", "api", gang(1), placed, 1))
    assert await reservations.queue.flush()
    await writer.close()
    database.close()


async def test_an_elected_leader_waits_for_the_server(
    tmp_path: Path, own_postgresql: Postgresql, caplog: pytest.LogCaptureFixture
) -> None:
    name = own_postgresql.new_database()
    await reserve(own_postgresql, name)
    own_postgresql.end()
    with pytest.raises(StartError, match="check the server"):
        async with opened(context_of(tmp_path, own_postgresql, name)):
            pass
    assert WAITS not in caplog.text
    async with asyncio.TaskGroup() as tasks, contextlib.AsyncExitStack() as stack:
        context = context_of(tmp_path, own_postgresql, name, leader_election=True)
        start = tasks.create_task(stack.enter_async_context(opened(context)))
        await eventually(lambda: WAITS in caplog.text)
        own_postgresql.start()
        assert [held.gang for held in (await start).reservations.restored] == ["train"]


async def test_no_start_without_the_reservations_of_all_replicas(
    tmp_path: Path, shared_postgresql: Postgresql, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await reserve(shared_postgresql, name)
    shared_postgresql.execute(name, "ALTER TABLE gangs RENAME TO away")
    with pytest.raises(StartError, match=r"the reservations cannot be read: .*no tables of hyperscout"):
        async with opened(context_of(tmp_path, shared_postgresql, name)):
            pass
    async with asyncio.TaskGroup() as tasks, contextlib.AsyncExitStack() as stack:
        context = context_of(tmp_path, shared_postgresql, name, leader_election=True)
        start = tasks.create_task(stack.enter_async_context(opened(context)))
        await eventually(lambda: WAITS in caplog.text)
        shared_postgresql.execute(name, "ALTER TABLE away RENAME TO gangs")
        assert [held.gang for held in (await start).reservations.restored] == ["train"]


async def test_a_claim_waits_for_a_long_transaction_of_the_former_leader(
    shared_postgresql: Postgresql, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = shared_postgresql.server(name)
    database = written(server)
    monkeypatch.setattr(server_module, "_STATEMENT_S", 0.2)
    monkeypatch.setattr(server_module, "_LOCK_S", 0.1)
    waits_long = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND clock_timestamp() - query_start > '1 s'"
    )
    async with asyncio.TaskGroup() as tasks:
        with database.transaction():
            claimed = tasks.create_task(asyncio.to_thread(claim, server, "c2", "", lambda: None))
            await eventually(lambda: claimed.done() or shared_postgresql.execute(name, waits_long))
        assert await claimed == 2
    database.close()


async def test_a_newer_schema_ends_the_start_of_an_elected_leader(
    tmp_path: Path, shared_postgresql: Postgresql, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """So that a replica of the newer version can lead."""
    written(shared_postgresql.server(name)).close()
    shared_postgresql.execute(name, "UPDATE version SET number = 99")
    with pytest.raises(StartError, match="has version 99"):
        async with opened(context_of(tmp_path, shared_postgresql, name, leader_election=True)):
            pass
    assert WAITS not in caplog.text


async def test_the_log_names_the_store_and_the_term(
    tmp_path: Path, shared_postgresql: Postgresql, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with opened(context_of(tmp_path, shared_postgresql, name)):
        assert f"database {name} stores evidence, reservations and history; term 1" in caplog.text
