"""Agents that measure each other without a network: they do what they are told, and say what a test wants."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from hyperscout.v1.discovery_pb2 import PairTask, StreamFindingsResponse
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult
from hyperscout_formats.facts.wire_measured import latency_to_proto

from support.agent_stream import AgentStream
from support.findings import stamp

Rtt = Callable[[str, str], float]  # of a node, as it sees a peer, in microseconds
LATENCY_PROBES = ("latency",)
HEARTBEAT_S = 10.0


def latency(node: str, port: LatencyPort, at_ns: int) -> Finding:
    return Finding(
        key=FindingKey(node=node, probe="latency", subject=port.interface),
        observed_at=stamp(at_ns),
        outcome=Outcome.OUTCOME_DATA,
        latency=latency_to_proto(port),
    )


@dataclass
class MeasuringAgent:
    """One agent that answers each task at once with `rtt(node, peer)` microseconds.

    `ports`: its ports by name, with their results. `tasks`: all tasks that it has received. `stopped`: the
    reasons of the messages that ended its measuring.
    """

    stream: AgentStream
    rtt: Rtt
    ports: dict[str, LatencyPort]
    tasks: list[PairTask] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    bandwidth_gbps: float = 0.0  # of an RDMA result beside each other one; 0 = no RDMA result

    async def publish(self) -> None:
        now_ns = time.time_ns()
        findings = [latency(self.stream.node, port, now_ns) for port in self.ports.values()]
        await self.stream.batch(*findings, sent_ns=now_ns)

    async def run(self) -> None:
        await self.publish()
        while True:
            message = await self._next()
            match message.WhichOneof("message"):
                case "measure_pairs":
                    self.tasks += message.measure_pairs.tasks
                    for task in message.measure_pairs.tasks:
                        self._measure(task)
                    await self.publish()
                case "stop_measuring":
                    self.stopped.append(message.stop_measuring.reason)

    async def _next(self) -> StreamFindingsResponse:
        """The next message down; heartbeats are sent until it comes."""
        reading = asyncio.ensure_future(self.stream.call.read())
        try:
            while not (await asyncio.wait((reading,), timeout=HEARTBEAT_S))[0]:
                await self.stream.heartbeat()
            return reading.result()
        finally:
            reading.cancel()

    def _measure(self, task: PairTask) -> None:
        us = self.rtt(self.stream.node, task.peer)
        burst = LatencyResult(
            task.peer, task.peer_interface, task.method, time.time_ns(), 16, 16, us, us * 1.1, us * 0.02
        )
        rdma = replace(burst, method="rdma", bandwidth_gbps=self.bandwidth_gbps)
        port = self.ports[task.interface]
        key = (task.peer, task.peer_interface)
        kept = [r for r in port.results if (r.peer, r.peer_interface) != key]
        found = (burst, rdma) if self.bandwidth_gbps else (burst,)
        self.ports[task.interface] = replace(port, results=(*kept, *found))


@asynccontextmanager
async def measuring_agents(
    address: str,
    nodes: Sequence[str],
    rtt: Rtt,
    *,
    probes: Sequence[str] = LATENCY_PROBES,
    bandwidth_gbps: float = 0.0,
) -> AsyncIterator[dict[str, MeasuringAgent]]:
    """They are connected, and at work."""
    async with AsyncExitStack() as stack:
        agents = {}
        for number, node in enumerate(nodes, 1):
            stream = await stack.enter_async_context(AgentStream(address, node, probes=probes))
            port = LatencyPort("ib0", (f"10.0.{number >> 8}.{number & 255}",), 4711)
            agents[node] = MeasuringAgent(stream, rtt, {"ib0": port}, bandwidth_gbps=bandwidth_gbps)
        tasks = [asyncio.create_task(agent.run()) for agent in agents.values()]
        try:
            yield agents
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
