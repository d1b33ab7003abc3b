"""A file is closed only when no thread uses its connection."""

import threading
from pathlib import Path

import pytest
from hyperscout_collector.store.database import Database, Kind
from hyperscout_collector.store.errors import StoreError
from support.waiting import TIMEOUT_S

KIND = Kind("CREATE TABLE numbers (number INTEGER);", 1, 1 << 20, "nothing is known")


def test_a_transaction_ends_before_its_file_is_closed(tmp_path: Path) -> None:
    file = Database(tmp_path / "some.db", KIND)
    about_to_close = threading.Event()

    def close() -> None:
        about_to_close.set()
        file.close()

    closing = threading.Thread(target=close)
    with file.transaction() as db:
        closing.start()
        assert about_to_close.wait(TIMEOUT_S)
        assert closing.is_alive()
        db.execute("INSERT INTO numbers VALUES (1)")
    closing.join(TIMEOUT_S)
    with pytest.raises(StoreError, match="closed database"), file.transaction():
        pass
    again = Database(tmp_path / "some.db", KIND)
    with again.using() as db:
        assert db.execute("SELECT number FROM numbers").fetchall() == [(1,)]
    again.close()
