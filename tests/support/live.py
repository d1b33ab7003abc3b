"""Processes of the real command, and what a reader of the collector sees."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub
from hyperscout_topology.problems import problems_of
from hyperscout_topology.proto import topology_from_proto
from hyperscout_topology.topology import Topology

from support.collector_process import channel_to
from support.waiting import TIMEOUT_S

_MAIN = "import sys; from hyperscout_cli.main import main; sys.exit(main(sys.argv[1:]))"


@asynccontextmanager
async def agent_process(
    *flags: str, cwd: Path, environment: Mapping[str, str] = os.environ, before: tuple[str, ...] = ()
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`hyperscout agent` in a process of its own, ended at the end. `before`: a wrapper of the command.
    `cwd`: ibsim's client leaves a folder there when it is killed."""
    process = await asyncio.create_subprocess_exec(
        *before,
        *(sys.executable, "-c", _MAIN, "agent", "--metrics-port", "0", *flags),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        env=dict(environment),
        cwd=cwd,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(TIMEOUT_S):
            assert await process.wait() == 0, "an agent ends cleanly"


@asynccontextmanager
async def doorway(path: Path, address: str) -> AsyncIterator[str]:
    """A Unix socket that leads to the collector: namespaces share files, not loopbacks."""
    host, _, port = address.rpartition(":")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(ConnectionError, RuntimeError):
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(host, int(port))
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(copy(reader, there_writer), copy(there_reader, writer))

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield f"unix:{path}"
    finally:
        server.close()


class Watcher:
    """The present topology of a collector, followed over `WatchTopology`."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        self._address = address
        self._credentials = credentials

    async def until(self, wanted: Callable[[Topology], bool], what: str) -> Topology:
        """The first topology from now on that is as wanted."""
        seen = Topology(0)
        async with channel_to(self._address, self._credentials) as channel:
            service = TopologyServiceStub(channel)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    async for _ in service.WatchTopology(pb.WatchTopologyRequest(omit_links=True)):
                        answer = await service.GetTopology(pb.GetTopologyRequest())
                        seen = topology_from_proto(answer.topology)
                        if wanted(seen):
                            return seen
            except TimeoutError:
                pass
        tree = [(h.name, h.tier, h.nodes) for h in seen.hypernodes]
        raise AssertionError(f"never seen: {what}; last: {tree}, {[x.message for x in seen.anomalies]}")


async def topology_of(channel: grpc.aio.Channel) -> Topology:
    """The topology that a collector publishes now."""
    answer = await TopologyServiceStub(channel).GetTopology(pb.GetTopologyRequest(), timeout=TIMEOUT_S)
    return topology_from_proto(answer.topology)


async def problems_shown(channel: grpc.aio.Channel) -> str:
    """What `hyperscout status` lists as problems."""
    status = await TopologyServiceStub(channel).GetStatus(pb.GetStatusRequest(), timeout=TIMEOUT_S)
    return "\n".join(problems_of(status, await topology_of(channel)))


def domains(topology: Topology, tier: int = 1) -> set[frozenset[str]]:
    return {frozenset(h.nodes) for h in topology.hypernodes if h.tier == tier}


def status(topology: Topology, node: str, condition: str) -> str:
    """Status of a condition of the tier-1 HyperNode that holds a node."""
    for h in topology.hypernodes:
        if h.tier == 1 and node in h.nodes:
            return next(c.status for c in h.conditions if c.type == condition)
    return "no HyperNode"


def anomalies(topology: Topology) -> set[tuple[str, str, str]]:
    """Kind and both names of each anomaly, the names in order."""
    return {
        (x.kind, *sorted((x.subject.name, x.peer.name if x.peer else "")))  # type: ignore[misc]
        for x in topology.anomalies
    }
