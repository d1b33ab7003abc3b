"""What was recorded comes back, at any time; the file stays as small and as young as it was set to."""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.history import file as file_module
from hyperscout_collector.history import store as store_module
from hyperscout_collector.history.errors import NotKeptError
from hyperscout_collector.history.file import HistoryFile
from hyperscout_collector.history.reader import HistoryReader
from hyperscout_collector.history.store import HistorySize, names_of
from hyperscout_collector.store.database import Damage, Reader
from hyperscout_collector.store.errors import StoreError
from hyperscout_inference.hierarchy.conditions import ConditionFacts, with_conditions
from hyperscout_topology.diff import Diff
from hyperscout_topology.events import Event, events
from hyperscout_topology.topology import Endpoint, HyperNode, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.any_topologies import TOPOLOGIES, same
from support.histories import DAY, T0, WHY, S, cut, fill, told
from support.recorder import generation as numbered
from support.recorder import record
from support.topologies import two_leaves


def opened(
    path: Path,
    size: HistorySize | None = None,
    *,
    mib: float = 64,
    days: float = 30,
    now_ns: int = T0,
    damage: Damage | None = None,
) -> HistoryFile:
    return HistoryFile(
        path,
        size or HistorySize(),
        max_bytes=int(mib * 2**20),
        max_age_ns=int(days * DAY),
        now_ns=now_ns,
        damage=damage,
    )


def reading(path: Path, now_ns: int = T0 + 400 * DAY) -> HistoryReader:
    return HistoryReader(Reader(path), lambda: now_ns)


# Pictures


@pytest.mark.slow
@given(st.lists(st.tuples(TOPOLOGIES, st.integers(0, 2)), min_size=1, max_size=8))
def test_at_any_time_there_is_what_was_out_then(
    tmp_path_factory: pytest.TempPathFactory, many: Sequence[tuple[Topology, int]]
) -> None:
    path = tmp_path_factory.mktemp("history") / "history.db"
    out: list[tuple[int, Topology]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "_MAX_STEPS", 3)  # several spans
        store = opened(path)
        for topology, pause in many:
            out.append(((out[-1][0] if out else T0) + pause * S, topology))
            record(store, *out[-1], WHY)
        store.close()
        again = opened(path, now_ns=out[-1][0])
        assert again.newest is not None
        assert same(again.newest) == same(out[-1][1])
        again.close()
    reader = reading(path)
    for at_ns in range(out[0][0], out[-1][0] + S, S // 2):
        expected = [topology for then_ns, topology in out if then_ns <= at_ns][-1]
        assert same(reader.topology_at(at_ns)) == same(expected)
    first, last = out[0][1], out[-1][1]
    assert [x.kind for x in told(reader, net=True)] == [x.kind for x in reversed(events(Diff(first, last)))]
    reader.close()


# Events


@pytest.mark.slow
def test_an_event_of_ten_thousand_nodes_is_found_by_each(tmp_path: Path) -> None:
    nodes = [f"n{i:05}" for i in range(10_000)]
    leaf = Topology(1, (HyperNode("leaf", 1, "leaf", None, (), tuple(nodes), ()),))
    ready = with_conditions(leaf)
    down = replace(with_conditions(leaf, ConditionFacts(down_nodes=dict.fromkeys(nodes, ""))), generation=2)
    size = HistorySize()
    store = opened(tmp_path / "history.db", size, mib=2)
    for i in range(12):  # more mentions than the file holds: the oldest days go
        record(store, T0 + i * DAY, down if i % 2 else ready, WHY)
    reader = reading(tmp_path / "history.db")
    for name in (nodes[0], nodes[3], nodes[5000], nodes[-1]):
        found = told(reader, about=name, kinds=["ConditionChanged"])
        assert found, name
        assert {x.hypernode for x in found} == {"leaf"}
        assert max(x.ByteSize() for x in found) < 1000, "the list is in the index, not in each answer"
    assert told(reader, about="n10000") == []
    assert size.generations < 12
    assert size.bytes <= 2 << 20
    store.close()
    reader.close()


# Bounds


@pytest.mark.slow
def test_the_oldest_goes_when_the_file_is_full(tmp_path: Path) -> None:
    size = HistorySize()
    store = opened(tmp_path / "history.db", size, mib=0.25)
    largest = 0
    for _ in range(3):
        fill(store, 200)
        largest = max(largest, size.bytes)
        assert (tmp_path / "history.db").stat().st_size <= 2**18
    assert 0.6 * 2**18 < largest <= 2**18
    assert 0 < size.generations < 600
    reader = reading(tmp_path / "history.db")
    oldest = reader.events(pb.ListHistoryRequest(page_size=1)).oldest.ToNanoseconds()
    assert oldest == size.oldest_ns > T0
    with pytest.raises(NotKeptError, match="before the oldest"):
        reader.topology_at(oldest - 1)
    assert reader.topology_at(oldest).generation > 0
    request = pb.ListHistoryRequest(page_size=1000)
    seen = 0
    while True:
        answer = reader.events(request)
        assert all(x.at.ToNanoseconds() >= oldest for x in answer.events)
        seen += len(answer.events)
        if not (token := answer.next_page_token):
            break
        request.page_token = token
    assert seen == size.events
    with sqlite3.connect(tmp_path / "history.db") as db:  # nothing is left of what went
        assert (
            db.execute("SELECT MIN(event) FROM mentions").fetchone()
            == db.execute("SELECT MIN(id) FROM events").fetchone()
        )
        used = "SELECT name FROM mentions UNION SELECT thing FROM events"
        stray = f"SELECT COUNT(*) FROM names WHERE id NOT IN ({used})"
        assert db.execute(stray).fetchone() == (0,)
    db.close()
    reader.close()
    store.close()


@pytest.mark.slow
def test_a_lower_limit_is_kept_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    store = opened(path, mib=4)
    fill(store, 300)
    store.close()
    assert path.stat().st_size > 2**18
    size = HistorySize()
    store = opened(path, size, mib=0.25, now_ns=T0 + DAY)
    assert size.bytes <= 2**18
    record(store, T0 + 2 * DAY, two_leaves(), WHY)
    store.close()
    assert path.stat().st_size <= 2**18


# Trouble


def test_a_damaged_file_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"what is this" * 1000)
    store = opened(path)
    assert "history.db.damaged-" in store.problem
    assert "starts again" in store.problem
    record(store, T0, two_leaves(), WHY)
    store.close()
    again = opened(path)
    assert again.problem == ""
    again.close()
    assert next(tmp_path.glob("history.db.damaged-*")).read_bytes().startswith(b"what is this")


