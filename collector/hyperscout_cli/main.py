"""The `hyperscout` command: finds the sub-command, and returns its exit code.

Sub-commands are imported when they are called, so that `infer` does not import gRPC.
"""

import os
import signal

if os.getpid() == 1:
    # The kernel drops a signal without a handler for process 1, and the next imports take up to a second. The
    # agent and the collector replace this handler when they run.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))

import contextlib
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

try:
    import click
    from click.shell_completion import CompletionItem
except ModuleNotFoundError:
    sys.exit("error: the Python package 'click' is missing: run `pip install hyperscout` in this environment")

from hyperscout_cli.offline.memory import permanent_objects

# gRPC's library writes lines of its own to standard error. Errors of calls are reported in any case.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# OpenBLAS starts a thread for each core when NumPy is imported, which is half of NumPy's start-up time. No
# command multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# name: (module, section, one line). The function has the name of the module's last part.
COMMANDS = {
    "infer": ("offline.infer", "Offline", "Infer the hierarchy from saved ibnetdiscover or lldpctl."),
    "place": ("place.place", "Place", "Choose nodes for a gang of workers."),
    "explain-placement": ("place.explain_placement", "Place", "Explain the placement of a gang."),
    "placements": ("place.placements", "Place", "List, release, repair, resize or improve reserved gangs."),
    "hostfile": ("place.hostfile", "Place", "Print the hostfile of a gang, in the order of ranks."),
    "status": ("show.status", "Look", "Show the collector's state: agents, sweeps, generations."),
    "doctor": ("manage.doctor", "Look", "Explain why a node has no evidence."),
    "tree": ("show.show_tree", "Look", "Print the hierarchy as a tree."),
    "get": ("show.get", "Look", "List hypernodes, nodes, links, findings, anomalies, ..."),
    "describe": ("show.describe", "Look", "Show all details of one object."),
    "explain": ("show.explain", "Look", "Explain how two nodes are connected."),
    "watch": ("show.watch", "Look", "Follow the HyperNodes as they change."),
    "history": ("show.history", "Look", "Show what changed, when and why."),
    "diff": ("show.diff", "Look", "Compare topologies, or the wiring with a file."),
    "snapshot": ("offline.snapshot", "Look", "Save the topology to a file, or load one."),
    "approve": ("manage.approve", "Act", "Publish a held generation."),
    "measure": ("show.measure", "Act", "Show, pause or resume measurements between nodes."),
    "crd": ("manage.crd", "Act", "Print the HyperNode CRD, or add columns to it."),
    "agent": ("manage.agent", "Run", "Run the agent on this node."),
    "collector": ("manage.collector", "Run", "Run the collector."),
    "demo": ("demo.demo", "Run", "Run hyperscout on a simulated cluster for some seconds."),
    "loadtest": ("loadtest.loadtest", "Run", "Measure a collector with thousands of simulated agents."),
    "version": ("manage.version", "Other", "Print versions."),
    "completion": ("manage.completion", "Other", "Print the completion script for a shell."),
}
# Words that are no commands, and what to write in place of them. Kinds of objects are such words too.
_SUGGESTIONS = {
    "help": "--help",
    "topology": "tree",
    "release": "placements release",
    "repair": "placements repair",
    "resize": "placements resize",
}
COMPLETE_VARIABLE = "_HYPERSCOUT_COMPLETE"


# The extra that a command needs; other commands need only the base install.
_EXTRAS = {
    "agent": "agent",
    "doctor": "agent",
    "collector": "collector",
    "demo": "collector",
    "loadtest": "collector,lldp",
}


def missing_package(command: str, error: ModuleNotFoundError) -> Exception:
    """The error of a command without one of its packages: it names the extra. A bug stays as it is."""
    if (error.name or "").startswith("hyperscout"):
        return error
    from hyperscout_runtime.errors import install_extra

    from hyperscout_cli.shared.errors import CliError

    todo = install_extra(_EXTRAS.get(command, ""))
    return CliError(f"{command!r} needs the Python package {error.name!r}: {todo}")


class LazyGroup(click.Group):
    """A group that imports a sub-command when it is called, and lists them by section."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = COMMANDS[cmd_name][0]
        try:
            with permanent_objects():
                found = importlib.import_module(f"hyperscout_cli.{module}")
            command = getattr(found, module.rpartition(".")[2])
        except ModuleNotFoundError as error:
            raise missing_package(cmd_name, error) from error
        assert isinstance(command, click.Command)  # noqa: S101 (tells mypy)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            todo = "options of a command come after its name"
            raise click.UsageError(
                f"no such option {error.option_name} before a command: {todo}", ctx
            ) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from hyperscout_cli.shared.command import no_such_command
        from hyperscout_cli.shared.kinds import KINDS

        kinds = {alias: f"get {kind}" for alias, kind in KINDS.items()}
        raise no_such_command(ctx, name, COMMANDS, kinds | _SUGGESTIONS)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:  # commands import some packages only when they run
            raise missing_package(ctx.invoked_subcommand or "", error) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of sub-commands without importing them."""
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
    epilog="Exit codes: 0 ok, 1 failure, 2 wrong usage, 3 the answer is negative.",
)
@click.version_option(
    package_name="hyperscout", message="hyperscout %(version)s", help="Print the version and exit."
)
@click.option("--collector", metavar="ADDR", help="The collector's host:port, for commands that query one.")
def cli(*, collector: str | None) -> None:
    """Discover how the machines of an AI cluster are wired, and keep the topology up to date.

    \b
    Infer the hierarchy from a saved ibnetdiscover dump:
      hyperscout infer --ibnetdiscover fabric.txt --node-map hosts.txt
    Place a gang of workers with a saved hierarchy (`-o json`):
      hyperscout place --topology fabric.json --workers 64
    Query the collector of a live cluster:
      hyperscout get hypernodes
      hyperscout explain gpu-01 gpu-77
    Without a cluster:
      hyperscout demo
    """


def program_name(path: str) -> str:
    """The name for help texts: kubectl runs `kubectl-hyperscout` as `kubectl hyperscout`."""
    name = Path(path).name
    return "kubectl hyperscout" if name.startswith("kubectl-") else "hyperscout"


def quietly(complete: Callable[[], object]) -> NoReturn:
    """Run a completion, and exit: the shell gets only words, and no errors."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        complete()
        sys.stdout.flush()
    except BaseException:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    os._exit(0)  # does not wait for a call to a collector that hangs


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller closed it (`>&-`)
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 (until the end)
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
        try:
            error.show()
        except BrokenPipeError:  # Python ends with code 120 if text is left that it cannot write at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {where}{error.strerror or error}", err=True)
        return 1
    except UnicodeEncodeError as error:  # a message contains bytes of the command line that are not UTF-8
        click.echo(f"error: {error.object[:100]!a}: not UTF-8: names are UTF-8 text", err=True)
        return 2
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
