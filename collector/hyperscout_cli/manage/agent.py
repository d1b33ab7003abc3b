"""`hyperscout agent`: the process that observes this node."""

from pathlib import Path
from typing import Any

import click
from hyperscout_agent.settings.settings import RETIRED, AgentSettings, load_settings
from hyperscout_runtime.settings import SettingsError

from hyperscout_cli.shared.command import Group
from hyperscout_cli.shared.errors import BadInputError
from hyperscout_cli.shared.settings_flags import given, setting_flags


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog="""\b
Settings come from flags, then the environment (HYPERSCOUT_AGENT_NODE, ...), then --config.

\b
Examples:
  hyperscout agent --collector 10.0.0.5:50051 --insecure
  hyperscout agent --config /etc/hyperscout/agent.yaml
  HYPERSCOUT_AGENT_LLDP__SOURCE=lldpctl hyperscout agent
  hyperscout agent lldp-listener --help
  hyperscout agent pod-resources-relay --help
  hyperscout agent dra-plugin --help""",
)
@setting_flags(AgentSettings, RETIRED, {"collectors": "--collector"})
@click.pass_context
def agent(ctx: click.Context, /, *, config: Path | None, **flags: Any) -> int:
    """Run the agent on this node until SIGTERM or Ctrl-C."""
    if ctx.invoked_subcommand is not None:
        return 0
    try:
        settings = load_settings(config, given(flags))
    except SettingsError as error:
        raise BadInputError("; ".join(str(error).splitlines())) from error
    import asyncio
    import logging

    from hyperscout_agent.main import run

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return asyncio.run(run(settings))


@agent.command(
    "lldp-listener",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
    short_help="Listen for LLDP frames.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def lldp_listener(arguments: tuple[str, ...]) -> int:
    """Listen for LLDP frames and pass them to an agent. Only this process needs CAP_NET_RAW."""
    from hyperscout_agent.lldp.listener import main

    return main(list(arguments))


@agent.command(
    "pod-resources-relay",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
    short_help="Pass an agent's requests on to the kubelet.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def pod_resources_relay(arguments: tuple[str, ...]) -> int:
    """Pass the requests of an agent on to the kubelet's PodResources API. Only this process needs root."""
    from hyperscout_agent.pod_resources.relay import main

    return main(list(arguments))


@agent.command(
    "dra-plugin",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
    short_help="Answer the kubelet for claims on NICs.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def dra_plugin(arguments: tuple[str, ...]) -> int:
    """Answer the kubelet for claims on NICs that the collector publishes. Only this process needs root."""
    from hyperscout_agent.dra.plugin import main

    return main(list(arguments))
