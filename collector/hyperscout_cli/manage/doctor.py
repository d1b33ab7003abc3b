"""`hyperscout doctor`: explains why a node has no evidence.

Without a name it checks the node that it runs on, with the agent's settings and the user's rights. With a
name it queries the collector. The checks are pure functions in `hyperscout_agent.doctor` and `doctor_node`.
"""

import asyncio
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from hyperscout_formats.text.host_list import HostListError, expand

from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.errors import NO
from hyperscout_cli.shared.options import COLLECTOR_VARIABLE, Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import emit, emit_data
from hyperscout_cli.shared.tables import Row, Table, lines

if TYPE_CHECKING:
    from hyperscout_agent.doctor.facts import Check
    from hyperscout_agent.settings.settings import AgentSettings

# Paths of the agent's settings in the chart and in docs/operations.md.
CONFIGS = (Path("/etc/hyperscout/config/agent.yaml"), Path("/etc/hyperscout/agent.yaml"))
_SHOWN = {"ok": "ok", "warning": "warning", "failed": "FAILED", "skipped": "skipped"}


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout doctor                              on the node itself, as the agent's user or as root
  hyperscout doctor --config /etc/hyperscout/agent.yaml
  kubectl -n hyperscout exec POD -c agent -- hyperscout doctor
  hyperscout doctor gpu-17                       from anywhere, through the collector
  hyperscout doctor gpu-17 -o json
  hyperscout doctor --replay events.jsonl        a file of `hyperscout status --event-log`

\b
Exit codes: 0 no check failed (there may be warnings), 3 a check failed.""",
)
@click.argument("node", required=False, shell_complete=names("nodes"))
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"The agent's settings on the node [default: {' or '.join(map(str, CONFIGS))}, if it exists].",
)
@click.option(
    "--replay",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Replay an event log on the state machines installed here; exit 3 if they reach other states.",
)
@output_option()
@collector_options
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    *,
    node: str | None,
    config: Path | None,
    replay: Path | None,
    output: str,
    collector: Endpoint,
) -> int:
    """Explain why a node has no evidence, and what to do next.

    \b
    Without NODE, checks this machine: rights, devices, programs, LLDP, connection to the collector, clock.
    With NODE, queries the collector: whether it is known, connected and fresh, and results of its probes.
    """
    if replay is not None:
        if node is not None or config is not None:
            raise click.UsageError("--replay cannot be used with NODE or --config")
        from hyperscout_cli.manage.replay import replayed

        return replayed(replay, output)
    if node is None:
        if ctx.get_parameter_source("collector") is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                "--collector needs NODE: without NODE the collector is that of the agent's settings, or of "
                f"{COLLECTOR_VARIABLE}"
            )
        name, checks = _on_the_node(config)
    else:
        if config is not None:
            raise click.UsageError("--config is for checks of this node: leave NODE out")
        try:
            names = expand(node)
        except HostListError as error:
            raise click.UsageError(str(error)) from error
        if len(names) != 1:
            raise click.UsageError(f"{node}: {len(names)} nodes: give one")
        [node] = names
        from hyperscout_cli.manage.doctor_node import ask_about

        name, checks = node, ask_about(collector, node, time.time_ns())
    if not emit_data(as_data(name, checks), output):
        emit(report(name, checks))
    return NO if _worst(checks, "failed") else 0


def _on_the_node(config: Path | None) -> "tuple[str, list[Check]]":
    from hyperscout_agent.doctor.facts import Check
    from hyperscout_agent.settings.settings import load_settings
    from hyperscout_runtime.settings import SettingsError

    file = config or next((path for path in CONFIGS if path.is_file()), None)
    machine = socket.gethostname()
    try:
        settings, source = load_settings(file), ""
        if "collectors" not in settings.model_fields_set and (named := os.environ.get(COLLECTOR_VARIABLE)):
            settings = load_settings(file, {"collectors": named})
            source = f"; collectors of {COLLECTOR_VARIABLE}"
    except SettingsError as error:
        why = "; ".join(str(error).splitlines())
        return f"this machine ({machine})", [
            Check("settings", "failed", why, "correct the settings: the agent does not start with them")
        ]
    where = str(file) if file else "defaults and the environment: no settings file was given or found"
    about = f"this machine, {machine}, as {settings.reporter}; `hyperscout doctor NODE` examines another node"
    return settings.reporter, [
        Check("machine", "ok", about),
        Check("settings", "ok", where + source),
        *asyncio.run(_look(settings)),
    ]


async def _look(settings: "AgentSettings") -> "list[Check]":
    from hyperscout_agent.doctor.agent_page import ask_agent
    from hyperscout_agent.doctor.checks import node_checks
    from hyperscout_agent.doctor.host import read_host
    from hyperscout_agent.doctor.reach import ask_collectors, read_token

    host, agent, collectors = await asyncio.gather(
        read_host(settings),
        ask_agent(settings.metrics.host, settings.metrics.port),
        ask_collectors(settings),
    )
    return node_checks(settings, host, agent, collectors, read_token(settings.token_file), time.time())


def report(name: str, checks: "Sequence[Check]") -> Iterator[str]:
    """The table, and a summary in sentences, the worst first."""
    rows = tuple(Row(check.name, (check.name, _SHOWN[check.verdict], check.why)) for check in checks)
    yield from lines(Table("check", ("CHECK", "RESULT", "WHY"), (), rows))
    yield "\n"
    for sentence in sentences(name, checks):
        yield f"{sentence}\n"


def sentences(name: str, checks: "Sequence[Check]") -> list[str]:
    """The failed checks and warnings, and what to do next."""
    from hyperscout_topology.names import visible

    wrong, doubtful = _worst(checks, "failed"), _worst(checks, "warning")
    found = [f"Wrong: {_sentence(check)}" for check in wrong]
    found += [f"Note: {_sentence(check)}" for check in doubtful]
    if not wrong:
        found.append(f"All checks of {name} passed." if not doubtful else f"No check of {name} failed.")
    return [visible(sentence) for sentence in found]


def _sentence(check: "Check") -> str:
    todo = f" Next: {check.todo}." if check.todo else ""
    return f"{check.name}: {check.why.rstrip('.')}.{todo}"


def _worst(checks: "Sequence[Check]", verdict: str) -> "list[Check]":
    return [check for check in checks if check.verdict == verdict]


def as_data(name: str, checks: "Sequence[Check]") -> dict[str, object]:
    """The checks and the summary as plain data."""
    return {
        "node": name,
        "ok": not _worst(checks, "failed"),
        "checks": [
            {"check": check.name, "result": check.verdict, "why": check.why, "todo": check.todo}
            for check in checks
        ],
        "summary": sentences(name, checks),
    }
