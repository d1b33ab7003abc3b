"""A collector that is attacked over the wire keeps its memory, its health and the tree of the others."""

import time
from pathlib import Path

from hyperscout_collector.evidence.limits import Limits
from support.agent_stream import AgentStream
from support.findings import lldp
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
