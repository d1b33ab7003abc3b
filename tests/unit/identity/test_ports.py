"""Where callers with certificates are sent."""

import pytest
from hyperscout_collector.app.build.ports import for_certificates


@pytest.mark.parametrize(
    ("leader", "mtls", "expected"),
    [
        ("10.0.0.2:50051", "0.0.0.0:50054", "10.0.0.2:50054"),
        ("[fd00::2]:50051", "[::]:50054", "[fd00::2]:50054"),
        ("collector-1.collector:50051", "0.0.0.0:50054", "collector-1.collector:50054"),
        ("10.0.0.2:50051", "", "10.0.0.2:50051"),
        ("", "0.0.0.0:50054", ""),
    ],
)
def test_a_leader_takes_certificates_where_this_replica_does(leader: str, mtls: str, expected: str) -> None:
    assert for_certificates(leader, mtls) == expected
