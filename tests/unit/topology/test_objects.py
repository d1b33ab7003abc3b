"""What `-o json` and REST call things."""

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Finding
from hyperscout_topology import objects


def test_counts_are_numbers_and_what_is_not_said_is_there() -> None:
    current = pb.GetStatusResponse(generation=2**60, agents=[pb.AgentStatus(node="n", findings=3)])
    found = objects.plain(current)
    assert found["generation"] == 2**60
    assert found["agents"][0]["findings"] == 3
    assert found["agents"][0]["connected"] is False
    assert "held" not in found  # it has presence, and is not there


def test_identities_of_64_bits_stay_whole() -> None:
    finding = Finding()
    finding.infiniband.node_guid = 2**64 - 1
    finding.infiniband.link_downed = 7
    found = objects.plain(pb.StoredFinding(finding=finding))["finding"]["infiniband"]
    assert found["nodeGuid"] == str(2**64 - 1)
    assert found["linkDowned"] == 7
