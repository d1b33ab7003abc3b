"""A neighbour reads the same from its frame and from what a real lldpd says of it, odd frames included."""

from collections.abc import Iterator

import pytest
from hyperscout_formats.lldp import lldpctl
from hyperscout_formats.lldp.frame import dissect
from support.lldp_frames import SENDER, address, capabilities, chassis, port, tlv, ttl, unit
from support.lldpd import Lab, lldp_lab
from support.real import require_real

IPV6 = bytes(15) + b"\1"
END = ("host", "eth0")

# Identifiers of every subtype that lldpd takes.
IDENTIFIERS = [
    unit(chassis(4, SENDER), port(3, SENDER), ttl(120)),
    unit(chassis(6, b"lo"), port(5, b"eth0"), ttl(300)),
    unit(chassis(2, b"a"), port(1, b"b"), ttl(65535)),
    unit(chassis(7, b"  leaf 1 "), port(7, b" "), ttl(120)),
    unit(chassis(7, "n\u00e4he \xff".encode() + b"\xff"), port(7, b"x\0y"), ttl(120)),
    unit(chassis(5, b"\1\x0a\0\0\2"), port(4, b"\1\x0a\0\0\3"), ttl(120)),
    unit(chassis(5, b"\2" + IPV6), port(4, b"\2" + IPV6), ttl(120)),
    unit(chassis(5, b"\6abcdef"), port(4, b"\6abcdef"), ttl(120)),
    unit(chassis(1, b"comp"), port(2, bytes(range(200))), ttl(120)),
    unit(chassis(3, b"\0\1"), port(6, b"circuit"), ttl(120)),
]
# What else is in a frame.
CONTENTS = [
    (tlv(4, b"Port seven"), tlv(5, b"leaf-02"), tlv(6, b"a switch\nof two lines")),
    (tlv(4, b"esc \x1b[31m \x01 tab\t"), tlv(5, b"cut\0here"), tlv(6, b"")),
    (tlv(5, b"a\xe2\x82"), tlv(6, b"\xed\xa0\x80 \xf0\x9f\x98\x80 \xc0\x80 \xe2\x82x")),
    (tlv(6, b"x" * 255),),
    (capabilities(0xFFFF, 0x0014),),
    (capabilities(0x0004, 0x7FFF),),
    (capabilities(0xFFFF, 0xFFFF),),
    (address(1, b"\x0a\0\0\1"), address(2, IPV6), address(6, SENDER), address(1, b"\x0a\0\0\1", b"\x2b\6")),
    (tlv(50, b"reserved"), tlv(127, b"\0\x80\xc2\1\0\5"), tlv(5, b"after")),
]
FRAMES = IDENTIFIERS + [
    unit(chassis(4, bytes([2, 0, 0, 0, 1, i])), port(5, b"swp7"), ttl(120), *tlvs)
    for i, tlvs in enumerate(CONTENTS)
]


@pytest.fixture
def lab() -> Iterator[Lab]:
    require_real("lldpd")
    require_real("netns")
    with lldp_lab() as lab:
        yield lab


def test_both_readers_agree(lab: Lab) -> None:
    lab.cable(END, ("switch", "swp1"))
    daemon = lab.lldpd("host", ["eth0"])
    frames = [frame.ljust(60, b"\0") for frame in FRAMES]
    # lldpd may list its port before it listens there.
    daemon.await_neighbours(len(FRAMES), again=lambda: lab.inject(("switch", "swp1"), *frames))
    ports, problems = lldpctl.parse(daemon.view())
    assert problems == ()
    assert [found.interface for found in ports] == ["eth0"]
    heard = {(found.chassis_id_subtype, found.chassis_id): found for found in ports[0].neighbours}
    read = {(found.chassis_id_subtype, found.chassis_id): found for found in map(dissect, FRAMES)}
    assert len(read) == len(FRAMES)
    assert heard == read
