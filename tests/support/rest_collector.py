"""A collector with REST and a picture: published by hand, or by the agents of a simulated fabric."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from hyperscout.v1.topology_pb2 import GetStatusResponse
from hyperscout_collector.app.build.collector import Collector
from hyperscout_kubernetes.client import Kube
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.shapes import SimFabric
from hyperscout_topology.topology import Topology

from support.collectors import collector_settings, eight_hosts, playing
from support.identities import FakeReviews, Family
from support.live import Watcher
from support.waiting import eventually


@asynccontextmanager
async def rest_collector(
    folder: Path,
    topology: Topology | None = None,
    *,
    family: Family | None = None,
    reviews: FakeReviews | None = None,
    **more: Any,
) -> AsyncIterator[Collector]:
    """`topology` is published. `family`: with TLS, and client certificates of it; `reviews`: with tokens."""
    tls: dict[str, Any] = {}
    if family is not None:
        tls = {
            "tls_cert": family.server.cert,
            "tls_key": family.server.key,
            "tls_client_ca": family.ca,
            "mtls_listen": "127.0.0.1:0",
        }
    flags = {
        "rest_listen": "127.0.0.1:0",
        "authenticate": "none" if reviews is None else "kubernetes",
        **tls,
        **more,
    }
    async with Collector(collector_settings(folder, **flags), kube=cast(Kube, reviews)) as running:
        if topology is not None:
            await publish(running, topology)
        yield running


def status_of(collector: Collector) -> GetStatusResponse:
    return GetStatusResponse.FromString(collector.status())


async def publish(collector: Collector, topology: Topology) -> None:
    """As the collector's own publishers do."""
    await collector.watchers.publish(topology)
    collector.components.publishing.placing.published(topology)


@asynccontextmanager
async def played(
    collector: Collector, fabric: SimFabric | None = None, **options: Any
) -> AsyncIterator[Player]:
    """The agents of a fabric (8 hosts, 2 leaves). What they see is published, and all is acknowledged."""
    fabric = fabric or eight_hosts()
    async with playing(collector.address, fabric, **options) as player:
        nodes = set(fabric.hosts)
        await Watcher(collector.address).until(
            lambda t: {node for h in t.hypernodes for node in h.nodes} == nodes, "all hosts"
        )
        await eventually(lambda: len(player.agents) == len(nodes) and player.settled, "all agents settled")
        yield player
