"""Latency tables as people write them."""

import pytest
from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.latency_csv import LatencyRow, parse

GOOD = [
    ("plain", b"a,b,3.2\n", [LatencyRow("a", "b", 3.2)]),
    ("header", b"node_a,node_b,rtt_us\na,b,3\n", [LatencyRow("a", "b", 3.0)]),
    ("header and samples", b"Node_A, node_b ,rtt_us,samples\na,b,3,16\n", [LatencyRow("a", "b", 3.0, 16)]),
    ("no samples said", b"a,b,3,\n", [LatencyRow("a", "b", 3.0)]),
    ("comments and gaps", b"# mine\n\n  \na,b,3 # slow\n", [LatencyRow("a", "b", 3.0)]),
    ("quoted, spaces, CRLF", b' "a" , "b" , 3.0 \r\n', [LatencyRow("a", "b", 3.0)]),
    ("byte order mark", b"\xef\xbb\xbfnode_a,node_b,rtt_us\na,b,3\n", [LatencyRow("a", "b", 3.0)]),
    ("scientific", b"a,b,1.5e+1\n", [LatencyRow("a", "b", 15.0)]),
    (
        "both ways and again",
        b"a,b,3\nb,a,4\na,b,2\n",
        [("a", "b", 3.0, 0), ("b", "a", 4.0, 0), ("a", "b", 2.0, 0)],
    ),
    ("not ASCII", "ä,ö,3\n".encode(), [LatencyRow("ä", "ö", 3.0)]),
    ("no end of line", b"a,b,3", [LatencyRow("a", "b", 3.0)]),
    ("empty", b"", []),
    ("a header alone", b"node_a,node_b,rtt_us\n", []),
]


@pytest.mark.parametrize(("data", "rows"), [case[1:] for case in GOOD], ids=[case[0] for case in GOOD])
def test_read(data: bytes, rows: list[LatencyRow]) -> None:
    assert parse(data) == (rows, ())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a,b", "expected `node_a,node_b,rtt_us[,samples]`"),
        (b"a,b,3,4,5", "expected `node_a,node_b,rtt_us[,samples]`"),
        (b"a,a,3", "'a' is paired with itself"),
        (b",b,3", "expected the name of a node"),
        (b"a b,c,3", "expected the name of a node"),
        (b"a\0,c,3", "expected the name of a node"),
        (b"x" * 300 + b",b,3", "expected the name of a node"),
        (b"\xff,b,3", "not UTF-8"),
        *(
            (b"a,b," + rtt, "expected a round trip")
            for rtt in (b"", b"x", b"0", b"-1", b"nan", b"inf", b"1e9", b"1_0")
        ),
        (b"a,b,3,x", "expected a number of samples"),
        (b"a,b,3,-1", "expected a number of samples"),
        (b"node_a,node_b,rtt_us", "expected a round trip"),
    ],
)
def test_a_bad_row_is_passed_over(line: bytes, reason: str) -> None:
    rows, problems = parse(b"a,b,3\n" + line + b"\nc,d,4\n", "t.csv")
    assert rows == [LatencyRow("a", "b", 3.0), LatencyRow("c", "d", 4.0)]
    assert [(problem.source, problem.line) for problem in problems] == [("t.csv", 2)]
    assert problems[0].reason.startswith(reason)


def test_what_is_no_table() -> None:
    with pytest.raises(FormatError, match=r"t.csv:1: no valid line of a latency table: expected `node_a"):
        parse(b"Switch 36 S-1\nnothing\n", "t.csv")


def test_names_are_kept_once() -> None:
    rows, _ = parse(b"first,second,3\nsecond,first,4\n")
    assert rows[0].node_a is rows[1].node_b
