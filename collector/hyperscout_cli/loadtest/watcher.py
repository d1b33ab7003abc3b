"""Watches the topology, and tells which links went down and returned."""

import asyncio
import time
from collections.abc import Iterable, Mapping

import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_runtime.credentials import Credentials
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.readings.lldp import interface_of

from hyperscout_cli.loadtest.link_schedule import Change, host_links
from hyperscout_cli.loadtest.progress import Progress
from hyperscout_cli.remote.client import MAX_ANSWER_BYTES

OPTIONS = (("grpc.max_receive_message_length", MAX_ANSWER_BYTES), ("grpc.enable_http_proxy", 0))
_AGAIN_S = 0.2
_AWAY_S = 120.0  # until the test is given up; a collector with the findings of 10,000 agents starts in 20 s

Port = tuple[str, str]  # node and interface


async def watch(target: str, credentials: Credentials, links: Mapping[Port, int], progress: Progress) -> None:
    """Report what the collector publishes, until cancelled. `links`: of `links_by_port`."""
    nodes: dict[str, int] = {}  # by HyperNode of tier 1
    down: frozenset[int] = frozenset()
    lost_s: float | None = None  # when the connection failed
    while True:  # the collector may restart
        try:
            async with credentials.connect(target, OPTIONS) as channel:
                events = TopologyServiceStub(channel).WatchTopology(pb.WatchTopologyRequest(omit_links=True))
                async for event in events:
                    at_ns = time.monotonic_ns()
                    lost_s = None
                    if event.WhichOneof("event") == "snapshot":
                        nodes.clear()
                        part: pb.Topology | pb.TopologyDelta = event.snapshot
                    else:
                        part = event.delta
                        for name in event.delta.removed_hypernodes:
                            nodes.pop(name, None)
                    nodes |= {h.name: len(h.nodes) for h in part.hypernodes if h.tier == 1}
                    now = links_down(part.anomalies, links)
                    changes = [Change(link, link in now) for link in sorted(now ^ down)]
                    progress.published(at_ns, sum(nodes.values()), changes)
                    down = now
        except grpc.aio.AioRpcError as error:
            now_s = time.monotonic()
            lost_s = now_s if lost_s is None else lost_s
            if now_s - lost_s > _AWAY_S:
                progress.fail(
                    f"the collector at {target} has not answered for {_AWAY_S:g} s: it may have ended"
                )
            if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
                progress.fail(f"the watcher cannot read the topology: {error.details() or error.code()}")
        except Exception as error:
            progress.fail(f"the watcher ended: {error!r}")
            return
        await asyncio.sleep(_AGAIN_S)


def links_by_port(fabric: SimFabric) -> Mapping[Port, int]:
    """Ethernet port of a host -> its link, as an index into `host_links`.

    InfiniBand is on the same links. But an InfiniBand link that was down for more than a minute returns with
    the next sweep only (docs/inference.md).
    """
    adapters = {adapter.guid: adapter for adapter in fabric.adapters}
    ends = (adapters[cable.a] for cable in host_links(fabric))
    return {(adapter.host, interface_of(adapter)): i for i, adapter in enumerate(ends)}


def links_down(anomalies: Iterable[pb.Anomaly], links: Mapping[Port, int]) -> frozenset[int]:
    """The links of hosts that the topology calls missing."""
    missing = (x for x in anomalies if x.kind == "MissingLink")
    ports = ((end.device, end.port) for x in missing for end in (x.subject, x.peer))
    return frozenset(links[port] for port in ports if port in links)
