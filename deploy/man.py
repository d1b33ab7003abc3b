"""Makes one manual page for each command from its help text, for man(7). `share.py` writes them."""

import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import metadata

import click
from help_text import blocks
from hyperscout_cli.main import COMMANDS, cli
from hyperscout_cli.shared.command import Section, sections

SECTION = "1"
_PROGRAM = "hyperscout"
_TITLES = {"Exit codes": "EXIT STATUS", "Examples": "EXAMPLES"}
_OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")


def pages() -> dict[str, str]:
    """Text of each page, by file name."""
    return dict(_pages(cli, _PROGRAM, None))


def _pages(command: click.Command, path: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    name = path.rpartition(" ")[2]
    context = command.context_class(command, info_name=name, parent=parent, **command.context_settings)
    yield f"{path.replace(' ', '-')}.{SECTION}", "".join(_page(command, path, context))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None  # noqa: S101 (listed a line above)
            yield from _pages(found, f"{path} {name}", context)


def _page(command: click.Command, path: str, context: click.Context) -> Iterator[str]:
    name = path.replace(" ", "-")
    version = metadata.version(_PROGRAM)
    yield '.\\" Written by `make man`; do not edit.\n'
    yield f'.TH {name.upper()} {SECTION} "" "{_PROGRAM} {version}" "{_PROGRAM}"\n'
    short = (
        "find out how the machines of an AI cluster are really wired" if path == _PROGRAM else _short(command)
    )
    yield f".SH NAME\n{_text(name)} \\- {_text(short)}\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SH SYNOPSIS\n.B {_text(path)}\n{_text(usage)}\n"
    yield ".SH DESCRIPTION\n"
    yield from _paragraphs(command.help or "")
    if isinstance(command, click.Group):
        yield from _commands(command, path, context)
    options = [p.get_help_record(context) for p in command.get_params(context) if isinstance(p, click.Option)]
    yield ".SH OPTIONS\n" if any(options) else ""
    for record in filter(None, options):
        yield f".TP\n{_option(record[0])}\n{_text(record[1])}\n"
    yield from _epilog(command.epilog or "")
    for section in sections(command, path.removeprefix(_PROGRAM).strip()):
        yield from _section(section)


def _short(command: click.Command) -> str:
    text = command.short_help or inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")
    first = re.split(r"(?<=[a-z])[.:;] ", text)[0].rstrip(".")
    return first[:1].lower() + first[1:]


def _commands(group: click.Group, path: str, context: click.Context) -> Iterator[str]:
    yield ".SH COMMANDS\n"
    for name in group.list_commands(context):
        if path == _PROGRAM:
            text = COMMANDS[name][2]
        else:
            command = group.get_command(context, name)
            assert command is not None  # noqa: S101 (listed a line above)
            text = command.get_short_help_str(200)
        yield f".TP\n.BR {_text(path.replace(' ', '-'))}\\-{_text(name)} ({SECTION})\n{_text(text)}\n"


def _paragraphs(text: str) -> Iterator[str]:
    for i, block in enumerate(blocks(text)):
        yield ".PP\n" * bool(i)
        heading = f"{block.heading}:" if block.heading else ""
        if block.kept:
            yield from _kept([*filter(None, [heading]), *block.kept])
        else:
            yield _text(f"{heading} {block.text}".strip()) + "\n"


def _kept(lines: Iterable[str]) -> Iterator[str]:
    yield ".nf\n"
    yield from (_text(line) + "\n" for line in lines)
    yield ".fi\n"


def _epilog(text: str) -> Iterator[str]:
    """A heading begins a section; a block without one is a note."""
    for block in blocks(text):
        title = _TITLES.get(block.heading, block.heading.upper()) or "NOTES"
        yield f".SH {_text(title)}\n"
        yield from _kept(block.kept) if block.kept else [_text(block.text) + "\n"]


def _section(section: Section) -> Iterator[str]:
    yield f".SH {_TITLES.get(section.title, section.title.upper())}\n"
    for term, text in section.rows:
        if term:
            yield f".TP\n.B {_text(term)}\n"
        elif section.title == "See also":
            text = re.sub(rf"{_PROGRAM} ([\w-]+)", rf"{_PROGRAM}-\1({SECTION})", text)  # noqa: PLW2901
        yield _text(text) + "\n"


def _option(text: str) -> str:
    bold = _OPTION.sub(lambda match: f"\\fB{match[1]}\\fR", text.replace("\\", "\\e"))
    return bold.replace("-", "\\-")


def _text(text: str) -> str:
    """Escape text for groff (groff_man(7)): hyphens can be copied, and no line is a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
