"""Tables and arguments: small pure parts of the command line."""

import io
import re
from dataclasses import replace

import click
import pytest
from hyperscout_cli.place.placement_text import placements_table
from hyperscout_cli.shared.columns import width
from hyperscout_cli.shared.command import _repeat
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.kinds import TABLES, anomalies, check_found, select
from hyperscout_cli.shared.output import COLOR, Terminal, colours
from hyperscout_cli.shared.tables import Row, Table, age, lines
from hyperscout_topology.topology import Topology
from support.builders import anomaly
from support.placement_service import placed
from support.topologies import two_leaves

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


def test_gangs_are_selected_like_other_objects() -> None:
    table = placements_table([placed(name, "n1") for name in ("job-1", "job-2", "train-[x")], 0)
    for names, found in ((["job-[1-2]"], 2), (["job-*"], 2), (["train-[x"], 1), ([], 3)):
        selected, missing = select("placements", table, names)
        assert (len(selected.rows), missing) == (found, [])
    _, missing = select("placements", table, ["job-1", "nope"])
    with pytest.raises(
        CliError, match=r"no placement named 'nope': .* `hyperscout placements list` lists all"
    ):
        check_found("placements", table, missing)


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


LONG = Table(
    "x",
    ("NAME", "NODES", "READY"),
    ("MESSAGE",),
    (
        Row("r", ("leaf-葉", "n[01-04,07-09,11-22,30-41]", "False"), ("1 of 32 uplinks is down since noon",)),
        Row("s", ("leaf-2", "n[42-49]", "Unknown"), ("",)),
    ),
)


def test_a_table_is_cut_to_the_screen_where_texts_are_free() -> None:
    def fitted(columns: int | None) -> list[str]:
        return [line.rstrip("\n") for line in lines(LONG, wide=True, to=Terminal(columns))]

    whole = max(map(width, fitted(None)))
    assert fitted(None) == fitted(200) == fitted(whole)
    assert fitted(None)[1].endswith("noon")
    for columns in (whole - 1, 70, 60, 50):
        cut = fitted(columns)
        assert max(map(width, cut)) == columns
        assert "…" in cut[1]
        assert "leaf-葉   n[01-04" in cut[1]
    assert fitted(60)[1] == "leaf-葉   n[01-04,07-09,11-…   False     1 of 32 uplinks is…"
    narrow = fitted(20)  # names and conditions are never cut: the terminal breaks the line
    assert narrow[1] == "leaf-葉   n[01-04,07-…   False     1 of 32 upl…"
    assert narrow[2].startswith("leaf-2    n[42-49]       Unknown   -")


def test_conditions_are_coloured_and_columns_stay() -> None:
    plain = list(lines(LONG, wide=True))
    coloured = list(lines(LONG, wide=True, to=Terminal(colour=True)))
    assert "\x1b[31mFalse\x1b[0m" in coloured[1]
    assert "\x1b[33mUnknown\x1b[0m" in coloured[2]
    assert [re.sub("\x1b\\[[0-9]*m", "", line) for line in coloured] == plain
    conditions = Table("condition", ("TYPE", "STATUS"), (), (Row("Degraded", ("Degraded", "True")),))
    assert list(lines(conditions, to=Terminal(colour=True)))[1] == "Degraded   \x1b[31mTrue\x1b[0m\n"


@pytest.mark.parametrize(
    ("environment", "color", "tty", "expected"),
    [
        ({}, None, True, True),
        ({}, None, False, False),
        ({}, "auto", True, True),
        ({}, "always", False, True),
        ({}, "never", True, False),
        ({"NO_COLOR": "1"}, None, True, False),
        ({"NO_COLOR": ""}, None, True, True),
        ({"NO_COLOR": "1"}, "always", True, True),
        ({"TERM": "dumb"}, None, True, False),
        ({"CLICOLOR": "0"}, None, True, False),
        ({"CLICOLOR": "1"}, None, False, False),
        ({"CLICOLOR_FORCE": "1"}, None, False, True),
        ({"CLICOLOR_FORCE": "0"}, None, False, False),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, None, True, False),
    ],
)
def test_what_decides_whether_there_are_colours(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], color: str | None, tty: bool, expected: bool
) -> None:
    for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm"} | environment).items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: tty)
    context = click.Context(click.Command("x"))
    if color is not None:
        context.meta[COLOR] = color
    with context:
        assert colours(stream) is expected


def test_anomalies_say_in_what_time_they_clear() -> None:
    now_ns = 1000 * S
    found = anomaly("MissingLink", since_ns=900 * S, message="up since then")
    over = replace(found, flaps=2, changed_ns=950 * S, clears_ns=1076 * S)
    table = anomalies(Topology(1, anomalies=(found, over, replace(over, clears_ns=990 * S))), now_ns)
    assert table.headings[-2:] == ("AGE", "CLEARS")
    assert [row.cells[-2:] for row in table.rows] == [
        ("1m40s", ""),
        ("1m40s", "in 1m16s"),
        ("1m40s", "in 0s"),
    ]
    assert [row.more[-1] for row in table.rows] == ["up since then"] * 3


def test_many_missing_names_are_a_short_list() -> None:
    table = TABLES["nodes"](two_leaves(), 0)
    odd = [f"x{7**i % 99991}y" for i in range(300)]
    with pytest.raises(CliError, match=r"no node named .{1,200} and 290 more: expected its name"):
        check_found("nodes", table, odd)
