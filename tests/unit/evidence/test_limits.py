"""What a finding takes decoded: hostile findings are refused, and the largest of an agent are not."""

from collections.abc import Callable

import pytest
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_agent.findings.store import MAX_FINDING_BYTES
from hyperscout_agent.ping.results import MAX_HISTORY, MAX_RESULTS
from hyperscout_collector.evidence.limits import MAX_DECODED_BYTES, decoded_bytes
from hyperscout_collector.evidence.rows import BadFinding
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult, LatencySample
from hyperscout_formats.facts.wire_measured import latency_to_proto
from support.findings import T0, table
from support.hostile import hostile

RESULTS, HISTORY = 0x2A, 0x62  # tags of `LatencyPort.results` and `LatencyResult.history`


@pytest.mark.parametrize(
    ("latency", "word"),
    [
        (bytes((RESULTS, 0)) * 200_000, "4000.. bytes; a finding has at most 262144"),
        (bytes((RESULTS, 0)) * 100_000, "its lists have 100000 elements or more"),
        ((bytes((RESULTS, 100)) + bytes((HISTORY, 0)) * 50) * 2000, "its lists have 1"),
    ],
)
def test_a_finding_of_many_elements_is_refused(latency: bytes, word: str) -> None:
    with pytest.raises(BadFinding, match=word):
        decoded_bytes(hostile("n", "e", latency))


def measured(results: int, history: int) -> Finding:
    """What the probe `latency` reports of one interface."""
    bursts = tuple(LatencySample(T0 + i, 12.5, 0.5) for i in range(history))
    finding = hostile("n", "e", b"")
    results_of = (
        LatencyResult(f"gpu-{i:05}", "rdma-0", "udp", T0, 20, 20, 12.5, 13.0, 0.5, 390.0, "", bursts)
        for i in range(results)
    )
    finding.latency.CopyFrom(latency_to_proto(LatencyPort("rdma-0", ("10.0.0.1",), 7, "", tuple(results_of))))
    return finding


@pytest.mark.parametrize(
    "large",
    [
        lambda: measured(MAX_RESULTS, 0),
        lambda: measured(700, MAX_HISTORY),
        lambda: table("leaf-1", {f"swp{i}": f"spine-{i}/swp{i}" for i in range(1800)}),
    ],
    ids=["results", "history", "table"],
)
def test_the_largest_findings_of_an_agent_are_accepted(large: Callable[[], Finding]) -> None:
    finding = large()
    assert MAX_FINDING_BYTES * 0.8 < finding.ByteSize() <= MAX_FINDING_BYTES
    assert decoded_bytes(finding) < MAX_DECODED_BYTES
