"""What help texts and pages show can be typed: each example is parsed as a shell would hand it over."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from hyperscout_cli.main import cli
from support.real import ROOT

_ENDS = {"|", ">", "&&", "&", "2>&1"}
PAGES = sorted(["README.md", *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))])


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command, groups too."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


def examples(text: str) -> Iterator[str]:
    """Lines that begin with the program; what stands behind three blanks or # is a remark."""
    for line in text.splitlines():
        match = re.match(r"^ *(?:\$ )?(?:kubectl )?(hyperscout [-a-z].*?)(?: {3,}.*| +# .*)?$", line)
        if match and line.startswith((" ", "$ ")):
            yield match[1].rstrip("\\ ")


def words(line: str) -> list[str]:
    found = []
    for word in shlex.split(line)[1:]:
        if word in _ENDS:
            break
        found.append(word)
    return found


def parse(arguments: list[str]) -> None:
    """As click parses, up to the point where the command would run."""
    command: click.Command = cli
    context: click.Context | None = None
    while True:
        context = command.make_context(command.name or "hyperscout", list(arguments), parent=context)
        if not isinstance(command, click.Group):
            return
        _, rest, _ = command.make_parser(context).parse_args(list(arguments))
        if not rest:
            return
        _, found, arguments = command.resolve_command(context, list(rest))
        assert found is not None
        command = found


OF_HELP = [
    (" ".join(path), line)
    for path, command in commands(cli)
    for line in examples(f"{command.help or ''}\n{command.epilog or ''}")
]
OF_PAGES = [(page, line) for page in PAGES for line in examples((ROOT / page).read_text())]


def test_there_are_examples() -> None:
    assert len(OF_HELP) > 90
    assert len(OF_PAGES) > 20


@pytest.mark.parametrize(("where", "line"), OF_HELP + OF_PAGES)
def test_an_example_can_be_typed(where: str, line: str) -> None:
    if re.search(r" (--help|-h|--version|\.\.\.|[A-Z]{4,})( |$)", line):  # no example but a form of one
        return
    parse(words(line))