def test_a_picture_that_cannot_be_read_begins_a_new_span(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    store = opened(path)
    for i in range(3):
        record(store, T0 + i * S, cut(i), WHY)
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE pictures SET frame = x'00' WHERE id = 2")
    db.close()
    store = opened(path, now_ns=T0 + 5 * S)
    assert "continues with a new whole topology" in store.problem
    record(store, T0 + 9 * S, cut(1), WHY)
    reader = reading(path)
    assert same(reader.topology_at(T0 + 9 * S)) == same(cut(1))
    assert same(reader.topology_at(T0)) == same(cut(0))
    store.close()
    reader.close()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each check of all rows."""
    found: list[object] = []
    real = file_module.drop_damaged
    monkeypatch.setattr(file_module, "drop_damaged", lambda db: found.append(db) or real(db))
    return found


def test_a_file_that_was_closed_is_opened_without_a_check(tmp_path: Path, checks: list[object]) -> None:
    path, lock = tmp_path / "history.db", tmp_path / "history.db.lock"
    store = opened(path)
    record(store, T0, cut(0), WHY)
    store.close()
    checks.clear()
    store = opened(path)
    assert lock.read_bytes() == b"", "a process that is killed leaves no seal"
    assert same(store.newest or Topology(0)) == same(cut(0))
    assert checks == []
    store.check()
    store.check()
    assert len(checks) == 1
    assert store.problem == ""
    store.close()
    lock.write_bytes(b"")
    opened(path).close()
    assert len(checks) == 2


@given(where=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_a_changed_byte_of_a_closed_file_makes_the_next_start_check_it(
    tmp_path_factory: pytest.TempPathFactory, where: float, change: int
) -> None:
    path = tmp_path_factory.mktemp("history") / "history.db"
    store = opened(path)
    for i in range(3):
        record(store, T0 + i * S, cut(i), WHY)
    store.close()
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= change
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HistoryFile, "_drop_damaged", lambda _: checks.append(1))
        checks: list[int] = []
        opened(path, now_ns=T0 + 9 * S).close()
        assert checks


@pytest.mark.parametrize("is_row", [True, False], ids=["a row", "an index"])
def test_damage_from_before_the_file_was_closed_is_found_by_the_check(tmp_path: Path, is_row: bool) -> None:
    path = tmp_path / "history.db"
    store = opened(path)
    for i in range(3):
        record(store, T0 + i * S, cut(i), WHY)
    with sqlite3.connect(path, isolation_level=None) as db:
        if is_row:
            db.execute("UPDATE pictures SET at_ns = 0 WHERE id = 3")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events_thing'").fetchone()
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    if not is_row:
        with path.open("r+b") as file:
            file.seek((page - 1) * page_bytes)
            file.write(bytes(page_bytes))
    store.close()
    damage = Damage()
    store = opened(path, now_ns=T0 + 9 * S, damage=damage)
    assert store.problem == ""
    if is_row:
        store.check()
        assert (damage.rows["history.db"] >= 1, damage.files) == (True, {})
        assert "damaged rows were dropped" in store.problem
    else:
        with pytest.raises(StoreError, match="restart the collector"):
            store.check()
        store.close()
        store = opened(path, now_ns=T0 + 9 * S, damage=damage)
        assert damage.files == {"history.db": 1}
    record(store, T0 + 9 * S, cut(1), WHY)
    reader = reading(path)
    assert same(reader.topology_at(T0 + 9 * S)) == same(cut(1))
    reader.close()
    store.close()


def test_one_collector_a_file(tmp_path: Path) -> None:
    store = opened(tmp_path / "history.db")
    with pytest.raises(StoreError, match="another collector"):
        opened(tmp_path / "history.db")
    store.close()
    opened(tmp_path / "history.db").close()


def test_another_format_is_left_alone(tmp_path: Path) -> None:
    opened(tmp_path / "history.db").close()
    with sqlite3.connect(tmp_path / "history.db") as db:
        db.execute("CREATE TABLE newer (number INTEGER)")
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="format 99"):
        opened(tmp_path / "history.db")


@pytest.mark.parametrize(
    ("statement", "left", "dropped"),
    [
        ("UPDATE pictures SET frame = 'x' WHERE id = 2", [0, 3, 4], 1),  # 3 is a whole topology
        ("UPDATE pictures SET at_ns = 0 WHERE id = 2", [0, 3, 4], 1),
        ("UPDATE pictures SET at_ns = 1 WHERE id = 4", [0, 1, 3], 1),
        ("UPDATE pictures SET span = 1 WHERE id = 3", [0, 1], 1),
        ("UPDATE pictures SET id = 1 << 60 WHERE id = 4", [0, 1, 3], 1),
        ("UPDATE events SET kind = 99 WHERE picture = 2", [0, 1, 3, 4], 1),
        ("UPDATE events SET body = CAST(x'c3ff' AS TEXT) WHERE picture = 2", [0, 1, 3, 4], 1),
        ("UPDATE names SET name = x'07' WHERE id = 1", [0, 1, 3, 4], 1),
    ],
)
def test_damaged_rows_are_deleted_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, left: list[int], dropped: int
) -> None:
    path = tmp_path / "history.db"
    monkeypatch.setattr(store_module, "_MAX_STEPS", 1)  # spans of two
    store = opened(path)
    several = {number: numbered(number) for number in (0, 1, 3, 4)}
    for number, topology in several.items():
        record(store, T0 + number * S, topology, WHY)
    store.close()
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()
    damage = Damage()
    store = opened(path, now_ns=T0 + 9 * S, damage=damage)
    assert (damage.rows["history.db"] >= dropped, damage.files) == (True, {})
    assert "damaged rows were dropped" in store.problem
    reader = reading(path)
    assert {reader.topology_at(T0 + number * S).generation for number in left} == set(left)
    record(store, T0 + 9 * S, numbered(9), WHY)
    assert {event.generation for event in told(reader)} <= {*several, 9}
    assert reader.topology_at(T0 + 9 * S).generation == 9
    reader.close()
    store.close()
    store = opened(path, now_ns=T0 + 9 * S)
    assert store.problem == ""
    store.close()


def test_what_an_event_answers_to() -> None:
    event = Event(
        "LinkAdded", "", "h", "n", Endpoint("0a", "leaf", "7"), Endpoint("n", "n", "eth0"), nodes=("m",)
    )
    assert names_of(event) == {"h", "n", "m", "0a", "leaf", "leaf/p7", "0a/p7", "n/eth0"}
    of_adapter = Event("LinkAdded", "", subject=Endpoint("0b", "n", "1", "mlx5_0"))
    assert names_of(of_adapter) == {"0b", "0b/p1", "n", "n/p1", "n mlx5_0/p1"}
    assert names_of(Event("NodeMoved", "", "b", "n", before="a", after="b")) == {"n", "a", "b"}
    assert names_of(Event("ConditionChanged", "", "b", before="True", after="False")) == {"b"}
