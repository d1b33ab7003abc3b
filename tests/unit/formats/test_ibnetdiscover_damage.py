"""ibnetdiscover text that is damaged, contradicts itself, or is something else altogether."""

import pytest
from hyperscout_formats.infiniband import ibnetdiscover
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_formats.text.errors import FormatError
from support.small_fabric import RECORDS, TEXT, records, without_lines


def swapped(old: bytes, new: bytes, count: int = -1) -> bytes:
    assert old in TEXT
    return TEXT.replace(old, new, count)


PROBLEMS = [
    # case; text; line and part of the reason of each problem; numbers of the records that are left out
    ("garbage between", swapped(b"[2]\t", b"[x]\t", 1), [(12, "not a line of")], [1]),
    ("a GUID of 0", swapped(b'"H-0000000000100010"[2]', b'"H-0000000000000000"[2]'), [(12, "is 0")], [1]),
    ("a GUID that is no number", swapped(b'100010"[2]', b'10g010"[2]'), [(12, "not a line")], [1]),
    ("a port of four digits", swapped(b"[3]\t\t", b"[3333]\t\t"), [(11, "not a line")], [0]),
    (
        "a port that there is not",
        swapped(b"[3]\t", b"[41]\t", 2),
        [(11, "not valid for the other end"), (21, "not valid for the device")],
        [0, 4],
    ),
    ("port 0", swapped(b'[3]\t"', b'[0]\t"'), [(21, "not valid for the device")], [4]),
    (
        "a header that is garbled",
        swapped(b'Switch\t40 "S-0000000000200000', b'Swich\t40 "S-0000000000200000'),
        [(18, "not a line"), (19, "outside"), (20, "outside"), (21, "outside")],
        [2, 3, 4],
    ),
    (
        "a header that is garbled, and no ids before it",
        without_lines(
            swapped(b'Switch\t40 "S-0000000000200000', b'Swich\t40 "S-0000000000200000'), *range(13, 18)
        ),
        [(13, "not a line"), (14, "outside"), (15, "outside"), (16, "outside")],
        [2, 3, 4],
    ),
    (
        "a header of GUID 0",
        swapped(b'Switch\t40 "S-0000000000200000', b'Switch\t40 "S-0000000000000000'),
        [(18, "is 0"), (19, "outside"), (20, "outside"), (21, "outside")],
        [2, 3, 4],
    ),
    (
        "a header that is missing",
        without_lines(TEXT, 18),
        [(18, "outside"), (19, "outside"), (20, "outside")],
        [2, 3, 4],
    ),
    (
        "a port before any block",
        b'[5]\t"S-0000000000200000"[7]\t\t# "l" lid 4 4xHDR\n' + TEXT,
        [(1, "outside")],
        [],
    ),
    (
        "a header of another kind",
        swapped(b'Ca\t1 "H-', b'Ca\t1 "S-'),
        [(35, "begins with S"), (36, "outside")],
        [7],
    ),
    (
        "a peer of another kind",
        swapped(b'"H-0000000000100010"[1]', b'"S-0000000000100010"[1]'),
        [(20, "kind of the other end")],
        [3],
    ),
    ("a second cable", swapped(b'[3]\t"', b'[2]\t"'), [(21, "second cable")], [4]),
    (
        "a second block that differs",
        TEXT + b'\ncaguid=0x100000\nCa\t2 "H-0000000000100000"\t\t# "x"\n',
        [(39, "contradicts the first")],
        [],
    ),
    (
        "a second block that repeats",
        TEXT + b'\ncaguid=0x100000\nCa\t1 "H-0000000000100000"\t\t# "x"\n',
        [(39, "used once")],
        [],
    ),
    ("a last line that is cut in the peer", TEXT[:-70], [(36, "cut short")], [7]),
    ("a last line that is cut in the rate", TEXT[:-2], [], []),
    ("a last line that is cut in the lid", TEXT[:-9], [(36, "cut short")], [7]),
    ("a last line that is cut in the description", TEXT[:-20], [(36, "cut short")], [7]),
    ("a last line that is cut before the comment", TEXT[: TEXT.rindex(b"#")], [(36, "cut short")], [7]),
    ("a last line that is cut in a header", TEXT[: TEXT.rindex(b"0001 mlx5_0")], [(35, "cut short")], [7]),
    (
        "a system image that is missing",
        swapped(b"sysimgguid=0x200011", b"sysimgguid=0x"),
        [(8, "not a line")],
        [],
    ),
    ("a line of NULs", swapped(b"[2]\t", b"\0" * 60 + b"[2]\t", 1), [(12, "not a line")], [1]),
    ("a line of 10,000 bytes", swapped(b"[2]\t", b"y" * 10_000 + b"[2]\t", 1), [(12, "10")], [1]),
    ("a line of blanks", swapped(b"[2]\t", b"[2]" + b" " * 4000 + b"!", 1), [(12, "not a line")], [1]),
]


@pytest.mark.parametrize(
    ("text", "problems", "missing"), [case[1:] for case in PROBLEMS], ids=[case[0] for case in PROBLEMS]
)
def test_what_is_passed_over(text: bytes, problems: list[tuple[int, str]], missing: list[int]) -> None:
    sweep = parse(text, "x")
    found = [(problem.line, problem.reason) for problem in sweep.problems]
    assert [line for line, _ in found] == [line for line, _ in problems], found
    assert all(part in reason for (_, reason), (_, part) in zip(found, problems, strict=True)), found
    assert all(problem.source == "x" for problem in sweep.problems)
    expected = [record[:5] for i, record in enumerate(RECORDS) if i not in missing]
    found_records = [record[:5] for record in records(sweep)]
    assert [record for record in found_records if record[4] != 7] == expected


