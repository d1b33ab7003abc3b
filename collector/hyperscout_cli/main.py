"""The `hyperscout` command: finds the sub-command, and turns every ending into an exit code.

Sub-commands are imported when they are called: `infer` must not wait for gRPC, nor `get` for NumPy's
larger friends.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

# NumPy's OpenBLAS starts a thread for each core when it is imported, and nothing here multiplies matrices:
# that is half of NumPy's start-up.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# name: (module, section, one line). The function is called as the last part of the module.
COMMANDS = {
    "infer": ("offline.infer", "Offline", "Infer the hierarchy from saved ibnetdiscover or lldpctl."),
    "place": ("place.place", "Place", "Say which nodes a gang of workers should run on."),
    "explain-placement": (
        "place.explain_placement",
        "Place",
        "Say why a gang goes where it goes, or nowhere.",
    ),
    "placements": ("place.placements", "Place", "List, release, repair or improve gangs that hold nodes."),
    "status": ("show.status", "Look", "Show the collector's state: agents, sweeps, generations."),
    "doctor": ("manage.doctor", "Look", "Say why a node has no evidence, and what to do."),
    "tree": ("show.show_tree", "Look", "Print the hierarchy as a tree."),
    "get": ("show.get", "Look", "List hypernodes, nodes, links, findings, anomalies, ..."),
    "describe": ("show.describe", "Look", "Show one object with all that is known of it."),
    "explain": ("show.explain", "Look", "Say how two nodes are connected, and why."),
    "watch": ("show.watch", "Look", "Follow the HyperNodes as they change."),
    "history": ("show.history", "Look", "Show what changed, when and why."),
    "diff": ("show.diff", "Look", "Compare topologies, or wires and what people wrote."),
    "snapshot": ("offline.snapshot", "Look", "Save the topology to a file, or go on from one."),
    "approve": ("manage.approve", "Act", "Publish a generation that is held back."),
    "measure": ("show.measure", "Act", "Show, pause or resume what nodes measure of each other."),
    "crd": ("manage.crd", "Act", "Show HyperNodes' definition, or add columns to another's."),
    "agent": ("manage.agent", "Run", "Run the agent on this node."),
    "collector": ("manage.collector", "Run", "Run the collector."),
    "demo": ("demo.demo", "Run", "Show it all on a simulated cluster, in under a minute."),
    "version": ("manage.version", "Other", "Print versions."),
    "completion": ("manage.completion", "Other", "Print the completion script for a shell."),
}
COMPLETE_VARIABLE = "_HYPERSCOUT_COMPLETE"


class LazyGroup(click.Group):
    """A group that imports a sub-command only when it is called, and lists them by section."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = COMMANDS[cmd_name][0]
        try:
            command = getattr(importlib.import_module(f"hyperscout_cli.{module}"), module.rpartition(".")[2])
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("hyperscout"):
                raise
            from hyperscout_cli.shared.errors import CliError

            what = "agent" if cmd_name == "agent" else "collector" if cmd_name == "collector" else "cli"
            raise CliError(
                f"{cmd_name!r} needs the Python package {error.name!r}: install hyperscout[{what}]"
            ) from error
        assert isinstance(command, click.Command)  # noqa: S101 (tells mypy)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of sub-commands, without importing them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(n, help=text) for n, (_, _, text) in COMMANDS.items() if n.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for section in dict.fromkeys(section for _, section, _ in COMMANDS.values()):
            with formatter.section(section):
                rows = [(n.ljust(width), text) for n, (_, s, text) in COMMANDS.items() if s == section]
                formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 failure, 2 wrong usage, 3 the answer is no.",
)
@click.option("--collector", metavar="ADDR", help="The collector's host:port, for the commands that ask one.")
def cli(*, collector: str | None) -> None:
    """Find out how the machines of an AI cluster are really wired, and keep that picture true.

    \b
    A saved ibnetdiscover dump gives the hierarchy in a second:
      hyperscout infer --ibnetdiscover fabric.txt --node-map hosts.txt
    A saved hierarchy (`-o json`) is enough to place a gang of workers:
      hyperscout place --topology fabric.json --workers 64
    A running collector answers for a live cluster:
      hyperscout get hypernodes
      hyperscout explain gpu-01 gpu-77
    Without any cluster:
      hyperscout demo
    """


def program_name(path: str) -> str:
    """As the user called it: kubectl finds `kubectl-hyperscout` as `kubectl hyperscout`."""
    name = Path(path).name
    return "kubectl hyperscout" if name.startswith("kubectl-") else "hyperscout"


def quietly(complete: Callable[[], object]) -> NoReturn:
    """Run a completion, and end this process: nothing but words reaches the shell."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        complete()
        sys.stdout.flush()
    except BaseException:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    os._exit(0)  # a call to a collector that hangs is left behind


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code and never raises."""
    if COMPLETE_VARIABLE in os.environ:
        name = program_name(sys.argv[0])
        quietly(lambda: cli.main(prog_name=name, complete_var=COMPLETE_VARIABLE))
    try:
        result: Any = cli.main(
            args=None if argv is None else list(argv),
            prog_name=program_name(sys.argv[0]),
            standalone_mode=False,
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except OSError as error:
        click.echo(f"error: {error}", err=True)
        return 1
    except UnicodeEncodeError as error:  # bytes of the command line that are no text reach a message
        click.echo(f"error: {error.object[:100]!a}: a name is UTF-8", err=True)
        return 2
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
