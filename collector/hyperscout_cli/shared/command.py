"""Command classes with man-page sections in --help: examples, environment, exit codes, related commands.

The sections are data (`sections`), which deploy/man.py uses for the manual pages.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import click
from hyperscout_runtime.errors import did_you_mean

F = TypeVar("F", bound=Callable[..., Any] | click.Command)

EXIT_CODES = "0 ok, 1 failure, 2 wrong usage."  # of commands without 3 ("the answer is negative")
_TOKEN = ("HYPERSCOUT_TOKEN", "The token, in place of --token-file.")
_COLOR = ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "Switch colours off or on, unless --color is given.")
_COLUMNS = ("COLUMNS", "Width of the terminal, in place of its own value.")
# Related commands, and pages under docs/.
_SEE_ALSO: Mapping[str, tuple[str, ...]] = {
    "infer": ("tree", "diff", "place", "docs/offline.md"),
    "place": ("explain-placement", "placements", "docs/offline.md", "docs/placer.md"),
    "explain-placement": ("place", "placements", "docs/placer.md"),
    "placements": ("place", "hostfile", "docs/gangs.md"),
    "hostfile": ("placements", "docs/ranks.md"),
    "status": ("doctor", "get", "diff", "approve", "docs/troubleshooting.md"),
    "doctor": ("status", "get", "docs/doctor.md"),
    "tree": ("get", "snapshot", "infer"),
    "get": ("describe", "watch", "tree"),
    "describe": ("get", "explain"),
    "explain": ("describe", "get"),
    "watch": ("get", "history"),
    "history": ("diff", "watch", "docs/history.md"),
    "diff": ("history", "snapshot", "approve", "docs/blueprints.md"),
    "snapshot": ("tree", "diff"),
    "approve": ("status", "diff"),
    "measure": ("status", "docs/latency.md"),
    "crd": ("docs/publishers/kubernetes.md",),
    "agent": ("collector", "doctor", "docs/operations.md"),
    "collector": ("agent", "status", "docs/operations.md"),
    "demo": ("tree", "get", "loadtest"),
    "loadtest": ("collector", "demo", "docs/scale.md"),
    "version": ("completion",),
    "completion": ("docs/command-line.md",),
}


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with rows of a term and its description; an empty term makes a plain line."""

    title: str
    rows: tuple[tuple[str, str], ...]


def sections(command: click.Command, path: str) -> Iterator[Section]:
    """Sections that the command's epilog does not have; `path` is its name without the program's."""
    variables = tuple(_variables(command))
    if variables:
        yield Section("Environment", variables)
    if "Exit code" not in (command.epilog or ""):
        yield Section("Exit codes", (("", EXIT_CODES),))
    others = _SEE_ALSO.get(path.split(maxsplit=1)[0] if path else "", ())
    if others:
        names = (other if "/" in other else f"hyperscout {other}" for other in others)
        yield Section("See also", (("", ", ".join(names)),))


def _variables(command: click.Command) -> Iterator[tuple[str, str]]:
    names = set()
    for parameter in command.params:
        names.add(parameter.name)
        if isinstance(parameter, click.Option) and isinstance(parameter.envvar, str):
            yield parameter.envvar, f"In place of {parameter.opts[-1]}."
    if "token_file" in names and "timeout_s" in names:
        yield _TOKEN
    if "color" in names:
        yield from (_COLOR, _COLUMNS)


class _Documented(click.Command):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(inspect.cleandoc(self.epilog))
        path = ctx.command_path.removeprefix(ctx.find_root().command_path).strip()
        for section in sections(self, path):
            if section.title == "Environment":
                with formatter.section(section.title):
                    formatter.write_dl(section.rows)
            else:
                formatter.write_paragraph()
                formatter.write_text(f"{section.title}: {section.rows[0][1]}")


def no_such_command(
    ctx: click.Context, name: str, known: Collection[str], instead: Mapping[str, str] = MappingProxyType({})
) -> click.UsageError:
    """The error of a word that is no command, with a similar one. `instead`: what to write, by word."""
    path = ctx.command_path
    word = name.lower()
    right = instead.get(word) or (word if word in known else "")
    if right:
        hint = f": use `{path} {right}`"
    else:
        hint = did_you_mean(name, [*known, *instead]) or f": `{path} --help` lists the commands"
    return click.UsageError(f"no such command {name!r}{hint}", ctx)


class Command(_Documented):
    """A command. Its errors about arguments say what to write."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        allowed, ctx.allow_extra_args = ctx.allow_extra_args, True
        try:
            rest = super().parse_args(ctx, args)
        except click.MissingParameter as error:
            what = error.format_message().removesuffix(".")
            raise click.UsageError(f"{what}: for example `{self._example(ctx)}`", ctx) from error
        if rest and not allowed and not ctx.resilient_parsing:
            raise click.UsageError(f"unexpected argument {rest[0]!r}: {self._place_of(rest[0], ctx)}", ctx)
        return rest

    def _example(self, ctx: click.Context) -> str:
        """The first example of the help text that is of this command."""
        lines = (self.epilog or "").partition("Examples:\n")[2].strip().splitlines()
        commands = (re.split(" {2,}", line.strip())[0] for line in lines if f" {self.name} " in line)
        mine = (command for command in commands if command.startswith("hyperscout "))
        return next(mine, f"{ctx.command_path} --help")

    def _place_of(self, argument: str, ctx: click.Context) -> str:
        """What to do with an argument that the command does not take."""
        if any("--topology" in x.opts for x in self.params) and (argument == "-" or Path(argument).is_file()):
            return f"a saved topology needs an option: use --topology {argument}"
        return f"leave it out; `{ctx.command_path} --help` lists what the command takes"


class WholeNumber(click.IntRange):
    """A whole number within limits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            limits = f"from {self.min}" + ("" if self.max is None else f" to {self.max}")
            self.fail(f"{value!r}: expected a whole number {limits}", param, ctx)


class Group(_Documented, click.Group):
    """A command of commands."""

    command_class = Command

    def __init__(self, *args: Any, **more: Any) -> None:
        more.setdefault("no_args_is_help", not more.get("invoke_without_command", False))
        super().__init__(*args, **more)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise no_such_command(ctx, args[0], self.commands)
        return super().resolve_command(ctx, args)


class SeveralCommand(Command):
    """Words after a repeatable option are its values; positional arguments come first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several: set[str] = set()
        single: set[str] = set()
        for parameter in self.params:
            if isinstance(parameter, click.Option) and not parameter.is_flag:
                (several if parameter.multiple else single).update(parameter.opts)
        return super().parse_args(ctx, _repeat(args, several, single))


def _repeat(args: list[str], several: set[str], single: set[str]) -> list[str]:
    """`--lldp a b` as `--lldp a --lldp b`."""
    out: list[str] = []
    option = ""  # the repeatable option that the next word belongs to
    value_follows = False
    for arg in args:
        name = arg.partition("=")[0]
        if value_follows:
            value_follows = False
            out.append(arg)
        elif arg.startswith("-") and arg != "-":
            option = name if name in several else ""
            value_follows = "=" not in arg and arg in several | single
            out.append(arg)
        elif option:
            out += [option, arg]
        else:
            out.append(arg)
    return out


def files_option(name: str, help_text: str) -> Callable[[F], F]:
    """A repeatable option for files."""
    return click.option(name, multiple=True, metavar="FILE...", type=click.Path(), help=help_text)
