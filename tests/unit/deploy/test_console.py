"""Blocks of the pages with commands: which are run, what of a live output counts, and what is an example."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.modules import module_of
from support.real import ROOT

console: Any = module_of(ROOT / "deploy" / "console.py", "deploy_console")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_of_commands_is_run_or_called_an_example(page: Path) -> None:
    text = page.read_text("utf-8")
    run = len(console.BLOCK.findall(text))
    assert len(re.findall(r"^ *```console|<!-- runnable", text, re.MULTILINE)) == 2 * run
    parts = re.split(r"\n{2,}", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    shown = [
        part
        for before, part in zip(["", *parts], parts, strict=False)
        if re.match(r" {4,}\$ ", part) and "example" not in before.lower()
    ]
    assert shown == []


def test_pages_query_both_simulated_clusters() -> None:
    kinds = {match["live"] for page in PAGES for match in console.BLOCK.finditer(page.read_text("utf-8"))}
    assert kinds == {None, "live", "live infiniband"}
