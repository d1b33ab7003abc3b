"""What was recorded comes back, at any time; the file stays as small and as young as it was set to."""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.history import store as store_module
from hyperscout_collector.history.causes import Cause
from hyperscout_collector.history.errors import BadHistoryRequestError, NotKeptError
from hyperscout_collector.history.reader import FileReader
from hyperscout_collector.history.store import HistoryFile, HistorySize, names_of
from hyperscout_collector.store.database import Damage
from hyperscout_collector.store.errors import StoreError
from hyperscout_inference.hierarchy.conditions import ConditionFacts, with_conditions
from hyperscout_topology.diff import Diff
from hyperscout_topology.events import KINDS, Event, events
from hyperscout_topology.proto import timestamp
from hyperscout_topology.topology import Endpoint, HyperNode, Link, LinkTable, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.any_topologies import TOPOLOGIES, lost_cable, same
from support.recorder import generation as numbered
from support.recorder import record
from support.topologies import SINCE_NS, measured, two_leaves

S = 1_000_000_000
DAY = 86_400 * S
T0 = SINCE_NS
WHY = Cause("findings", (Key("n01", "lldp", "eth0"),), 1)


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


def reading(path: Path, now_ns: int = T0 + 400 * DAY) -> FileReader:
    return FileReader(path, lambda: now_ns)


def cut(i: int, whole: Topology | None = None) -> Topology:
    """Without the i-th link, which an anomaly names."""
    whole = whole or two_leaves()
    links = [x for k, x in enumerate(whole.links) if k != i % len(whole.links)]
    return replace(whole, links=LinkTable.of(links), anomalies=(*whole.anomalies, lost_cable(i)))


def told(reader: FileReader, **request: object) -> list[pb.HistoryEvent]:
    return list(reader.events(pb.ListHistoryRequest(**request)).events)  # type: ignore[arg-type]


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


def test_events_are_found_by_all_their_names_and_pages_are_stable(tmp_path: Path) -> None:
    store, reader = opened(tmp_path / "history.db"), None
    whole = two_leaves()
    for i in range(20):
        record(store, T0 + i * S, cut(0) if i % 2 else whole, WHY)
    reader = reading(tmp_path / "history.db")
    every = told(reader)
    assert [x.id for x in every] == sorted((x.id for x in every), reverse=True)
    assert len(every) == 1 + 19 * 3  # a link, an anomaly, the generation; the first has no changes
    assert {x.cause.findings[0].node for x in every} == {"n01"}
    for name, kinds in {
        "n01": {"LinkAdded", "LinkRemoved"},
        "a01": {"LinkAdded", "LinkRemoved"},
        "n01/p1": {"LinkAdded", "LinkRemoved"},
        "n01/p1 -- leaf-a/p1": {"LinkAdded", "LinkRemoved"},
        "leaf-a/p1 -> n01/p1": {"LinkAdded", "LinkRemoved"},
        "a01:1--s1:1": {"LinkAdded", "LinkRemoved"},
        "n00": {"AnomalyAppeared", "AnomalyCleared"},
        "n00/p1 -- leaf-b/p1": set[str](),
        "absent": set[str](),
        "": set(KINDS[0:2]) | {"AnomalyAppeared", "AnomalyCleared", "GenerationPublished"},
    }.items():
        assert {x.kind for x in told(reader, about=name)} == kinds, name
        assert {
            x.kind
            for x in told(reader, about=name, net=True, since=timestamp(T0), until=timestamp(T0 + 2 * S))
        } == ({kind for kind in kinds if kind.endswith(("Removed", "Appeared"))}), name
    seen: list[int] = []
    request = pb.ListHistoryRequest(page_size=7)
    for turn in range(100):
        answer = reader.events(request)
        assert bool(answer.flaps) == (turn == 0)
        seen += [x.id for x in answer.events]
        record(store, T0 + (100 + turn) * S, cut(1) if turn % 2 else whole, WHY)  # meanwhile
        request.page_token = answer.next_page_token
        if not request.page_token:
            break
    assert seen == [x.id for x in every]
    of_link = told(reader, kinds=["LinkRemoved"], since=timestamp(T0 + 3 * S), until=timestamp(T0 + 7 * S))
    assert [x.at.ToNanoseconds() for x in of_link] == [T0 + 5 * S, T0 + 3 * S]  # since included, until not
    store.close()
    reader.close()


