r"""Splits the help text of a command into blocks, for manual pages and the reference.

Blocks are separated by empty lines and by click's \b. A first line `Heading:` is a heading, also with text
after it. A block with an indented line keeps its lines.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

_HEADING = re.compile(r"([A-Z][A-Za-z ()\-]+):(?: (.+))?")


@dataclass(frozen=True, slots=True)
class Block:
    """`kept`: lines that are shown as they are; else `text` is one paragraph."""

    heading: str
    text: str = ""
    kept: tuple[str, ...] = ()


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a help text or an epilog, as click takes it."""
    for block in re.split(r"\n\n+|\n?\x08\n", inspect.cleandoc(text)):
        first, *rest = block.strip("\n").split("\n")
        match = _HEADING.fullmatch(first)
        lines = [*filter(None, [match[2]]), *rest] if match else [first, *rest]
        heading = match[1] if match else ""
        if any(line.startswith("  ") for line in lines):
            yield Block(heading, kept=tuple(textwrap.dedent("\n".join(lines)).split("\n")))
        elif block.strip():
            yield Block(heading, " ".join(" ".join(lines).split()))
