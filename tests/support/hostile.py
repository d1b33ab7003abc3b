"""Messages that no agent sends."""

import time

from hyperscout.v1.finding_pb2 import Finding, FindingKey, Outcome

from support.findings import stamp


def hostile(node: str, subject: str, latency: bytes) -> Finding:
    """A finding whose LatencyPort has these bytes: see protobuf.dev, "Encoding"."""
    finding = Finding(
        key=FindingKey(node=node, probe="latency", subject=subject),
        observed_at=stamp(time.time_ns()),
        outcome=Outcome.OUTCOME_DATA,
    )
    finding.latency.ParseFromString(latency)
    return finding
