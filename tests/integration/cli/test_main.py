"""The command as a whole: help of everything, exit codes, completion, what is imported when."""

import re
import subprocess
import sys

import pytest
from support.command_line import CommandLine


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hyperscout de", ["describe", "demo"]),
        ("hyperscout infer --l", ["--lldp", "--latency", "--label-keys"]),
        ("hyperscout get no", ["nodes"]),
    ],
)
def test_completion_completes(words: str, expected: list[str]) -> None:
    environment = {"_HYPERSCOUT_COMPLETE": "bash_complete", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split()) - 1)
    command = [sys.executable, "-m", "hyperscout_cli.main"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert [line.partition(",")[2] for line in ran.stdout.splitlines()] == expected


@pytest.mark.parametrize("arguments", [["--help"], ["infer", "--help"], ["version"]])
def test_nothing_heavy_is_imported_for_light_work(arguments: list[str]) -> None:
    code = (
        "import sys; from hyperscout_cli.main import main; main(sys.argv[1:]); "
        "sys.exit(', '.join({'grpc', 'yaml', 'pydantic', 'asyncio', 'google'} & sys.modules.keys()) or None)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    assert ran.returncode == 0


# Runs the command as if only the base install was there.
BASE = """
import sys
extras = "aiohttp cryptography grpc_health h11 kubernetes paho prometheus_client pydantic pydantic_settings"
extras += " re2 starlette"
sys.modules.update(dict.fromkeys(extras.split()))
from hyperscout_cli.main import main
sys.exit(main(sys.argv[1:]))
"""
LACKS = (
    "error: '{}' needs the Python package '[a-z_]+': "
    "run `pip install 'hyperscout\\[{}\\]'` in this environment\n"
)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("agent", 1, LACKS.format("agent", "agent")),
        ("collector", 1, LACKS.format("collector", "collector")),
        ("demo", 1, LACKS.format("demo", "collector")),
        ("loadtest", 1, LACKS.format("loadtest", "collector,lldp")),
        ("doctor", 1, LACKS.format("doctor", "agent")),
        ("crd columns", 1, LACKS.format("crd columns", "collector")),
        ("doctor n01 --collector 127.0.0.1:1", 3, ""),
        ("status --collector 127.0.0.1:1", 1, "error: cannot reach the collector at 127.0.0.1:1.*\n"),
    ],
)
def test_the_base_install_runs_what_needs_no_extra(words: str, code: int, said: str) -> None:
    command = [sys.executable, "-c", BASE, *words.split()]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stderr
    assert re.fullmatch(said, ran.stderr), ran.stderr
    assert code == 3 or ran.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "n01", "\udcff"],
        ["place", "--workers", 1, "--avoid", "\udcff"],
        ["place", "--workers", 1, "--highest-tier-allowed", "\udcff"],
        ["placements", "release", "\udcff"],
    ],
)
def test_bytes_that_are_no_name_exit_2(run: CommandLine, arguments: list[object]) -> None:
    ran = run(*arguments, "--collector", "127.0.0.1:1")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: '\\udcff': not UTF-8: names are UTF-8 text\n"
