"""Manual pages: one a command, with the sections that readers look for, and nothing that groff warns of."""

import re

import pytest
from hyperscout_cli.main import COMMANDS
from support.man_pages import pages


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
    assert "3 the time limit passed.\n" in page
    assert "hyperscout\\-doctor(1)" in page
    assert "\\fB\\-h\\fR, \\fB\\-\\-help\\fR" in page
