"""Where texts go: data to stdout, diagnostics to stderr, colours only to terminals."""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click

MAX_WARNINGS = 5
COLOR = "hyperscout.color"  # what --color said, in the context's meta


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
    emit([yaml_text(value)])


def yaml_text(value: Any) -> str:
    """One value as YAML."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # five times as fast, where libyaml is there
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text


def emit_data(value: Any, output: str) -> bool:
    """Write one value where `output` is json or yaml: the same value in either. False for other words."""
    if output == "json":
        emit_json(value)
    elif output == "yaml":
        emit_yaml(value)
    else:
        return False
    return True


def one_of_many(value: Any, output: str) -> str:
    """One value of a stream without end: a line of JSON, or a document of YAML."""
    import json

    return json.dumps(value) + "\n" if output == "json" else "---\n" + yaml_text(value)


@dataclass(frozen=True, slots=True)
class Terminal:
    """What tables are fitted to. `columns`: None = as wide as it takes, since no person's screen is there."""

    columns: int | None = None
    colour: bool = False


def terminal() -> Terminal:
    """Who reads stdout. COLUMNS wins over what the terminal says."""
    columns = shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0
    return Terminal(columns or None, colours())


def colours(stream: TextIO | None = None) -> bool:
    """Whether stdout (or another stream) takes colours.

    --color says so; else NO_COLOR (no-color.org), CLICOLOR_FORCE and CLICOLOR (bixense.com/clicolors); else a
    terminal does that is not TERM=dumb.
    """
    context = click.get_current_context(silent=True)
    wish = context.meta.get(COLOR, "auto") if context is not None else "auto"
    if wish != "auto":
        return bool(wish == "always")
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    dumb = os.environ.get("TERM") == "dumb" or os.environ.get("CLICOLOR") == "0"
    return (stream or sys.stdout).isatty() and not dumb


def note(text: str) -> None:
    """One line on stderr, with control characters shown as escapes."""
    from hyperscout_topology.names import visible

    sys.stderr.write(visible(text) + "\n")


def warn(texts: Sequence[object], what: str, more: str = "") -> None:
    """Warnings of one sort on stderr, at most MAX_WARNINGS; then how many `what` are left, and `more`."""
    for text in texts[:MAX_WARNINGS]:
        note(f"warning: {text}")
    if len(texts) > MAX_WARNINGS:
        note(f"warning: {len(texts) - MAX_WARNINGS} more {what}{more}")
