"""Reads a JSON array of objects incrementally.

The response of a manager may be a gigabyte, of which a tenth is needed. The reader decodes one object at a
time, so memory holds only one piece of the text.
"""

import codecs
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.errors import FormatError

MAX_OBJECT_CHARS: Final = 1 << 20
"""Characters of one object. A port of a UFM has about a thousand."""

_PIECE_BYTES: Final = 1 << 16
_BETWEEN = re.compile(r"[ \t\n\r]*")


class ArrayReader:
    """Takes the text in pieces and returns the objects in order.

    Raises FormatError if the text is not a JSON array of objects.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._decoder = json.JSONDecoder()
        self._text = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""
        self._expects = "["

    def feed(self, piece: bytes) -> Iterator[Mapping[str, Any]]:
        """Return an iterator over the objects that are complete now. Raises FormatError."""
        try:
            self._rest += self._text.decode(piece)
        except UnicodeDecodeError as error:
            raise self._error("not UTF-8") from error
        return self._objects()

    def close(self) -> None:
        """End the text. Raises FormatError if the array is incomplete or other text follows it."""
        if self._expects or self._rest.strip(" \t\n\r"):
            raise self._error("the array is truncated" if self._expects else "text after the array")

    def _objects(self) -> Iterator[Mapping[str, Any]]:
        text, at = self._rest, 0
        try:
            while True:
                at = self._after_blanks(text, at)
                if at == len(text) or not self._expects:
                    return
                if text[at] not in self._expects:
                    raise self._error(f"not an array of objects: found {cleaned(text[at : at + 40])!a}")
                match text[at]:
                    case "[":
                        self._expects, at = "{]", at + 1
                    case ",":
                        self._expects, at = "{", at + 1
                    case "]":
                        self._expects, at = "", at + 1
                    case _:
                        found, at = self._object(text, at)
                        if found is None:
                            return
                        self._expects = ",]"
                        yield found
        finally:
            self._rest = text[at:]

    def _object(self, text: str, at: int) -> tuple[Mapping[str, Any] | None, int]:
        """Return the object and its end, or None while the text does not contain its end."""
        try:
            found, end = self._decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            if len(text) - at > MAX_OBJECT_CHARS:
                reason = f"an object of more than {MAX_OBJECT_CHARS} characters, or a damaged one"
                raise self._error(reason) from error
            return None, at
        except (ValueError, RecursionError) as error:  # a number of a million digits, or nested too deeply
            raise self._error("an object with an invalid number or too many levels") from error
        return found, end

    @staticmethod
    def _after_blanks(text: str, at: int) -> int:
        blanks = _BETWEEN.match(text, at)
        return blanks.end() if blanks else at

    def _error(self, reason: str) -> FormatError:
        return FormatError(self._source, 0, f"{reason}; expected a JSON array of objects")


def objects(data: bytes, source: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a complete text. Raises FormatError as `ArrayReader` does."""
    array = ArrayReader(source)
    for begin in range(0, len(data), _PIECE_BYTES):
        yield from array.feed(data[begin : begin + _PIECE_BYTES])
    array.close()
