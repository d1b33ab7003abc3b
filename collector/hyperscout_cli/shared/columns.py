"""Computes the terminal width of texts. Names may contain wide and combining characters."""

import unicodedata

ELLIPSIS = "…"
_NO_COLUMN = frozenset(["Mn", "Me", "Cf"])  # combining and invisible characters (Unicode, general categories)
_TWO_COLUMNS = frozenset("WF")  # Unicode Standard Annex 11


def width(text: str) -> int:
    """Number of terminal columns of a text without control characters."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in _NO_COLUMN:
        return 0
    return 1 + (unicodedata.east_asian_width(character) in _TWO_COLUMNS)


def padded(text: str, columns: int) -> str:
    """The text, filled with spaces up to `columns` columns."""
    return text + " " * (columns - width(text))


def shortened(text: str, columns: int) -> str:
    """The text in at most `columns` columns (at least 1), with an ellipsis where it is cut."""
    if width(text) <= columns:
        return text
    left = columns - 1
    for i, character in enumerate(text):
        left -= _columns(character)
        if left < 0:
            return text[:i] + ELLIPSIS
    return text
