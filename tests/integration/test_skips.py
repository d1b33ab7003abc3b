"""All skips of the tests are made by support.real, which decides where the same lack is a failure."""

import ast
import re
from pathlib import Path

import pytest
from support import real
from support.real import ROOT

SKIPPING = {"skip", "skipif", "importorskip", "xfail", "skipTest"}
TESTS = ROOT / "tests"


def skips(source: str) -> list[int]:
    """Line numbers at which a test is skipped, or is expected to fail."""
    return [node.lineno for node in ast.walk(ast.parse(source)) if names_of(node) & SKIPPING]


def names_of(node: ast.AST) -> set[str]:
    """The attribute that an expression looks up, and the names that a statement imports."""
    match node:
        case ast.Attribute(attr=name):
            return {name}
        case ast.ImportFrom(names=names):
            return {one.name for one in names}
    return set()


def test_no_other_file_skips_a_test() -> None:
    allowed = {Path(real.__file__).resolve(), Path(__file__).resolve()}
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        if path not in allowed
        for line in skips(path.read_text(encoding="utf-8"))
    ]
    assert not found, f"call require_real of support.real instead: {', '.join(found)}"


@pytest.mark.parametrize(
    "source",
    [
        "pytest.skip('x')",
        "mark = pytest.mark.skipif(True, reason='x')",
        "@pytest.mark.xfail\ndef test(): ...",
        "from pytest import skip",
        "library = pytest.importorskip('library')",
    ],
)
def test_a_skip_is_seen(source: str) -> None:
    assert skips(source)


@pytest.mark.parametrize("required", ["", "1"])
@pytest.mark.parametrize(
    ("lacking", "failing"),
    [(["recordings"], False), (["ibsim"], True), (["volcano", "ibsim"], True), (["tmpfs"], True)],
)
def test_a_lack_is_a_failure_where_parts_are_required(
    monkeypatch: pytest.MonkeyPatch, required: str, lacking: list[str], failing: bool
) -> None:
    monkeypatch.setenv(real.REQUIRE_VARIABLE, required)
    fails = required == "1" and failing
    outcome = pytest.fail.Exception if fails else pytest.skip.Exception
    with pytest.raises(outcome, match=lacking[0]):
        real.go_without(dict.fromkeys(lacking, "missing"))


def test_the_optional_parts_are_those_of_the_page() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, _, after = page.partition("| part that CI may lack |")
    named = re.findall(r"^\| `([a-z-]+)`", after.partition("\n\n")[0], re.MULTILINE)
    assert set(named) == real.OPTIONAL
    assert real.COMPONENTS.keys() >= real.OPTIONAL
