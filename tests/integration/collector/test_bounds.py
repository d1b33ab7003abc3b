"""A collector that is attacked over the wire keeps its memory, its health and the tree of the others."""

import asyncio
import hashlib
import resource
import socket
import ssl
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from hyperscout.v1.discovery_pb2 import FindingBatch, Heartbeat, Hello, StreamFindingsRequest
from hyperscout.v1.discovery_pb2_grpc import DiscoveryServiceStub
from hyperscout_cli.loadtest.child import rss_mib
from hyperscout_collector.evidence.limits import Limits
from hyperscout_collector.ingest.refusals import MAX_LINES
from hyperscout_collector.ingest.service import MAX_OTHER_CONNECTIONS
from support.agent_stream import AgentStream
from support.collector_process import channel_to, collector_process
from support.findings import adapter, lldp, sweep
from support.hostile import hostile
from support.identities import Family
from support.siege import LIMIT_MIB, USED_MIB, besieged, free_address
from support.waiting import TIMEOUT_S

EMPTY_RESULT = b"\x2a\x00"  # an element of `LatencyPort.results` without content


async def test_many_small_elements_and_a_full_quota_cost_only_their_reporter(tmp_path: Path) -> None:
    """The store has room for a quarter of what the second attacker sends."""
    quota = f"stores at most {Limits().bytes_per_node >> 10} KiB"
    async with besieged(tmp_path, "--evidence-max-mib", "20") as siege:
        async with AgentStream(siege.address, "evil-1") as agent:
            for i in range(5):
                (reason,) = await agent.store(hostile("evil-1", f"eth{i}", EMPTY_RESULT * 500_000))
                assert "a finding has at most 262144" in reason
            (reason,) = await agent.store(hostile("evil-1", "eth0", EMPTY_RESULT * 100_000))
            assert "its lists have 100000 elements" in reason
            findings = [hostile("evil-1", f"eth{i}", EMPTY_RESULT * 10_000) for i in range(30)]
            reasons = [reason for one in findings for reason in await agent.store(one)]
            assert quota in reasons[-1]
        async with AgentStream(siege.address, "evil-2") as agent:
            finding = lldp("evil-2", "eth0", time.time_ns())
            finding.lldp.neighbours[0].system_description = "x" * 200_000
            reasons = []
            for i in range(100):
                finding.key.subject = f"eth{i}"
                reasons += await agent.store(finding)
            assert quota in reasons[-1]


async def test_a_sweep_that_no_fabric_makes_is_refused_at_once(tmp_path: Path) -> None:
    line = b'[1]"S-2"[1]\n'
    text = b'Switch 36 "S-1"\n' + line * ((90 << 20) // len(line))
    digest, packed = hashlib.sha256(text).digest(), zlib.compress(text, 9)
    assert len(packed) < 256 << 10
    async with (
        besieged(tmp_path) as siege,
        AgentStream(siege.address, "evil", probes=("ibnetdiscover",)) as agent,
    ):
        await agent.batch(adapter("evil", at_ns=time.time_ns(), guid=0xBAD0), full=True)
        while not (lease := (await agent.read()).lease.lease_id):
            pass
        await agent.bulk(digest, packed)
        found = sweep("evil", digest, time.time_ns(), lease_id=lease)
        found.sweep.port_guid = 0xBAD1
        (reason,) = await agent.store(found)
        assert "not the text of a fabric" in reason


async def test_refusals_are_logged_at_a_limited_rate(tmp_path: Path) -> None:
    async with besieged(tmp_path) as siege, channel_to(siege.address) as channel:
        before, began_s = siege.process.lines, time.monotonic()
        for i in range(300):
            call = DiscoveryServiceStub(channel).StreamFindings()
            if i % 2:
                await call.write(StreamFindingsRequest(heartbeat=Heartbeat()))
            else:
                await call.write(StreamFindingsRequest(hello=Hello(node=f"a/{i}")))
            assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
        for i in range(30):
            async with AgentStream(siege.address, f"evil-{i}") as agent:
                await agent.store(lldp("another", "eth0"))
        minutes = 2 + int(time.monotonic() - began_s) // 60
        assert siege.process.lines - before <= minutes * MAX_LINES + 1


@contextmanager
def silent(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Connections that send nothing, from an address of their own."""
    host, port = address.split(":")
    own = ("127.0.0.2", 0)
    with ExitStack() as stack:
        found = [
            stack.enter_context(socket.create_connection((host, int(port)), source_address=own))
            for _ in range(count)
        ]
        for one in found:
            one.setblocking(False)
        yield found


async def closed(connections: Sequence[socket.socket]) -> None:
    """Wait until the other end has closed all of them. A gRPC server sends its settings first."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(TIMEOUT_S):
        for one in connections:
            with suppress(ConnectionError):
                while await loop.sock_recv(one, 1 << 16):
                    pass


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16_384), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
async def test_silent_connections_are_closed_and_keep_no_caller_out(tmp_path: Path) -> None:
    async with besieged(tmp_path) as siege:
        with (
            silent(siege.http_address, 200),
            silent(siege.rest_address, 1000) as of_rest,
            silent(siege.address, 500) as of_grpc,
        ):
            await siege.tree()
            assert b" 200 " in await status_line(siege.rest_address)
            await closed([*of_rest, *of_grpc])


@pytest.mark.usefixtures("many_files")
async def test_connections_to_grpc_are_limited_in_all(tmp_path: Path) -> None:
    def open_files() -> int:
        return sum(1 for _ in Path(f"/proc/{siege.process.pid}/fd").iterdir())

    loop = asyncio.get_running_loop()
    async with besieged(tmp_path, "--max-streams", "20") as siege:
        before = open_files()
        with silent(siege.address, MAX_OTHER_CONNECTIONS + 100) as connections:
            for one in connections:  # accepted ones are greeted, the others closed
                with suppress(ConnectionError):
                    await loop.sock_recv(one, 1 << 16)
            assert open_files() - before <= MAX_OTHER_CONNECTIONS + 20
            await closed(connections)


@pytest.mark.usefixtures("many_files")
async def test_handshakes_that_do_not_end_take_little_memory(tmp_path: Path) -> None:
    """A handshake takes 300 KiB."""
    family, rest = Family(tmp_path), free_address()
    pair = family.server
    tls = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--rest-listen", rest)
    async with collector_process(tmp_path / "data", *tls, memory_mib=LIMIT_MIB) as process:
        context = ssl.create_default_context(cafile=str(family.ca))
        with silent(rest, 1000) as connections:
            assert b" 200 " in await status_line(rest, context)
            await closed(connections)
        assert rss_mib(process.pid, "VmHWM") < USED_MIB / 2


async def status_line(address: str, context: ssl.SSLContext | None = None) -> bytes:
    host, port = address.split(":")
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        found = await reader.readline()
        writer.transport.abort()
        return found


async def test_batches_of_half_a_million_findings_are_refused(tmp_path: Path) -> None:
    async with besieged(tmp_path) as siege:
        for i in range(2):
            async with AgentStream(siege.address, f"evil-{i}") as agent:
                batch = FindingBatch.FromString(b"\x08\x01" + b"\x12\x00" * 520_000)
                await agent.send(batch=batch)
                code, why = await agent.ended()
                assert code == grpc.StatusCode.INVALID_ARGUMENT
                assert why.startswith("a batch of 520000 findings")
