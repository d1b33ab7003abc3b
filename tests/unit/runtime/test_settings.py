"""The loader of settings: precedence, the source in errors, and retired names."""

import logging
from pathlib import Path

import pytest
from hyperscout_agent.settings.settings import RETIRED as AGENT_RETIRED
from hyperscout_agent.settings.settings import AgentSettings
from hyperscout_collector.app.settings.settings import RETIRED as COLLECTOR_RETIRED
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_runtime.settings import MAX_FILE_BYTES, ProcessSettings, SettingsError, load
from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import SettingsConfigDict

RETIRED = {"old": "is a constant now (7)", "group.old": "is a constant now (8 s)"}


class Group(BaseModel):
    model_config = ConfigDict(extra="forbid")

    a: int = 1
    b: int = 1
    c: int = 1
    wait_s: float = Field(1, ge=1)


class Settings(ProcessSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_", env_nested_delimiter="__", extra="forbid")

    group: Group = Group()
    names: tuple[str, ...] = ()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.yaml"


def test_groups_are_merged_from_all_sources(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("group: {a: 2, b: 2, c: 2}\nnames: [x]\n")
    monkeypatch.setenv("TEST_GROUP__B", "3")
    monkeypatch.setenv("TEST_GROUP__C", "3")
    monkeypatch.setenv("TEST_NAMES", '["y", "z"]')
    found = load(Settings, file, {"group": {"c": 4}, "names": None}, {})
    assert (found.group, found.names) == (Group(a=2, b=3, c=4), ("y", "z"))
    assert type(found) is Settings
    assert Settings().names == (), "the environment is for the loader alone"


@pytest.mark.parametrize(
    ("text", "environment", "flags", "words"),
    [
        ("group: {a: x}", {}, {}, "{file}: group.a: expected a whole number, found 'x'"),
        ("group: {a: 1}", {"TEST_GROUP__A": "x"}, {}, "environment: TEST_GROUP__A: expected a whole"),
        ("group: {a: 1}", {"TEST_GROUP__B": "1"}, {"group": {"a": "x"}}, "flag group.a: expected a whole"),
        ("group: {d: 1}", {"TEST_GROUP__A": "1"}, {}, "{file}: group.d: no such setting"),
        ("names: [1]", {}, {}, "{file}: names.0: expected a text (put"),
        ("", {"TEST_OTHER__A": "1"}, {}, "environment: TEST_OTHER__A: no such setting"),
        ("_env_file: x", {}, {}, "{file}: _env_file: no such setting"),
        (
            "",
            {"TEST_NAMES": "["},
            {},
            'environment: TEST_NAMES: not JSON: expected a list such as ["a",',
        ),
        (
            "",
            {"TEST_GROUPS": "[]"},
            {},
            "environment: TEST_GROUPS: no such setting (did you mean 'TEST",
        ),
        ("nmaes: [a]", {}, {}, "{file}: nmaes: no such setting (did you mean 'names'?)"),
        ("names: a", {}, {}, "{file}: names: expected a list, such as "),
        ("group: 3", {}, {}, "{file}: group: expected a group of settings, `name: value` lines that are"),
        (
            "group: {wait_s: 10s}",
            {},
            {},
            "{file}: group.wait_s: expected seconds without a unit, such as",
        ),
        ("group: {wait_s: 0}", {}, {}, "{file}: group.wait_s: expected at least 1, found 0"),
        (
            "names: []\nx: \x07",
            {},
            {},
            "{file}: line 2: not YAML: special characters are not allowed",
        ),
        ("- a", {}, {}, "{file}: expected `name: value` lines, found a list"),
        ("names: [\n", {}, {}, "{file}: line 2: not YAML: "),
        ("group: 2026-13-01", {}, {}, "{file}: not YAML: month must be in 1..12"),
        ("names: " + "[" * 500, {}, {}, "{file}: not YAML: maximum recursion depth exceeded"),
        ("1: a", {}, {}, "{file}: expected `name: value` lines, found a name that"),
        ("#" * (MAX_FILE_BYTES + 1), {}, {}, f"{{file}}: larger than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_an_error_names_its_source_in_one_line(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    environment: dict[str, str],
    flags: dict[str, object],
    words: str,
) -> None:
    file.write_text(text)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load(Settings, file, flags, RETIRED)
    assert str(caught.value).startswith(words.replace("{file}", str(file)))
    assert "\n" not in str(caught.value)


def test_a_variable_with_a_dot_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERSCOUT_COLLECTOR_LISTEN.X", "1")
    with pytest.raises(SettingsError, match=r"HYPERSCOUT_COLLECTOR_LISTEN\.X: no such"):
        load(CollectorSettings, None, None, {})


def test_a_retired_setting_is_ignored_with_a_warning(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("old: text\ngroup: {old: [1], a: 5}\n")
    monkeypatch.setenv("TEST_OLD", "x")
    monkeypatch.setenv("TEST_GROUP__OLD", "x")
    with caplog.at_level(logging.WARNING):
        found = load(Settings, file, {"old": 1, "group": {"old": 2}}, RETIRED)
    assert found == Settings(group=Group(a=5))
    assert sorted(caplog.messages) == sorted(
        f"{origin}{name} has no effect: it {sentence}; remove it"
        for origin in (f"{file}: ", "environment: ", "flag ")
        for name, sentence in RETIRED.items()
    )


@pytest.mark.parametrize(
    ("retired", "model"), [(AGENT_RETIRED, AgentSettings), (COLLECTOR_RETIRED, CollectorSettings)]
)
def test_a_retired_name_is_no_setting(retired: dict[str, str], model: type[ProcessSettings]) -> None:
    for name in retired:
        place: type[BaseModel] = model
        *groups, last = name.split(".")
        for group in groups:
            inner = place.model_fields[group].annotation
            assert isinstance(inner, type)
            assert issubclass(inner, BaseModel)
            place = inner
        assert last not in place.model_fields
