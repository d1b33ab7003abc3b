"""Input of callers that the database or JSON cannot hold: it is refused or cut, and never raises."""

import base64
import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.history.reader import time_ns
from hyperscout_collector.serve.grpc.topology_service import _after


def token(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    ("time", "expected_ns"),
    [
        (Timestamp(seconds=1, nanos=2), 1_000_000_002),
        (Timestamp(seconds=-62_135_596_800), 0),
        (Timestamp(seconds=253_402_300_799), 2**63 - 1),
        (Timestamp(seconds=2**63 - 1, nanos=-1), 2**63 - 1),
    ],
)
def test_a_time_fits_into_the_database(time: Timestamp, expected_ns: int) -> None:
    assert time_ns(time) == expected_ns


@pytest.mark.parametrize(
    "text",
    [
        token(["n", "lldp", "eth0", 10**30]),
        token(["n", "lldp", "eth0", -1]),
        token(["\ud800", "lldp", "eth0", 0]),
        base64.urlsafe_b64encode(b"[" * 200_000).decode(),
    ],
)
def test_a_token_of_junk_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        _after(text)


def test_a_token_of_a_page() -> None:
    assert _after(token(["n", "lldp", "eth0", 1])) == (Key("n", "lldp", "eth0"), 1)
