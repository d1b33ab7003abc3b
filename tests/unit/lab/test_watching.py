"""What a story takes for the state of a HyperNode."""

import pytest
from lab.watching import essence


@pytest.mark.parametrize(
    ("status", "reason", "shown"),
    [
        pytest.param("False", "LinksHealthy", "False", id="healthy"),
        pytest.param("True", "LinksDown", "True", id="a cable is out"),
        pytest.param("True", "SlowLinks", "False", id="a path was measured while the cores were busy"),
    ],
)
def test_slow_paths_alone_are_no_change(status: str, reason: str, shown: str) -> None:
    degraded = {"type": "Degraded", "status": status, "reason": reason}
    ready = {"type": "Ready", "status": "True", "reason": "AllMembersReady"}
    found = essence({"spec": {"tier": 1}, "status": {"conditions": [ready, degraded]}})
    assert found["conditions"] == {"Degraded": shown, "Ready": "True"}
