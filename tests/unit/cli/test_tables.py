"""Tables and arguments: small pure parts of the command line."""

import pytest
from hyperscout_cli.several import _repeat
from hyperscout_cli.tables import Row, Table, age, lines

S = 1_000_000_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (312, "5m12s"),
        (600, "10m"),
        (3599, "59m"),
        (12_000, "3h20m"),
        (36_000, "10h"),
        (187_200, "2d4h"),
        (3_542_400, "41d"),
        (-5, "0s"),
    ],
)
def test_age(seconds: int, text: str) -> None:
    assert age(10**18, 10**18 + seconds * S) == text


def test_no_time_is_no_age() -> None:
    assert age(0, 10**18) == ""


def test_columns_line_up_and_control_characters_show() -> None:
    table = Table(
        "x", ("A", "B"), ("C",), (Row("r", ("long\x1b[1m", ""), ("c",)), Row("s", ("1", "2"), ("",)))
    )
    assert list(lines(table)) == ["A             B\n", "long\\x1b[1m   -\n", "1             2\n"]
    assert next(lines(table, wide=True)) == "A             B   C\n"
    assert list(lines(table, heading=False)) == ["long\\x1b[1m   -\n", "1             2\n"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--lldp a b -o x", "--lldp a --lldp b -o x"),
        ("--lldp a --ib b c --lldp d", "--lldp a --ib b --ib c --lldp d"),
        ("--lldp=a b", "--lldp=a --lldp b"),
        ("--lldp - b", "--lldp - --lldp b"),
        ("-o x stray", "-o x stray"),
        ("--lldp a -o x stray", "--lldp a -o x stray"),
        ("-o=x stray", "-o=x stray"),
        ("--lldp", "--lldp"),
    ],
)
def test_several_files_after_one_option(given: str, expected: str) -> None:
    assert _repeat(given.split(), {"--lldp", "--ib"}, {"-o"}) == expected.split()
