"""What perftest prints, by the formats of versions 4.5 and 6.06, and what is no such thing."""

import contextlib
from collections.abc import Callable

import pytest
from hyperscout_formats.infiniband.perftest import OneWay, parse_bandwidth, parse_latency
from hyperscout_formats.text.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st

RULE = "-" * 87
LATENCY = f"""{RULE}
                    Send Latency Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON\t\tLock-free      : OFF
 TX depth        : 1
 Mtu             : 4096[B]
 Link type       : IB
 Max inline data : 236[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
{RULE}
 local address: LID 0x01 QPN 0x0046 PSN 0x5b9e5a
 remote address: LID 0x04 QPN 0x0047 PSN 0x1aefd3
{RULE}
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
99% percentile[usec]   99.9% percentile[usec]
 2       200          0.95           3.42         1.02     \t       1.05        \t0.07   \t\t1.12    \t\t3.42
{RULE}
""".encode()
OLD_LATENCY = b""" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]
 2       1000          1.11           4.00         1.20
"""
BANDWIDTH = f"""{RULE}
                    Send BW Test
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1000             392.10             389.95\t\t   0.743771
{RULE}
""".encode()
MIB = BANDWIDTH.replace(b"Gb/sec", b"MiB/sec").replace(b"389.95", b"11444.09")
OLD_MB = MIB.replace(b"MiB/sec", b"MB/sec")
WITH_CPU = BANDWIDTH.replace(b"MsgRate[Mpps]", b"MsgRate[Mpps]    CPU_Util[%]").replace(
    b"0.743771", b"0.743771  12.5"
)


def test_latency() -> None:
    assert parse_latency(LATENCY) == OneWay(200, 0.95, 1.02, 0.07)
    assert parse_latency(OLD_LATENCY) == OneWay(1000, 1.11, 1.20, 0.0)


@pytest.mark.parametrize("text", [BANDWIDTH, WITH_CPU])
def test_bandwidth(text: bytes) -> None:
    assert parse_bandwidth(text) == 389.95


@pytest.mark.parametrize("text", [MIB, OLD_MB])
def test_bandwidth_in_mebibytes(text: bytes) -> None:
    assert parse_bandwidth(text) == pytest.approx(96.0, abs=0.01)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(b"", "no table of results", id="empty"),
        pytest.param(b" Couldn't connect to 10.0.0.2:18515\n", "no table of results", id="an error"),
        pytest.param(LATENCY.rsplit(b" 2  ", 1)[0], "no table of results", id="cut before the numbers"),
        pytest.param(
            LATENCY.replace(b"           3.42  ", b" "), "values for 9 columns", id="a number is missing"
        ),
        pytest.param(LATENCY.replace(b"0.95", b"-nan"), "expected a number", id="no number"),
        pytest.param(LATENCY.replace(b"0.95", b"0.00"), "a minimum of 0.0 us", id="no time at all"),
        pytest.param(
            LATENCY.replace(b"0.95", b"9.95"), "a minimum of 9.95 us, a median of 1.02", id="twisted"
        ),
        pytest.param(LATENCY.replace(b"0.95", b"9" * 15), "expected at most", id="ages"),
        pytest.param(BANDWIDTH, "no column t_min", id="the other tool's"),
    ],
)
def test_what_is_no_latency(text: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        parse_latency(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(b"", "no table of results", id="empty"),
        pytest.param(BANDWIDTH.replace(b"389.95", b"0.00"), "a bandwidth of 0.0", id="nothing passed"),
        pytest.param(
            BANDWIDTH.replace(b"389.95", b"38995000.0"), "a bandwidth of 38995000.0", id="impossible"
        ),
        pytest.param(BANDWIDTH.replace(b"389.95", b"inf   "), "expected a number", id="inf"),
        pytest.param(LATENCY, "no column BW average", id="the other tool's"),
    ],
)
def test_what_is_no_bandwidth(text: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        parse_bandwidth(text)


PIECES = st.sampled_from([*LATENCY.splitlines(True), *BANDWIDTH.splitlines(True), b"\0\xff", b"9" * 400])


@given(st.binary(max_size=300) | st.lists(PIECES, max_size=8).map(b"".join))
@pytest.mark.parametrize("read", [parse_latency, parse_bandwidth])
def test_any_bytes(read: Callable[[bytes], object], text: bytes) -> None:
    with contextlib.suppress(FormatError):
        read(text)


def test_much_junk() -> None:
    with pytest.raises(FormatError):
        parse_latency(b"#bytes " + b"[" * 10_000_000)
