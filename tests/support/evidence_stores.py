"""Both stores of evidence, to be closed and opened again."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hyperscout_collector.evidence.postgresql import PostgresqlStore
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.store import EvidenceStore
from hyperscout_collector.store.postgresql import PostgresqlDatabase, claim
from hyperscout_collector.store.server import PostgresqlServer
from hyperscout_runtime.clock import Clock

from support.findings import T0
from support.postgresql import Postgresql

FIXED = Clock(lambda: T0, lambda: T0)
OpenEvidence = Callable[[Clock], EvidenceStore]


def written(server: PostgresqlServer, identity: str = "c1", address: str = "c1:50051") -> PostgresqlDatabase:
    """The database as the collector writes it that starts now."""
    return PostgresqlDatabase(server, claim(server, identity, address, lambda: None))


def postgresql_evidence(server: PostgresqlServer, clock: Clock = FIXED) -> PostgresqlStore:
    return PostgresqlStore(written(server), PostgresqlDatabase(server), clock)


@pytest.fixture(params=["sqlite", "postgresql"])
def evidence_of(request: pytest.FixtureRequest, tmp_path: Path) -> OpenEvidence:
    """Opens the store of this test, in one database after the other. The test closes it."""
    if request.param == "sqlite":
        return lambda clock: SqliteStore(tmp_path / "evidence.db", clock=clock)
    postgresql: Postgresql = request.getfixturevalue("shared_postgresql")
    server = postgresql.server(postgresql.new_database())
    return lambda clock: postgresql_evidence(server, clock)
