"""Valid messages with arbitrary contents at a collector: no exception, and other hosts keep their places."""

import asyncio
import hashlib
import logging
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from hyperscout.v1.discovery_pb2 import BulkChunk, NcclId, StreamFindingsRequest, StreamFindingsResponse
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_collector.app.build.collector import Collector
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_sim.agents.player import Player
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_topology.topology import Topology
from support.agent_stream import AgentStream
from support.any_messages import AnyMessages
from support.collectors import collector_settings, eight_hosts, playing
from support.findings import adapter, sweep
from support.live import Watcher, domains
from support.soak import soak_s, soak_seed
from support.waiting import TIMEOUT_S, eventually

FABRIC = eight_hosts()
HONEST, HOST = FABRIC.hosts[:7], FABRIC.hosts[7]  # the last one is a host whose agent sends what is arbitrary
PROBES = {
    "lldp": "lldp",
    "infiniband": "infiniband",
    "ibnetdiscover": "sweep",
    "nvlink": "gpu",
    "latency": "latency",
    "nccl": "nccl",
    "switch": "switch_port",
    "snmp": "switch_table",
}
# A fabric of its own with the same wiring, which one of the callers may sweep.
SWEEPER, GUID = "node-9", FABRIC.adapters[0].guid ^ 1 << 63
SWEEP = re.sub(
    rb"\b[0-9a-f]{16}\b",
    lambda guid: b"%016x" % (int(guid[0], 16) ^ 1 << 63),
    sweep_text(FABRIC, FABRIC.adapters[0].guid).replace(b"node-", b"box-"),
)
REPORTERS = (HOST, SWEEPER, "switch/leaf-01", "fabric/crawl", "device/x")
STRINGS = (
    *(*FABRIC.hosts, *REPORTERS, *PROBES, "mlx5_0", "mlx5_0/1", "eth0", "swp1", "0000:17:00.0", "10.0.0.1"),
    *("ACTIVE", "DOWN", "LinkUp", "InfiniBand", "Ethernet", "mac", "ifname", "leaf-01", "02:00:00:00:01:01"),
    *("switch", "gpu", "Bridge", "ibnetdiscover", "completed", "NVIDIA H100", "enabled", "disabled"),
)
NUMBERS = tuple(
    number for device in (*FABRIC.adapters, *FABRIC.switches) for number in (device.guid, device.guid + 1)
)
STREAMS = 150
# How a stream of one caller may end; any other status is a defect of the collector.
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.ABORTED,
}


class Caller:
    """Sends random messages over one stream. A method raises if the collector ends the stream."""

    def __init__(self, stream: AgentStream, random: Random) -> None:
        self._stream = stream
        self._random = random
        self._any = AnyMessages(random, STRINGS, NUMBERS)
        self._lease_ids = [""]
        self._sequence = 0

    async def send(self) -> bool:
        """Send some messages, and wait for the answer to the last batch.

        Returns whether the collector answered all: it may wait for a text that this caller will not send.
        """
        for _ in range(self._random.randint(1, 6)):
            match self._random.randrange(12):
                case 0:
                    request = StreamFindingsRequest()
                    self._any.fill(request)
                    await self._stream.call.write(request)
                case 1:
                    found = NcclId()
                    self._any.fill(found)
                    await self._stream.send(nccl_id=found)
                case 2:
                    chunk = BulkChunk()
                    self._any.fill(chunk)
                    await self._stream.send(chunk=chunk)
                case 3 | 4 | 5:
                    await self._batch(await self._sweep())
                case _:
                    await self._batch(*(self._finding() for _ in range(self._random.randint(1, 8))))
        await self._batch()
        return await self._is_answered()

    async def own_port(self) -> None:
        """Report the port from which this agent may sweep."""
        found = adapter(self._stream.node, guid=GUID)
        found.observed_at.GetCurrentTime()
        await self._batch(found)
        await self._is_answered()

    async def _is_answered(self) -> bool:
        while True:
            answer: Any = await self._stream.call.read()
            assert isinstance(answer, StreamFindingsResponse), "the stream ended"
            if answer.HasField("lease"):
                self._lease_ids.append(answer.lease.lease_id)
            if answer.HasField("need_bulk"):
                return False
            if answer.ack.sequence >= self._sequence:
                return True

    async def _batch(self, *findings: Finding) -> None:
        self._sequence = await self._stream.batch(*findings, full=self._random.random() < 0.3)

    def _finding(self) -> Finding:
        """A finding whose key and payload fit, with arbitrary contents."""
        found = Finding()
        probe = self._random.choice(list(PROBES))
        self._any.fill(found)
        payload = getattr(found, PROBES[probe])
        payload.SetInParent()
        self._any.fill(payload)
        found.key.node, found.key.probe, found.key.subject = self._stream.node, probe, self._any.text()
        found.observed_at.GetCurrentTime()
        return found

    async def _sweep(self) -> Finding:
        """A sweep under a lease of this agent, with a damaged text."""
        text = bytearray(SWEEP)
        for _ in range(self._random.randint(0, 6)):
            at = self._random.randrange(len(text))
            text[at : at + self._random.randrange(30)] = self._random.randbytes(self._random.randrange(4))
        digest = hashlib.sha256(text).digest()
        if self._random.random() < 0.9:
            await self._stream.bulk(digest, zlib.compress(text))
        found = sweep(self._stream.node, digest, lease_id=self._lease_ids[-1], size_bytes=len(text))
        found.observed_at.GetCurrentTime()
        found.sweep.port_guid, found.sweep.partial = GUID + 1, self._random.random() < 0.2
        return found


