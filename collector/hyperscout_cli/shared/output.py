"""Output: data to stdout, diagnostics to stderr, colours only to terminals."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click

MAX_WARNINGS = 5
COLOR = "hyperscout.color"  # key of the value of --color in the context's meta


def emit(chunks: Iterable[str]) -> None:
    """Write data to stdout as UTF-8 in any locale. A closed pipe ends the command with exit code 0."""
    try:
        for chunk in chunks:
            sys.stdout.buffer.write(chunk.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
    except OSError as error:
        # Python must not write the rest of the buffer again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise click.exceptions.Exit(0) from None  # the reader has ended (`| head`)
        raise


def yaml_text(value: Any) -> str:
    """One value as YAML."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml is five times as fast
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text


def emit_data(value: Any, output: str) -> bool:
    """Write one value if `output` is json or yaml. Returns False for other formats."""
    if output not in {"json", "yaml"}:
        return False
    import json

    emit([json.dumps(value, indent=2) + "\n" if output == "json" else yaml_text(value)])
    return True


def one_of_many(value: Any, output: str) -> str:
    """One value of a stream: a line of JSON, or a YAML document."""
    import json

    return json.dumps(value) + "\n" if output == "json" else "---\n" + yaml_text(value)


@dataclass(frozen=True, slots=True)
class Terminal:
    """Properties of stdout that tables adapt to. `columns`: None = unlimited."""

    columns: int | None = None
    colour: bool = False


def terminal() -> Terminal:
    """The terminal of stdout. COLUMNS overrides the terminal's own width."""
    import shutil

    columns = shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0
    return Terminal(columns or None, colours())


def colours(stream: TextIO | None = None) -> bool:
    """Whether to write colours to stdout (or another stream).

    --color decides, then NO_COLOR (no-color.org), CLICOLOR_FORCE and CLICOLOR (bixense.com/clicolors); else a
    terminal that is not TERM=dumb has colours.
    """
    context = click.get_current_context(silent=True)
    option = context.meta.get(COLOR, "auto") if context is not None else "auto"
    if option != "auto":
        return bool(option == "always")
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in {"", "0"}:
        return True
    dumb = os.environ.get("TERM") == "dumb" or os.environ.get("CLICOLOR") == "0"
    return (stream or sys.stdout).isatty() and not dumb


def note(text: str) -> None:
    """One line on stderr, with control characters shown as escapes."""
    from hyperscout_topology.names import visible

    try:
        sys.stderr.write(visible(text) + "\n")
    except BrokenPipeError:  # its reader has ended (`2>&1 | head`); the command goes on without notes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def warn(texts: Sequence[object], one: str, more: str = "") -> None:
    """Write at most MAX_WARNINGS warnings to stderr; then the number of the others (`one`), and `more`."""
    from hyperscout_formats.text.counts import count

    for text in texts[:MAX_WARNINGS]:
        note(f"warning: {text}")
    if len(texts) > MAX_WARNINGS:
        note(f"warning: {count(len(texts) - MAX_WARNINGS, f'more {one}')}{more}")
