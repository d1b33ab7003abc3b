"""How wide texts are on a terminal: names from wires and messages may hold wide and combining characters."""

import unicodedata

ELLIPSIS = "…"
_NO_COLUMN = frozenset(["Mn", "Me", "Cf"])  # combining marks and invisible ones (Unicode, general categories)
_TWO_COLUMNS = frozenset("WF")  # Unicode Standard Annex 11


def width(text: str) -> int:
    """How many columns a terminal gives to a text without control characters."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in _NO_COLUMN:
        return 0
    return 1 + (unicodedata.east_asian_width(character) in _TWO_COLUMNS)


def padded(text: str, columns: int) -> str:
    """The text with spaces up to so many columns."""
    return text + " " * (columns - width(text))


def shortened(text: str, columns: int) -> str:
    """The text in at most so many columns (at least 1), with an ellipsis where something is left out."""
    if width(text) <= columns:
        return text
    left = columns - 1
    for i, character in enumerate(text):
        left -= _columns(character)
        if left < 0:
            return text[:i] + ELLIPSIS
    return text
