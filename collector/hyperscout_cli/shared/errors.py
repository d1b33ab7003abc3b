"""How a command ends other than well: each error knows its exit code (0 ok, 1 failure, 2 usage, 3 "no")."""

from typing import IO, Any

import click
from hyperscout_topology.names import visible

FAILURE, WRONG_INPUT, NO = 1, 2, 3


class CliError(click.ClickException):
    """A failure that a person can act on: one clear line on stderr, exit 1."""

    exit_code = FAILURE

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {_lines(self.format_message())}", file=file, err=file is None)


class BadInputError(CliError):
    """What was given cannot be meant: exit 2, as for wrong usage. Names the file and the field."""

    exit_code = WRONG_INPUT


class AnswerIsNoError(CliError):
    """The question was understood and the answer is "no": exit 3."""

    exit_code = NO

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(_lines(self.format_message()), file=file, err=file is None)


def _lines(message: str) -> str:
    """Control characters as escapes, but for the ends of lines: a message may show a log."""
    return "\n".join(map(visible, message.splitlines()))
