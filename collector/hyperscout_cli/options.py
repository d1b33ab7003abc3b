"""Options that the commands about a live (or saved) topology share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_COLLECTOR = "127.0.0.1:50051"
COLLECTOR_VARIABLE = "HYPERSCOUT_COLLECTOR"
FORMATS = ("table", "wide", "json", "yaml", "name")


def collector_options(command: F) -> F:
    """--collector and --timeout."""
    command = click.option(
        "--timeout",
        "timeout_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True, max=3600),
        default=10.0,
        show_default=True,
        help="How long to wait for an answer.",
    )(command)
    return click.option(
        "--collector",
        metavar="ADDR",
        envvar=COLLECTOR_VARIABLE,
        show_envvar=True,
        default=DEFAULT_COLLECTOR,
        show_default=True,
        callback=_or_of_group,
        help="The collector's host:port.",
    )(command)


def _or_of_group(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """`hyperscout --collector ADDR get ...` is `hyperscout get --collector ADDR ...`."""
    of_group = ctx.find_root().params.get("collector")
    if of_group and ctx.get_parameter_source("collector") is not ParameterSource.COMMANDLINE:
        return str(of_group)
    return value


def topology_options(command: F) -> F:
    """--collector, --timeout, and --topology in their place."""
    command = click.option(
        "--topology",
        metavar="FILE",
        type=click.Path(),
        help="Read a saved topology (`infer -o json`, `tree -o json`) and ask no collector.",
    )(command)
    return collector_options(command)


def format_option(command: F) -> F:
    """-o table|wide|json|yaml|name."""
    return click.option("-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True)(
        command
    )
