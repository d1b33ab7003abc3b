"""`hyperscout doctor`: why a node has no evidence, and what to do about it.

Without a name it looks at the node that it runs on, with the agent's own settings and the rights of whoever
calls it; with one it asks the collector. Checks are pure and live elsewhere (`hyperscout_agent.doctor`,
`doctor_node`); here they are run and shown.
"""

import asyncio
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
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import emit, emit_data
from hyperscout_cli.shared.tables import Row, Table, lines

if TYPE_CHECKING:
    from hyperscout_agent.doctor.facts import Check
    from hyperscout_agent.settings.settings import AgentSettings

# Where the chart and docs/operations.md put the agent's settings.
CONFIGS = (Path("/etc/hyperscout/config/agent.yaml"), Path("/etc/hyperscout/agent.yaml"))
_SHOWN = {"ok": "ok", "warning": "warning", "failed": "FAILED", "skipped": "skipped"}


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout doctor                              on the node itself, as the agent's user or as root
  hyperscout doctor --config /etc/hyperscout/agent.yaml
  kubectl -n hyperscout exec POD -c agent -- hyperscout doctor
  hyperscout doctor gpu-17                       from anywhere, by what the collector knows
  hyperscout doctor gpu-17 -o json

\b
Exit codes: 0 nothing is wrong (warnings may be told), 3 something is.""",
)
@click.argument("node", required=False, shell_complete=names("nodes"))
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"The agent's settings, on the node [default: {' or '.join(map(str, CONFIGS))}, if there].",
)
@output_option()
@collector_options
@click.pass_context
def doctor(
    ctx: click.Context, /, *, node: str | None, config: Path | None, output: str, collector: Endpoint
) -> int:
    """Say why a node has no evidence, and what to do next.

    \b
    Without NODE, on the node: rights, devices, programs, LLDP, the way to the collector, clock.
    With NODE, through the collector: is it known, connected, fresh; what its probes saw and why not.
    """
    if node is None:
        if ctx.get_parameter_source("collector") is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                "--collector goes with NODE: on the node itself the agent's settings say which"
            )
        name, checks = _on_the_node(config)
    else:
        if config is not None:
            raise click.UsageError("--config is for the node itself: leave NODE out")
        try:
            names = expand(node)
        except HostListError as error:
            raise click.UsageError(str(error)) from error
        if len(names) != 1:
            raise click.UsageError(f"{node}: one node at a time")
        [node] = names
        from hyperscout_cli.manage.doctor_node import ask_about

        name, checks = node, ask_about(collector, node, time.time_ns())
    if not emit_data(as_data(name, checks), output):
        emit(report(name, checks))
    return NO if _worst(checks, "failed") else 0


def _on_the_node(config: Path | None) -> "tuple[str, list[Check]]":
    from hyperscout_agent.doctor.facts import Check
    from hyperscout_agent.settings.settings import SettingsError, load_settings

    file = config or next((path for path in CONFIGS if path.is_file()), None)
    try:
        settings = load_settings(file)
    except SettingsError as error:
        why = "; ".join(str(error).splitlines())
        return "this node", [Check("settings", "failed", why, "put it right: no agent starts with these")]
    where = str(file) if file else "defaults and the environment: no file was given or found"
    return settings.reporter, [Check("settings", "ok", where), *asyncio.run(_look(settings))]


async def _look(settings: "AgentSettings") -> "list[Check]":
    from hyperscout_agent.doctor.agent_page import ask_agent
    from hyperscout_agent.doctor.checks import node_checks
    from hyperscout_agent.doctor.host import look_at_host
    from hyperscout_agent.doctor.reach import ask_collectors, look_at_token

    host, agent, collectors = await asyncio.gather(
        look_at_host(settings),
        ask_agent(settings.metrics.host, settings.metrics.port),
        ask_collectors(settings),
    )
    return node_checks(settings, host, agent, collectors, look_at_token(settings.token_file), time.time())


def report(name: str, checks: "Sequence[Check]") -> Iterator[str]:
    """The table, and what it comes to in sentences, the worst first."""
    rows = tuple(Row(check.name, (check.name, _SHOWN[check.verdict], check.why)) for check in checks)
    yield from lines(Table("check", ("CHECK", "RESULT", "WHY"), (), rows))
    yield "\n"
    for sentence in sentences(name, checks):
        yield f"{sentence}\n"


def sentences(name: str, checks: "Sequence[Check]") -> list[str]:
    """What is wrong and what to do next."""
    from hyperscout_topology.names import visible

    wrong, doubtful = _worst(checks, "failed"), _worst(checks, "warning")
    found = [f"Wrong: {_sentence(check)}" for check in wrong]
    found += [f"Note: {_sentence(check)}" for check in doubtful]
    if not wrong:
        found.append(
            f"Nothing keeps {name} from being seen." if not doubtful else f"Nothing is broken at {name}."
        )
    return [visible(sentence) for sentence in found]


def _sentence(check: "Check") -> str:
    todo = f" Next: {check.todo}." if check.todo else ""
    return f"{check.name}: {check.why.rstrip('.')}.{todo}"


def _worst(checks: "Sequence[Check]", verdict: str) -> "list[Check]":
    return [check for check in checks if check.verdict == verdict]


def as_data(name: str, checks: "Sequence[Check]") -> dict[str, object]:
    """The same for programs."""
    return {
        "node": name,
        "ok": not _worst(checks, "failed"),
        "checks": [
            {"check": check.name, "result": check.verdict, "why": check.why, "todo": check.todo}
            for check in checks
        ],
        "summary": sentences(name, checks),
    }
