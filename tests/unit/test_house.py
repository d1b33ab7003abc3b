"""The lock, the pages, the version, the settings and the example probe agree with the code."""

import asyncio
import re
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hyperscout_agent.findings.probe import Probe, ProbeContext
from hyperscout_agent.findings.scheduler import Scheduler
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.probes import registry
from hyperscout_agent.settings import probe_settings
from hyperscout_agent.settings.settings import AgentSettings
from hyperscout_cli.main import cli
from hyperscout_cli.offline.infer import infer
from hyperscout_cli.shared.writers import OUTPUTS
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_runtime.settings import fields_of
from pydantic import BaseModel, Field, ValidationError, create_model
from support import real
from support.real import ROOT
from support.waiting import until


@pytest.mark.parametrize(("required", "outcome"), [("0", "Skipped"), ("1", "Failed")])
def test_a_missing_component_skips_or_fails_when_required(
    monkeypatch: pytest.MonkeyPatch, required: str, outcome: str
) -> None:
    monkeypatch.setitem(real.COMPONENTS, "warp-drive", lambda: "warp-drive not found: install starship-utils")
    monkeypatch.setenv(real.REQUIRE_VARIABLE, required)
    with pytest.raises(BaseException, match="install starship-utils") as caught:
        real.require_real("warp-drive")
    assert type(caught.value).__name__ == outcome


def test_the_lock_holds_versions_and_hashes_and_no_address() -> None:
    text = (ROOT / "constraints.txt").read_text()
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    shape = re.compile(r"(--hash=sha256:[0-9a-f]{64}|[a-z0-9-]+==[\w.]+( ; [^\\]+)?)( \\)?")
    assert [line for line in lines if not shape.fullmatch(line)] == []
    assert "://" not in text


def test_the_lock_covers_what_a_checkout_installs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    asked += [item for extra in extras.values() for item in extra]
    names = {re.split(r"[^\w.-]", item, maxsplit=1)[0].lower().replace("_", "-") for item in asked}
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert names - locked == {"hyperscout"}