def test_an_event_of_many_nodes_is_found_by_each(tmp_path: Path) -> None:
    nodes = [f"n{i:02}" for i in range(20)]
    ready = with_conditions(Topology(1, (HyperNode("leaf", 1, "leaf", None, (), tuple(nodes), ()),)))
    down = with_conditions(ready, ConditionFacts(down_nodes=dict.fromkeys(nodes, "")))
    store = opened(tmp_path / "history.db")
    for generation in (1, 2):
        now = replace((ready, down)[generation - 1], generation=generation)
        record(store, T0 + generation * S, now, WHY)
    reader = reading(tmp_path / "history.db")
    for name in nodes:
        assert [x.hypernode for x in told(reader, about=name, kinds=["ConditionChanged"])] == ["leaf"], name
    store.close()
    reader.close()


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


def test_what_flaps_is_counted_most_often_first(tmp_path: Path) -> None:
    store, reader = opened(tmp_path / "history.db"), None
    whole = two_leaves()
    for i in range(7):
        record(store, T0 + i * S, cut(0) if i % 2 else whole, WHY)
    record(store, T0 + 7 * S, cut(1), WHY)
    record(store, T0 + 8 * S, whole, WHY)
    reader = reading(tmp_path / "history.db")
    flaps = reader.events(pb.ListHistoryRequest()).flaps
    assert [(x.what, x.changes, x.last.ToNanoseconds() - T0) for x in flaps] == [
        ("MissingLink", 6, 6 * S),
        ("Link", 6, 6 * S),
    ]
    assert [
        x.changes for x in reader.events(pb.ListHistoryRequest(about="n01", kinds=["LinkAdded"])).flaps
    ] == [3]
    late = reader.events(pb.ListHistoryRequest(since=timestamp(T0 + 5 * S)))
    assert list(late.flaps) == []
    store.close()
    reader.close()


def test_net_pages_stay_with_the_question(tmp_path: Path) -> None:
    store = opened(tmp_path / "history.db")
    record(store, T0, two_leaves(), WHY)
    record(store, T0 + S, replace(two_leaves(), links=(), anomalies=()), Cause("approved"))
    reader = reading(tmp_path / "history.db")
    request = pb.ListHistoryRequest(net=True, page_size=2)
    first = reader.events(request)
    record(store, T0 + 2 * S, two_leaves(), WHY)  # all is well again
    request.page_token = first.next_page_token
    second = reader.events(request)
    request.page_token = second.next_page_token
    third = reader.events(request)
    kinds = [x.kind for page in (first, second, third) for x in page.events]
    assert kinds == ["AnomalyCleared"] + ["LinkRemoved"] * 5
    assert {x.cause.kind for page in (first, second, third) for x in page.events} == {"approved"}
    assert not third.next_page_token
    assert told(reader, net=True) == []
    store.close()
    reader.close()


@pytest.mark.slow
def test_a_mass_change_is_bounded_and_what_ends_differ_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = LinkTable.of([Link(f"a{i:04}", "1", "s1", str(i), "ib", ("lldp",)) for i in range(1500)])
    store = opened(tmp_path / "history.db")
    record(store, T0, Topology(1, links=many), WHY)
    record(store, T0 + S, Topology(2, links=many[:1]), WHY)
    reader = reading(tmp_path / "history.db")
    answer = reader.events(pb.ListHistoryRequest(page_size=1000, kinds=["LinkRemoved"]))
    assert len(answer.events) == 1000
    assert answer.events[0].message.startswith("500 more")
    net = pb.ListHistoryRequest(net=True, page_size=1000)
    whole = list(reader.events(net).events)
    net.page_token = reader.events(net).next_page_token
    assert len(whole) + len(reader.events(net).events) == 1499
    store.close()
    reader.close()


def test_ages_alone_make_no_event_but_are_in_the_picture(tmp_path: Path) -> None:
    store = opened(tmp_path / "history.db")
    record(store, T0, measured(), WHY)
    older = replace(measured(), generation=8, tiers=())
    record(store, T0 + S, older, Cause("age"))
    reader = reading(tmp_path / "history.db")
    assert [x.generation for x in told(reader)] == [7]
    assert same(reader.topology_at(T0 + S)) == same(older)
    store.close()
    reader.close()


