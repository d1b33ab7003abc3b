"""The command as a whole: help of everything, exit codes, completion, what is imported when."""

import gc
import re
import sys

import click
import pytest
from hyperscout_cli.main import COMMANDS, cli, missing_package, program_name
from hyperscout_cli.offline.memory import permanent_objects
from hyperscout_runtime.errors import install_extra
from support.command_line import CommandLine


def test_help_lists_every_command_without_importing_one(run: CommandLine) -> None:
    ran = run("--help")
    assert ran.code == 0
    for name, (_, section, text) in COMMANDS.items():
        assert f"{section}:" in ran.out
        assert re.search(rf"^  {name} +{re.escape(text)}$", ran.out, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(run: CommandLine, name: str) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    assert f"Usage: hyperscout {name}" in ran.out
    assert "Examples:" in ran.out
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    shown = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    assert all(p.help for p in shown if p.name != "output")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonesuch"],
        ["--nonesuch"],
        ["infer"],
        ["infer", "--ibnetdiscover", "-", "--node-map", "-"],
        ["infer", "--ibnetdiscover"],
        ["infer", "-o", "svg", "--lldp", "x"],
        ["infer", "stray"],
        ["get"],
        ["get", "hypernod"],
        ["get", "findings", "--topology", "x.json"],
        ["get", "nodes", "-w"],
        ["describe", "findings", "x"],
        ["watch", "nodes"],
        ["diff", "a", "b", "c"],
        ["diff", "--topology", "a"],
        ["approve", "latest"],
        ["approve", "0"],
        ["completion", "tcsh"],
        ["status", "--timeout", "0"],
        ["explain", "only-one"],
    ],
)
def test_wrong_usage_exits_2_and_says_so_on_stderr(run: CommandLine, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "Error: " in ran.err


def test_a_misspelt_kind_is_helped(run: CommandLine) -> None:
    assert "did you mean 'hypernode'?" in run("get", "hypernod").err


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/usr/bin/hyperscout", "hyperscout"),
        ("kubectl-hyperscout", "kubectl hyperscout"),
        ("/x/main.py", "hyperscout"),
    ],
)
def test_usage_shows_the_name_it_was_called_by(path: str, expected: str) -> None:
    assert program_name(path) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_back(run: CommandLine, shell: str) -> None:
    ran = run("completion", shell)
    assert ran.code == 0
    assert f"_HYPERSCOUT_COMPLETE={shell}_complete" in ran.out
    assert ran.out.count("hyperscout") > 2


def test_version(run: CommandLine) -> None:
    ran = run("version")
    assert ran.code == 0
    assert re.match(r"hyperscout \d+\.\d+", ran.out)
    assert '"grpcio"' in run("version", "-o", "json").out
    assert run("--version").out == ran.out.splitlines(keepends=True)[0]


@pytest.mark.parametrize(
    ("command", "extra"),
    [("place", ""), ("doctor", "[agent]"), ("collector", "[collector]"), ("demo", "[collector]")],
)
def test_a_missing_package_is_one_line_that_names_the_extra(command: str, extra: str) -> None:
    error = missing_package(command, ModuleNotFoundError("No module named 'absent'", name="absent"))
    assert str(error) == (
        f"{command!r} needs the Python package 'absent': "
        f"run `pip install 'hyperscout{extra}'` in this environment"
    )
    bug = ModuleNotFoundError("No module named 'hyperscout_x'", name="hyperscout_x")
    assert missing_package(command, bug) is bug


def test_a_package_that_is_missing_while_a_command_runs(
    run: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    ran = run("version", "-o", "yaml")
    assert (ran.code, ran.err) == (
        1,
        f"error: 'version' needs the Python package 'yaml': {install_extra()}\n",
    )


def test_the_garbage_collector_leaves_permanent_objects_out() -> None:
    with permanent_objects():
        assert not gc.isenabled()
        kept: list[object] = [[] for _ in range(1000)]
    try:
        assert gc.isenabled()
        assert not {id(one) for one in gc.get_objects()} & {id(one) for one in kept}
    finally:
        gc.unfreeze()
