"""Manual pages: one a command, with the sections that readers look for, and nothing that groff warns of."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hyperscout_cli.main import COMMANDS
from support.real import ROOT, require_real, tool


@cache
def pages() -> dict[str, str]:
    sys.path.insert(0, str(ROOT / "deploy"))
    try:
        import man
    finally:
        sys.path.pop(0)
    found: dict[str, str] = man.pages()
    return found


def headings(page: str) -> list[str]:
    return re.findall(r"^\.SH (.+)$", page, re.MULTILINE)


def test_every_command_has_a_page() -> None:
    assert {f"hyperscout-{name}.1" for name in COMMANDS} | {"hyperscout.1"} <= pages().keys()
    assert "hyperscout-placements-repair.1" in pages()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_page_has_its_sections(name: str) -> None:
    found = headings(pages()[f"hyperscout-{name}.1"])
    assert found[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]
    assert found.count("EXIT STATUS") == 1
    assert {"OPTIONS", "EXAMPLES", "SEE ALSO"} <= set(found)
    assert len(set(found)) == len(found)


def test_a_page_says_what_help_says() -> None:
    page = pages()["hyperscout-status.1"]
    assert ".TP\n\\fB\\-o\\fR, \\fB\\-\\-output\\fR [table|json|yaml]\n" in page
    assert ".B HYPERSCOUT_COLLECTOR\nIn place of \\-\\-collector.\n" in page
    assert "3 it did not come to be in time.\n" in page
    assert "hyperscout\\-doctor(1)" in page
    assert "\\fB\\-h\\fR, \\fB\\-\\-help\\fR" in page


def test_groff_has_nothing_to_say(tmp_path: Path) -> None:
    require_real("groff")
    for name, text in pages().items():
        (tmp_path / name).write_text(text, "utf-8")
    groff = [str(tool("groff")), "-man", "-Tutf8", "-Kutf8", "-ww", "-z"]
    ran = subprocess.run([*groff, *pages()], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_old_pages_go(tmp_path: Path) -> None:
    (tmp_path / "hyperscout-gone.1").write_text("")
    (tmp_path / "other.1").write_text("")
    command = [sys.executable, str(ROOT / "deploy/man.py"), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{tmp_path}: {len(pages())} pages\n"
    assert {x.name for x in tmp_path.iterdir()} == pages().keys() | {"other.1"}
