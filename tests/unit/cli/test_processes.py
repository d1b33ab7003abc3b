"""`agent` and `collector`: what they are told reaches their settings, and what is wrong is one clear line."""

from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
from hyperscout_agent.settings.settings import AgentSettings
from hyperscout_cli.shared.options import DEFAULT_COLLECTOR
from hyperscout_collector.app.settings.settings import CollectorSettings
from support.command_line import CommandLine


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings with which each process was run; nothing runs."""
    found: dict[str, Any] = {}

    def record(name: str, module: str) -> None:
        async def run(settings: Any, **_: object) -> int:
            found[name] = settings
            return 5

        monkeypatch.setattr(f"{module}.run", run)

    record("agent", "hyperscout_agent.main")
    record("collector", "hyperscout_collector.app.replica.process")

    def leave(code: int) -> NoReturn:
        found["exit"] = code
        raise click.exceptions.Exit(code)

    monkeypatch.setattr("os._exit", leave)  # the end of the collector's process
    return found


def test_collector_settings_come_from_flags_environment_and_file(
    run: CommandLine, ran: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("listen: 127.0.0.1:1\nsettle_s: 3\nhold_s: 4\nreflection: true\n")
    monkeypatch.setenv("HYPERSCOUT_COLLECTOR_SETTLE_S", "5")
    monkeypatch.setenv("HYPERSCOUT_COLLECTOR_HOLD_S", "6")
    flags = ["--hold-s", "7", "--no-reflection", "--expected-nodes", "a", "--expected-nodes", "b"]
    assert run("collector", "--config", config, *flags).code == ran["exit"] == 5
    settings = ran["collector"]
    assert (settings.listen, settings.settle_s, settings.hold_s) == ("127.0.0.1:1", 5.0, 7.0)
    assert settings.reflection is False
    assert settings.expected_nodes == ("a", "b")


@pytest.mark.parametrize("flags", [[], ["--kubernetes", "dry-run"]])
def test_a_dry_run_wins_over_what_is_set(
    run: CommandLine, ran: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("kubernetes: publish\n")
    monkeypatch.setenv("HYPERSCOUT_COLLECTOR_KUBERNETES", "publish")
    assert run("collector", "--config", config, "--dry-run", *flags).code == 5
    assert ran["collector"].kubernetes == "dry-run"
    assert run("collector", "--config", config).code == 5
    assert ran["collector"].kubernetes == "publish"


@pytest.mark.parametrize("asked", ["publish", "off"])
def test_a_dry_run_that_is_none(run: CommandLine, ran: dict[str, Any], asked: str) -> None:
    found = run("collector", "--dry-run", "--kubernetes", asked)
    assert found.code == 2
    assert f"--dry-run and --kubernetes {asked}: give one of them" in found.err
    assert ran == {}


def test_all_look_for_the_collector_where_it_listens() -> None:
    assert CollectorSettings.model_fields["listen"].default == DEFAULT_COLLECTOR
    assert AgentSettings.model_fields["collectors"].default == (DEFAULT_COLLECTOR,)


def test_agent_settings_are_nested(run: CommandLine, ran: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("node: n1\nlldp:\n  interval_s: 9\n")
    flags = ["--collector", "127.0.0.1:1,127.0.0.1:2", "--no-lldp-enabled", "--metrics-port", "0"]
    code = run("agent", "--config", config, *flags, "--ibnetdiscover-command", "sudo ibnetdiscover").code
    assert code == 5
    settings = ran["agent"]
    assert settings.node == "n1"
    assert settings.collectors == ("127.0.0.1:1", "127.0.0.1:2")
    assert settings.lldp.enabled is False
    assert settings.lldp.interval_s == 9.0
    assert settings.metrics.port == 0
    assert settings.ibnetdiscover.command == ("sudo", "ibnetdiscover")


def test_flags_of_retired_settings_are_accepted(
    run: CommandLine, ran: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert run("agent", "--snmp-retries", "5").code == 5
    assert run("collector", "--debounce-s", "1").code == 5
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "flag snmp.retries has no effect",
        "flag debounce_s has no effect",
    ]
    assert "--debounce-s" not in run("collector", "--help").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["collector", "--settle-s", "x"], "settle_s"),
        (["collector", "--config", "/nope.yaml"], "/nope.yaml: No such file"),
        (["agent", "--lldp-source", "magic"], "lldp.source"),
        (["agent", "--config", "/nope.yaml"], "/nope.yaml: No such file"),
        (["agent", "--collector", "10.9.8.7:1"], "insecure"),
    ],
)
def test_bad_settings_are_one_clear_line(
    run: CommandLine, ran: dict[str, Any], arguments: list[str], words: str
) -> None:
    found = run(*arguments)
    assert (found.code, found.out) == (2, "")
    assert words in found.err
    assert found.err.count("\n") == 1
    assert ran == {}


@pytest.mark.parametrize(
    ("command", "main"),
    [
        ("lldp-listener", "lldp.listener.main"),
        ("pod-resources-relay", "pod_resources.relay.main"),
        ("dra-plugin", "dra.plugin.main"),
    ],
)
def test_helpers_of_the_agent_get_their_own_arguments(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str, main: str
) -> None:
    got: list[list[str]] = []

    def helper(arguments: list[str]) -> int:
        got.append(arguments)
        return 0

    monkeypatch.setattr(f"hyperscout_agent.{main}", helper)
    assert run("agent", command, "--socket", "/x", "--help").code == 0
    assert got == [["--socket", "/x", "--help"]]