# Bounds


def fill(
    store: HistoryFile, many: int, *, every_ns: int = 60 * S, grow: Callable[[int], int] = lambda i: i % 40
) -> None:
    """Generations that differ in a link and in some random words, which do not deflate."""
    rng = Random(7)
    for i in range(many):
        picture = cut(grow(i))
        noise = lost_cable(90, rng.randbytes(150).hex())
        record(
            store,
            T0 + i * every_ns,
            replace(picture, generation=i, anomalies=(*picture.anomalies, noise)),
            WHY,
        )


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
def test_what_is_too_old_goes_and_what_is_out_stays(tmp_path: Path) -> None:
    size = HistorySize()
    store = opened(tmp_path / "history.db", size, days=3)
    fill(store, 240, every_ns=3600 * S)  # ten days
    end_ns = T0 + 239 * 3600 * S
    assert end_ns - 4.1 * DAY < size.oldest_ns < end_ns - 2.9 * DAY
    store.close()
    store = opened(tmp_path / "history.db", size, days=3, now_ns=end_ns + 100 * DAY)
    assert store.newest is not None
    assert store.newest.generation == 239
    assert size.generations <= 25  # the last span
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
    real = store_module.drop_damaged
    monkeypatch.setattr(store_module, "drop_damaged", lambda db: found.append(db) or real(db))
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


def test_a_clock_that_was_ahead_leaves_nothing_in_the_future(tmp_path: Path) -> None:
    store = opened(tmp_path / "history.db")
    record(store, T0 + 100 * DAY, cut(0), WHY)
    record(store, T0 + S, cut(1), WHY)  # set back: order is kept
    store.close()
    store = opened(tmp_path / "history.db", now_ns=T0 + 2 * S)
    record(store, T0 + 3 * S, cut(2), WHY)
    reader = reading(tmp_path / "history.db", T0 + 3 * S)
    assert [x.at.ToNanoseconds() for x in told(reader, kinds=["GenerationPublished"])] == [
        T0 + 3 * S,
        T0 + 2 * S,
        T0 + 2 * S,
    ]
    with pytest.raises(BadHistoryRequestError, match="in the future"):
        reader.topology_at(T0 + DAY)
    store.close()
    reader.close()


@pytest.mark.slow
def test_readers_see_whole_states_while_it_is_written(tmp_path: Path) -> None:
    store = opened(tmp_path / "history.db", mib=0.25)
    record(store, T0, cut(0), WHY)
    reader, stop, problems = reading(tmp_path / "history.db"), threading.Event(), list[str]()

    def ask() -> None:
        while not stop.is_set():
            answer = reader.events(pb.ListHistoryRequest(page_size=50))
            ids = [x.id for x in answer.events]
            if ids != list(range(ids[0], ids[0] - len(ids), -1)) or not all(
                x.generation >= 0 for x in answer.events
            ):
                problems.append(str(ids))
            reader.topology_at(T0 + DAY * 300)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    fill(store, 300)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    store.close()
    reader.close()


def test_what_an_event_answers_to() -> None:
    event = Event(
        "LinkAdded", "", "h", "n", Endpoint("0a", "leaf", "7"), Endpoint("n", "n", "eth0"), nodes=("m",)
    )
    assert names_of(event) == {"h", "n", "m", "0a", "leaf", "leaf/p7", "0a/p7", "n/eth0"}
    assert names_of(Event("NodeMoved", "", "b", "n", before="a", after="b")) == {"n", "a", "b"}
    assert names_of(Event("ConditionChanged", "", "b", before="True", after="False")) == {"b"}


def test_nothing_recorded_yet_is_said(tmp_path: Path) -> None:
    store, reader = opened(tmp_path / "history.db"), reading(tmp_path / "history.db")
    with pytest.raises(NotKeptError, match="no generation is recorded yet"):
        reader.topology_at(T0)
    for net in (False, True):
        answer = reader.events(pb.ListHistoryRequest(net=net, about="n"))
        assert (len(answer.events), answer.HasField("oldest")) == (0, False)
    reader.close()
    store.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["history.db", "history.db.lock"]
