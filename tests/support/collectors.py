"""Settings of a collector that a test runs in its own process, and simulated agents that report to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hyperscout_collector.app.settings.settings import CollectorSettings, load_settings
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos2

from support.identities import AGENTS, FakeReviews, Family

QUICK = {"first_settle_s": 0.05, "settle_s": 0.05, "hold_down_s": 0.05}


def collector_settings(folder: Path, **more: Any) -> CollectorSettings:
    """Short waits; gRPC on a free loopback port, no HTTP, no REST. `more` replaces flags."""
    flags = {"listen": "127.0.0.1:0", "http_listen": "", "rest_listen": "", "data_dir": folder / "data"}
    return load_settings(flags={**flags, **QUICK, **more})


def tls_settings(
    folder: Path, family: Family, reviews: FakeReviews | None = None, **more: Any
) -> CollectorSettings:
    """Both gRPC ports with TLS. With `reviews`, callers of the first port authenticate with tokens."""
    flags = {
        "listen": "127.0.0.1:0",
        "mtls_listen": "127.0.0.1:0",
        "http_listen": "",
        "rest_listen": "",
        "data_dir": folder / "data",
        "tls_cert": family.server.cert,
        "tls_key": family.server.key,
        "tls_client_ca": family.ca,
        "authenticate": "none" if reviews is None else "kubernetes",
        "agent_service_account": AGENTS,
    }
    return load_settings(flags={**flags, **more})


def eight_hosts() -> SimFabric:
    """Two leaves of four hosts under two spines."""
    return clos2(leaves=2, hosts_per_leaf=4, spines=2)


@asynccontextmanager
async def playing(address: str, fabric: SimFabric | None = None, **options: Any) -> AsyncIterator[Player]:
    """The agents of a fabric (`eight_hosts`) report to a collector until the end of the block."""
    player = Player(fabric or eight_hosts(), [address], **({"refresh_interval_s": 3600} | options))
    task = asyncio.create_task(player.run())
    try:
        yield player
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
