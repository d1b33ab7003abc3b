"""ibnetdiscover text as the tool prints it, in all its ways."""

import numpy as np
import pytest
from hyperscout_formats.infiniband import ibnetdiscover
from hyperscout_formats.infiniband.ibnetdiscover import CA, ROUTER, SWITCH, parse
from hyperscout_formats.infiniband.ibnetdiscover_line import LANE_GBPS
from hyperscout_formats.infiniband.ibnetdiscover_text import summary
from support.real import shared_recording
from support.small_fabric import HOST, LEAF, OTHER, RECORDS, SPINE, TEXT, records, without_lines


def test_columns() -> None:
    sweep = parse(TEXT, "x")
    assert sweep.source == "x"
    assert sweep.guid.tolist() == [SPINE, LEAF, OTHER, HOST]  # order of first mention
    assert sweep.kind.tolist() == [SWITCH, SWITCH, CA, CA]
    assert sweep.port_count.tolist() == [40, 40, 2, 1]
    assert sweep.declared.tolist() == [True] * 4
    assert sweep.system_image_guid.tolist() == [0x200011, 0x200001, 0x100019, 0x100009]
    assert list(sweep.descriptions) == [
        "MF0;spine1:MQM8700/U1",
        "MF0;leaf1:MQM8700/U1",
        "node-0002 mlx5_0",
        "node-0001 mlx5_0",
    ]
    assert records(sweep) == RECORDS
    assert sweep.width.tolist() == [4] * 8
    assert sweep.line.tolist() == [11, 12, 19, 20, 21, 28, 29, 36]
    assert sweep.initiated_from == HOST
    assert sweep.problems == ()


def test_column_types() -> None:
    sweep = parse(TEXT)
    types = {
        "guid": np.uint64,
        "kind": np.uint8,
        "port_count": np.int32,
        "declared": np.bool_,
        "system_image_guid": np.uint64,
        "device": np.int32,
        "port": np.int32,
        "port_guid": np.uint64,
        "peer": np.int32,
        "peer_port": np.int32,
        "rate_gbps": np.float32,
        "width": np.uint8,
        "line": np.int32,
    }
    assert {name: getattr(sweep, name).dtype.type for name in types} == types


FULL = TEXT.replace(b"HDR\n", b"HDR s=4 w=2 v=4\n").replace(b"EDR\n", b"EDR s=4 w=16 v=15\n")
GROUPED = (
    TEXT.replace(b"\nvendid", b"\nChassis 1 (guid 0x2000aa)\n\n# Spine Nodes\nvendid", 1)
    .replace(b"sysimgguid=0x200011\n", b"sysimgguid=0x200011\t\t# Chassis 1 (my chassis)\n")
    .replace(b"(200010)\n", b"(200010)\t# ISR9024 spine 1 chip 2\n")
    .replace(b"[3]\t\t#", b"[3][ext 7]\t\t#")
    .replace(b"[3]\t", b"[3][ext 7]\t")
    .replace(b"\nvendid=0x2c9\ndevid=0x1017", b"\nNon-Chassis Nodes\n\nvendid=0x2c9\ndevid=0x1017", 1)
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TEXT.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(TEXT.replace(b"\n", b"\n\n"), id="double spaced"),
        pytest.param(TEXT[:-1], id="no newline at the end"),
        pytest.param(FULL, id="-f"),
        pytest.param(GROUPED, id="-g"),
        pytest.param(TEXT.replace(b"\t", b"  "), id="blanks for tabs"),
        pytest.param(TEXT.replace(b'"S-', b' "S-'), id="another spacing"),
        pytest.param(TEXT.replace(b'"H-0000000000', b'"H-00'), id="short GUIDs"),
        pytest.param(TEXT.replace(b"\n[1]\t", b"\n[1](200000) \t"), id="port GUIDs of switches"),
        pytest.param(TEXT.replace(b"Ca\t", b"   Ca\t").replace(b"\n[", b"\n  ["), id="indented"),
        pytest.param(TEXT + TEXT.split(b"\n\n", 1)[1].split(b"\n\n", 1)[1], id="blocks given again"),
    ],
)
def test_the_same_said_otherwise(text: bytes) -> None:
    sweep = parse(text)
    assert sweep.guid.tolist() == [SPINE, LEAF, OTHER, HOST]
    assert records(sweep) == RECORDS
    assert sweep.system_image_guid.tolist() == [0x200011, 0x200001, 0x100019, 0x100009]
    assert list(sweep.descriptions) == list(parse(TEXT).descriptions)
    assert all("second block of a device" in problem.reason for problem in sweep.problems)


