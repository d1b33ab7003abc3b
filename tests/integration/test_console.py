"""README and the pages show what their commands print: each runnable block is run, and compared."""

import difflib
from pathlib import Path
from typing import Any

import pytest
from support.modules import module_of
from support.real import ROOT, require_real

console: Any = module_of(ROOT / "deploy" / "console.py", "deploy_console")


@pytest.mark.parametrize("page", list(console.documents()), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_shows_what_its_commands_print(page: Path) -> None:
    text = page.read_text("utf-8")
    if "$ curl " in text:
        require_real("curl")
    old, new = console.masked(text), console.masked(console.fresh(text))
    assert list(difflib.unified_diff(old.splitlines(), new.splitlines())) == [], "run `make docs-assets`"


def test_a_missing_program_is_an_error_and_no_output() -> None:
    with pytest.raises(RuntimeError, match="no-such-program"):
        console.fresh("<!-- runnable -->\n```console\n$ no-such-program\n```\n")


def test_the_readme_has_runnable_commands() -> None:
    assert len(console.BLOCK.findall((ROOT / "README.md").read_text())) >= 2
