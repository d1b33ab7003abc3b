"""LLDP frames as switches send them, and as an attacker might."""

import dataclasses

import pytest
from hyperscout_formats.facts.facts import LldpNeighbour
from hyperscout_formats.lldp.frame import MAX_FRAME, dissect
from hyperscout_formats.text.errors import FormatError
from support.lldp_frames import (
    GROUP,
    MANDATORY,
    SENDER,
    address,
    capabilities,
    chassis,
    frame,
    port,
    tlv,
    ttl,
    unit,
)

BARE = LldpNeighbour("mac", "02:00:00:00:00:09", "ifname", "swp7", 120)
IPV4, IPV6 = b"\x0a\0\0\1", bytes(15) + b"\1"


def bare(**changes: object) -> LldpNeighbour:
    return dataclasses.replace(BARE, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "neighbour"),
    [
        (frame(), BARE),
        (frame().ljust(60, b"\0"), BARE),  # padded to Ethernet's least
        (unit(*MANDATORY, end=b""), BARE),
        (frame()[:12] + b"\x81\0\0\5" + frame()[12:], BARE),  # priority tag
        (unit(*MANDATORY[:2], ttl(0)), bare(ttl_s=0)),  # goodbye
        (unit(*MANDATORY[:2], ttl(65535)), bare(ttl_s=65535)),
        (
            frame(tlv(4, b"Port seven"), tlv(5, b"leaf-02"), tlv(6, b"a switch")),
            bare(port_description="Port seven", system_name="leaf-02", system_description="a switch"),
        ),
        (frame(tlv(5, "sw-é".encode()), tlv(6, b"")), bare(system_name="sw-é")),
        (
            frame(tlv(5, b"bad \xff\xfe x"), tlv(6, b"cut\xe2\x82")),
            bare(system_name="bad \ufffd\ufffd x", system_description="cut" + 2 * "\ufffd"),
        ),
        (
            frame(tlv(5, b"abc\0def"), tlv(4, b"\x1b[31m\tred\n")),
            bare(system_name="abc", port_description=" [31m red "),
        ),
        (frame(tlv(6, b"x" * 255)), bare(system_description="x" * 255)),
        (frame(capabilities(0x00FF, 0x0014)), bare(capabilities=("Bridge", "Router"))),
        (frame(capabilities(0x0004, 0x7FFF)), bare(capabilities=("Bridge",))),  # enabled, but not there
        (
            frame(capabilities(0xFFFF, 0xFFFF)),
            bare(capabilities=("Bridge", "Docsis", "Other", "Repeater", "Router", "Station", "Tel", "Wlan")),
        ),
        (frame(address(1, IPV4), address(2, IPV6)), bare(management_addresses=("10.0.0.1", "::1"))),
        (
            frame(address(1, IPV4), address(6, SENDER), address(1, IPV4)),
            bare(management_addresses=("10.0.0.1",)),
        ),
        (frame(address(1, IPV4, object_id=b"\x2b\6\1")), bare(management_addresses=("10.0.0.1",))),
        (
            frame(tlv(50, b"reserved"), tlv(127, b"\0\x80\xc2\1\0\5"), tlv(127, b""), tlv(5, b"hi")),
            bare(system_name="hi"),
        ),
        (frame(*[tlv(127, b"\0\x12\x0f\1") for _ in range(1500)]), BARE),
        (frame() + b"\0" * (MAX_FRAME - len(frame())), BARE),
    ],
)
def test_a_neighbour(data: bytes, neighbour: LldpNeighbour) -> None:
    assert dissect(data) == neighbour


@pytest.mark.parametrize(
    ("of_chassis", "of_port", "kinds", "values"),
    [
        (chassis(4, SENDER), port(3, SENDER), ("mac", "mac"), ("02:00:00:00:00:09",) * 2),
        (chassis(6, b"lo"), port(5, b"eth0"), ("ifname", "ifname"), ("lo", "eth0")),
        (chassis(2, b"a"), port(1, b"b"), ("ifalias", "ifalias"), ("a", "b")),
        (chassis(7, b" leaf 1 "), port(7, b"42"), ("local", "local"), (" leaf 1 ", "42")),
        (chassis(5, b"\1\x0a\0\0\2"), port(4, b"\1\x0a\0\0\3"), ("ip", "ip"), ("10.0.0.2", "10.0.0.3")),
        (chassis(5, b"\2" + IPV6), port(4, b"\2" + IPV6), ("ip", "ip"), ("::1", "::1")),
        (chassis(5, b"\6abc"), port(4, b"\6abc"), ("ip", "ip"), ("06 61 62 63",) * 2),
        (chassis(1, b"comp"), port(2, b"comp"), ("unhandled", "unhandled"), ("63 6f 6d 70",) * 2),
        (chassis(3, b"\0"), port(6, b"\xff"), ("unhandled", "unhandled"), ("00", "ff")),
        (chassis(7, b"x" * 255), port(7, b"y" * 255), ("local", "local"), ("x" * 255, "y" * 255)),
    ],
)
def test_identifiers(
    of_chassis: bytes, of_port: bytes, kinds: tuple[str, str], values: tuple[str, str]
) -> None:
    found = dissect(unit(of_chassis, of_port, ttl(120)))
    assert (found.chassis_id_subtype, found.port_id_subtype) == kinds
    assert (found.chassis_id, found.port_id) == values


