"""The quick reading and the careful one give the same, and devices keep their order of first mention."""

import numpy as np
import pytest
from hyperscout_formats.infiniband import guid_index, ibnetdiscover_columns
from hyperscout_formats.infiniband.guid_index import first_mentions
from hyperscout_formats.infiniband.ibnetdiscover import Sweep, parse
from hyperscout_formats.infiniband.ibnetdiscover_line import Line
from hyperscout_formats.infiniband.ibnetdiscover_text import TextSummary, is_grouped, summary
from hyperscout_sim.fabric.shapes import fat_tree
from hyperscout_sim.readings.sweep_text import sweep_text
from hypothesis import given
from hypothesis import strategies as st
from support.small_fabric import TEXT

COLUMNS = [
    name
    for name in Sweep.__dataclass_fields__
    if name not in {"source", "descriptions", "initiated_from", "problems"}
]
K8 = sweep_text(fat_tree(8))  # 80 switches of 8 ports, 128 hosts


def assert_same(one: Sweep, other: Sweep) -> None:
    for name in COLUMNS:
        a, b = getattr(one, name), getattr(other, name)
        assert a.dtype == b.dtype
        assert a.tolist() == b.tolist(), name
    assert list(one.descriptions) == list(other.descriptions)
    assert one.problems == other.problems


@pytest.fixture
def careful(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The lines that are read one by one."""
    lines: list[bytes] = []
    read_line = ibnetdiscover_columns.read_line

    def counted(line: bytes, *, cut: bool) -> Line:
        lines.append(line)
        return read_line(line, cut=cut)

    monkeypatch.setattr(ibnetdiscover_columns, "read_line", counted)
    return lines


@pytest.mark.parametrize("text", [K8, TEXT], ids=["fat tree", "small"])
def test_the_careful_way_gives_the_same(text: bytes, careful: list[bytes]) -> None:
    quick = parse(text)
    assert not careful
    slow = parse(text.replace(b"\t", b"  ").replace(b"sysimg", b" sysimg"))
    assert len(careful) == sum(text.count(b"\n" + first) for first in (b"[", b"Switch", b"Ca", b"sysimg"))
    assert_same(quick, slow)


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace(b"\n", b"\r\n"),
        TEXT.replace(b"HDR\n", b"HDR s=4 w=2 v=4\n"),
        TEXT.replace(b"HDR\n", b"HDR s=4 w=2 v=15\n").replace(b"EDR\n", b"EDR s=4 w=16 v=15\n"),
        TEXT.replace(b"Switch\t40", b"Switch\t145").replace(b"[3]", b"[144]"),
        TEXT.replace(b"Switch\t40", b"Switch\t4").replace(b"4xHDR", b"12xQDR"),
        TEXT.replace(b"4xHDR", b"1xFDR10").replace(b"4xEDR", b"4x???"),
        TEXT.replace(b"100001)", b"fedcba9876543210)").replace(b"100011)", b"1)"),
        TEXT.replace(b"sysimgguid=0x20", b"sysimgguid=0x123456789020"),
        TEXT.replace(b"leaf1", b'l"e[1]a#f lid 3'),
    ],
)
def test_no_line_of_the_tool_is_read_slowly(text: bytes, careful: list[bytes]) -> None:
    assert parse(text).problems == ()
    assert not careful


def test_a_fat_tree_is_whole() -> None:
    sweep = parse(K8)
    counts = summary(K8)
    assert counts == TextSummary(80, 128, 0, 80 * 8 + 128, counts.initiated_from, counts.port_guid)
    assert sweep.problems == ()
    assert len(sweep.device) == counts.records
    ends = list(zip(sweep.device.tolist(), sweep.port.tolist(), strict=True))
    far = list(zip(sweep.peer.tolist(), sweep.peer_port.tolist(), strict=True))
    assert len(set(ends)) == len(ends)
    assert sorted(ends) == sorted(far)
    there = dict(zip(ends, far, strict=True))
    assert all(there[there[end]] == end for end in ends)


@given(st.lists(st.integers(0, 12) | st.integers(0, 2**64 - 1), min_size=1, max_size=200), st.booleans())
def test_numbers_by_first_mention(guids: list[int], crowded: bool) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if crowded:  # every round has collisions, so the last resort is tried too
            patched.setattr(guid_index, "_MULTIPLIERS", (1, 1))
        number, distinct = first_mentions(np.array(guids, np.uint64))
    assert distinct.tolist() == list(dict.fromkeys(guids))
    assert distinct[number].tolist() == guids


def test_summary_of_anything() -> None:
    assert summary(b"") == TextSummary(0, 0, 0, 0)
    assert summary(b"Switch\t1 \n[1]\n[2]\nCa\t\nRt\t\n x[1]\nCa") == TextSummary(1, 1, 1, 2)
    assert summary(b"# Initiated from node 00ff port 0100\n").port_guid == 0x100
    assert not is_grouped(TEXT)
    assert is_grouped(TEXT + b"\nNon-Chassis Nodes\n")