def test_a_block_that_differs_keeps_the_first() -> None:
    sweep = parse(TEXT + b'\nsysimgguid=0x5\ncaguid=0x100000\nCa\t2 "H-0000000000100000"\t\t# "x"\n')
    assert sweep.port_count.tolist() == [40, 40, 2, 1]
    assert sweep.descriptions[3] == "node-0001 mlx5_0"
    assert sweep.system_image_guid[3] == 0x100009


def test_problems_are_bounded() -> None:
    sweep = parse(TEXT + b"junk\n" * 500)
    assert len(sweep.problems) == 101
    assert sweep.problems[0].line == 37
    assert sweep.problems[-1].line == 0
    assert "400 more" in sweep.problems[-1].reason
    assert records(sweep) == RECORDS


PORTS_REPORT = (
    b"SW     3 40 0x0000000000200010 4x SDR                                    'MF0;Switch:MQM8700/U1'\n"
    b"CA     5  2 0x0000000000100012 4x SDR - SW     0  2 0x0000000000200010 ( 'node-0002' - 'MF0;spine' )\n"
)
NODE_LIST = b'Ca\t : 0x0000000000100010 ports 2 devid 0x1017 vendid 0x2c9 "node-0002"\n'
IBLINKINFO = (
    b"CA: node-0001 mlx5_0:\n"
    b'   0x0000000000100001  6  1[  ] ==( 4X  2.5 Gbps Active/  LinkUp)==>  0  1[  ] "MF0;leaf1" ( )\n'
    b"Switch: 0x0000000000200010 MF0;spine1:MQM8700/U1:\n"
    b'           3    1[  ] ==(                Down/ Polling)==>             [  ] "" ( )\n'
)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "empty"),
        (b" \r\n\n", "empty"),
        (b"#\n# Topology file: generated on Sat Nov 21 07:09:00 2026\n#\n", "no Switch, Ca or Rt"),
        (b"hello\n", "no Switch, Ca or Rt"),
        (b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 20, "no Switch, Ca or Rt"),
        (b"\x1f\x8b\x08\x00" + bytes(range(256)), "compressed"),
        (TEXT.decode().encode("utf-16"), "UTF-16"),
        (PORTS_REPORT, "`ibnetdiscover -p`"),
        (PORTS_REPORT * 20_000, "`ibnetdiscover -p`"),
        (NODE_LIST, "`ibnetdiscover -l`"),
        (IBLINKINFO, "`iblinkinfo`"),
        (b'Switch\t40 "leaf1"\t\t# "x" base port 0 lid 0 lmc 0\n[1]\t"H0001"[1]\n', "ibsim"),
        (b"Ca\t1\n" * 20_000, "most lines up to here cannot be read"),
        (TEXT + b"junk\n" * 20_000, "most lines up to here cannot be read"),
        (b"Switch" + b"x" * (1 << 22), "no Switch, Ca or Rt"),
    ],
)
def test_what_is_refused(text: bytes, part: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse(text, "my-file")
    assert str(caught.value).startswith("my-file:")
    assert part in caught.value.reason
    assert "ibnetdiscover > " in caught.value.reason  # what to do about it


def test_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ibnetdiscover, "MAX_BYTES", 100)
    with pytest.raises(FormatError, match="at most 100"):
        parse(TEXT)


HEADERS = {
    "one": b'Switch 36 "S-1"\n',
    "many": b"".join(b'Ca 254 "H-%x"\n' % guid for guid in range(1, 9000)),
}


@pytest.mark.parametrize(
    ("headers", "line", "word"),
    [
        ("one", b'[1]"S-2"[1]\n', "more lines than its 1 devices have ports"),
        ("one", b'[1]\t"S-0000000000000002"[1]\t\t# "x" lid 9 4xHDR\n', "more lines than its 1 devices"),
        ("one", b'Ca 254 "H-1"\n', "more lines than its 1 devices"),
        ("one", b"caguid=0x1\n", "more lines than its 1 devices have ports"),
        ("one", b"\n", "its lines are too short"),
        ("one", b" \n", "its lines are too short"),
        ("many", b"#  \n", "its devices have more ports than a fabric"),
    ],
)
def test_a_text_that_no_fabric_makes_is_refused_at_its_beginning(
    monkeypatch: pytest.MonkeyPatch, headers: str, line: bytes, word: str
) -> None:
    """A few KiB of repeated lines unpack to any size. The stretches are small here, so that the test is."""
    monkeypatch.setattr(ibnetdiscover, "STRETCH_BYTES", 1 << 16)
    monkeypatch.setattr(ibnetdiscover, "_STRETCH_LINES", (1 << 16) // 8)
    text = HEADERS[headers] + line * ((1 << 20) // len(line))
    with pytest.raises(FormatError, match=word) as caught:
        parse(text)
    assert caught.value.line < 30_000


def test_lines_of_another_shape_are_read_one_by_one_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ibnetdiscover, "MAX_UNUSUAL", 3)
    with pytest.raises(FormatError, match="more than 3 lines are not as ibnetdiscover prints them"):
        parse(TEXT.replace(b"]\t", b"] "))
