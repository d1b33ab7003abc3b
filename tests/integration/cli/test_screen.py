"""Tables, the tree and progress on a real terminal: a pseudo-terminal of a set width."""

import os
import re
from dataclasses import replace

import pytest
from hyperscout_cli.shared.columns import width
from support.command_line import CommandLine
from support.screen import on_screen
from support.topologies import two_leaves
from support.topology_service import FakeTopologyService

_COLOURS = re.compile("\x1b\\[[0-9;]*m")


def environment(**more: str) -> dict[str, str]:
    found = {name: os.environ[name] for name in ("PATH", "HYPERSCOUT_COLLECTOR")}
    return found | more


@pytest.fixture(autouse=True)
def _many_nodes(service: FakeTopologyService) -> None:
    a, b, core = two_leaves().hypernodes
    nodes = tuple(f"n{i:03}" for i in range(0, 300, 3))
    service.topology = replace(
        two_leaves(), hypernodes=(replace(a, nodes=nodes), b, replace(core, nodes=nodes))
    )


def widest(text: str) -> int:
    return max(width(_COLOURS.sub("", line)) for line in text.splitlines())


@pytest.mark.parametrize("columns", [160, 140])
def test_a_table_fits_and_is_coloured(columns: int, run: CommandLine) -> None:
    code, text = on_screen(["get", "hn", "-o", "wide"], columns, environment())
    assert code == 0
    assert widest(text) == columns
    assert "…" in text
    assert "\x1b[31mFalse\x1b[0m" in text
    piped = run("get", "hn", "-o", "wide").out
    assert "…" not in piped
    assert "\x1b" not in piped
    assert widest(piped) > 160


def test_the_tree_fits_and_is_coloured() -> None:
    code, text = on_screen(["tree"], 90, environment())
    assert code == 0
    assert widest(text) == 90
    assert "n[000,003,006" in text
    assert "…\x1b[0m\n" in text
    assert "\x1b[31mDegraded\x1b[0m" in text


def test_no_color_turns_colours_off_and_columns_sets_the_width() -> None:
    for more in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"CLICOLOR": "0"}):
        _, text = on_screen(["tree"], 70, environment(**more))
        assert "\x1b" not in text
    _, text = on_screen(["tree", "--color", "never"], 70, environment())
    assert "\x1b" not in text
    _, text = on_screen(["tree"], 70, environment(COLUMNS="100", NO_COLOR="1"))
    assert widest(text) == 100


def test_colours_may_go_into_a_pipe(run: CommandLine) -> None:
    assert "\x1b[31mFalse\x1b[0m" in run("get", "hn", "--color", "always").out
    assert "\x1b[31mDegraded" in run("tree", "--color", "always").out


def test_waiting_says_what_for_and_takes_it_away() -> None:
    arguments = ["status", "--for", "node/n9999", "--wait-timeout", "0"]
    code, text = on_screen(arguments, 60, environment())
    assert code == 3
    assert "\rwaiting 0 s: no evidence of n9999\x1b[K\r\x1b[K" in text
