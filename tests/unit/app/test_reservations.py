"""What the API reserved, on disk: back after a restart, never half, and never in the way."""

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hyperscout_collector.app.placing.reservations import Reservations, read_row, reservation_file
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_placer.book.failed_nodes import FailedNode
from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_placer.cluster.request import Group, Range, Request, Spread, Workers
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import TIMEOUT_S

NOW_NS = 1_767_225_600_000_000_000
ASKED = Request(
    Group(
        1,
        (Workers(1, (("cpu", 500), ("nvidia.com/gpu", 8)), role="leader"), Group(1, (Workers(2),), tier=1)),
        tier=2,
        spread=Spread(2, 0, required=False),
    ),
    "soft",
    frozenset({"n9", "leaf-b"}),
    use_down=True,
)
PLACED = Placement(("n1", "n2", "n2"), 2, "core", Cost(2, (1,), 2, 0, (3, 1, 0)), exact=False)


def held(gang: str = "a", holder: str = "api", expires_ns: int = 0) -> Reservation:
    return Reservation(gang, holder, ASKED, PLACED, NOW_NS, expires_ns)


class Book(Reservations):
    """Reservations with a file and a writer of their own."""

    def __init__(self, path: Path, now_ns: int, *, over: bool = False) -> None:
        self.file = reservation_file(path / "placements.db", lambda: now_ns)
        self.writer = StoreWriter()
        super().__init__(self.file, self.writer, now_ns=lambda: now_ns, over=over)
        self.flush = self.queue.flush

    def close(self) -> None:
        self.file.close()


def opened(path: Path, now_ns: int = NOW_NS, *, over: bool = False) -> Book:
    return Book(path, now_ns, over=over)


async def test_what_is_written_comes_back(tmp_path: Path) -> None:
    kept = opened(tmp_path)
    assert (kept.restored, kept.problems) == ([], [])
    bounded = replace(PLACED, tier=None, hypernode=None, bound=Cost(1, (), 1, 0, ()), relaxed=("no spread",))
    failed = (FailedNode("n3", NOW_NS - 9), FailedNode("n9", NOW_NS - 9, NOW_NS - 1))
    other = Reservation("b", "api", ASKED, bounded, NOW_NS, NOW_NS + 10, failed=failed)
    elastic = replace(ASKED, gang=Group(1, (Workers(3, elastic=Range(2, 9)),)))
    sized = Reservation("sized", "api", elastic, replace(PLACED, counts=(3,)), NOW_NS)
    for one in (held("a"), other, held("gone"), held("job", "Job"), sized):
        kept.follow(one.gang, one)
    kept.follow("gone", None)
    assert not any("job" in changes for changes in kept.queue._waiting)  # nothing to write
    assert await kept.flush()
    kept.follow("job", None)
    await kept.written()
    kept.close()
    kept = opened(tmp_path)
    assert (kept.restored, kept.problems) == ([held("a"), other, sized], [])
    kept.follow("a", None)
    kept.follow("sized", None)
    kept.follow("b", held("b", "Job"))  # its pods hold it now
    assert await kept.flush()
    kept.close()
    kept = opened(tmp_path)
    assert (kept.restored, kept.problems) == ([], [])
    kept.close()


async def test_what_is_over_does_not_come_back(tmp_path: Path) -> None:
    kept = opened(tmp_path)
    kept.follow("a", held("a", expires_ns=NOW_NS + 10))
    kept.follow("b", held("b"))
    await kept.flush()
    kept.close()
    kept = opened(tmp_path, NOW_NS + 10)
    assert [one.gang for one in kept.restored] == ["b"]
    assert await kept.flush()
    with sqlite3.connect(tmp_path / "placements.db") as other:
        assert other.execute("SELECT gang FROM gangs").fetchall() == [("b",)]
    kept.close()
    kept = opened(tmp_path, over=True)  # another replica led since
    assert (kept.restored, kept.problems) == ([], [])
    kept.close()
    kept = opened(tmp_path)
    assert (kept.restored, kept.problems) == ([], [])
    kept.close()


async def test_a_caller_waits_for_the_disk(tmp_path: Path) -> None:
    kept = opened(tmp_path)
    await kept.written()  # nothing to wait for
    kept.follow("a", held("a"))
    waiting = asyncio.create_task(kept.written())
    await asyncio.sleep(0)
    assert not waiting.done()
    writing = asyncio.create_task(kept.writer.run())
    async with asyncio.timeout(TIMEOUT_S):
        await waiting
    with sqlite3.connect(tmp_path / "placements.db") as other:
        assert other.execute("SELECT gang FROM gangs").fetchall() == [("a",)]
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    kept.close()


