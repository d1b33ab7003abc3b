"""Opens the history, in a file or in PostgreSQL."""

from collections.abc import Callable
from pathlib import Path

from hyperscout_runtime.units import NS

from hyperscout_collector.history.file import HistoryFile
from hyperscout_collector.history.postgresql import PostgresqlHistory
from hyperscout_collector.history.reader import HistoryReader
from hyperscout_collector.history.settings import HistorySettings
from hyperscout_collector.history.store import HistorySize, HistoryStore
from hyperscout_collector.store.database import Damage, Reader
from hyperscout_collector.store.postgresql import PostgresqlDatabase

_DAY_NS = 86_400 * NS

# Blocks and raises StoreError. The store keeps the size up to date.
HistoryOpening = Callable[[HistorySize], tuple[HistoryStore, HistoryReader]]


def in_file(
    path: Path, settings: HistorySettings, now_ns: Callable[[], int], damage: Damage | None = None
) -> HistoryOpening:
    """The history in a SQLite file."""

    def opened(size: HistorySize) -> tuple[HistoryStore, HistoryReader]:
        store = HistoryFile(
            path,
            size,
            max_bytes=settings.history_max_mib << 20,
            max_age_ns=int(settings.history_max_days * _DAY_NS),
            now_ns=now_ns(),
            damage=damage,
        )
        try:
            return store, HistoryReader(Reader(path), now_ns)
        except BaseException:
            store.close()
            raise

    return opened


def in_postgresql(
    database: PostgresqlDatabase, settings: HistorySettings, now_ns: Callable[[], int]
) -> HistoryOpening:
    """The history in PostgreSQL. `database` writes, and stays open; reads have a connection of their own."""

    def opened(size: HistorySize) -> tuple[HistoryStore, HistoryReader]:
        store = PostgresqlHistory(
            database,
            size,
            max_bytes=settings.history_max_mib << 20,
            max_age_ns=int(settings.history_max_days * _DAY_NS),
            now_ns=now_ns(),
        )
        return store, HistoryReader(PostgresqlDatabase(database.server), now_ns)

    return opened
