"""Names on the command line as host lists: `gpu-[01-16],login` wherever nodes are named."""

from collections.abc import Container, Iterable, Sequence

import click
from hyperscout_formats.text.host_list import MAX_NAMES, HostListError, expand


def names_in(texts: Iterable[str], known: Container[str] = frozenset()) -> list[str]:
    """All names, each once; a text that is `known` as it stands is one, whatever is in it.

    Raises UsageError.
    """
    found: dict[str, None] = {}
    for text in texts:
        try:
            found.update(dict.fromkeys([text] if text in known else expand(text)))
        except HostListError as error:
            raise click.UsageError(str(error)) from error
        if len(found) > MAX_NAMES:
            raise click.UsageError(f"more than {MAX_NAMES} names")
    return list(found)


def expanded(ctx: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
    """The callback of an option or argument that names nodes. A name that is there twice stays so."""
    found: list[str] = []
    for text in texts:
        try:
            found += expand(text)
        except HostListError as error:
            raise click.BadParameter(str(error), ctx, parameter) from error
        if len(found) > MAX_NAMES:
            raise click.BadParameter(f"more than {MAX_NAMES} names", ctx, parameter)
    return tuple(found)
