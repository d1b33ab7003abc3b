"""What GetStatus costs the event loop at 10,000 nodes, and what its counts cost a heartbeat and a finding.

One collector in this process holds the evidence of 10,000 nodes with 12 findings each and of the switches
that connect them, with 200 links down, 100 nodes whose agents are not connected, and findings of many ages.
All other agents are connected, and 1,000 of them are heard between two requests. The requests are made on the
loop that the collector runs on. REST makes its JSON in a thread.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast
from zlib import crc32

from hyperscout_runtime.units import NS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.evidence.committer import FullState, Submission
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.state import AgentRow, KeyChange
from hyperscout_collector.ingest.streams import AgentStream
from hyperscout_collector.serve.grpc.topology_service import TopologyService
from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort, SwitchPort
from hyperscout_formats.facts.wire import lldp_to_proto, switch_port_to_proto
from support.bench_rows import row
from support.findings import failed, stamp
from support.rest_collector import rest_collector

NODES, RAILS, PER_LEAF, SPINES = 10_000, 8, 125, 8
DOWN, AWAY = 200, 100
HEARD = 1000  # between two requests: a second of heartbeats
CALLS = 30
TIMEOUT_S = 300.0
VERSION = "0.1.0"
BUDGET = "5 ms"


def name(node: int) -> str:
    return f"gpu-node-{node:05}"


def chassis(switch: str) -> str:
    """An id of its own for each switch."""
    return f"02:00:{crc32(switch.encode()):08x}"


def neighbour(switch: str, port: str) -> tuple[LldpNeighbour, ...]:
    return (LldpNeighbour("mac", chassis(switch), "ifname", port, 120, "", switch, "", (), ("Bridge",)),)


def of_node(node: int, now_ns: int) -> list[Finding]:
    """Eight ports and four probes that failed. One node in 50 was last looked at long ago."""
    at_ns = now_ns - (node * 7919 % 60 + (0 if node % 50 else 7200)) * NS
    rack, place = divmod(node, PER_LEAF)
    found = []
    for rail in range(RAILS):
        up = node >= DOWN or rail != node % RAILS
        heard = neighbour(f"leaf-{rack:02}-{rail}", f"swp{place}") if up else ()
        fact = LldpPort(f"eth{rail}", heard, f"02:00:00:{rail:02x}:{node:04x}", up, 100_000)
        found.append(
            Finding(
                key=FindingKey(node=name(node), probe="lldp", subject=fact.interface),
                observed_at=stamp(at_ns),
                outcome=Outcome.OUTCOME_DATA if up else Outcome.OUTCOME_NOTHING,
                lldp=lldp_to_proto(fact),
            )
        )
    probes = ("ibnetdiscover", "nvlink", "latency", "nmx")
    return [*found, *(failed(name(node), probe, "*", at_ns) for probe in probes)]


def of_leaf(leaf: str, now_ns: int) -> list[Finding]:
    found = []
    for spine in range(SPINES):
        port = f"up{spine}"
        own = ("mac", chassis(leaf), neighbour(f"spine-{spine}", leaf), leaf, "ifname", port)
        found.append(
            Finding(
                key=FindingKey(node=f"switch/{leaf}", probe="switch", subject=port),
                observed_at=stamp(now_ns),
                outcome=Outcome.OUTCOME_DATA,
                switch_port=switch_port_to_proto(SwitchPort(port, *own)),
            )
        )
    return found


def everything(now_ns: int) -> Iterator[tuple[str, list[Finding]]]:
    for node in range(NODES):
        yield name(node), of_node(node, now_ns)
    for rack in range(NODES // PER_LEAF):
        for rail in range(RAILS):
            yield f"switch/leaf-{rack:02}-{rail}", of_leaf(f"leaf-{rack:02}-{rail}", now_ns)


async def commit(collector: Collector, reporter: str, findings: list[Finding]) -> Awaitable[Any]:
    now_ns = collector.components.clock_ns()
    rows = [(row_of(f, sent_ns=now_ns, received_ns=now_ns), f.SerializeToString()) for f in findings]
    full = FullState(AgentRow(reporter, 1, VERSION), frozenset(found.key for found, _ in rows))
    return await collector.components.evidence.committer.submit(
        Submission(rows, full_state=full, cost_bytes=1000)
    )


@asynccontextmanager
async def filled(folder: Path) -> AsyncIterator[Collector]:
    """A collector that has the findings of all agents, and has published what it inferred."""
    async with rest_collector(folder, history_max_days=0, measure=False) as collector:
        stored = [
            await commit(collector, reporter, findings)
            for reporter, findings in everything(collector.components.clock_ns())
        ]
        await asyncio.gather(*stored)
        for number, reporter in enumerate(list(collector.components.evidence.state.nodes)):
            if number >= AWAY:
                now_ns = collector.components.clock_ns()
                hello = Hello(node=reporter, version=VERSION, instance=1)
                task = cast("asyncio.Task[object]", asyncio.current_task())
                collector.components.ingest.streams.add(AgentStream(hello, task, now_ns, now_ns))
        async with asyncio.timeout(TIMEOUT_S):
            while not collector.watchers.current.topology.hypernodes:
                await asyncio.sleep(0.5)
        await asyncio.sleep(5)  # what is published is saved
        yield collector
        for stream in collector.components.ingest.streams:
            collector.components.ingest.streams.discard(stream)


def hear(collector: Collector, first: int) -> float:
    """Heartbeats of `HEARD` agents; microseconds of CPU of each."""
    streams = list(collector.components.ingest.streams)
    began = time.thread_time()
    for at in range(first, first + HEARD):
        stream = streams[at % len(streams)]
        collector.components.ingest.streams.heard(stream, collector.components.clock_ns())
    return (time.thread_time() - began) / HEARD * 1e6


async def asked(
    collector: Collector, clock: Callable[[], float], call: Callable[[], Awaitable[int]]
) -> tuple[list[float], int]:
    """Milliseconds of each call by `clock`, and bytes."""
    took = []
    size = 0
    for turn in range(CALLS):
        hear(collector, turn * HEARD)
        await asyncio.sleep(0.01)
        began = clock()
        size = await call()
        took.append((clock() - began) * 1e3)
    return sorted(took), size


async def of_rest(collector: Collector, path: str) -> int:
    """Bytes of an answer."""
    host, _, port = collector.rest_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: {collector.rest_address}\r\nConnection: close\r\n\r\n".encode()
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    return len(answer)


def counting(collector: Collector) -> float:
    """Microseconds that the table of agents adds to a commit, for each finding."""
    parts = collector.components
    nodes = [name(number) for number in range(HEARD)]
    changes = [KeyChange(key, (), ()) for node in nodes for key in parts.evidence.state.keys_of(node)]
    began = time.thread_time()
    parts.ingest.agents.follow(changes)
    return (time.thread_time() - began) / len(changes) * 1e6


async def measured(folder: Path) -> None:
    async with filled(folder) as collector:
        service = TopologyService(collector)

        async def get_status() -> int:
            return len(await service.get_status(pb.GetStatusRequest(), None))

        took, size = await asked(collector, time.thread_time, get_status)
        what = f"GetStatus at {NODES} nodes, CPU of the event loop"
        row(f"{what}: median, and bytes", f"{median(took):.2f} ms, {size / 2**20:.2f} MiB", budget=BUDGET)
        row(f"the slowest of {CALLS}", f"{took[-1]:.2f} ms", budget=BUDGET)
        for path in ("/v1/status?agents=false", "/v1/status"):
            took, size = await asked(collector, time.perf_counter, partial(of_rest, collector, path))
            cells = f"{median(took):.1f} ms, {size / 1024:.1f} KiB"
            row(f"GET {path}, until the answer is whole: median, and bytes", cells)
        row("a heartbeat, for the counts", f"{median(hear(collector, 0) for _ in range(9)):.2f} us")
        row("a finding, for the counts", f"{median(counting(collector) for _ in range(9)):.2f} us")
        service.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measured(Path(folder)))


if __name__ == "__main__":
    main()
