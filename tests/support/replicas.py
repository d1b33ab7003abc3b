"""Collector processes that share a database of PostgreSQL, of which a lock elects one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hyperscout_topology.topology import Topology

from support.collector_process import CollectorProcess, collector_process
from support.collectors import QUICK_FLAGS, is_whole
from support.live import Watcher
from support.postgresql import Postgresql
from support.waiting import eventually


def store_flags(postgresql: Postgresql, name: str) -> tuple[str, ...]:
    return *QUICK_FLAGS, *database_flags(postgresql, name)


def database_flags(postgresql: Postgresql, name: str) -> tuple[str, ...]:
    """With the default waits."""
    return "--store", postgresql.url(name), "--store-password-file", str(postgresql.password_file)


@asynccontextmanager
async def replica(
    folder: Path, flags: tuple[str, ...], name: str, listen: str = "127.0.0.1:0", *, lease_s: int = 2
) -> AsyncIterator[CollectorProcess]:
    """One that is elected by a lock. Its data folder must stay empty."""
    more = ("--leader-election", "--lease-duration-s", str(lease_s), "--identity", name)
    async with collector_process(folder / name, *flags, *more, listen=listen) as found:
        yield found


async def leads(replicas: list[CollectorProcess]) -> CollectorProcess:
    """The one of them that leads now, and serves."""

    def found() -> CollectorProcess | None:
        for one in replicas:
            elected = one.said.rfind(b"elected: ")
            if elected > one.said.rfind(b"deposed: ") and b"findings of" in one.said[max(elected, 0) :]:
                return one
        return None

    leader = await eventually(found)
    assert leader is not None
    return leader


async def whole(address: str) -> Topology:
    return await Watcher(address).until(is_whole, "eight hosts under two leaves")
