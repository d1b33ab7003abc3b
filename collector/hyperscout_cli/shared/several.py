"""Options that take several files after one flag: `--lldp racks/*.json`, as a shell expands it."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hyperscout_cli.shared.command import Command

F = TypeVar("F", bound=Callable[..., Any] | click.Command)


class SeveralCommand(Command):
    """Bare words after a repeatable option belong to it; positional arguments go before."""

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
    option = ""  # the repeatable option that a bare word now belongs to
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
