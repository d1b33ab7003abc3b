"""Opens what the collector stores: files in its data folder, or a database of PostgreSQL.

In PostgreSQL, one collector writes at a time: it raises the number of the term when it opens the stores, and
each transaction checks that the number is still its own.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from hyperscout_kubernetes.errors import NotLeaderError
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.errors import StartError

from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.ingest.other_replicas import SharedStore
from hyperscout_collector.app.placing.reservations import (
    ReservationStore,
    ReservationTable,
    reservation_file,
)
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.evidence.postgresql import PostgresqlStore
from hyperscout_collector.evidence.sqlite import SqliteStore
from hyperscout_collector.evidence.store import EvidenceStore, Loaded
from hyperscout_collector.history.opening import HistoryOpening, in_file, in_postgresql
from hyperscout_collector.store.errors import StoreError, StoreUnfitError
from hyperscout_collector.store.postgresql import PostgresqlDatabase, claim
from hyperscout_collector.store.replicas import LEADER, STANDBYS, Listener, Owner, ReplicaTables
from hyperscout_collector.store.server import PostgresqlServer

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_RETRY_S = 0.5
_PATIENCE_S = 120.0  # longer than a failover of PostgreSQL


@dataclass(frozen=True, slots=True)
class Stores:
    """The open stores, and what the evidence contained."""

    evidence: EvidenceStore
    loaded: Loaded
    reservations: ReservationStore
    history: HistoryOpening
    shared: SharedStore | None = None  # None = no other replica takes streams


async def open_stores(context: Context) -> Stores:
    """Open the stores, and close them at the stop. Raises StartError."""
    in_thread = BoundedExecutor("start")
    try:
        if context.settings.store:
            return await _postgresql(context)
        return await _files(context, in_thread)
    except StoreError as error:
        raise StartError(str(error)) from error


async def _files(context: Context, in_thread: BoundedExecutor) -> Stores:
    settings, clock_ns, damage = context.settings, context.clock_ns, context.damage
    folder, max_bytes = settings.data_dir, settings.evidence_max_mib << 20
    opened = partial(SqliteStore, max_bytes=max_bytes, clock=context.clock, damage=damage)
    evidence = await in_thread(opened, folder / "evidence.db")
    context.lifecycle.on_stop("evidence", partial(in_thread, evidence.close))
    loaded = await in_thread(evidence.load)
    # After the store, whose lock protects the folder.
    reservations = await in_thread(reservation_file, folder / "placements.db", clock_ns, damage)
    context.lifecycle.on_stop("reservations", partial(in_thread, reservations.close))
    return Stores(evidence, loaded, reservations, in_file(folder / "history.db", settings, clock_ns, damage))


async def _postgresql(context: Context) -> Stores:
    settings = context.settings
    server = postgresql_server(settings)
    address = settings.advertise or settings.listen or settings.mtls_listen
    term = await repeated(
        context, partial(claim, server, settings.identity, address, context.fence.remaining_s)
    )
    _log.info("%s stores evidence, reservations and history; term %d", server.name, term)
    database = PostgresqlDatabase(server, term, context.damage)
    shared = None
    if settings.leader_election:
        shared = shared_store(context, server, database, term)
        evidence = shared.evidence
        context.lifecycle.on_stop("connections to PostgreSQL", partial(shared.close, BoundedExecutor("stop")))
    else:
        evidence = PostgresqlStore(database, PostgresqlDatabase(server), context.clock)
        context.lifecycle.on_stop(
            "connections to PostgreSQL", partial(BoundedExecutor("stop"), evidence.close)
        )
    loaded = await repeated(context, evidence.load)
    history = in_postgresql(database, settings, context.clock_ns)
    return Stores(evidence, loaded, ReservationTable(database), history, shared)


def shared_store(
    context: Context, server: PostgresqlServer, database: PostgresqlDatabase, term: int | None
) -> SharedStore:
    """What one run of a replica needs to take streams. `term`: of the leader; None = it is a standby."""
    leads = term is not None
    owner = Owner(f"{context.settings.identity}/{secrets.token_hex(8)}", leads)
    evidence = PostgresqlStore(database, PostgresqlDatabase(server), context.clock, owner)
    tables = ReplicaTables(PostgresqlDatabase(server, term), PostgresqlDatabase(server), owner)
    return SharedStore(evidence, tables, Listener(server, LEADER if leads else STANDBYS), term or 0)


async def repeated(context: Context, work: Callable[[], _T]) -> _T:
    """Run `work` in a thread, and return its result. Raises StoreError.

    A leader that may not write now waits: it may again, or the end of its term cancels this. An elected
    leader also repeats what PostgreSQL did not do, for `_PATIENCE_S` at most: a failover of the server often
    comes with that of the collector. A database that waiting does not mend ends the start at once, so that
    another replica can lead.
    """
    settings, in_thread = context.settings, BoundedExecutor("start")
    end_s = time.monotonic() + (_PATIENCE_S if settings.store and settings.leader_election else 0.0)
    problem = ""
    while True:
        try:
            return await in_thread(work)
        except NotLeaderError:
            pass
        except StoreUnfitError:
            raise
        except StoreError as error:
            if time.monotonic() >= end_s:
                raise
            if str(error) != problem:
                problem = str(error)
                _log.warning("the start waits for PostgreSQL: %s", problem)
        await asyncio.sleep(_RETRY_S)


def postgresql_server(settings: CollectorSettings) -> PostgresqlServer:
    """The server in the settings; it is not connected yet. Raises StoreError."""
    return PostgresqlServer(settings.store, settings.store_password_file)
