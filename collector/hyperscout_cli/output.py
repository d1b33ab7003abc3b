"""Where texts go: data to stdout, diagnostics to stderr, colours only to terminals."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

MAX_WARNINGS = 5


def emit(chunks: Iterable[str]) -> None:
    """Write data to stdout as UTF-8, whatever the locale. Ends the command quietly when nobody reads on."""
    try:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
    except OSError as error:
        # The rest in the buffer must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise click.exceptions.Exit(0) from None  # who read us has seen enough (`| head`)
        raise


def emit_json(value: Any) -> None:
    """Write one value as indented JSON."""
    import json

    emit([json.dumps(value, indent=2), "\n"])


def emit_yaml(value: Any) -> None:
    """Write one value as YAML."""
    import yaml

    emit([yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)])


def colours() -> bool:
    """Whether stdout takes colours: a terminal, and neither NO_COLOR (no-color.org) nor TERM=dumb is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def note(text: str) -> None:
    """One line on stderr, with control characters shown as escapes."""
    from hyperscout_collector.publish.texts.names import visible

    sys.stderr.write(visible(text) + "\n")


def warn(texts: Sequence[object], what: str, more: str = "") -> None:
    """Warnings of one sort on stderr, at most MAX_WARNINGS; then how many `what` are left, and `more`."""
    for text in texts[:MAX_WARNINGS]:
        note(f"warning: {text}")
    if len(texts) > MAX_WARNINGS:
        note(f"warning: {len(texts) - MAX_WARNINGS} more {what}{more}")
