"""A collector that is attacked over the wire keeps its memory, its health and the tree of the others."""

import hashlib
import time
import zlib
from pathlib import Path

import grpc
from hyperscout.v1.discovery_pb2 import Heartbeat, Hello, StreamFindingsRequest
from hyperscout.v1.discovery_pb2_grpc import DiscoveryServiceStub
from hyperscout_collector.evidence.limits import Limits
from hyperscout_collector.ingest.refusals import MAX_LINES
from support.agent_stream import AgentStream
from support.collector_process import channel_to
from support.findings import adapter, lldp, sweep
from support.hostile import hostile
from support.siege import besieged

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
        (reason,) = await agent.store(sweep("evil", digest, time.time_ns(), lease_id=lease))
        assert "not the text of a fabric" in reason


async def test_refusals_are_logged_at_a_limited_rate(tmp_path: Path) -> None:
    async with besieged(tmp_path) as siege, channel_to(siege.address) as channel:
        before = siege.process.lines
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
        assert siege.process.lines - before <= 2 * MAX_LINES + 1
