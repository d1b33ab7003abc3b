"""What the live stream costs: 200 readers of 5,000 nodes and 40,000 links, 1 % of which change a minute.

The readers are in a process of their own, and what it takes to make the changes is taken off: what is left
is the server's share of a core. Changes come one by one, evenly, as they do when cables fail here and there;
anomalies of the 200 cables that are down travel with each delta. Slow readers are as many again, that read
nothing at all.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hyperscout_topology.link_changes import table_of, without
from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Condition,
    Endpoint,
    HyperNode,
    Link,
    LinkTable,
    Switch,
    Topology,
)
from support.bench_rows import row
from support.rest_collector import rest_collector

NODES, LEAVES, SPINES, RAILS = 5000, 320, 80, 8
READERS, SLOW = 200, 200
CHANGES_PER_MINUTE = 400  # 1 % of 40,000
DOWN = 200  # cables at a time
SECONDS = 40.0
BUDGET = "20 %"


def cluster() -> Topology:
    """Rails of 5,000 hosts to 320 leaves, and no link between switches: 40,000 links in all."""
    links = []
    adapters = []
    for node in range(NODES):
        for rail in range(RAILS):
            adapter = f"0x{node:012x}{rail:04x}"
            leaf = (node // 125) * RAILS + rail
            adapters.append(Adapter(adapter, f"gpu-node-{node:05}", f"mlx5_{rail}"))
            links.append(Link(adapter, "1", f"leaf-{leaf:04}", str(node % 125), "ib", ("ibnetdiscover",)))
    hypernodes = []
    well = tuple(
        Condition(kind, status, "AsExpected", "all is as it should be", 1)
        for kind, status in (("Ready", "True"), ("Degraded", "False"), ("Consistent", "True"))
    )
    for first in range(0, NODES, 125):
        members = tuple(f"gpu-node-{i:05}" for i in range(first, first + 125))
        switches = tuple(f"leaf-{(first // 125) * RAILS + rail:04}" for rail in range(RAILS))
        hypernodes.append(HyperNode(f"leaf-{first:05}", 1, "leaf", "core", (), members, switches, well))
    children = tuple(h.name for h in hypernodes)
    everything = tuple(f"gpu-node-{i:05}" for i in range(NODES))
    hypernodes.append(HyperNode("core", 2, "core", None, children, everything, (), well))
    switches = tuple(Switch(f"leaf-{i:04}", f"leaf-{i:04}", 1) for i in range(LEAVES))
    spines = tuple(Switch(f"spine-{i:04}", f"spine-{i:04}", 2) for i in range(SPINES))
    return Topology(1, tuple(hypernodes), switches + spines, tuple(adapters), LinkTable.of(links))


class Changes:
    """One cable after the other goes down, and comes back 200 changes later."""

    def __init__(self, topology: Topology) -> None:
        self.now = topology
        self._whole = table_of(topology.links)
        self._step = 0
        self._down: dict[int, Anomaly] = {}

    def next(self) -> Topology:
        whole, step = self._whole, self._step
        self._step += 1
        self._down.pop(self._index(step - DOWN), None)
        index = self._index(step)
        link: Link = whole[index]
        subject = Endpoint(link.a_device, "gpu-node", link.a_port)
        peer = Endpoint(link.b_device, link.b_device, link.b_port)
        message = f"no cable from {link.a_device}/1 to {link.b_device}/{link.b_port}, seen until 14:03:07Z"
        self._down[index] = Anomaly("MissingLink", subject, peer, 1, link.sources, 0.9, message, "core", 1)
        self.now = replace(
            self.now,
            generation=self.now.generation + 1,
            links=without(whole, sorted(self._down)),
            anomalies=tuple(sorted(self._down.values(), key=lambda a: a.key)),
        )
        return self.now

    def _index(self, step: int) -> int:
        return step * 7919 % len(self._whole)


# The server's process


async def serve(folder: Path) -> None:
    """Says its address; then of each number of seconds that it reads: the CPU seconds of that many seconds of
    changes, and its memory in MiB."""
    topology = cluster()
    changes = Changes(topology)
    for _ in range(DOWN):
        changes.next()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with rest_collector(folder, changes.now, history_max_days=0, measure=False) as collector:
        print(collector.rest_address, flush=True)
        while line := await reader.readline():
            began, until = time.process_time(), loop.time() + float(line)
            while loop.time() < until:
                await collector.watchers.publish(changes.next())
                await asyncio.sleep(60 / CHANGES_PER_MINUTE)
            counted = collector.components.callers.rest
            assert counted is not None
            print(time.process_time() - began, memory_mib(), counted.dropped_total, flush=True)


def memory_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


# The readers'


class Server:
    """A process that serves."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.address = address
        self._process = process

    async def changes(self, seconds: float) -> tuple[float, float, int]:
        """Share of a core, MiB, and readers that it dropped so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n".encode())
        cpu_s, mib, dropped = (await self._process.stdout.readline()).split()
        return float(cpu_s) / seconds, float(mib), int(dropped)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "serve", folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            yield Server(process, (await process.stdout.readline()).decode().strip())
        finally:
            process.terminate()
            await process.wait()


class Reader(asyncio.Protocol):
    """Reads, and looks at nothing; or does not even read."""

    def __init__(self, address: str, slow: bool) -> None:
        self.received = 0
        self._address = address
        self._slow = slow

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(f"GET /v1/stream HTTP/1.1\r\nHost: {self._address}\r\n\r\n".encode())
        if self._slow:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)


async def readers(
    server: Server, count: int, *, slow: bool = False
) -> tuple[list[asyncio.Transport], list[Reader]]:
    host, _, port = server.address.rpartition(":")
    transports, found = [], []
    for _ in range(count):
        transport, one = await asyncio.get_running_loop().create_connection(
            lambda: Reader(server.address, slow), host, int(port)
        )
        transports.append(transport)
        found.append(one)
    return transports, found


async def measured() -> None:
    async with serving() as server:
        alone, mib, _ = await server.changes(SECONDS / 2)
        row("making the changes, without readers", f"{alone:.1%} of a core, {mib:.0f} MiB in all")
        transports, found = await readers(server, READERS)
        await server.changes(SECONDS / 4)  # snapshots
        before = [one.received for one in found]
        share, with_readers_mib, _ = await server.changes(SECONDS)
        told = [one.received - was for one, was in zip(found, before, strict=True)]
        assert min(told) > 0
        row(
            f"{READERS} readers of {NODES} nodes and 40,000 links, {CHANGES_PER_MINUTE} changes a minute",
            f"{share - alone:.1%}",
            budget=BUDGET,
        )
        row("sent to each reader", f"{median(told) / SECONDS / 1e3:.0f} KB a second")
        row("memory of a reader", f"{(with_readers_mib - mib) / READERS * 1024:.0f} KiB")
        idle, _ = await readers(server, SLOW, slow=True)
        _, slow_mib, dropped = await server.changes(SECONDS + 20)
        row(
            f"{SLOW} readers more that read nothing: memory of each, until they are dropped",
            f"{(slow_mib - with_readers_mib) / SLOW * 1024:.0f} KiB",
        )
        row("of those were dropped by then", f"{dropped}")
        for transport in (*transports, *idle):
            transport.abort()


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(Path(sys.argv[2])))
        return
    asyncio.run(measured())


if __name__ == "__main__":
    main()
