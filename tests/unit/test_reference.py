"""The committed reference pages, manual pages and completion scripts are what the code would write now."""

from typing import Any

import pytest
from support.modules import module_of
from support.real import ROOT

reference: Any = module_of(ROOT / "deploy" / "reference.py", "deploy_reference")


def test_no_other_page_is_there() -> None:
    there = {str(path.relative_to(reference.FOLDER)) for path in reference.FOLDER.rglob("*.md")}
    assert there == reference.pages().keys()


@pytest.mark.parametrize("name", sorted(reference.pages()))
def test_a_page_is_current(name: str) -> None:
    assert (reference.FOLDER / name).read_text("utf-8") == reference.pages()[name], (
        "run `make docs-reference`"
    )