async def test_what_is_not_written_is_said_and_tried_again(tmp_path: Path) -> None:
    kept = opened(tmp_path)
    with sqlite3.connect(tmp_path / "placements.db") as other:
        other.execute("CREATE TRIGGER full BEFORE INSERT ON gangs BEGIN SELECT RAISE(ABORT, 'no room'); END")
    kept.follow("a", held("a"))
    waiting = asyncio.create_task(kept.written())
    await asyncio.sleep(0)
    assert not await kept.flush()
    with pytest.raises(StoreError, match="no room"):
        await waiting
    assert kept.queue.problem is not None
    kept.follow("b", held("b"))
    with sqlite3.connect(tmp_path / "placements.db") as other:
        other.execute("DROP TRIGGER full")
    assert await kept.flush()
    assert kept.queue.problem is None
    kept.close()
    kept = opened(tmp_path)
    assert [one.gang for one in kept.restored] == ["a", "b"]
    kept.close()


async def test_what_changed_while_the_disk_failed_is_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = opened(tmp_path)

    def fails(changed: object, removed: object) -> None:
        kept.follow("a", None)  # on the loop, in the end: here while the thread writes
        raise StoreError("disk I/O error")

    with monkeypatch.context() as full:
        full.setattr(kept.file, "write", fails)
        kept.follow("a", held("a"))
        assert not await kept.flush()
    assert await kept.flush()
    kept.close()
    kept = opened(tmp_path)
    assert (kept.restored, kept.problems) == ([], [])
    kept.close()


def test_a_power_cut_loses_nothing_that_was_told(tmp_path: Path) -> None:
    kept = opened(tmp_path)
    assert kept.file._database.connection.execute("PRAGMA synchronous").fetchone() == (
        2,
    )  # FULL: each commit reaches the disk
    kept.close()


async def test_a_caller_that_does_not_wait_any_more_causes_no_error(tmp_path: Path) -> None:
    kept = opened(tmp_path)
    kept.follow("a", held("a"))
    waiting = asyncio.create_task(kept.written())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await kept.flush()
    kept.close()


def test_a_damaged_file_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / "placements.db").write_bytes(b"what is this" * 1000)
    kept = opened(tmp_path)
    assert kept.restored == []
    assert kept.problems[0].endswith("moved to placements.db.damaged-20260101T000000Z: nothing is reserved")
    assert (tmp_path / "placements.db.damaged-20260101T000000Z").read_bytes().startswith(b"what is this")
    kept.close()


def test_a_newer_file_or_none_at_all_ends_the_start(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "placements.db") as db:
        db.execute("CREATE TABLE newer (number INTEGER)")
        db.execute("PRAGMA user_version = 9")
    with pytest.raises(StoreError, match="format 9, this collector reads format 1"):
        opened(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file: File exists: let the collector write this folder"):
        opened(tmp_path / "file")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE gangs SET request = x'ffff' WHERE gang = 'a'",
        "UPDATE gangs SET placement = CAST(x'c3ff' AS TEXT) WHERE gang = 'a'",
        "UPDATE gangs SET gang = 'c' WHERE gang = 'a'",
        "UPDATE gangs SET gang = CAST(x'c3ff' AS TEXT) WHERE gang = 'a'",
        "UPDATE gangs SET placement = x'' WHERE gang = 'a'",
    ],
)
async def test_damaged_rows_are_deleted_counted_and_reported(tmp_path: Path, statement: str) -> None:
    kept = opened(tmp_path)
    kept.follow("a", held("a"))
    kept.follow("b", held("b"))
    assert await kept.flush()
    kept.close()
    with sqlite3.connect(tmp_path / "placements.db") as other:
        other.execute(statement)
    kept = opened(tmp_path)
    found = kept.restored
    assert [one.gang for one in found] == ["b"]
    assert "placements.db: 1 damaged rows were dropped: the nodes of their gangs are free" in kept.problems[0]
    kept.close()
    kept = opened(tmp_path)
    assert (kept.restored, kept.problems) == (found, [])
    kept.close()


@given(request=st.binary(max_size=120), placement=st.binary(max_size=120))
def test_any_bytes_are_a_reservation_or_none(request: bytes, placement: bytes) -> None:
    found = read_row(b"a", request, placement)
    assert found is None or found.gang == "a"
