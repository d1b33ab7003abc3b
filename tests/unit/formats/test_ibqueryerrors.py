"""What ibqueryerrors of infiniband-diags 44 prints."""

import re

import pytest
from hyperscout_formats.facts.facts import PortCounters
from hyperscout_formats.infiniband.ibqueryerrors import PortErrors, parse
from hyperscout_formats.text.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st

HEAD = b"""Errors for "node-0003 mlx5_0"
   GUID 0x131 port 1: [PortRcvErrors == 5]
"""
TEXT = (
    HEAD
    + b"""Errors for 0x2000 "MF0;leaf2:MQM8700/U1"
   GUID 0x2000 port ALL: [PortXmitDiscards == 9] [LinkDownedCounter == 3]
   GUID 0x2000 port 8: [PortXmitDiscards == 9] [LinkDownedCounter == 3]
Errors for 0x1000 "MF0;leaf1:MQM8700/U1"
   GUID 0x1000 port ALL: [SymbolErrorCounter == 77]
   GUID 0x1000 port 1: [SymbolErrorCounter == 77] [PortXmitWait == 12345]

## Summary: 7 nodes checked, 3 bad nodes found
##          28 ports checked, 3 ports have errors beyond threshold
## Thresholds:
## Suppressed:
"""
)
FOUND = {
    (0x131, 1): PortErrors(PortCounters(rx_errors=5)),
    (0x2000, 8): PortErrors(PortCounters(tx_dropped=9), 3),
    (0x1000, 1): PortErrors(PortCounters(rx_errors=77, rx_crc_errors=77)),
}
SUMMARY = b"## Summary: 7 nodes checked, 0 bad nodes found\n"


def test_a_fabric() -> None:
    assert parse(TEXT) == (FOUND, ())


@pytest.mark.parametrize(
    ("text", "found", "problems"),
    [
        pytest.param(SUMMARY, {}, [], id="well"),
        pytest.param(HEAD, {(0x131, 1): FOUND[0x131, 1]}, [], id="cut-short"),
        pytest.param(HEAD.rstrip(), {(0x131, 1): FOUND[0x131, 1]}, [], id="no-last-newline"),
        pytest.param(
            HEAD + b"       Link info:      7   1[  ] ==( 4X 53.125 Gbps Active/  LinkUp)==>  0x2000 3 1\n",
            {(0x131, 1): FOUND[0x131, 1]},
            [],
            id="with-r",
        ),
        pytest.param(
            b"x\n   GUID 0x131 port 1000: [PortRcvErrors == 5]\n" + SUMMARY,
            {},
            [2],
            id="no-such-port",
        ),
        pytest.param(b"GUID 0xzz port 1: [PortRcvErrors == 5]\n" + SUMMARY, {}, [1], id="no-guid"),
        pytest.param(
            b"GUID 0x1 port 1: [PortRcvErrors == 99999999999999999999] [SymbolErrorCounter ==\n",
            {(1, 1): PortErrors(PortCounters(rx_errors=2**64 - 1))},
            [],
            id="too-large-and-cut",
        ),
        pytest.param(b"GUID 0x1 port 1:\n", {(1, 1): PortErrors(PortCounters())}, [], id="nothing-counted"),
        pytest.param(
            b"GUID 0x1 port 1:" + b" [PortRcvErrors == 5]" * 100_000,
            {(1, 1): PortErrors(PortCounters(rx_errors=5))},
            [],
            id="a-long-line",
        ),
    ],
)
def test_quirks(text: bytes, found: dict[tuple[int, int], PortErrors], problems: list[int]) -> None:
    ports, said = parse(text)
    assert (ports, [problem.line for problem in said]) == (found, problems)


@pytest.mark.parametrize("text", [b"", b"ibwarn: No SM/SA found\n", b"\0" * 100])
def test_what_is_not_of_the_tool(text: bytes) -> None:
    with pytest.raises(FormatError, match="expected the output of ibqueryerrors"):
        parse(text)


PIECES = [b"GUID 0x", b" port ", b"1", b"ALL", b":", b" [SymbolErrorCounter == ", b"]", b"\n", b"## Summary:"]


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=6)).map(b"".join))
def test_any_bytes(text: bytes) -> None:
    try:
        ports, problems = parse(text, "x")
    except FormatError:
        return
    for (guid, port), errors in ports.items():
        assert 0 <= guid < 2**64
        assert 0 <= port < 1000
        assert min(errors.link_downed, errors.counters.rx_errors) >= 0
        assert max(errors.link_downed, errors.counters.rx_errors, errors.counters.tx_dropped) < 2**64
    lines = text.split(b"\n")
    for problem in problems:
        assert re.match(rb"[ \t]*GUID 0x", lines[problem.line - 1])


def test_only_so_many_ports_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperscout_formats.infiniband.ibqueryerrors.MAX_PORTS", 2)
    found, problems = parse(TEXT)
    assert list(found) == [(0x131, 1), (0x2000, 8)]
    assert [problem.reason for problem in problems] == ["more than 2 ports with errors: the rest is ignored"]
