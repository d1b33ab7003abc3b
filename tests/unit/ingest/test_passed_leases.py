"""A standby knows the sweep leases that it passed on, and ends them when another replica leads."""

from typing import Any, cast

import pytest
from hyperscout.v1.discovery_pb2 import (
    Hello,
    StreamFindingsResponse,
    SweepLease,
    SweepRevoke,
)
from hyperscout_collector.evidence.rows import row_of
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.ingest.passed_leases import PassedLeases
from hyperscout_collector.ingest.streams import AgentStream, Streams
from support.findings import T0, adapter


class Rig:
    def __init__(self) -> None:
        self.state = EvidenceState()
        found = adapter("n1", "mlx5_0", guid=0xA1)
        self.state.load([row_of(found, sent_ns=T0, received_ns=T0)], [])
        self.streams = Streams(10)
        self.stream = AgentStream(Hello(node="n1", instance=1), cast("Any", None), T0, T0)
        self.streams.add(self.stream)
        self.failed: list[tuple[str, SweepRevoke]] = []
        self.leases = PassedLeases(self.streams, self.state, lambda *failed: self.failed.append(failed))

    def grant(self, lease_id: str) -> None:
        lease = SweepLease(lease_id=lease_id, device="mlx5_0", port=1)
        self.leases.passed("n1", StreamFindingsResponse(lease=lease))

    def told(self) -> list[str]:
        return [str(message.WhichOneof("message")) for message in self.stream.outgoing()]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_lease_that_was_passed_on_permits_sweeps_from_its_port(rig: Rig) -> None:
    assert not rig.leases.may_sweep("n1")
    rig.grant("a")
    assert rig.leases.may_sweep("n1")
    assert rig.leases.holds("n1", "a")
    (fact,) = (row.fact for row in rig.state.rows_of_node("n1"))
    guid = cast("Any", fact).port_guid
    assert rig.leases.refuse_sweep("n1", "a", guid) is None
    assert rig.leases.refuse_sweep("n1", "a", None) is None
    assert rig.failed == []
    reason = rig.leases.refuse_sweep("n1", "a", guid + 1)
    assert reason is not None
    assert rig.failed == [("n1", SweepRevoke(lease_id="a", reason=reason))]
    assert rig.told() == []


def test_a_revoked_lease_permits_nothing(rig: Rig) -> None:
    rig.grant("a")
    rig.leases.passed("n1", StreamFindingsResponse(revoke=SweepRevoke(lease_id="a")))
    assert not rig.leases.may_sweep("n1")
    assert rig.leases.refuse_sweep("n1", "a", None) is not None
    assert rig.told() == ["revoke"]
    assert rig.failed == []


def test_leases_end_with_their_stream(rig: Rig) -> None:
    rig.grant("a")
    rig.leases.gone("n1")
    assert not rig.leases.holds("n1", "a")


def test_another_leader_ends_leases_and_measuring(rig: Rig) -> None:
    rig.grant("a")
    rig.grant("b")
    rig.leases.leader_changed()
    assert rig.told() == ["revoke", "revoke", "stop_measuring"]
    assert not rig.leases.may_sweep("n1")


def test_a_text_that_cannot_be_read_is_told_to_the_leader(rig: Rig) -> None:
    rig.grant("a")
    rig.leases.unreadable("n1", "a", "line 3")
    assert rig.failed == [("n1", SweepRevoke(lease_id="a", reason="line 3"))]
