"""PostgreSQL in trouble: a batch is stored whole or not at all, and the message says what to do."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.history.opening import in_postgresql
from hyperscout_collector.history.postgresql import PostgresqlHistory
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.history.settings import HistorySettings
from hyperscout_collector.history.store import HistorySize
from hyperscout_collector.store import postgresql as postgresql_module
from hyperscout_collector.store import server as server_module
from hyperscout_collector.store import writer as writer_module
from hyperscout_collector.store.errors import StoreError, StoreFullError, StoreUnfitError
from hyperscout_collector.store.postgresql import PostgresqlConnection, PostgresqlDatabase, claim
from hyperscout_collector.store.schema import MIGRATIONS
from hyperscout_collector.store.server import PostgresqlServer
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_kubernetes.errors import NotLeaderError
from support.agent_stream import AgentStream
from support.collectors import collector_settings
from support.evidence_rows import fill, kept
from support.evidence_stores import postgresql_evidence, written
from support.fake_time import Steps
from support.findings import lldp
from support.histories import T0
from support.postgresql import PASSWORD, USER, Postgresql
from support.recorder import Clock, generation, record, why
from support.rest_collector import status_of
from support.small_disk import small_disk
from support.waiting import eventually, until_awaited, until_seen

S = 1_000_000_000


@pytest.fixture
def name(shared_postgresql: Postgresql) -> str:
    """The name of an empty database."""
    return shared_postgresql.new_database()


def one(number: int) -> Changes:
    return Changes([kept(lldp("n1", f"eth{number}"))])


def subjects(postgresql: Postgresql, name: str) -> list[str]:
    rows = postgresql.execute(name, "SELECT subject FROM findings ORDER BY subject")
    return [subject for (subject,) in rows]


def test_a_server_that_restarts_is_an_error_of_at_most_one_batch(own_postgresql: Postgresql) -> None:
    name = own_postgresql.new_database()
    store = postgresql_evidence(own_postgresql.server(name))
    store.apply(one(0))
    own_postgresql.restart()
    store.apply(one(1))
    assert len(store.page("", "", None, 10)) == 2
    own_postgresql.end()
    with pytest.raises(StoreError, match="check the server, the URL"):
        store.apply(one(2))
    with pytest.raises(StoreError, match="check the server, the URL"):
        store.page("", "", None, 10)
    own_postgresql.start()
    store.apply(one(2))
    assert [row.key.subject for row in store.load().rows] == ["eth0", "eth1", "eth2"]
    store.close()


def test_a_connection_that_breaks_in_a_transaction_leaves_nothing_of_it(
    shared_postgresql: Postgresql, name: str
) -> None:
    database = written(shared_postgresql.server(name))

    def broken_off() -> None:
        with database.transaction() as db:
            db.execute("INSERT INTO agents VALUES ('n1', '7', '0.2')")
            shared_postgresql.break_connections(name)
            db.execute("INSERT INTO agents VALUES ('n2', '7', '0.2')")

    with pytest.raises(StoreError, match="the collector connects again") as caught:
        broken_off()
    assert not caught.value.may_be_stored
    assert shared_postgresql.execute(name, "SELECT node FROM agents") == []
    with database.transaction() as db:
        db.execute("INSERT INTO agents VALUES ('n3', '7', '0.2')")
    assert shared_postgresql.execute(name, "SELECT node FROM agents") == [("n3",)]
    database.close()


def test_a_deposed_leader_writes_nothing(shared_postgresql: Postgresql, name: str) -> None:
    server = shared_postgresql.server(name)
    first = postgresql_evidence(server)
    first.apply(one(0))
    second = PostgresqlDatabase(server, claim(server, "c2", "c2:50051", lambda: None))
    for write in (
        lambda: first.apply(one(1)),
        lambda: first.save_topology(b"old"),
        lambda: first.reserve(7),
        first.load,  # moves times, which is a write
    ):
        with pytest.raises(StoreError, match=r"c2 at c2:50051 writes since \(term 2, this one is 1\)"):
            write()
    assert len(first.page("", "", None, 10)) == 1
    assert subjects(shared_postgresql, name) == ["eth0"]
    with second.transaction() as db:
        db.execute("DELETE FROM findings")
    first.close()
    second.close()


def test_a_new_term_waits_for_the_end_of_a_transaction(shared_postgresql: Postgresql, name: str) -> None:
    server = shared_postgresql.server(name)
    old = written(server)
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '{}'"
    with ThreadPoolExecutor(1) as threads:
        with old.transaction() as db:
            db.execute("INSERT INTO agents VALUES ('n1', '7', '0.2')")
            claimed = threads.submit(claim, server, "c2", "", lambda: None)
            until_seen(lambda: shared_postgresql.execute(name, waits.format(name)), "the claim waits")
            assert not claimed.done()
        assert claimed.result(30) == 2
    assert shared_postgresql.execute(name, "SELECT node FROM agents") == [("n1",)]
    old.close()


def test_a_collector_that_may_not_lead_takes_no_term(shared_postgresql: Postgresql, name: str) -> None:
    server = shared_postgresql.server(name)

    def deposed() -> None:
        raise NotLeaderError("another replica may lead now")

    with pytest.raises(NotLeaderError):
        claim(server, "c1", "", deposed)
    assert shared_postgresql.execute(name, "SELECT term, identity FROM leader") == [(0, "")]


def test_a_term_that_another_took_meanwhile_is_not_replaced(shared_postgresql: Postgresql, name: str) -> None:
    server = shared_postgresql.server(name)
    calls: list[int] = []

    def suspended() -> None:
        calls.append(1)
        if len(calls) == 1:  # between the read and the replacement, the lease went to another
            assert claim(server, "c2", "", lambda: None) == 1
            return
        raise NotLeaderError("another replica may lead now")

    with pytest.raises(NotLeaderError):
        claim(server, "c1", "", suspended)
    assert shared_postgresql.execute(name, "SELECT term, identity FROM leader") == [(1, "c2")]


def test_a_newer_schema_is_left_alone(shared_postgresql: Postgresql, name: str) -> None:
    server = shared_postgresql.server(name)
    claim(server, "c1", "", lambda: None)
    shared_postgresql.execute(name, "UPDATE version SET number = 99")
    with pytest.raises(StoreUnfitError, match=r"version 99, this collector knows \d+: start the version"):
        claim(server, "c1", "", lambda: None)
    assert shared_postgresql.execute(name, "SELECT term FROM leader") == [(1,)]


@pytest.mark.parametrize("columns", ["number INTEGER", "version TEXT"])
def test_the_schema_of_another_program_is_left_alone(
    shared_postgresql: Postgresql, name: str, columns: str
) -> None:
    shared_postgresql.execute(name, f"CREATE SCHEMA hyperscout; CREATE TABLE hyperscout.version ({columns})")
    with pytest.raises(StoreUnfitError, match=r"version is not of hyperscout: name another database"):
        claim(shared_postgresql.server(name), "c1", "", lambda: None)


def test_the_log_names_new_tables(
    shared_postgresql: Postgresql, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server = shared_postgresql.server(name)
    for _ in range(2):
        claim(server, "c1", "", lambda: None)
    assert caplog.text.count(f"database {name}: the tables are created in version {len(MIGRATIONS)}") == 1


def test_a_missing_database(shared_postgresql: Postgresql) -> None:
    with pytest.raises(StoreUnfitError, match=f"create it: createdb --owner {USER} nosuch"):
        shared_postgresql.server("nosuch").connect()


def test_a_server_that_takes_no_writes(shared_postgresql: Postgresql, name: str) -> None:
    server = shared_postgresql.server(name)
    store = postgresql_evidence(server)
    shared_postgresql.execute(name, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    shared_postgresql.break_connections(name)
    for _ in range(2):
        with pytest.raises(StoreError, match="name the primary in the URL"):
            store.apply(one(0))
    store.close()


def test_a_standby_takes_no_writes_until_it_is_promoted(own_postgresql: Postgresql) -> None:
    name = own_postgresql.new_database()
    store = postgresql_evidence(own_postgresql.server(name))
    store.apply(one(0))
    with own_postgresql.standby() as standby:
        with pytest.raises(StoreError, match="name the primary in the URL"):
            claim(standby.server(name), "c2", "", lambda: None)
        both = PostgresqlServer(
            f"postgresql:///{name}?host={standby.folder},{own_postgresql.folder}&user=hyperscout",
            own_postgresql.password_file,
        )
        again = postgresql_evidence(both)  # of several hosts, the one that takes writes
        again.apply(one(1))
        own_postgresql.end()
        standby.promote()
        again.apply(one(2))
        assert subjects(standby, name)[-1] == "eth2"
        again.close()
    store.close()


def test_a_full_disk_loses_nothing_and_takes_more_when_there_is_room(
    tmp_path: Path, own_postgresql: Postgresql
) -> None:
    with small_disk(own_postgresql.folder, 24) as mount, contextlib.ExitStack() as stack:
        own_postgresql.give(mount)
        own_postgresql.execute("postgres", f"CREATE TABLESPACE small LOCATION '{mount}'")
        own_postgresql.execute("postgres", "CREATE DATABASE small TABLESPACE small")
        stack.callback(own_postgresql.end)  # before the disk is unmounted
        store = postgresql_evidence(own_postgresql.server("small"))
        own_postgresql.execute("postgres", "CHECKPOINT")  # writes what the new database has
        ballast = mount / "ballast"
        disk = os.statvfs(mount)
        ballast.write_bytes(bytes(disk.f_bavail * disk.f_frsize - (3 << 20)))
        count = fill(store)
        assert len(store.page("", "", None, 100_000)) == count
        with pytest.raises(StoreFullError, match="free space on the disk of the server"):
            store.save_topology(os.urandom(4 << 20))
        ballast.unlink()
        store.apply(one(0))
        store.save_topology(b"topology")
        assert len(store.load().rows) == count + 1
        store.close()


def test_a_wrong_password_is_reported_without_it(
    tmp_path: Path, shared_postgresql: Postgresql, name: str
) -> None:
    file = tmp_path / "password"
    server = PostgresqlServer(shared_postgresql.url(name), file)
    with pytest.raises(StoreError, match=f"password file {file}: No such file"):
        server.connect()
    file.write_text("\n")
    with pytest.raises(StoreError, match=f"password file {file} is empty: write the password into it"):
        server.connect()
    file.write_text("not the password\n")
    with pytest.raises(StoreError, match="check the server, the URL and the password file") as caught:
        server.connect()
    assert "not the password" not in str(caught.value)
    file.write_text(PASSWORD)  # renewed: the next connection reads it
    server.connect().close()


@pytest.mark.parametrize(
    ("statement", "step"),
    [
        ("SELECT pg_sleep(100)", "a statement took longer than 60 s"),
        (
            "CREATE ROLE x; SET ROLE x; SELECT * FROM hyperscout.findings",
            "let its user create and write the schema",
        ),
        ("INSERT INTO bulks VALUES (NULL, 1, '')", "null value"),
    ],
)
def test_errors_of_statements_have_a_next_step(
    shared_postgresql: Postgresql, name: str, statement: str, step: str
) -> None:
    database = written(shared_postgresql.server(name))

    def executed() -> None:
        with database.transaction() as db:
            db.execute("SET LOCAL statement_timeout = 100")
            db.execute(statement)

    with pytest.raises(StoreError, match=step) as caught:
        executed()
    assert f"PostgreSQL at {shared_postgresql.folder}, database {name}: " in str(caught.value)
    with database.transaction() as db:
        db.execute("SELECT 1")
    database.close()


def test_without_psycopg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"hyperscout\[postgresql\]"):
        PostgresqlServer("postgresql:///topology")


def test_a_commit_whose_answer_is_lost_counts_if_all_servers_have_it(own_postgresql: Postgresql) -> None:
    """The server ends the connection of a COMMIT that waits for a synchronous standby: it has committed."""
    name = own_postgresql.new_database()
    database = written(own_postgresql.server(name))

    def commit() -> None:
        with database.transaction() as db:
            db.execute("INSERT INTO bulks VALUES (?, 1, '')", (b"digest",))

    def waiting() -> set[int]:
        rows = own_postgresql.execute(name, "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        return {pid for (pid,) in rows}

    waits_for("lost", own_postgresql)
    with ThreadPoolExecutor(1) as threads:
        committed = threads.submit(commit)
        until_seen(waiting, "the COMMIT waits")
        (first,) = waiting()
        own_postgresql.execute(name, f"SELECT pg_terminate_backend({first})")
        until_seen(lambda: waiting() - {first}, "the question about its end waits, too")
        assert not committed.done()
        waits_for("", own_postgresql)
        committed.result(30)
    assert own_postgresql.execute(name, "SELECT sha256 FROM hyperscout.bulks") == [(b"digest",)]
    database.close()


def test_a_commit_that_did_not_reach_the_server_is_an_error(shared_postgresql: Postgresql, name: str) -> None:
    database = written(shared_postgresql.server(name))

    def commit() -> None:
        with database.transaction() as db:
            ((pid,),) = db.execute("SELECT pg_backend_pid()").fetchall()
            db.execute("INSERT INTO bulks VALUES (?, 1, '')", (b"digest",))
            shared_postgresql.execute(name, f"SELECT pg_terminate_backend({pid}, 10000)")

    with pytest.raises(StoreError, match="terminating connection"):
        commit()
    assert shared_postgresql.execute(name, "SELECT sha256 FROM hyperscout.bulks") == []
    with database.transaction() as db:
        db.execute("SELECT 1")
    database.close()


def test_a_commit_that_a_crash_lost_is_an_error(own_postgresql: Postgresql) -> None:
    """Also after the server gave its id to another transaction, which was committed."""
    name = own_postgresql.new_database()
    database = written(own_postgresql.server(name))

    def id_of(session: "PostgresqlConnection | psycopg.Connection[object]") -> int:
        ((found,),) = session.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
        return int(found)

    def commit() -> None:
        with database.transaction() as db:
            db.execute("INSERT INTO bulks VALUES (?, 1, '')", (b"digest",))
            lost, again = id_of(db), 0
            own_postgresql.end(signal.SIGQUIT)
            own_postgresql.start()
            with own_postgresql.session(name) as session:
                while again < lost:
                    again = id_of(session)
            assert again == lost

    own_postgresql.end()
    own_postgresql.start(wal_writer_delay="10s")  # a crash forgets ids of transactions that it did not write
    with pytest.raises(StoreError):
        commit()
    assert own_postgresql.execute(name, "SELECT sha256 FROM bulks") == []
    database.close()


def test_numbers_of_transactions_of_former_leaders_are_removed(
    shared_postgresql: Postgresql, name: str
) -> None:
    for _ in range(4):
        database = written(shared_postgresql.server(name))
        with database.transaction() as db:
            db.execute("SELECT 1")
        database.close()
    assert shared_postgresql.execute(name, "SELECT term FROM last_writes ORDER BY term") == [(3,), (4,)]


def test_a_server_that_does_not_return_leaves_the_end_open(
    own_postgresql: Postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_module, "_ASK_S", 0.1)
    server = own_postgresql.server(own_postgresql.new_database())
    database = written(server)
    connect, asked = server.connect, []

    def ask() -> "psycopg.Connection[object]":
        asked.append(True)
        return connect()

    def commit() -> None:
        with database.transaction() as db:
            db.execute("INSERT INTO bulks VALUES (?, 1, '')", (b"digest",))
            own_postgresql.end(signal.SIGQUIT)
            monkeypatch.setattr(server, "connect", ask)

    with pytest.raises(StoreError, match="PostgreSQL at") as caught:
        commit()
    assert caught.value.may_be_stored
    assert asked
    database.close()


def without_answer(database: PostgresqlDatabase) -> Callable[[object], None]:
    """The last statement of a transaction: the server commits, and its answer is lost."""

    def broken(_db: object) -> None:
        database._connection.execute("COMMIT")  # type: ignore[union-attr]
        raise psycopg.OperationalError("the connection was closed")

    return broken


def test_a_record_whose_commit_has_no_answer_is_not_repeated(
    shared_postgresql: Postgresql, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = written(shared_postgresql.server(name))
    store = PostgresqlHistory(database, HistorySize(), max_bytes=1 << 26, max_age_ns=S << 20, now_ns=T0)
    record(store, T0, generation(1), why(1))
    with monkeypatch.context() as patch:
        patch.setattr(store, "_measure", without_answer(database))
        with pytest.raises(StoreError):
            record(store, T0 + S, generation(2), why(2))
    assert store.newest is not None
    assert store.newest.generation == 1
    store.check()
    assert store.newest.generation == 2
    record(store, T0 + 2 * S, generation(3), why(3))
    assert pictures(shared_postgresql, name) == [1, 2, 3]
    database.close()


async def test_the_recorder_does_not_repeat_a_record_either(
    shared_postgresql: Postgresql, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, writer, clock = written(shared_postgresql.server(name)), StoreWriter(), Clock()
    opened = in_postgresql(database, HistorySettings(), clock)(HistorySize())
    recorder = Recorder(lambda size: opened, clock, writer)
    recorder.offer(generation(1), why(1))
    assert await recorder.queue.flush()
    recorder.offer(generation(2), why(2))
    with monkeypatch.context() as patch:
        patch.setattr(opened[0], "_measure", without_answer(database))
        assert not await recorder.queue.flush()
    assert await recorder.queue.flush()
    recorder.offer(generation(3), why(3))
    assert await recorder.queue.flush()
    assert pictures(shared_postgresql, name) == [1, 2, 3]
    await writer.close()
    await recorder.close()
    database.close()


def pictures(postgresql: Postgresql, name: str) -> list[int]:
    rows = postgresql.execute(name, "SELECT generation FROM pictures ORDER BY id")
    return [generation for (generation,) in rows]


async def test_a_commit_that_waits_for_a_lost_standby_is_a_problem_in_the_status(
    tmp_path: Path, own_postgresql: Postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = {
        "store": own_postgresql.url(own_postgresql.new_database()),
        "store_password_file": own_postgresql.password_file,
    }
    monkeypatch.setattr(writer_module, "_LONG_S", 0.1)
    async with Collector(collector_settings(tmp_path, **store)) as collector:
        waits_for("lost", own_postgresql)
        async with AgentStream(collector.address, "n1") as agent:

            async def is_seen() -> bool:
                """The server takes a moment to apply the parameter: the first batches may be committed."""
                await agent.batch(lldp("n1", "eth0", time.time_ns()))
                return any("a transaction of the store" in text for text in status_of(collector).problems)

            await until_awaited(is_seen, "the problem", pause_s=0.2)
            waits_for("", own_postgresql)
            await agent.store(lldp("n1", "eth0", time.time_ns()))
        await eventually(lambda: not status_of(collector).problems)


def waits_for(standby: str, postgresql: Postgresql) -> None:
    """Let each COMMIT wait for this synchronous standby; "" = none."""
    postgresql.execute("postgres", f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'")
    postgresql.execute("postgres", "SELECT pg_reload_conf()")


def test_a_batch_leaves_no_temporary_table(shared_postgresql: Postgresql, name: str) -> None:
    """It would keep the age of the database growing while the connection lasts."""
    store = postgresql_evidence(shared_postgresql.server(name))
    store.apply(one(0))
    assert subjects(shared_postgresql, name) == ["eth0"]
    found = shared_postgresql.execute(name, "SELECT relname FROM pg_class WHERE relpersistence = 't'")
    assert found == []
    store.close()


def test_the_rights_in_the_documentation_suffice(shared_postgresql: Postgresql, name: str) -> None:
    for statement in (
        f"CREATE ROLE role_of_{name}",
        f"REVOKE ALL ON DATABASE {name} FROM PUBLIC",
        f"GRANT CONNECT, CREATE ON DATABASE {name} TO role_of_{name}",
    ):
        shared_postgresql.execute(name, statement)
    url = f"{shared_postgresql.url(name)}&options=-c%20role%3Drole_of_{name}"
    store = postgresql_evidence(PostgresqlServer(url, shared_postgresql.password_file))
    store.apply(one(0))
    assert [row.key.subject for row in store.load().rows] == ["eth0"]
    store.close()
    owner = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'hyperscout'"
    assert shared_postgresql.execute(name, owner) == [(f"role_of_{name}",)]


def test_all_times_are_moved_however_long_it_takes(
    shared_postgresql: Postgresql, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, machine = shared_postgresql.server(name), Steps()
    store = postgresql_evidence(server, machine.process())
    store.apply(one(0))
    store.close()
    shared_postgresql.execute(
        name,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_sleep(0.4); RETURN NEW; END';"
        "CREATE TRIGGER slow BEFORE UPDATE ON findings FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    )
    monkeypatch.setattr(server_module, "_STATEMENT_S", 0.2)
    machine.wall_ns -= 7200 * S
    store = postgresql_evidence(server, machine.process())
    loaded = store.load()
    assert (len(loaded.rows), loaded.shift_ns // S) == (1, -7200)
    with pytest.raises(StoreError, match="a statement took longer"):
        store.apply(Changes(renewed=[loaded.rows[0]]))
    store.close()
