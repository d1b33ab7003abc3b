"""Splits CSV (RFC 4180) into rows. Spreadsheets separate cells with commas, semicolons or tabs."""

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from hyperscout_formats.cabling.plan import Place, text_of
from hyperscout_formats.text.errors import FormatError

Row = tuple[Place, Sequence[str]]

_SEPARATORS: Final = ",;\t"
_HEAD_BYTES: Final = 64 << 10


def rows(data: bytes, source: str) -> Iterator[Row]:
    """Yield the rows that are not blank, each with its last line, after comments. Raises FormatError."""
    yield from _rows(text_of(data, source), source)


def first_rows(data: bytes, number: int) -> list[Sequence[str]]:
    """Return the first rows of any data that are no comments of YAML, fewer where it is no CSV."""
    found: list[Sequence[str]] = []
    try:
        text = data[:_HEAD_BYTES].decode("utf-8-sig", "replace")
        found += islice((cells for _, cells in _rows(text, "") if not _is_comment(cells)), number)
    except FormatError:
        pass
    return found


def _rows(text: str, source: str) -> Iterator[Row]:
    first = text.lstrip("\r\n").partition("\n")[0]
    separator = max(_SEPARATORS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    is_head = True
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            is_head = is_head and (not any(stripped) or _is_comment(stripped))
            if any(stripped) and not is_head:
                yield Place(reader.line_num), stripped
    except csv.Error as error:
        raise FormatError(source, reader.line_num, f"not CSV: {error}") from error


def _is_comment(cells: Sequence[str]) -> bool:
    """Return whether a row is a comment. "#" alone is the heading of a column of numbers."""
    return bool(cells) and cells[0].startswith("#") and cells[0] != "#"
