"""Datagrams: what goes in comes out, and no sender without the key makes one."""

import pytest
from hyperscout_agent.ping.packet import (
    MAX_RESIDENCE_NS,
    PACKET_BYTES,
    PING,
    PONG,
    Packet,
    PacketError,
    pack,
    task_of,
    unpack,
)
from hypothesis import given
from hypothesis import strategies as st

KEY, OTHER = bytes(range(32)), bytes(32)
packets = st.builds(
    Packet,
    kind=st.integers(0, 255),
    first=st.booleans(),
    task_id=st.integers(0, 2**64 - 1),
    sequence=st.integers(0, 2**32 - 1),
    nonce=st.binary(min_size=8, max_size=8),
    residence_ns=st.tuples(*[st.integers(0, MAX_RESIDENCE_NS)] * 4),
)


@given(packets)
def test_what_goes_in_comes_out(packet: Packet) -> None:
    datagram = pack(packet, KEY)
    assert len(datagram) == PACKET_BYTES
    assert task_of(datagram) == packet.task_id
    assert unpack(datagram, KEY) == packet
    with pytest.raises(PacketError, match="forged"):
        unpack(datagram, OTHER)


@given(packets, st.integers(0, PACKET_BYTES * 8 - 1))
def test_no_bit_of_it_can_be_changed(packet: Packet, bit: int) -> None:
    changed = bytearray(pack(packet, KEY))
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(PacketError):
        unpack(bytes(changed), KEY)


@given(st.binary(max_size=200) | st.binary(max_size=56).map(lambda rest: b"HsP1" + rest))
def test_garbage(datagram: bytes) -> None:
    task_of(datagram)
    with pytest.raises(PacketError):
        unpack(datagram, KEY)


@pytest.mark.parametrize(
    "datagram",
    [
        pytest.param(b"", id="empty"),
        pytest.param(pack(Packet(PING, True, 1, 1), KEY)[:-1], id="one byte short"),
        pytest.param(pack(Packet(PING, True, 1, 1), KEY) + b"\0", id="one byte long"),
        pytest.param(b"XXXX" + pack(Packet(PING, True, 1, 1), KEY)[4:], id="another magic"),
    ],
)
def test_malformed(datagram: bytes) -> None:
    assert task_of(datagram) is None


@pytest.mark.parametrize("residence_ns", [-5, 0, MAX_RESIDENCE_NS + 1])
def test_a_residence_that_does_not_fit_is_not_told(residence_ns: int) -> None:
    packet = Packet(PONG, True, 1, 1, residence_ns=(residence_ns, 7, 0, 0))
    assert unpack(pack(packet, KEY), KEY).residence_ns == (0, 7, 0, 0)
