"""Findings do not cross a network in the clear by accident."""

import pytest
from hyperscout_runtime.credentials import TargetError, check_target


@pytest.mark.parametrize(
    "target",
    [
        "127.0.0.1:1",
        "localhost:65535",
        "[::1]:7443",
        "127.9.9.9:80",
        "unix:/run/hyperscout.sock",
        "unix-abstract:x",
    ],
)
def test_this_machine_needs_no_permission(target: str) -> None:
    check_target(target, insecure=False)


@pytest.mark.parametrize(
    "target", ["10.0.0.1:7443", "collector.hyperscout.svc:7443", "[fd00::1]:7443", "0.0.0.0:1"]
)
def test_elsewhere_needs_it(target: str) -> None:
    with pytest.raises(TargetError, match="insecure: true"):
        check_target(target, insecure=False)
    check_target(target, insecure=True)


@pytest.mark.parametrize("target", ["", "host", "host:", ":1", "host:0", "host:65536", "host:http", "::"])
def test_malformed(target: str) -> None:
    with pytest.raises(TargetError, match="expected host:port"):
        check_target(target, insecure=True)
