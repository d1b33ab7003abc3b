"""Errors of commands with their exit codes: 1 failure, 2 wrong usage or input, 3 the answer is negative."""

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

import click
from hyperscout_topology.names import visible

FAILURE, WRONG_INPUT, NO = 1, 2, 3
_NEXT_STEP: Final[Mapping[int | None, str]] = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EACCES: "give this user the right to read it",
    errno.EPERM: "give this user the right to read it",
    errno.EISDIR: "name a file",
}


class CliError(click.ClickException):
    """A failure, with a message that says what to do. Exit code 1."""

    exit_code = FAILURE

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {_lines(self.format_message())}", file=file, err=file is None)


class BadInputError(CliError):
    """Invalid input; the message names the file and the field. Exit code 2, as for wrong usage."""

    exit_code = WRONG_INPUT


class AnswerIsNoError(CliError):
    """A valid request with a negative answer. Exit code 3."""

    exit_code = NO

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(_lines(self.format_message()), file=file, err=file is None)


@contextmanager
def in_options(options: Mapping[str, str]) -> Iterator[None]:
    """Convert a collector's errors about fields to errors about options. `options`: by field."""
    try:
        yield
    except BadInputError as error:
        words = error.message
        for field, option in options.items():
            words = words.replace(field, option)
        raise BadInputError(words) from error


def unreadable(path: object, error: OSError) -> BadInputError:
    """The error of a file that cannot be read, with the next step."""
    todo = _NEXT_STEP.get(error.errno, "")
    return BadInputError(f"{path}: {error.strerror or error}" + (f": {todo}" if todo else ""))


def unwritable(path: object, error: OSError) -> CliError:
    """The error of a file that cannot be written, with the next step."""
    return CliError(f"{path}: cannot be written: {error.strerror or error}: name another file or folder")


def _lines(message: str) -> str:
    """Control characters as escapes, except line ends: a message may quote a log."""
    return "\n".join(map(visible, message.splitlines()))