@pytest.mark.parametrize("stretch", [1, 64, 100, 700, 4096])
def test_any_cut_into_stretches_gives_the_same(stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ibnetdiscover, "STRETCH_BYTES", max(stretch, 128))
    sweep = parse(TEXT)
    assert records(sweep) == RECORDS
    assert sweep.line.tolist() == [11, 12, 19, 20, 21, 28, 29, 36]
    assert list(sweep.descriptions) == list(parse(TEXT).descriptions)
    assert sweep.problems == ()


@pytest.mark.parametrize("speed", [*LANE_GBPS, b"???"])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 12])
@pytest.mark.parametrize("suffix", [b"", b" s=4 w=2 v=4", b" s=4 w=16 v=15"])
def test_rates(width: int, speed: bytes, suffix: bytes) -> None:
    sweep = parse(TEXT.replace(b"4xHDR", b"%dx%s%s" % (width, speed, suffix)))
    assert sweep.problems == ()
    assert sweep.width[0] == width
    assert sweep.rate_gbps[0] == width * LANE_GBPS.get(speed, 0.0)
    assert sweep.rate_gbps[1] == 100.0


@pytest.mark.parametrize(
    "rate",
    [b"", b" ", b" ??", b" ?????", b" ??????", b" ??HDR", b" 4x", b" x", b" 16xHDR", b" 4xYDR", b" (4X HDR)"],
)
def test_an_unknown_rate_costs_the_rate_and_not_the_cable(rate: bytes) -> None:
    sweep = parse(TEXT.replace(b" 4xHDR", rate))
    assert sweep.problems == ()
    assert sweep.rate_gbps.tolist() == [0, 100, 0, 0, 0, 0, 100, 0]
    assert [record[:5] for record in records(sweep)] == [record[:5] for record in RECORDS]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'say "hi" [3] # lid 4 4xHDR', 'say "hi" [3] # lid 4 4xHDR'),
        (b"", ""),
        (b" ", " "),
        (b"na\xc3\xafve", "naïve"),
        (b"\xff\xfe!", "\ufffd\ufffd!"),
        (b"esc\x1b[31m\x00", "esc [31m "),
        (b"x" * 64, "x" * 64),
        (b'"', '"'),
        (b'" lid 3 4xSDR', '" lid 3 4xSDR'),
    ],
)
def test_descriptions(raw: bytes, text: str) -> None:
    sweep = parse(TEXT.replace(b"node-0001 mlx5_0", raw).replace(b"MF0;leaf1:MQM8700/U1", raw))
    assert [sweep.descriptions[i] for i in (1, 3)] == [text, text]
    assert records(sweep) == RECORDS
    assert sweep.problems == ()
    # and as a peer knows it, when its own block is not there
    sweep = parse(without_lines(TEXT.replace(b"node-0001 mlx5_0", raw), *range(30, 37)))
    assert sweep.declared.tolist() == [True, True, True, False]
    assert sweep.descriptions[3] == text


def test_a_device_that_is_only_mentioned() -> None:
    sweep = parse(TEXT[: TEXT.index(b"vendid=0x2c9\ndevid=0x1017")])
    assert sweep.guid.tolist() == [SPINE, LEAF, OTHER, HOST]
    assert sweep.declared.tolist() == [True, True, False, False]
    assert sweep.kind.tolist() == [SWITCH, SWITCH, CA, CA]
    assert sweep.port_count.tolist() == [40, 40, 0, 0]
    assert sweep.system_image_guid.tolist() == [0x200011, 0x200001, 0, 0]
    assert sweep.descriptions[2] == "node-0002 mlx5_0"


