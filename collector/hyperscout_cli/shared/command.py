"""Commands whose --help reads like a man page: options, examples, environment, exit codes, what else to read.

The sections are data here (`sections`), so that the manual pages (deploy/man.py) say the same.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click

EXIT_CODES = "0 ok, 1 failure, 2 wrong usage."  # of those that have no 3 ("the answer is no")
_TOKEN = ("HYPERSCOUT_TOKEN", "A token to show, in place of --token-file.")
_COLOR = ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "Whether there are colours, unless --color says so.")
_COLUMNS = ("COLUMNS", "How wide a terminal is, in place of what it says.")
# Commands that one reads next, by a command's whole name; pages are those under docs/.
_SEE_ALSO: Mapping[str, tuple[str, ...]] = {
    "infer": ("tree", "diff", "place"),
    "place": ("explain-placement", "placements", "docs/placer.md"),
    "explain-placement": ("place", "placements", "docs/placer.md"),
    "placements": ("place", "docs/gangs.md"),
    "status": ("doctor", "get", "diff", "approve"),
    "doctor": ("status", "get", "docs/operations.md"),
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
    "demo": ("tree", "get"),
    "version": ("completion",),
    "completion": ("docs/command-line.md",),
}


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, and rows of a term and what it means; or lines, where terms are empty."""

    title: str
    rows: tuple[tuple[str, str], ...]


def sections(command: click.Command, path: str) -> Iterator[Section]:
    """What the epilog of the command does not say itself; `path` is its name without the program's."""
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


class Command(_Documented):
    """A command."""


class Group(_Documented, click.Group):
    """A command of commands."""

    command_class = Command

    def __init__(self, *args: Any, **more: Any) -> None:
        more.setdefault("no_args_is_help", not more.get("invoke_without_command", False))
        super().__init__(*args, **more)