async def send_all(address: str, random: Random) -> tuple[int, int]:
    """Open streams one after another. Returns how many there were, and how many of them were ended."""
    streams = ended = 0
    until_s = time.monotonic() + soak_s(0)
    while streams < STREAMS or time.monotonic() < until_s:
        streams += 1
        node = random.choice(REPORTERS)
        more = ("infiniband", "ibnetdiscover") if node == SWEEPER else ()
        probes = (*random.sample(list(PROBES), random.randint(0, 4)), *more)
        async with AgentStream(address, node, instance=streams, hello=False, probes=probes) as stream:
            await stream.send(hello={"node": node, "version": "fuzz", "probes": probes, "instance": streams})
            caller = Caller(stream, random)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    if node == SWEEPER:
                        await caller.own_port()
                    while random.random() < 0.8 and await caller.send():
                        pass
            except (AssertionError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                code, details = await stream.ended()
                # A client that writes while its stream ends may not learn why.
                if details != "Internal error from Core":
                    assert code in REFUSALS, f"stream {streams}: {code}: {details}"
                ended += 1
    return streams, ended


def places(topology: Topology) -> set[frozenset[str]]:
    """The honest hosts of each leaf."""
    return {domain & set(HONEST) for domain in domains(topology)} - {frozenset()}


def watched(hub: Hub, expected: set[frozenset[str]], moved: list[Topology]) -> Callable[[], None]:
    """Returns a subscriber that keeps each generation in which an honest host is elsewhere."""

    def check() -> None:
        if places(hub.current.topology) != expected:
            moved.append(hub.current.topology)

    return check


def has_inferred(collector: Collector, player: Player) -> bool:
    components = collector.components
    pipeline = components.inference.pipeline
    is_stored = player.settled and not components.evidence.committer.queue._waiting
    return is_stored and not pipeline._news and not pipeline._running


def defects(collector: Collector) -> list[str]:
    """The exceptions of components and of inference."""
    components = collector.components
    failures = components.inference.pipeline.failures
    return [
        *components.evidence.guard.problems,
        *failures.quarantine.errors,
        *filter(None, [failures.present]),
    ]


async def sweep_once(address: str) -> None:
    """A whole sweep is stored, also if no random one is accepted."""
    async with AgentStream(address, SWEEPER, probes=("infiniband", "ibnetdiscover")) as stream:
        found = adapter(SWEEPER, guid=GUID)
        found.observed_at.GetCurrentTime()
        await stream.batch(found, full=True)
        while not (lease_id := (await stream.read()).lease.lease_id):
            pass
        digest = hashlib.sha256(SWEEP).digest()
        await stream.bulk(digest, zlib.compress(SWEEP))
        found = sweep(SWEEPER, digest, lease_id=lease_id, size_bytes=len(SWEEP))
        found.observed_at.GetCurrentTime()
        found.sweep.port_guid = GUID + 1
        assert await stream.store(found) == []


@pytest.mark.soak
async def test_arbitrary_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    random = Random(seed := soak_seed())
    print(f"HYPERSCOUT_SOAK_SEED={seed}")
    caplog.set_level(logging.WARNING)
    unhandled: list[dict[str, Any]] = []
    moved: list[Topology] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
    expected = {frozenset(HONEST[:4]), frozenset(HONEST[4:])}
    for start in range(2):  # the second one loads what the first one stored
        async with (
            Collector(collector_settings(tmp_path)) as running,
            playing(running.address, FABRIC, hosts=HONEST) as player,
        ):
            published = running.components.publishing.watchers
            await Watcher(running.address).until(lambda x: places(x) == expected, "the honest hosts")
            published.published.subscribe(watched(published, expected, moved))
            if start == 0:
                await sweep_once(running.address)
                streams, ended = await send_all(running.address, random)
                print(f"{streams} streams, {ended} of them ended by the collector")
                state = running.components.evidence.state
                stored = Counter(key.probe for name in REPORTERS for key in state.keys_of(name))
                print(f"stored findings: {dict(stored)}")
                assert stored.keys() == PROBES.keys()
            # It may not come to rest for minutes: links flap, and generations are held.
            await eventually(lambda: has_inferred(running, player), "all evidence is in an inference")
            assert moved == []
            assert defects(running) == []
    assert unhandled == []
    assert [x.getMessage() for x in caplog.records if x.exc_info or x.levelno >= logging.ERROR] == []