def test_a_router() -> None:
    text = TEXT.replace(b"Ca\t1 ", b"Rt\t1 ").replace(b"caguid=0x100000", b"rtguid=0x100000")
    sweep = parse(text.replace(b"H-0000000000100000", b"R-0000000000100000"))
    assert sweep.kind.tolist() == [SWITCH, SWITCH, CA, ROUTER]
    assert records(sweep) == RECORDS


def test_a_chassis_is_listed_twice_by_the_grouped_output() -> None:
    block = TEXT[TEXT.index(b"vendid") : TEXT.index(b"\n\nvendid=0x2c9\ndevid=0xd2f0\nsysimgguid=0x200001")]
    text = TEXT.replace(
        b"\nvendid", b"\nChassis 1\n\n# Spine Nodes\n" + block + b"\n\n# Chassis Switches\nvendid", 1
    )
    sweep = parse(text)
    assert sweep.problems == ()
    assert records(sweep) == RECORDS


def test_a_system_image_belongs_to_its_own_block() -> None:
    sweep = parse(TEXT.replace(b"sysimgguid=0x200001\n", b"").replace(b"sysimgguid=0x100009\n", b""))
    assert sweep.system_image_guid.tolist() == [0x200011, 0, 0x100019, 0]


def test_two_adapters_back_to_back() -> None:
    text = b"""
caguid=0x1
Ca\t1 "H-0000000000000001"\t\t# "a"
[1](11) \t"H-0000000000000002"[1] (12) \t\t# lid 1 lmc 0 "b" lid 2 4xNDR

caguid=0x2
Ca\t1 "H-0000000000000002"\t\t# "b"
[1](12) \t"H-0000000000000001"[1] (11) \t\t# lid 2 lmc 0 "a" lid 1 4xNDR
"""
    sweep = parse(text)
    assert records(sweep) == [(1, 1, 0x11, 2, 1, 400.0), (2, 1, 0x12, 1, 1, 400.0)]
    assert sweep.system_image_guid.tolist() == [0, 0]
    assert sweep.initiated_from == 0


def test_three_digit_ports_and_long_port_guids() -> None:
    text = (
        TEXT.replace(b"Switch\t40", b"Switch\t145")
        .replace(b"[3]", b"[144]")
        .replace(b"100001)", b"fedcba9876543210)")
    )
    sweep = parse(text)
    assert sweep.problems == ()
    assert sweep.port_count.tolist() == [145, 145, 2, 1]
    assert records(sweep)[0] == (SPINE, 1, 0, LEAF, 144, 200.0)
    assert records(sweep)[4] == (LEAF, 144, 0, SPINE, 1, 200.0)
    assert records(sweep)[7][2] == 0xFEDCBA9876543210


def test_a_real_fabric() -> None:
    recording = shared_recording("psmn-x5.ibnetdiscover")
    data = recording.read_bytes()
    sweep = parse(data, recording.name)
    assert sweep.problems == ()
    assert int(np.sum(sweep.kind == SWITCH)) == 11
    assert int(np.sum(sweep.kind == CA)) == 89
    assert bool(sweep.declared.all())
    ends = set(
        zip(
            sweep.device.tolist(),
            sweep.port.tolist(),
            sweep.peer.tolist(),
            sweep.peer_port.tolist(),
            strict=True,
        )
    )
    assert len(ends) == len(sweep.device)
    assert {(c, d, a, b) for a, b, c, d in ends} == ends  # both ends say the same
    assert set(sweep.rate_gbps.tolist()) <= {10.0, 20.0, 40.0}
    assert sweep.initiated_from == 0x0002C90300080E84
    assert sweep.descriptions.count("MT25408 ConnectX Mellanox Technologies") > 50
    counts = summary(data)
    assert (counts.switches, counts.adapters, counts.routers, counts.records) == (
        11,
        89,
        0,
        len(sweep.device),
    )
    assert (counts.initiated_from, counts.port_guid) == (0x0002C90300080E84, 0x0002C90300080E85)
