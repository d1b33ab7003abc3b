"""A replica says where it is reached, or why it cannot; and it ends when it is told to, whatever it does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hyperscout.v1.topology_pb2 import WatchTopologyResponse
from hyperscout_collector.app.replica import electors, process
from hyperscout_collector.app.replica.follower import Follower
from hyperscout_collector.app.replica.process import Replica, advertised
from hyperscout_collector.app.settings.settings import CollectorSettings, load_settings
from hyperscout_runtime.errors import StartError
from hyperscout_runtime.signals import Signal
from hyperscout_topology.topology import Topology
from support.waiting import TIMEOUT_S, until

NO_THREAD: Any = None  # only the elections of other clusters need it


def settings(tmp_path: Path, **more: Any) -> CollectorSettings:
    """One that takes certificates only."""
    files = {name: tmp_path / name for name in ("tls_cert", "tls_key", "tls_client_ca")}
    return load_settings(flags={**files, "listen": "", "mtls_listen": "0.0.0.0:50054", **more})


def test_a_replica_for_certificates_only_is_told_to_say_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="set advertise"):
        advertised(settings(tmp_path))
    assert advertised(settings(tmp_path, advertise="a:50051")) == "a:50051"


async def test_all_terms_use_the_ports_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("listen", "mtls_listen", "http_listen", "rest_listen")
    found = {name: f"127.0.0.1:{port}" for port, name in enumerate(names, 40_000)}

    @contextlib.asynccontextmanager
    async def listening(_: CollectorSettings, leader: Callable[[], str]) -> AsyncIterator[Any]:
        addresses = {name.replace("listen", "address"): address for name, address in found.items()}
        yield type("Listening", (), addresses)

    monkeypatch.setattr(process, "Standby", listening)
    for name in names:
        one_free = settings(tmp_path, **{**found, name: "127.0.0.1:0"})
        pinned = await process._with_ports(one_free)
        assert {name: getattr(pinned, name) for name in names} == found


class Leading:
    """An elector, as far as it is asked."""

    leading, own_terms, may_write, used = True, 1, True, 0

    def fence(self) -> None: ...

    def leader_address(self) -> str:
        return "b:50051"

    async def until(self, happened: Callable[[], bool]) -> None:
        await until(happened)

    def transitions(self) -> int:
        return 0


class NoFollower:
    agents, floor = (), 0

    def take(self) -> None: ...

    def raise_floor(self, highest: int) -> None:
        self.floor = highest


class Slow:
    """A collector that waits for an API server which says nothing."""

    begun = asyncio.Event()
    ended = False
    highest = 7

    def __init__(self, *_: object, **__: object) -> None:
        self.crashed = asyncio.Event()

    async def __aenter__(self) -> None:
        try:
            Slow.begun.set()
            await asyncio.Event().wait()
        finally:
            Slow.ended = True

    async def __aexit__(self, *_: object) -> None: ...


class Connection:
    def fenced(self, fence: object) -> None: ...


@contextlib.asynccontextmanager
async def connection() -> AsyncIterator[Connection]:
    yield Connection()


async def connected(_: object) -> Any:
    return connection()


@pytest.mark.parametrize("why", ["stop", "deposed"])
async def test_a_leader_that_is_still_beginning_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(process, "Collector", Slow)
    monkeypatch.setattr(process, "connected", connected)
    monkeypatch.setattr(electors, "connected", connected)
    Slow.begun, Slow.ended = asyncio.Event(), False
    stop, elector = asyncio.Event(), Leading()
    follower: Any = NoFollower()
    election = asyncio.create_task(asyncio.Event().wait())
    replica = Replica(settings(tmp_path))
    work = asyncio.create_task(
        replica._lead(settings(tmp_path), cast(Any, elector), NO_THREAD, follower, stop, cast(Any, election))
    )
    async with asyncio.timeout(TIMEOUT_S):
        await Slow.begun.wait()
    if why == "stop":
        stop.set()
    else:
        elector.leading = False
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await work
    finally:
        election.cancel()
        await asyncio.gather(election, work, return_exceptions=True)
    assert Slow.ended
    assert (replica._highest, replica._collector) == (7, None), "the Lease gets the number at its release"
    assert follower.floor == 7, "as a standby it serves no lower one"


def test_a_leader_that_a_lock_elected_serves_what_it_showed_last(tmp_path: Path) -> None:
    """Not the generation after it, which was not recorded and so not shown."""
    found = settings(tmp_path, store="postgresql://hyperscout@/db", kubernetes="off", leader_election=True)
    follower = Follower(found, lambda: "", rng=Random(1))
    collector: Any = SimpleNamespace(highest=8, published=Topology(7))
    Replica(found)._ended(collector, follower)
    assert follower.renew().current.topology.generation == 7
    assert follower.age_s() is not None


class Quick(Slow):
    """A collector that begins at once."""

    async def __aenter__(self) -> None: ...

    def leave(self, reason: str, leader: str | None) -> None:
        assert (reason, leader) == ("the collector is shutting down", "")


async def test_a_leader_ends_when_the_task_that_wakes_publishers_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a publisher that the fence stopped waits for its next retry, and nothing reports it."""

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(process, "Collector", Quick)
    monkeypatch.setattr(process, "connected", connected)
    monkeypatch.setattr(electors, "connected", connected)
    monkeypatch.setattr(process, "_wake_publishers", broken)
    follower: Any = NoFollower()
    election = asyncio.create_task(asyncio.Event().wait())
    lead = Replica(settings(tmp_path))._lead
    try:
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(ZeroDivisionError):
                await lead(
                    settings(tmp_path),
                    cast(Any, Leading()),
                    NO_THREAD,
                    follower,
                    asyncio.Event(),
                    cast(Any, election),
                )
    finally:
        election.cancel()
        await asyncio.gather(election, return_exceptions=True)


class Listening:
    """A standby that listens nowhere."""

    def __init__(self, *_: object, **__: object) -> None: ...

    async def __aenter__(self) -> "Listening":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def dismiss(self, leader: str) -> None: ...


class Follows(Leading):
    """An elector that does not lead."""

    leading = False


@pytest.mark.parametrize("part", ["follower", "history-follower"])
async def test_a_standby_ends_when_a_part_of_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Without its task the history of a standby would stop, and nothing would say so."""

    class Broken:
        received = Signal[[WatchTopologyResponse]]()

        async def run(self) -> None:
            if part == "follower":
                raise ZeroDivisionError
            await asyncio.Event().wait()

        def prepared(self) -> bool:
            return True

        def leader(self) -> str:
            return ""

        def age_s(self) -> None: ...

        def renew(self) -> None: ...

        async def cause_of(self, generation: int) -> None: ...

    async def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(process, "Standby", Listening)
    monkeypatch.setattr(process, "connected", connected)
    monkeypatch.setattr(electors, "connected", connected)
    if part == "history-follower":
        monkeypatch.setattr(process.StandbyRecorder, "run", broken)
    election = asyncio.create_task(asyncio.Event().wait())
    replica = Replica(settings(tmp_path, data_dir=tmp_path))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(ZeroDivisionError):
                await replica._stand_by(
                    settings(tmp_path, data_dir=tmp_path, history_max_days=1, advertise="a:1"),
                    cast(Any, Follows()),
                    cast(Any, Broken()),
                    asyncio.Event(),
                    cast(Any, election),
                )
    finally:
        election.cancel()
        await asyncio.gather(election, return_exceptions=True)
