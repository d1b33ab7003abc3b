"""The store: what it holds after a crash, when the file is damaged, and when there is no room."""

import hashlib
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.state import AgentRow, Bulk
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.store.database import Damage
from hyperscout_collector.store.errors import StoreError, StoreFullError
from hyperscout_runtime.clock import Clock
from support.evidence_rows import fill, kept
from support.fake_time import Steps
from support.findings import T0, S, failed, lldp, sweep

CLOCK = Clock(lambda: T0, lambda: T0)


def bulk(text: bytes) -> Bulk:
    return Bulk(hashlib.sha256(text).digest(), len(text), zlib.compress(text))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    found = SqliteStore(tmp_path / "deep" / "evidence.db", clock=CLOCK)
    yield found
    found.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"this is no database at all, but a text of some length" * 100,
        lambda data: data[:5000],
        lambda data: data[:4096] + os.urandom(len(data) - 4096),
        lambda data: b"",
    ],
    ids=["text", "cut", "garbled", "empty"],
)
def test_a_damaged_file_is_moved_aside_and_the_collector_starts(store: SqliteStore, damage: object) -> None:
    store.apply(Changes([kept(lldp("n1", f"eth{i}")) for i in range(200)]))
    store.close()
    data = damage(store.path.read_bytes())  # type: ignore[operator]
    store.path.write_bytes(data)
    again = SqliteStore(store.path, clock=CLOCK)
    loaded = again.load()
    again.apply(Changes([kept(lldp("n2", "eth0"))]))
    assert [row.key.node for row in again.load().rows] == ["n2"]
    again.close()
    aside = store.path.with_name("evidence.db.damaged-20251009T085320Z")
    if data:
        assert aside.read_bytes() == data
        assert str(store.path) in loaded.problems[0]
        assert aside.name in loaded.problems[0]
    else:  # there is nothing to keep
        assert "evidence.db is empty: the collector starts without it" in loaded.problems[0]


@pytest.mark.parametrize(
    ("statement", "left", "dropped"),
    [
        ("UPDATE findings SET finding = x'ff' WHERE subject = 'eth0'", ["eth1", "sweep"], 1),
        ("UPDATE findings SET finding = CAST(x'c3ff' AS TEXT) WHERE subject = 'eth0'", ["eth1", "sweep"], 1),
        ("UPDATE findings SET subject = 'eth7' WHERE subject = 'eth0'", ["eth1", "sweep"], 1),
        ("UPDATE findings SET subject = CAST(x'c3ff' AS TEXT) WHERE subject = 'eth0'", ["eth1", "sweep"], 1),
        ("UPDATE findings SET node = 7 WHERE subject = 'eth0'", ["eth1", "sweep"], 1),
        ("UPDATE findings SET rank = 1 WHERE subject = 'eth0'", ["eth1", "sweep"], 1),
        ("UPDATE findings SET received_ns = 'x' WHERE subject = 'eth0'", ["eth1", "sweep"], 1),
        ("UPDATE findings SET received_ns = 1 << 62 WHERE subject = 'eth0'", ["eth1", "sweep"], 1),
        ("UPDATE findings SET sha256 = x'00' WHERE subject = 'eth0'", ["eth1", "sweep"], 1),
        ("UPDATE bulks SET compressed = x'00'", ["eth0", "eth1"], 2),
        ("UPDATE bulks SET compressed = CAST(compressed AS TEXT)", ["eth0", "eth1"], 2),
        ("UPDATE bulks SET sha256 = x'00'", ["eth0", "eth1"], 2),
        ("UPDATE agents SET instance = 'many'", ["eth0", "eth1", "sweep"], 1),
        ("UPDATE agents SET node = CAST(x'c3ff' AS TEXT)", ["eth0", "eth1", "sweep"], 1),
        ("UPDATE topology SET json = 7", ["eth0", "eth1", "sweep"], 1),
    ],
)
def test_damaged_rows_are_deleted_counted_and_reported(
    store: SqliteStore, statement: str, left: list[str], dropped: int
) -> None:
    text = bulk(b"# a sweep")
    rows = [kept(lldp("n1", "eth0")), kept(lldp("n1", "eth1")), kept(sweep("n2", text.sha256))]
    store.apply(Changes(rows, bulks=[text], agents=[AgentRow("n1", 7, "0.1")]))
    store.save_topology(b"a topology")
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute(statement)
    db.close()
    damage = Damage()
    again = SqliteStore(store.path, clock=CLOCK, damage=damage)
    loaded = again.load()
    subjects = {"mlx5_0/1": "sweep"}
    assert sorted(subjects.get(row.key.subject, row.key.subject) for row in loaded.rows) == left
    assert (damage.rows, damage.files) == ({"evidence.db": dropped}, {})
    assert f"{dropped} damaged rows were dropped: agents send" in loaded.problems[0]
    again.close()
    again = SqliteStore(store.path, clock=CLOCK, damage=damage)
    assert again.load().problems == ()
    again.close()


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 0",
        "PRAGMA user_version = 3",
        "UPDATE sqlite_master SET sql = replace(sql, 'observed_ns', 'observed_nt') WHERE name = 'findings'",
        "UPDATE sqlite_master SET sql = replace(sql, 'id = 1', 'id = 3') WHERE name = 'topology'",
    ],
)
def test_a_damaged_header_or_schema_is_moved_aside(store: SqliteStore, statement: str) -> None:
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute(statement)
    db.close()
    damage = Damage()
    again = SqliteStore(store.path, clock=CLOCK, damage=damage)
    assert "evidence.db is damaged (" in again.load().problems[0]
    assert damage.files == {"evidence.db": 1}
    again.close()
    assert len(list(store.path.parent.glob("evidence.db.damaged-*Z"))) == 1