def test_addresses_are_bounded() -> None:
    many = [address(1, bytes([10, 0, i, 1])) for i in range(200)]
    assert len(dissect(frame(*many)).management_addresses) == 32


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "not LLDP"),
        (GROUP + SENDER, "not LLDP"),
        (GROUP + SENDER + b"\x08\x00" + bytes(46), "not LLDP: the EtherType is 0800"),
        (frame()[:12] + b"\x81\0\0\5\x81\0\0\6" + frame()[12:], "not LLDP"),
        (unit(end=b""), "the chassis id is missing"),
        (unit(), "the chassis id is missing"),
        (unit(*MANDATORY[:2]), "the time to live is missing"),
        (unit(MANDATORY[1], MANDATORY[0], MANDATORY[2]), "TLV 1 is of type 2, not the chassis id"),
        (unit(MANDATORY[0], tlv(5, b"x"), *MANDATORY[1:]), "TLV 2 is of type 5, not the port id"),
        (frame(MANDATORY[0]), "a second chassis id"),
        (frame(ttl(1)), "a second time to live"),
        (frame(tlv(5, b"one"), tlv(5, b"two")), "a second system name"),
        (frame()[:-6], "the time to live is missing"),
        (frame()[:-4], "TLV 3 of type"),
        (unit(*MANDATORY, end=b"\x0a"), "TLV 4 of type"),
        (unit(*MANDATORY, end=b"\x0b\xff" + b"x" * 100), "TLV 4 of type"),
        (frame(tlv(5, b"x" * 256)), "system name: 256 bytes"),
        (frame(tlv(6, b"x" * 511)), "system description: 511 bytes"),
        (unit(*MANDATORY, end=b"\0\1x"), "end: 1 bytes, expected 0 to 0"),
        (unit(chassis(4, b""), *MANDATORY[1:]), "chassis id: 1 bytes, expected 2 to 256"),
        (unit(chassis(7, b"x" * 256), *MANDATORY[1:]), "chassis id: 257 bytes"),
        (unit(chassis(0, b"x"), *MANDATORY[1:]), "reserved subtype 0"),
        (unit(chassis(8, b"x"), *MANDATORY[1:]), "reserved subtype 8"),
        (unit(MANDATORY[0], port(255, b"x"), MANDATORY[2]), "reserved subtype 255"),
        (unit(chassis(4, b"short"), *MANDATORY[1:]), "a MAC address of 5 bytes"),
        (unit(MANDATORY[0], port(3, b"too long"), MANDATORY[2]), "a MAC address of 8 bytes"),
        (unit(chassis(5, b"\1abc"), *MANDATORY[1:]), "of family 1 with 3 bytes"),
        (unit(chassis(5, b"\2abcd"), *MANDATORY[1:]), "of family 2 with 4 bytes"),
        (unit(chassis(7, b"\0\1\2"), *MANDATORY[1:]), "an empty chassis id"),
        (unit(MANDATORY[0], port(5, b"\0"), MANDATORY[2]), "an empty port id"),
        (unit(*MANDATORY[:2], tlv(3, b"\0")), "time to live: 1 bytes"),
        (frame(tlv(7, b"\0\4\0")), "system capabilities: 3 bytes"),
        (frame(tlv(8, b"")), "management address: 0 bytes"),
        (frame(tlv(8, b"\0" * 9)), "does not fit"),
        (frame(tlv(8, b"\xff\1" + b"x" * 20)), "does not fit"),
        (frame(tlv(8, b"\5\1\x0a\0\0\1\2\0\0\0\3\xff")), "does not fit"),
        (frame(address(1, b"\x0a\0")), "family 1 with 2 bytes"),
        (frame(address(2, b"x" * 31)), "family 2 with 31 bytes"),
        (frame() + b"\0" * (MAX_FRAME + 1 - len(frame())), "at most 9216"),
    ],
)
def test_a_frame_that_is_refused(data: bytes, part: str) -> None:
    with pytest.raises(FormatError) as caught:
        dissect(data, "eth0")
    assert part in caught.value.reason
    assert caught.value.source == "eth0"


def test_every_cut_of_a_frame_is_refused_or_whole() -> None:
    data = frame(tlv(5, b"leaf-02"), capabilities(4, 4), address(1, IPV4))
    whole = dissect(data)
    for size in range(len(data)):
        try:
            found = dissect(data[:size])
        except FormatError:
            continue
        # It was cut between two TLVs: what is left is true.
        assert found.chassis_id == whole.chassis_id
        assert found.system_name in {"", whole.system_name}
