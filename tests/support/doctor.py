"""What a collector answers to `hyperscout doctor NODE`."""

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome

from support.findings import stamp
from support.topologies import two_leaves

S = 1_000_000_000
NOW_NS = 1_790_000_000 * S
NODE = two_leaves().hypernodes[0].nodes[0]


def agent(node: str = NODE, **more: object) -> pb.AgentStatus:
    given = {"version": "1", "connected": True, "last_heard": stamp(NOW_NS - 2 * S)} | more
    return pb.AgentStatus(node=node, **given)  # type: ignore[arg-type]


def stored(
    probe: str,
    subject: str,
    outcome: str = "data",
    reason: str = "",
    *,
    stale: bool = False,
    at_ns: int = NOW_NS,
) -> pb.StoredFinding:
    finding = Finding(
        key=FindingKey(node=NODE, probe=probe, subject=subject),
        outcome=Outcome.Value(f"OUTCOME_{outcome.upper()}"),
        reason=reason,
        observed_at=stamp(at_ns),
    )
    return pb.StoredFinding(finding=finding, stale=stale)
