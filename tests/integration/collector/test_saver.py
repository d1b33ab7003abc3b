"""The number of a generation names one topology, also after a crash."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.publication.saver import Saver, after_crash, ahead, read_saved
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_topology.topology import Topology
from support.collectors import collector_settings, playing
from support.topologies import leaves
from support.waiting import eventually


@asynccontextmanager
async def saving(
    store: SqliteStore, lacks_evidence: Callable[[], bool] = lambda: False
) -> AsyncIterator[Saver]:
    writer = StoreWriter()
    saver = Saver(store, writer, lacks_evidence)
    task = asyncio.create_task(writer.run())
    try:
        yield saver
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await writer.close()


def started(path: Path) -> tuple[SqliteStore, Topology]:
    """The store, and what a start goes on from."""
    store = SqliteStore(path)
    loaded = store.load()
    saved, _ = read_saved(loaded.topology)
    found = after_crash(saved or Topology(0), loaded.reserved)
    store.reserve(ahead(found.generation))
    return store, found


async def test_a_crash_uses_no_number_again(tmp_path: Path) -> None:
    path, last = tmp_path / "evidence.db", 0
    for _ in range(3):
        store, found = started(path)
        assert found.generation >= last
        async with saving(store) as saver:
            for number in range(found.generation + 1, found.generation + 6):
                last = number
                if number < found.generation + 3:  # the crash comes before the others are saved
                    saver.offer(replace(leaves(("n1",)), generation=number))
                    await saver.queue.written()
        store.close()


async def test_a_crash_during_a_take_over_is_followed_by_another(tmp_path: Path) -> None:
    is_takeover = True
    store = SqliteStore(tmp_path / "evidence.db")
    async with saving(store, lambda: is_takeover) as saver:
        for generation in (1, 2):
            saver.offer(replace(leaves(("n1",)), generation=generation))
            await saver.queue.written()
            assert store.load().lacks_evidence == is_takeover
            is_takeover = False
    store.close()


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_take_over_that_changes_nothing_ends_on_disk_too(tmp_path: Path, *, is_stopped: bool) -> None:
    is_takeover = True
    store = SqliteStore(tmp_path / "evidence.db")
    async with saving(store, lambda: is_takeover) as saver:
        saver.offer(leaves(("n1",)))
        await saver.queue.written()
        saver.tick()
        await saver.queue.written()
        assert store.load().lacks_evidence
        is_takeover = False
        if is_stopped:
            await saver.close()
        else:
            saver.tick()
            await saver.queue.written()
        assert not store.load().lacks_evidence
    store.close()


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize("is_being_written", [False, True])
async def test_the_end_of_a_take_over_does_not_replace_what_is_newer(
    tmp_path: Path, *, is_being_written: bool, is_stopped: bool
) -> None:
    """The last topology of the take-over is on disk; a newer one waits, or is being written."""
    is_takeover = True
    store = SqliteStore(tmp_path / "evidence.db")
    async with saving(store, lambda: is_takeover) as saver:
        saver.offer(replace(leaves(("n1",)), generation=1))
        await saver.queue.written()
        is_takeover = False
        saver.offer(replace(leaves(("n1", "n2")), generation=2))
        writing = asyncio.create_task(saver.queue.written()) if is_being_written else None
        await asyncio.sleep(0)
        saver.tick()
        await (saver.close() if is_stopped else saver.queue.written())
        if writing is not None:
            await writing
        loaded = store.load()
        saved, _ = read_saved(loaded.topology)
        assert saved is not None
        assert (saved.generation, loaded.lacks_evidence) == (2, False)
        assert loaded.reserved == (2 if is_stopped else ahead(2))
    store.close()


async def test_a_crash_before_a_topology_was_saved(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "evidence.db")
    store.reserve(ahead(41))
    store.close()
    async with Collector(collector_settings(tmp_path, data_dir=tmp_path)) as collector:
        async with playing(collector.address):
            current = collector.components.publishing.watchers
            await eventually(lambda: bool(current.current.topology.hypernodes))
            assert current.current.topology.generation > 1041
        last = current.current.topology.generation
    store = SqliteStore(tmp_path / "evidence.db")
    assert last <= store.load().reserved < last + 100, "it stopped cleanly"
    store.close()


async def test_a_clean_stop_gives_numbers_back(tmp_path: Path) -> None:
    path = tmp_path / "evidence.db"
    for expected in (0, 7, 14):
        store, found = started(path)
        assert found.generation == expected
        async with saving(store) as saver:
            saver.offer(replace(leaves(("n1",)), generation=expected + 7))
            await saver.close()
        store.close()


async def test_a_stop_without_a_new_generation_gives_them_back_too(tmp_path: Path) -> None:
    path = tmp_path / "evidence.db"
    store, _ = started(path)
    async with saving(store) as saver:
        saver.offer(replace(leaves(("n1",)), generation=3))
        await saver.close()
    store.close()
    for _ in range(2):
        store, found = started(path)
        assert found.generation == 3
        async with saving(store) as saver:
            saver.offer(found)  # as a start does
            await saver.close()
        store.close()
