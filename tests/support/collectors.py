"""A collector in the process of a test: its settings, simulated agents that report to it, and its rest."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.app.settings.settings import CollectorSettings, load_settings
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from hyperscout_sim.fabric.shapes import clos2
from hyperscout_topology.topology import Topology

from support.identities import AGENTS, FakeReviews, Family
from support.live import domains
from support.waiting import eventually

QUICK = {"settle_s": 0.05, "hold_down_s": 0.05}
QUICK_FLAGS = tuple(x for name, value in QUICK.items() for x in (f"--{name.replace('_', '-')}", str(value)))


def collector_settings(folder: Path, **more: Any) -> CollectorSettings:
    """Short waits; gRPC on a free loopback port, no HTTP, no REST. `more` replaces flags."""
    return load_settings(flags={**_local_flags(folder), **QUICK, **more})


def tls_settings(
    folder: Path, family: Family, reviews: FakeReviews | None = None, **more: Any
) -> CollectorSettings:
    """Both gRPC ports with TLS. With `reviews`, callers of the first port authenticate with tokens."""
    flags = {
        "mtls_listen": "127.0.0.1:0",
        "tls_cert": family.server.cert,
        "tls_key": family.server.key,
        "tls_client_ca": family.ca,
        "authenticate": "none" if reviews is None else "kubernetes",
        "agent_service_account": AGENTS,
    }
    return load_settings(flags={**_local_flags(folder), **flags, **more})


def _local_flags(folder: Path) -> dict[str, Any]:
    return {"listen": "127.0.0.1:0", "http_listen": "", "rest_listen": "", "data_dir": folder / "data"}


def eight_hosts() -> SimFabric:
    """Two leaves of four hosts under two spines."""
    return clos2(leaves=2, hosts_per_leaf=4, spines=2)


def is_whole(topology: Topology, *, others: Collection[str] = ()) -> bool:
    """Whether the domains of tier 1 are the leaves of `eight_hosts`, and each known node has evidence.

    `others`: further nodes, which do not count.
    """
    hosts = eight_hosts().hosts
    leaves = {domain.difference(others) for domain in domains(topology)} - {frozenset()}
    without_evidence = set(topology.nodes_without_evidence).difference(others)
    return leaves == {frozenset(hosts[:4]), frozenset(hosts[4:])} and not without_evidence


@asynccontextmanager
async def playing(
    address: str | Sequence[str],
    fabric: SimFabric | None = None,
    *,
    hosts: Iterable[str] | None = None,
    **options: Any,
) -> AsyncIterator[Player]:
    """The agents of a fabric (`eight_hosts`) report to a collector until the end of the block.

    `address`: several for replicas. `hosts`: only these have agents, which report changes alone.
    """
    targets = [address] if isinstance(address, str) else address
    player = Player(fabric or eight_hosts(), targets, **({"refresh_interval_s": 3600} | options))
    task = None if hosts is not None else asyncio.create_task(player.run())
    try:
        for host in hosts or ():
            player.revive(host)
        yield player
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for host in list(player.agents):
            await player.kill(host)


async def at_rest(collector: Collector, player: Player | None = None, *, leases: bool = True) -> None:
    """Wait until the collector has processed all evidence, and nothing is due but a refresh.

    With `player`, its agents have also reported everything. With `leases`, each lease has been used for a
    sweep. Call it when the last change has become visible.
    """
    looks = 0

    def rests() -> bool:
        nonlocal looks
        idle = (player is None or player.settled) and not _is_busy(collector, leases)
        looks = looks + 1 if idle else 0
        return looks == 5  # the result of a thread passes through several turns of the loop

    await eventually(rests, "a collector at rest")


def _is_busy(collector: Collector, leases: bool) -> bool:
    components = collector.components
    queue = components.evidence.committer.queue
    sweeps, links, pipeline = (
        components.ingest.sweeps,
        components.inference.links,
        components.inference.pipeline,
    )
    return bool(
        queue._waiting
        or queue._turn.locked()
        or any(reader._waiting or reader._in_thread.calls for reader in (sweeps, links))
        or (leases and any(not lease.last_sweep_at.ToNanoseconds() for lease in sweeps.leases()))
        or pipeline._news
        or pipeline._cluster_changed
        or pipeline._running
        or pipeline._tick_at_ns is not None
    )


def host_cable(player: Player, host: str) -> Cable:
    """The first cable of a host in the list of the fabric."""
    guids = {a.guid for a in player.fabric.adapters if a.host == host}
    return next(c for c in player.fabric.cables if c.a in guids)


def nodes_by_tier(topology: Topology) -> dict[int, list[list[str]]]:
    """The nodes of each domain, sorted, by tier."""
    found: dict[int, list[list[str]]] = {}
    for h in topology.hypernodes:
        found.setdefault(h.tier, []).append(sorted(h.nodes))
    return {tier: sorted(domains) for tier, domains in found.items()}
