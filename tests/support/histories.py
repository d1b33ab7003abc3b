"""Both stores of the history, and what is recorded in them."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.history.causes import Cause
from hyperscout_collector.history.file import HistoryFile
from hyperscout_collector.history.postgresql import PostgresqlHistory
from hyperscout_collector.history.reader import HistoryReader
from hyperscout_collector.history.store import HistorySize, HistoryStore
from hyperscout_collector.store.database import Reader
from hyperscout_collector.store.postgresql import PostgresqlDatabase
from hyperscout_collector.store.sql import SqlReader
from hyperscout_topology.topology import LinkTable, Topology

from support.any_topologies import lost_cable
from support.evidence_stores import written
from support.postgresql import Postgresql
from support.recorder import record
from support.topologies import SINCE_NS, two_leaves

S = 1_000_000_000
DAY = 86_400 * S
T0 = SINCE_NS
WHY = Cause("findings", (Key("n01", "lldp", "eth0"),), 1)


@dataclass(frozen=True, slots=True)
class HistoryOf:
    """The history of one test, to be opened more than once, in one database after the other."""

    open_store: Callable[..., HistoryStore]
    open_reader: Callable[[], SqlReader]

    def opened(
        self,
        size: HistorySize | None = None,
        *,
        mib: float = 64,
        days: float = 30,
        now_ns: int = T0,
    ) -> HistoryStore:
        return self.open_store(
            size or HistorySize(), max_bytes=int(mib * 2**20), max_age_ns=int(days * DAY), now_ns=now_ns
        )

    def reading(self, now_ns: int = T0 + 400 * DAY) -> HistoryReader:
        return HistoryReader(self.open_reader(), lambda: now_ns)


@pytest.fixture(params=["sqlite", "postgresql"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HistoryOf]:
    if request.param == "sqlite":
        path = tmp_path / "history.db"
        yield HistoryOf(lambda size, **limits: HistoryFile(path, size, **limits), lambda: Reader(path))
        return
    postgresql: Postgresql = request.getfixturevalue("shared_postgresql")
    server = postgresql.server(postgresql.new_database())
    with contextlib.ExitStack() as stack:

        def opened(size: HistorySize, **limits: Any) -> HistoryStore:
            database = written(server)
            stack.callback(database.close)  # the store does not own it
            return PostgresqlHistory(database, size, **limits)

        yield HistoryOf(opened, lambda: PostgresqlDatabase(server))


def cut(i: int, whole: Topology | None = None) -> Topology:
    """Without the i-th link, which an anomaly names."""
    whole = whole or two_leaves()
    links = [x for k, x in enumerate(whole.links) if k != i % len(whole.links)]
    return replace(whole, links=LinkTable.of(links), anomalies=(*whole.anomalies, lost_cable(i)))


def told(reader: HistoryReader, **request: object) -> list[pb.HistoryEvent]:
    return list(reader.events(pb.ListHistoryRequest(**request)).events)  # type: ignore[arg-type]


def fill(
    store: HistoryStore, many: int, *, every_ns: int = 60 * S, grow: Callable[[int], int] = lambda i: i % 40
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
