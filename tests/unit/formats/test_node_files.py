"""Node maps and node lists."""

import pytest
from hyperscout_formats.infiniband import node_map
from hyperscout_formats.text import node_list
from hyperscout_formats.text.errors import FormatError

A, B = 0x0002C90300080E84, 0x0002C90300080D58


@pytest.mark.parametrize(
    ("data", "hosts"),
    [
        (b"H-0002c90300080e84 r510\nH-0002c90300080d58 r511\n", {A: "r510", B: "r511"}),
        (b"# cluster\n\n  H-0002C90300080E84\tr510  # the first\r\n", {A: "r510"}),
        (b'0x0002c90300080e84 "IB1 (Rack 11 slot 1   ) ISR9288"', {A: "IB1 (Rack 11 slot 1   ) ISR9288"}),
        (b'0x2c90300080e84 "with # hash" # comment\n', {A: "with # hash"}),
        (b"2c90300080e84 a\nS-0002c90300080d58 leaf\n", {A: "a", B: "leaf"}),
        (b"H-0002c90300080e84 a\nH-0002c90300080e84 a\n", {A: "a"}),
        (b"1 na\xc3\xafve\n2 b\x1b[0m\n", {1: "naïve", 2: "b [0m"}),
        (b"", {}),
        (b"# nothing\n", {}),
    ],
)
def test_a_map(data: bytes, hosts: dict[int, str]) -> None:
    assert node_map.parse(data) == (hosts, ())


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"1 other", "listed twice, for 'first' and 'other'"),
        (b"H-xyz host", "expected `<guid> <host>`"),
        (b"2", "expected"),
        (b"0 host", "expected"),
        (b"2 two names", "expected"),
        (b'2 "open', "expected"),
        (b"12345678901234567 host", "expected"),
        (b"2 " + b"x" * 300, "expected"),
        (b"\0\xff\xfe" * 100, "expected"),
    ],
)
def test_a_line_of_a_map_that_is_passed_over(line: bytes, part: str) -> None:
    hosts, problems = node_map.parse(b"1 first\n" + line + b"\n3 third\n", "map")
    assert hosts == {1: "first", 3: "third"}
    (problem,) = problems
    assert (problem.source, problem.line) == ("map", 2)
    assert part in problem.reason


def test_a_map_that_is_none() -> None:
    with pytest.raises(FormatError, match="map:2: no valid line of a node map"):
        node_map.parse(b"\nwhat is\nthis\n", "map")


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"b\r\na # comment\r\n\r\n# all\r\nb\r\n", ["b", "a"]),
        ("knoten-ü".encode(), ["knoten-ü"]),
        (b"", []),
        (
            b"n[08-10],login # racks\nr[1-2]n[1-2]\n",
            ["n08", "n09", "n10", "login", "r1n1", "r1n2", "r2n1", "r2n2"],
        ),
        (b'"odd,name"\n', ["odd,name"]),
    ],
)
def test_a_list(data: bytes, names: list[str]) -> None:
    assert node_list.parse(data) == names


@pytest.mark.parametrize(
    "line",
    [
        b"two names",
        b"a\0b",
        b"\xff",
        b"x" * 254,
        b"a\tb",
        "a\u2028b".encode(),
        b"a[1-2",
        b"n[1-999999]",
        b'"a b"',
    ],
)
def test_a_list_with_a_line_that_is_no_name(line: bytes) -> None:
    with pytest.raises(FormatError, match="nodes:2: "):
        node_list.parse(b"a\n" + line + b"\nb\n", "nodes")


def test_a_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_list, "MAX_NAMES", 4)
    assert len(node_list.parse(b"a[1-3]\nb\na1\n")) == 4
    with pytest.raises(FormatError, match="nodes:2: more than 4 names"):
        node_list.parse(b"a[1-3]\nb[1-2]\n", "nodes")
