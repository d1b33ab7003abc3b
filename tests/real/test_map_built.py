"""What `make map` built: pages that a strict policy lets run, with notices, in the wheel."""

import re
from html.parser import HTMLParser

import pytest
from hatchling.builders.wheel import WheelBuilder
from hyperscout_collector.serve.rest.static import FOLDER
from support.real import ROOT, require_real

require_real("map")


class Page(HTMLParser):
    """What a page loads, and what of it the policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.refused: list[str] = []
        self._in: str = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        for name, value in attrs:
            if name in ("src", "href"):
                self.loads.append(value or "")
            if name == "style" or name.startswith("on"):
                self.refused.append(f"{tag} {name}")

    def handle_data(self, data: str) -> None:
        if self._in in ("script", "style") and data.strip():
            self.refused.append(f"text in {self._in}")


@pytest.fixture(scope="module")
def page() -> Page:
    found = Page()
    found.feed((FOLDER / "index.html").read_text())
    return found


def test_the_page_has_nothing_inline(page: Page) -> None:
    assert page.refused == []


def test_it_loads_its_own_files_alone(page: Page) -> None:
    files = [url for url in page.loads if url != "data:,"]
    assert {url.rpartition(".")[2] for url in files} == {"js", "css"}
    for url in files:
        assert url.startswith("./assets/")
        assert (FOLDER / url).is_file()


def test_scripts_make_no_code() -> None:
    for script in (FOLDER / "assets").glob("*.js"):
        assert re.findall(r"\beval\(|\bnew Function\b|\bimport\(", script.read_text()) == []


def test_our_own_make_no_html_of_texts() -> None:
    """Names of devices come from outside. (d3-selection has a method for HTML, which no code calls.)"""
    for source in (ROOT / "collector/map/src").rglob("*.ts"):
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|\.html\(",
            source.read_text(),
        )
        assert found == [], source


def test_notices_of_all_that_is_bundled_are_beside_it() -> None:
    notices = (FOLDER / "LICENSES.md").read_text()
    for name in ("d3-zoom", "d3-selection", "d3-transition"):
        assert f"## {name} - " in notices
    assert "Permission to use, copy, modify" in notices


def test_the_wheel_brings_it() -> None:
    names = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    prefix = "hyperscout_collector/serve/rest/static/"
    assert {prefix + str(p.relative_to(FOLDER)) for p in FOLDER.rglob("*") if p.is_file()} <= names
    assert not any("node_modules" in name or name.endswith(".ts") for name in names)