def test_setup_installs_the_debian_packages_that_tests_need_and_the_docs_name_them() -> None:
    asked = re.findall(r'_debian\("([a-z0-9 -]+)"', (ROOT / "tests/support/real.py").read_text())
    needed = {package for packages in asked for package in packages.split()}
    parts = re.findall(r'^  "[a-z0-9_-]+:([a-z0-9-]+):', (ROOT / ".ci/setup").read_text(), re.MULTILINE)
    assert needed - set(parts) == set()
    named = re.search(r"`(ibsim-utils [a-z0-9\s-]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert named is not None
    assert set(named[1].split()) == set(parts)


# --- what the docs name exists --------------------------------------------------------------------


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_named_in_a_page_exist(page: Path) -> None:
    named = re.findall(r"`make ([a-z][a-z0-9-]*)|^ *make ([a-z][a-z0-9-]*)", page.read_text(), re.MULTILINE)
    assert {first or second for first, second in named} - make_targets() == set()


def anchors(page: Path) -> set[str]:
    """The anchors of a page: GitHub's form of each heading, and explicit ones."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: Counter[str] = Counter()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[slug] += 1
        if found[slug] > 1:
            found[f"{slug}-{found[slug] - 1}"] += 1
    return found.keys() | set(re.findall(r'<a id="([^"]+)"', text))


def texts_of_the_chart() -> list[Path]:
    chart = ROOT / "deploy" / "chart"
    return [chart / "values.yaml", chart / "values.schema.json", *sorted((chart / "templates").iterdir())]


@pytest.mark.parametrize("text", texts_of_the_chart(), ids=lambda text: text.name)
def test_pages_that_the_chart_names_exist(text: Path) -> None:
    wrong = []
    for path, section, anchor in re.findall(r"\b(docs/[\w./-]+\.md)(, \"|#)?([\w-]*)", text.read_text()):
        target = ROOT / path
        if not target.exists() or '"' in section or (anchor and section and anchor not in anchors(target)):
            wrong.append(f"{path}{section}{anchor}")
    assert wrong == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    wrong = []
    for path, anchor in re.findall(r"\]\(([^)\s:#]*)(?:#([^)\s]*))?\)", page.read_text()):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            wrong.append(f"{path}#{anchor}")
    assert wrong == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_short_and_narrow(page: Path) -> None:
    lines = page.read_text().splitlines()
    most = {"README.md": 150, "CHANGELOG.md": len(lines)}
    assert len(lines) <= most.get(page.name, 300)
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL).splitlines()
    wide = [line for line in prose if len(line) > 120 and not line.startswith("    ")]
    assert page.name == "CHANGELOG.md" or wide == []


@pytest.mark.parametrize("folder", ["", "probes", "publishers", "reference"])
def test_the_start_page_lists_every_page(folder: str) -> None:
    index = ROOT / "docs" / "index.md"
    there = {str(page.relative_to(index.parent)) for page in (index.parent / folder).glob("*.md")}
    linked = set(re.findall(r"\]\(([^)#]+)\)", index.read_text()))
    assert there - linked - {"index.md"} == set()


def commands_in(page: Path) -> list[list[str]]:
    """Words of every `hyperscout ...` in a page: indented blocks and code spans."""
    text = page.read_text()
    found = re.findall(r"^ {4,}(?:.*\| )?hyperscout ([^#\n|>]*)", text, re.MULTILINE)
    found += re.findall(r"`hyperscout ([^`]*)`", text)
    return [words for words in map(str.split, found) if words and not words[0].startswith("-")]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_their_options_in_a_page_exist(page: Path) -> None:
    context = click.Context(cli)
    for name, *words in commands_in(page):
        command = cli.get_command(context, name)
        assert command is not None, f"hyperscout {name}"
        names = {option for parameter in command.params for option in parameter.opts}
        if isinstance(command, click.Group) and words and not words[0].startswith("-"):
            command = command.get_command(context, words[0])
            assert command is not None, f"hyperscout {name} {words[0]}"
            continue
        options = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert options - names == set(), f"hyperscout {name}"


def test_a_page_lists_every_option_and_output_of_infer() -> None:
    page = (ROOT / "docs" / "offline.md").read_text()
    table = "".join(line for line in page.splitlines() if line.startswith("| `--"))
    options = {max(x.opts, key=len) for x in infer.params} - {"--output", "--color", "--help"}
    assert {x for x in options if f"`{x}" not in table} == set()
    outputs = page.split("## Outputs", 1)[1]
    assert {x for x in OUTPUTS if f"`{x}`" not in outputs} == set()


def test_the_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    result = CliRunner().invoke(cli, ["version"])
    assert result.output.splitlines()[0] == f"hyperscout {project}"


def numbers_of(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """(name, description) of every setting that is a number, except ports."""
    for name, field in fields_of(model):
        if field.annotation in (int, float) and not name.endswith(".port"):
            yield name, field.description or ""


@pytest.mark.parametrize("model", [AgentSettings, CollectorSettings])
def test_the_description_of_a_number_gives_a_reason_to_change_it(model: type[BaseModel]) -> None:
    without = [
        name for name, text in numbers_of(model) if not re.search(r"\b(raise|lower) it\b", text.lower())
    ]
    assert without == []


# --- the example in CONTRIBUTING is real ----------------------------------------------------------


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AgentSettings]:
    """Add the example of "Add a probe" as its text says. Returns a maker of settings with its group."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    blocks = re.findall(r"^ +```python\n(.*?)^ +```", text, re.MULTILINE | re.DOTALL)
    probe, group = map(textwrap.dedent, blocks)
    names = dict(vars(probe_settings))
    exec(group, names)
    model = create_model(
        "AgentSettings",
        __base__=AgentSettings,
        lldpfile=(names["LldpfileSettings"], Field(default_factory=names["LldpfileSettings"])),
    )
    module = ModuleType("hyperscout_agent.probes.lldpfile")
    exec(probe, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(registry, "PROBES", {**registry.PROBES, "node": ("lldpfile",)})
    return lambda **given: model(node="node-1", **given)


def built(settings: AgentSettings) -> list[Probe | None]:
    context = ProbeContext(settings, trigger=lambda: None, send=lambda _: None)
    return [parts.probe for parts in registry.build_probes(settings, lambda _: context)]


NMX = {"url": "https://nmx.example", "credentials": "/x"}
LLDPCTL_JSON0 = """{"lldp": [{"interface": [{"name": "eth0", "via": "LLDP", "chassis": [
  {"id": [{"type": "mac", "value": "02:00:00:00:00:01"}], "name": [{"value": "leaf-01"}]}],
  "port": [{"id": [{"type": "ifname", "value": "swp1"}], "ttl": [{"value": "120"}]}]}]}]}"""


@pytest.mark.parametrize(
    ("text", "subjects", "outcome"),
    [
        (LLDPCTL_JSON0, ["eth0"], True),
        (None, [], True),  # no file is nothing there
        ("not JSON", ["*"], False),  # garbage has failed: a finding about the probe itself
    ],
)
async def test_the_example_probe_works(
    guide: Callable[..., AgentSettings], tmp_path: Path, text: str | None, subjects: list[str], outcome: bool
) -> None:
    file = tmp_path / "lldp.json"
    if text is not None:
        file.write_text(text)
    (probe,) = built(guide(lldpfile={"enabled": True, "path": file}))
    assert probe is not None
    store = FindingStore("node-1")
    scheduler = Scheduler([probe], store, rng=Random(1))
    running = asyncio.create_task(scheduler.run())
    try:
        await until(lambda: scheduler.stats["lldpfile"].success is not None)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert sorted(store.subjects("lldpfile")) == subjects
    assert scheduler.stats["lldpfile"].success is outcome


def test_the_example_probe_is_off_by_its_settings(guide: Callable[..., AgentSettings]) -> None:
    assert built(guide()) == []


@pytest.mark.parametrize("given", [{"role": "switch"}, {"role": "fabric", "nmx": NMX}])
def test_the_settings_of_the_example_are_refused_with_other_roles(
    guide: Callable[..., AgentSettings], given: dict[str, Any]
) -> None:
    guide(**given)
    with pytest.raises(ValidationError, match=f"lldpfile: has no effect with role {given['role']}"):
        guide(**given, lldpfile={"enabled": True})


# --- no library's internals are used ---------------------------------------------------------------

# What a package offers in no public way, by where it is used. pyproject.toml bounds each one's version.
INTERNALS = {
    # NVML's binding loads the driver's library by a fixed name; the setting nvlink.library names another.
    ("nvidia-ml-py", "14"): ("agent/hyperscout_agent/nvml/library.py", "nvmlLib"),
}


@pytest.mark.parametrize(("package", "below"), sorted(INTERNALS))
def test_a_package_whose_internals_are_used_has_a_bound(package: str, below: str) -> None:
    """Interim: drop the bound when the package offers it in public."""
    path, name = INTERNALS[package, below]
    assert name in (ROOT / path).read_text(), "it is used no more: drop the bound, and this entry"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (asked,) = {item for extra in extras.values() for item in extra if item.startswith(package)}
    assert asked.endswith(f",<{below}")
