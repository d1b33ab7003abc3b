"""The history is written beside everything else: what it cannot write it says, and goes on."""

import asyncio
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hyperscout_collector.history.causes import Cause
from hyperscout_collector.history.errors import HistoryError
from hyperscout_collector.history.file import HistoryFile
from hyperscout_collector.history.store import Record
from hyperscout_topology.topology import Topology
from support.recorder import S, generation, published, recording, why
from support.topologies import SINCE_NS
from support.waiting import until


async def test_a_read_opens_the_file(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        assert published(recorder) == []
        assert recorder.problem is None


async def test_generations_that_do_not_fit_in_line_become_one(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        for number in range(1, 21):
            recorder.offer(generation(number), why(number))
        assert await recorder.queue.flush()
        found = published(recorder)
        assert [x.generation for x in found] == [*range(1, 16), 20]
        assert "4 generations before it could not be recorded" in found[-1].message
        assert {key.node for key in found[-1].cause.findings} == {"n16", "n17", "n18", "n19", "n20"}
        assert recorder.topology_at(SINCE_NS + 50 * S).generation == 20


async def test_what_is_known_already_is_not_recorded_at_a_start(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        recorder.offer(generation(1), why(1))
        await recorder.queue.flush()
    async with recording(tmp_path) as recorder:
        recorder.resume(generation(1), Cause("restart"))
        await recorder.queue.flush()
        assert [x.generation for x in published(recorder)] == [1]
        recorder.resume(generation(3), Cause("takeover"))
        await recorder.queue.flush()
        assert [(x.generation, x.cause.kind) for x in published(recorder)] == [
            (1, "findings"),
            (3, "takeover"),
        ]


async def test_what_continues_under_a_new_number_is_recorded_under_it(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        recorder.offer(generation(1), why(1))
        await recorder.queue.flush()
        recorder.resume(replace(generation(1), generation=1001), Cause("restart"))
        await recorder.queue.flush()
        assert recorder.topology_at(SINCE_NS + 50 * S).generation == 1001
        assert [x.generation for x in published(recorder)] == [1]  # nothing changed


async def test_a_generation_is_published_once_it_is_recorded(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        found: list[tuple[int, list[int]]] = []

        def publish(topology: Topology, cause: Cause) -> None:
            found.append((topology.generation, [x.generation for x in published(recorder)]))

        recorder.recorded.subscribe(publish)
        recorder.resume(generation(1), Cause("restart"))
        recorder.record_first(generation(2), why(2))
        recorder.record_first(generation(3), why(3))
        writing = asyncio.create_task(recorder.queue.flush())
        assert not found
        await recorder.caught_up()
        assert await writing
        assert found == [(2, [1, 2]), (3, [1, 2, 3])]


async def test_a_generation_is_published_in_the_end_without_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyperscout_collector.history.recorder._PATIENCE_S", 0.0)
    (tmp_path / "data").write_text("in the way")
    async with recording(tmp_path / "data") as recorder:
        found: list[int] = []
        recorder.recorded.subscribe(lambda topology, cause: found.append(topology.generation))
        recorder.record_first(generation(1), why(1))
        await recorder.caught_up()
        await until(lambda: found)
        (tmp_path / "data").unlink()
        assert await recorder.queue.flush()
        assert found == [1]
        assert [x.generation for x in published(recorder)] == [1]


async def test_an_ended_recorder_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperscout_collector.history.recorder._PATIENCE_S", 0.0)
    found: list[int] = []
    async with recording(tmp_path) as recorder:
        recorder.recorded.subscribe(lambda topology, cause: found.append(topology.generation))
        recorder.record_first(generation(1), why(1))
        await recorder.close()
        await asyncio.sleep(0)
        assert found == []


async def test_a_file_that_is_damaged_while_it_is_open_begins_anew(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        for number in range(1, 50):
            recorder.offer(generation(number, bytes(4000)), why(number))
            await recorder.queue.flush()
        await recorder.close()
        path = tmp_path / "history.db"
        path.write_bytes(b"what is this" * 1000)
        recorder.offer(generation(50), why(50))
        assert await recorder.queue.flush()
        assert [x.generation for x in published(recorder)] == [50]
        assert "moved to history.db.damaged-" in (recorder.problem or "")


async def test_damage_from_before_a_clean_end_is_found_before_the_first_record(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        for number in range(1, 5):
            recorder.offer(generation(number), why(number))
            assert await recorder.queue.flush()
        with sqlite3.connect(tmp_path / "history.db") as db:
            db.execute("UPDATE pictures SET at_ns = 0 WHERE id = 3")
        db.close()
    async with recording(tmp_path) as recorder:
        assert published(recorder)
        assert recorder.problem is None
        recorder.offer(generation(9), why(9))
        assert await recorder.queue.flush()
        assert "damaged rows were dropped" in (recorder.problem or "")
        assert published(recorder)[-1].generation == 9


async def test_a_folder_that_may_not_be_written_is_said_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    async with recording(tmp_path / "data") as recorder:
        recorder.offer(generation(1), why(1))
        assert not await recorder.queue.flush()
        assert "the history is not written" in (recorder.problem or "")
        with pytest.raises(HistoryError, match="the history cannot be read: "):
            recorder.topology_at(SINCE_NS)
        assert recorder.size.write_failures_total == 1
        (tmp_path / "data").unlink()
        assert await recorder.queue.flush()
        assert recorder.problem is None
        assert [x.generation for x in published(recorder)] == [1]


async def test_a_generation_that_makes_it_raise_is_dropped_and_counted_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    encode = HistoryFile.encode

    def raising(file: HistoryFile, at_ns: int, topology: Topology, cause: Cause, missed: int) -> Record:
        if topology.generation in (2, 3):
            raise IndexError("planted")
        return encode(file, at_ns, topology, cause, missed)

    monkeypatch.setattr(HistoryFile, "encode", raising)
    async with recording(tmp_path) as recorder:
        for number in (1, 2, 3):
            recorder.offer(generation(number), why(number))
            assert await recorder.queue.flush()
        problem = "generation 3 is not recorded in the history: IndexError: planted"
        assert recorder.problem == problem
        assert recorder.size.write_failures_total == 2
        assert len(caplog.records) == 1
        recorder.offer(generation(4), why(4))
        assert await recorder.queue.flush()
        assert recorder.problem is None
        found = published(recorder)
        assert [x.generation for x in found] == [1, 4]
        assert "2 generations before it could not be recorded" in found[-1].message


async def test_closing_a_file_in_use_leaves_the_loop_free(tmp_path: Path) -> None:
    async with recording(tmp_path) as recorder:
        assert published(recorder) == []
        recorder._lock.acquire()
        closing = asyncio.create_task(recorder.close())
        await asyncio.sleep(0)
        assert not closing.done()
        recorder._lock.release()
        await closing
        assert recorder._store is None


async def test_the_writer_and_its_callers_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    add = HistoryFile.add

    def slowly(self: HistoryFile, record: Record) -> None:
        begun.set()
        assert go.wait(10)
        add(self, record)

    monkeypatch.setattr(HistoryFile, "add", slowly)
    async with recording(tmp_path) as recorder:
        task = asyncio.create_task(recorder.queue.run())
        recorder.offer(generation(1), why(1))
        assert await asyncio.to_thread(begun.wait, 10)
        for number in range(2, 100):
            recorder.offer(generation(number), why(number))  # at once: the loop is free
        assert published(recorder) == []
        go.set()
        await until(lambda: [x.generation for x in published(recorder)[-1:]] == [99])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_generation_whose_write_is_cancelled_is_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go = threading.Event(), threading.Event()
    add = HistoryFile.add

    def slowly(file: HistoryFile, record: Record) -> None:
        began.set()
        assert go.wait(10)
        add(file, record)

    async with recording(tmp_path) as recorder:
        monkeypatch.setattr(HistoryFile, "add", slowly)
        recorder.offer(generation(1), why(1))
        writing = asyncio.create_task(recorder.queue.flush())
        await until(began.is_set)
        writing.cancel()
        flushing = asyncio.create_task(recorder.queue.flush())
        for _ in range(100):  # both tasks get as far as they can while the thread writes
            await asyncio.sleep(0)
        assert not flushing.done()
        go.set()
        await asyncio.gather(writing, return_exceptions=True)
        assert await flushing
        with sqlite3.connect(tmp_path / "history.db") as db:
            assert db.execute("SELECT generation FROM pictures").fetchall() == [(1,)]
        db.close()