@pytest.mark.parametrize("at", [18, 19, 60])
def test_a_header_that_asks_for_another_sqlite_is_moved_aside(store: SqliteStore, at: int) -> None:
    store.apply(Changes([kept(lldp("n1", "eth0"))]))
    store.close()
    data = bytearray(store.path.read_bytes())
    data[at] = 77  # https://www.sqlite.org/fileformat2.html#the_database_header
    store.path.write_bytes(data)
    again = SqliteStore(store.path, clock=CLOCK)
    again.apply(Changes([kept(lldp("n2", "eth0"))]))
    assert [row.key.node for row in again.load().rows] == ["n2"]
    again.close()
    assert len(list(store.path.parent.glob("evidence.db.damaged-*Z"))) == 1


def test_only_the_owner_reads_files_and_folder(store: SqliteStore) -> None:
    store.apply(Changes([kept(lldp("n1", "eth0"))]))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store.path.parent.iterdir()}
    assert modes == {
        "evidence.db": 0o600,
        "evidence.db-wal": 0o600,
        "evidence.db-shm": 0o600,
        "evidence.db.lock": 0o600,
    }
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_one_collector_a_file(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="another collector"):
        SqliteStore(store.path, clock=CLOCK)


def test_a_newer_format_is_left_alone(store: SqliteStore) -> None:
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute("CREATE TABLE newer (number INTEGER)")
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="format 99"):
        SqliteStore(store.path, clock=CLOCK)
    assert not list(store.path.parent.glob("*damaged*"))


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file: File exists: .*, or set another `data_dir`"):
        SqliteStore(tmp_path / "file" / "evidence.db")


def test_a_full_file_loses_nothing_and_takes_more_when_there_is_room(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "evidence.db", max_bytes=400 * 1024)
    count = fill(store)
    assert count > 0
    with pytest.raises(StoreFullError):
        store.apply(Changes([kept(failed("n2", "lldp", f"e{i}", reason="x" * 1000)) for i in range(20)]))
    assert len(store.load().rows) == count
    store._file.connection.execute("PRAGMA max_page_count = 100000")
    store.apply(Changes([kept(failed("n2", "lldp", f"e{i}", reason="x" * 1000)) for i in range(20)]))
    assert len(store.load().rows) == count + 20
    store.close()


def test_times_of_an_earlier_version_from_the_future_are_now(tmp_path: Path) -> None:
    machine = Steps()
    store = SqliteStore(tmp_path / "evidence.db", clock=machine.process())
    store.apply(Changes([kept(lldp("n1", "eth0", T0 - 3 * S), T0)]))
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute("DROP TABLE written")
    db.close()
    machine.wall_ns -= 7200 * S
    store = SqliteStore(tmp_path / "evidence.db", clock=machine.process())
    (row,) = store.load().rows
    assert (row.received_ns, row.seen_ns) == (machine.wall_ns, machine.wall_ns - 6 * S)
    store.close()
