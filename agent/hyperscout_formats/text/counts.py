"""Counts and bounded lists in messages: `2 nodes`, `a, b and 3 more`."""

from collections.abc import Sequence


def count(n: int, one: str) -> str:
    """The number and its noun: `1 node`, `2 nodes`, `2 switches`, `2 anomalies`."""
    return f"{n} {one if n == 1 else _plural(one)}"


def _plural(noun: str) -> str:
    if noun.endswith(("ch", "s", "x")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith(("ly", "ry", "ty")) else f"{noun}s"


def are(n: int) -> str:
    """The verb after a count: `1 node is`, `2 nodes are`."""
    return "is" if n == 1 else "are"


def and_more(n: int) -> str:
    """How many items a message leaves out: ` and 3 more`; "" where it leaves out none."""
    return f" and {n} more" if n > 0 else ""


def first_few(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first `most` texts, and how many others there are: `a, b and 3 more`."""
    return separator.join(texts[:most]) + and_more(len(texts) - most)
