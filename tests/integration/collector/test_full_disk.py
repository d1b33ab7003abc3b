"""A disk that is full: nothing that was stored is lost, and writing goes on when there is room."""

import os
from pathlib import Path

import pytest
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.store import Changes
from hyperscout_collector.store.errors import StoreFullError
from support.evidence_rows import fill, kept
from support.findings import lldp
from support.recorder import generation, published, recording, why
from support.small_disk import small_disk


def test_the_evidence_loses_nothing_and_recovers(tmp_path: Path) -> None:
    with small_disk(tmp_path, 1) as mount:
        ballast = mount / "ballast"
        ballast.write_bytes(b"x" * 500_000)
        store = SqliteStore(mount / "evidence.db")
        count = fill(store)
        assert len(store.load().rows) == count
        with pytest.raises(StoreFullError):
            store.save_topology(os.urandom(400_000))
        ballast.unlink()
        store.apply(Changes([kept(lldp("n2", "eth0"))]))
        store.save_topology(b"{}")
        store.close()
        again = SqliteStore(mount / "evidence.db")
        assert len(again.load().rows) == count + 1
        again.close()


async def test_the_history_reports_the_gap(tmp_path: Path) -> None:
    with small_disk(tmp_path, 4) as mount:
        ballast = mount / "ballast"
        ballast.write_bytes(b"x" * 3_300_000)
        async with recording(mount) as recorder:
            number = 0
            for number in range(1, 400):
                recorder.offer(generation(number, number.to_bytes(2, "big") * 5000), why(number))
                if not await recorder.queue.flush():
                    break
            assert "no space is left: free space on its disk, or raise history_max_mib" in (
                recorder.problem or ""
            )
            last = published(recorder)[-1].generation
            assert last == number - 1  # what was recorded is read as before
            for later in range(number + 1, number + 31):
                recorder.offer(generation(later), why(later))
            ballast.unlink()
            assert any([await recorder.queue.flush() for _ in range(10)])
            assert recorder.problem is None
            found = published(recorder)
            assert found[-1].generation == number + 30
            assert "15 generations before it could not be recorded" in found[-1].message
