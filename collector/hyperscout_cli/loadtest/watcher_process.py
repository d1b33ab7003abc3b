"""A process that watches the topology, and tells which links went down and returned. `run.py` starts it."""

import asyncio
import time
from collections.abc import Iterable, Mapping

import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import cluster
from hyperscout_sim.readings.lldp import interface_of

from hyperscout_cli.loadtest.child import Message, credentials_of, end, messages, send_to_parent
from hyperscout_cli.loadtest.link_schedule import host_links
from hyperscout_cli.remote.client import MAX_ANSWER_BYTES

OPTIONS = (("grpc.max_receive_message_length", MAX_ANSWER_BYTES), ("grpc.enable_http_proxy", 0))
_AGAIN_S = 0.2

Port = tuple[str, str]  # node and interface


async def main() -> None:
    """Watch the collector that the first message names, until the parent closes the pipe."""
    commands = messages()
    job = await anext(commands)
    watching = asyncio.create_task(_watch(job))
    async for _ in commands:
        pass
    del watching  # it runs until here
    end()


async def _watch(job: Message) -> None:
    links = links_by_port(cluster(job["agents"]))
    credentials = credentials_of(job)("reader/loadtest")
    nodes: dict[str, int] = {}  # by HyperNode of tier 1
    down: frozenset[int] = frozenset()
    while True:  # the collector may restart
        try:
            async with credentials.connect(job["target"], OPTIONS) as channel:
                watch = TopologyServiceStub(channel).WatchTopology
                async for event in watch(pb.WatchTopologyRequest(omit_links=True)):
                    at_ns = time.monotonic_ns()
                    if event.WhichOneof("event") == "snapshot":
                        nodes.clear()
                        part: pb.Topology | pb.TopologyDelta = event.snapshot
                    else:
                        part = event.delta
                        for name in event.delta.removed_hypernodes:
                            nodes.pop(name, None)
                    nodes |= {h.name: len(h.nodes) for h in part.hypernodes if h.tier == 1}
                    now = links_down(part.anomalies, links)
                    send_to_parent(
                        at_ns=at_ns,
                        nodes=sum(nodes.values()),
                        changes=[(link, link in now) for link in sorted(now ^ down)],
                    )
                    down = now
        except grpc.aio.AioRpcError as error:
            if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
                send_to_parent(
                    error=f"the watcher cannot read the topology: {error.details() or error.code()}"
                )
        except Exception as error:
            send_to_parent(error=f"the watcher ended: {error!r}")
            raise
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


if __name__ == "__main__":
    asyncio.run(main())
