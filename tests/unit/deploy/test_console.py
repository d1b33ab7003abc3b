"""Blocks of the pages: which are run, what of a live output counts, and that all others are inputs."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.modules import module_of
from support.real import ROOT

console: Any = module_of(ROOT / "deploy" / "console.py", "deploy_console")
# Languages of blocks that hyperscout, another program or a person reads.
INPUTS = {"conf", "console", "csv", "ini", "json", "mermaid", "promql", "python", "yaml"}
# The first word of a command: a program, perhaps with its folder, or the value of a variable.
FIRST_WORD = re.compile(
    r"(\S*/)?(\.|apt|cd|ctr|curl|docker|done|eval|export|for|go|helm|hyperscout(-agent)?|ibqueryerrors|kubectl"
    r"|lldp_report\.py|ln|make|mkdir|mosquitto_(pub|sub)|pip|python3?|scontrol|snmpbulkwalk|ssh|sudo|systemctl)|\w+=\S+"
)
CHECKED = {("architecture.md", "text")}  # by tests/unit/test_structure.py
REFERENCE = ROOT / "docs" / "reference"  # `make docs-reference` writes these pages whole
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if not page.is_relative_to(REFERENCE)
]


def block(lines: str, marker: str = "runnable: live") -> str:
    return f"text 5s\n\n<!-- {marker} -->\n```console\n{lines}\n```\n\nmore 7s\n"


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("5m12s  ago", "2d4h ago", True),
        ("0.0 s behind", "0.1 s behind", True),
        ("since 2026-11-28T02:05:26Z", "since 2027-01-02T03:04:05.678+01:00", True),
        ("at 127.0.0.1:50051", "at 127.0.0.1:4711", True),
        ("at [::1]:50051", "at localhost:4711", True),
        ("generation 2", "generation 41", True),
        ("Generation: 2, published 40s ago", "Generation: 3, published 1m ago", True),
        ('{"generation": 2}', '{"generation": 41}', True),
        ("node-0002   mlx5_0/1   7s   3s   -", "node-0001   mlx5_0/1   2s   2s   -", True),
        ("node-0002   mlx5_0/1   7s   3s   -", "node-0002   mlx5_1/1   7s   3s   -", False),
        ("node-0002   lldp   eth0   data   7s", "node-0001   lldp   eth0   data   7s", False),
        ("4 nodes", "5 nodes", False),
        ("1 data", "2 data", False),
        ("node-0003", "node-0004", False),
        ("leaf-5s", "leaf-6s", False),
        ("0000:1b:00.0", "0000:2b:00.0", False),
        ("02:d8:2c:08:00:00", "02:d8:2c:08:00:01", False),
        ("version 0.1.0", "version 0.2.0", False),
        ("confidence 0.95", "confidence 0.5", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("a b", "ab", False),
        ("one\ntwo", "one two", False),
    ],
)
def test_a_live_output_is_compared_without_what_differs_from_run_to_run(
    one: str, other: str, equal: bool
) -> None:
    assert (console.masked(block(one)) == console.masked(block(other))) is equal


@pytest.mark.parametrize("marker", ["runnable", "runnable: lively"])
def test_nothing_else_is_masked(marker: str) -> None:
    text = block("5s  ago", marker)
    assert console.masked(text) == text
    assert console.masked(block("5s  ago")) == block("DURATION ago")


def test_a_block_that_needs_an_api_server_stays_as_it_is_without_one() -> None:
    text = block("$ kubectl get nodes\nold", "runnable: live kubernetes")
    assert console.fresh(text) == text


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """The language and the text of each block of a page; an indented block has the language "indented"."""
    fence = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.MULTILINE)
    for match in fence.finditer(text):
        yield match[2], match[3]
    for paragraph in re.split(r"\n(?: *\n)+", fence.sub("", text)):
        if paragraph.startswith("    "):
            yield "indented", textwrap.dedent(paragraph)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_output_in_a_page_is_made(page: Path) -> None:
    """An output stands only in a block that is run. Other blocks are inputs: commands, settings, queries."""
    text = page.read_text("utf-8")
    run = len(console.BLOCK.findall(text))
    assert len(re.findall(r"^ *```console|<!-- runnable", text, re.MULTILINE)) == 2 * run
    wrong = []
    for language, lines in blocks(text):
        if language == "indented":
            commands = re.sub(r"(\\|\|)\n", " ", lines).splitlines()
            wrong += [line for line in commands if not FIRST_WORD.fullmatch(line.split()[0])]
        elif language not in INPUTS and (page.name, language) not in CHECKED:
            wrong.append(f"```{language}")
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("kubectl get hypernodes", True),
        ("NAME   TIER   TIERNAME", False),
        ("$ kubectl get hypernodes", False),
        ('{"generation": 42}', False),
        ("TOKEN=$(kubectl create token reader)", True),
        ("~/hyperscout/bin/pip install .", True),
    ],
)
def test_an_output_is_no_command(line: str, is_one: bool) -> None:
    assert (FIRST_WORD.fullmatch(line.split()[0]) is not None) is is_one


def test_pages_query_all_simulated_clusters() -> None:
    kinds = {match["live"] for page in PAGES for match in console.BLOCK.finditer(page.read_text("utf-8"))}
    assert kinds == {None, "live", "live infiniband", "live kubernetes"}
