"""The store: what it holds after a crash, when the file is damaged, and when there is no room."""

import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.state import AgentRow, Bulk
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.store.errors import StoreError, StoreFullError
from support.evidence_rows import fill, kept
from support.findings import T0, S, failed, lldp, sweep


def bulk(text: bytes) -> Bulk:
    return Bulk(hashlib.sha256(text).digest(), len(text), zlib.compress(text))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    found = SqliteStore(tmp_path / "deep" / "evidence.db")
    yield found
    found.close()


def test_everything_comes_back_after_a_restart(store: SqliteStore) -> None:
    text = bulk(b"# a sweep")
    rows = [kept(lldp("n1", "eth0")), kept(failed("n1", "lldp", "eth1")), kept(sweep("n2", text.sha256))]
    store.apply(Changes(rows, bulks=[text], agents=[AgentRow("n1", (1 << 64) - 1, "0.1")]))
    store.save_topology(b"a topology")
    store.close()
    again = SqliteStore(store.path)
    loaded = again.load()
    assert sorted(loaded.rows, key=lambda row: row.key) == [row for row, _ in rows]
    assert loaded.agents == [AgentRow("n1", (1 << 64) - 1, "0.1")]
    assert loaded.topology == b"a topology"
    assert loaded.problems == ()
    assert again.bulk(text.sha256) == text.compressed
    again.close()


def test_a_transaction_is_all_or_nothing(store: SqliteStore) -> None:
    store.apply(Changes([kept(lldp("n1", "eth0"))]))
    row, encoded = kept(lldp("n1", "eth1"))
    with pytest.raises(StoreError):
        store.apply(Changes([(row, encoded), (row, None)]))  # type: ignore[list-item]
    assert [row.key.subject for row in store.load().rows] == ["eth0"]


def test_a_text_goes_when_no_finding_names_it(store: SqliteStore) -> None:
    old, new = bulk(b"old"), bulk(b"new")
    first = [kept(sweep("n1", old.sha256)), kept(sweep("n2", old.sha256))]
    store.apply(Changes(first, bulks=[old]))
    store.apply(Changes([kept(sweep("n1", new.sha256))], bulks=[new], maybe_unnamed_bulks=[old.sha256]))
    assert store.bulk(old.sha256) is not None  # n2 names it still
    store.apply(Changes(deletes=[(first[1][0].key, 2)], maybe_unnamed_bulks=[old.sha256]))
    assert (store.bulk(old.sha256), store.bulk(new.sha256)) == (None, new.compressed)


def test_pages_go_through_everything_once_and_in_order(store: SqliteStore) -> None:
    rows = [kept(lldp(f"n{i // 4}", f"eth{i % 4}")) for i in range(20)]
    rows += [kept(failed("n1", "lldp", "eth1", T0 + S)), kept(failed("n0", "infiniband", "mlx5_0/1"))]
    store.apply(Changes(rows))
    found: list[tuple[Key, int]] = []
    after = None
    while page := store.page("", "", after, 3):
        found += [(row.key, row.rank) for row in page]
        after = found[-1]
    assert found == sorted((row.key, row.rank) for row, _ in rows)
    assert [row.key.node for row in store.page("n1", "lldp", None, 100)] == ["n1"] * 5
    assert [row.key.subject for row in store.page("", "infiniband", None, 100)] == ["mlx5_0/1"]
    only = store.page("n0", "lldp", None, 1)[0]
    assert (only.observed_ns - only.offset_ns, only.received_ns) == (T0 - 3 * S, T0)
    assert Finding.FromString(only.finding) == lldp("n0", "eth0")


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
    again = SqliteStore(store.path, now_ns=lambda: T0)
    loaded = again.load()
    again.apply(Changes([kept(lldp("n2", "eth0"))]))
    assert [row.key.node for row in again.load().rows] == ["n2"]
    again.close()
    aside = store.path.with_name("evidence.db.damaged-20251009T085320Z")
    if data:
        assert aside.read_bytes() == data
        assert str(store.path) in loaded.problems[0]
        assert aside.name in loaded.problems[0]
    else:  # an empty file is a new database: there is nothing to keep
        assert loaded.problems == ()


def test_rows_that_cannot_be_read_are_passed_over_and_said(store: SqliteStore) -> None:
    store.apply(Changes([kept(lldp("n1", "eth0")), kept(lldp("n1", "eth1"))]))
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute("UPDATE findings SET finding = x'ff' WHERE subject = 'eth0'")
    db.close()
    again = SqliteStore(store.path)
    loaded = again.load()
    again.close()
    assert [row.key.subject for row in loaded.rows] == ["eth1"]
    assert "1 findings cannot be read" in loaded.problems[0]


def test_one_collector_a_file(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="another collector"):
        SqliteStore(store.path)


def test_a_newer_format_is_left_alone(store: SqliteStore) -> None:
    store.close()
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="format 99"):
        SqliteStore(store.path)
    assert not list(store.path.parent.glob("*damaged*"))


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="choose another data folder"):
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
