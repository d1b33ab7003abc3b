"""Reads the texts of a spreadsheet's cells (ECMA-376, SpreadsheetML), within bounds.

openpyxl (MIT) reads them too. It has no bounds of its own, and each collector would have to install it.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from hyperscout_formats.cabling.csv_rows import Row
from hyperscout_formats.cabling.plan import Place
from hyperscout_formats.text.errors import FormatError

MAX_UNPACKED: Final = 64 << 20  # bytes of all parts that are read; a cell takes about 50
_MAX_COLUMNS: Final = 256  # those after them are ignored
_MAX_SHEETS: Final = 256
# Of a part: with these it takes some seconds, and elements that are not needed are dropped at once.
_MAX_TAGS: Final = 8_000_000
_MAX_DEPTH: Final = 20
_MAX_INSIDE: Final = 100_000  # elements of a row or a text
_LONG_TAG: Final = re.compile(rb"<[^<]{100000}")  # its attributes could take a gigabyte
_MAX_TEXT: Final = 1000  # characters of a cell: longer texts are cut, and are no names
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others are unpacked without a limit
_BAD_ARCHIVE: Final = (zipfile.BadZipFile, OSError, ValueError, NotImplementedError)
_CELL: Final = re.compile(r"([A-Z]{1,3})[0-9]+")
_FOLDER: Final = "xl/"


def matches(data: bytes) -> bool:
    """Return whether the data is a ZIP archive, as a spreadsheet is."""
    return data.startswith(b"PK\x03\x04")


def sheets(data: bytes, source: str) -> Iterator[Iterator[Row]]:
    """Yield the rows of each sheet that are not blank. Raises FormatError."""
    workbook = _Workbook(data, source)
    for name, part in workbook.parts():
        yield workbook.rows(name, part)


class _Workbook:
    def __init__(self, data: bytes, source: str) -> None:
        self._source = source
        self._left = MAX_UNPACKED
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except _BAD_ARCHIVE as error:
            raise self._error(f"not a spreadsheet (.xlsx): {error}") from error
        self._members = set(self._archive.namelist())
        self._strings: Sequence[str] | None = None

    def parts(self) -> list[tuple[str, str]]:
        """Return name and part of each sheet, in order."""
        targets = {
            item.get("Id"): item.get("Target", "")
            for item in self._elements(f"{_FOLDER}_rels/workbook.xml.rels", "Relationship")
            if item.get("Type", "").endswith("/worksheet")
        }
        found: dict[str, str] = {}
        for item in self._elements(f"{_FOLDER}workbook.xml", "sheet"):
            ident = next((value for key, value in item.items() if key.endswith("}id")), None)
            if ident in targets:  # else a sheet of a chart
                target = targets[ident]
                part = target[1:] if target.startswith("/") else _FOLDER + target
                found.setdefault(part, item.get("name", ""))
                if len(found) > _MAX_SHEETS:
                    raise self._error(f"more than {_MAX_SHEETS} sheets")
        return [(name, part) for part, name in found.items()]

    def rows(self, name: str, part: str) -> Iterator[Row]:
        """Yield the rows of a sheet that are not blank."""
        for number, row in enumerate(self._elements(part, "row"), 1):
            place = Place(0, f"sheet {name[:60]!a} row {ascii(row.get('r', str(number))[:10])[1:-1]}")
            cells: list[str] = []
            for cell in row:
                column = _column(cell.get("r"), len(cells))
                if column >= _MAX_COLUMNS:
                    break
                cells += [""] * (column + 1 - len(cells))
                cells[column] = self._text(cell, place)
            if any(cells):
                yield place, cells

    def _text(self, cell: ET.Element, place: Place) -> str:
        if cell.get("t") == "inlineStr":
            return next((_joined(x) for x in cell if _tag(x) == "is"), "")
        value = next((_cut(x.text or "") for x in cell if _tag(x) == "v"), "")
        if cell.get("t") != "s":
            return value
        if self._strings is None:
            part = f"{_FOLDER}sharedStrings.xml"
            self._strings = [_joined(item) for item in self._elements(part, "si")]
        if not value.isdecimal() or len(value) > 9 or int(value) >= len(self._strings):
            most = len(self._strings) - 1
            raise self._error(f"{place}: found the text number {value[:20]!a}, expected 0 to {most}")
        return self._strings[int(value)]

    def _elements(self, part: str, tag: str) -> Iterator[ET.Element]:
        """Yield the elements of this tag in a part, each complete until the next one."""
        data = self._part(part)
        if data.count(b"<") > _MAX_TAGS or _LONG_TAG.search(data):
            raise self._error(f"{part}: more than {_MAX_TAGS} tags, or one of more than 100000 bytes")
        above: list[ET.Element] = []
        inside = 0
        wanted = 0  # the depth of the element of this tag that is being read
        if b"\0" in data[:4] or b"<!DOCTYPE" in data:  # entities could expand without bound
            raise self._error(f"{part}: found UTF-16 or a document type, expected UTF-8 without one")
        try:
            # There is no document type, which S314 warns of.
            for event, element in ET.iterparse(io.BytesIO(data), events=("start", "end")):  # noqa: S314
                if event == "start":
                    above.append(element)
                    wanted = wanted or (len(above) if _tag(element) == tag else 0)
                    inside = inside + 1 if wanted else 0
                    if len(above) > _MAX_DEPTH or inside > _MAX_INSIDE:
                        most = f"{_MAX_DEPTH} levels, or {_MAX_INSIDE} elements in one"
                        raise self._error(f"{part}: more than {most}")
                    continue
                above.pop()
                if len(above) + 1 == wanted:
                    yield element
                    wanted = 0
                if not wanted and above:
                    above[-1].remove(element)
        except FormatError:
            raise
        except (ET.ParseError, ValueError, LookupError) as error:  # also for other encodings than UTF-8
            raise self._error(f"{part}: not XML: {error}") from error

    def _part(self, part: str) -> bytes:
        if part not in self._members:
            raise self._error(f"not a spreadsheet (.xlsx): it has no part {part[:60]!a}")
        if self._archive.getinfo(part).compress_type not in _PACKED:
            raise self._error(f"{part}: expected deflate as its compression: save the spreadsheet again")
        try:
            with self._archive.open(part) as file:
                data = file.read(self._left + 1)
        except (*_BAD_ARCHIVE, zlib.error, EOFError, RuntimeError) as error:
            raise self._error(f"{part}: damaged or encrypted: {error}") from error
        self._left -= len(data)
        if self._left < 0:
            raise self._error(f"more than {MAX_UNPACKED} bytes when unpacked")
        return data

    def _error(self, reason: str) -> FormatError:
        return FormatError(self._source, 0, reason)


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _column(reference: str | None, following: int) -> int:
    """Return the index of a cell's column. `following`: that after the cell before it."""
    match = _CELL.fullmatch(reference or "")
    if match is None:
        return following
    column = 0
    for letter in match[1]:
        column = 26 * column + ord(letter) - ord("A") + 1
    return column - 1


def _joined(element: ET.Element) -> str:
    """Return the text of all runs, without phonetic hints (rPh)."""
    texts = (x for part in element for x in (part if _tag(part) == "r" else (part,)) if _tag(x) == "t")
    return _cut("".join(x.text or "" for x in texts))


def _cut(text: str) -> str:
    return text[:_MAX_TEXT].strip()
