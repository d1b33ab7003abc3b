"""Says what is wrong with JSON that is no message of a request, with the field and what it takes."""

import re
from collections.abc import Callable
from typing import Final

from google.protobuf import descriptor_pool
from google.protobuf.json_format import ParseError

_FIELD = re.compile(r"Failed to parse (\w+) field: ")
_NO_FIELD = re.compile(r'no field named "(.{1,100}?)" at "([^"]*)"\. Available Fields.*?\[(.*?)\]')
_ENUM = re.compile(r"Invalid enum value (.{0,100}?) for enum type ([\w.]+)")
_SEVERAL = re.compile(r'Message type "([\w.]+)" should not have multiple "(\w+)" oneof fields')
_NUMBER = re.compile(r"invalid literal for int\(\) with base 10: (.{0,100})")
_TEXT = re.compile(r"expected string or bytes-like object, got '(\w+)'")
_SYNTAX = re.compile(r"Failed to load JSON: (.*)")


def _no_field(found: re.Match[str]) -> str:
    return f"no field {found[1]!r} in a {found[2]}: expected {found[3].replace(chr(39), '')}"


def _enum(found: re.Match[str]) -> str:
    values = descriptor_pool.Default().FindEnumTypeByName(found[2]).values
    names = (value.name for value in values if not value.name.endswith("_UNSPECIFIED"))
    return f"{found[1]!r}: expected {' or '.join(names)}"


def _several(found: re.Match[str]) -> str:
    fields = descriptor_pool.Default().FindMessageTypeByName(found[1]).oneofs_by_name[found[2]].fields
    return f"give one of {', '.join(field.name for field in fields)}"


_WORDS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]] = (
    (_NO_FIELD, _no_field),
    (_ENUM, _enum),
    (_SEVERAL, _several),
    (_NUMBER, lambda found: f"{found[1]}: expected a whole number"),
    (_TEXT, lambda found: f'expected a text, such as "8", not a value of type {found[1]}'),
    (_SYNTAX, lambda found: f"not JSON: {found[1]}"),
)


def json_error(error: ParseError) -> str:
    """The error of `google.protobuf.json_format` in words that a user can act on."""
    said = " ".join(str(error).split()).rstrip(".")
    fields = ".".join(_FIELD.findall(said))
    for pattern, words in _WORDS:
        if (found := pattern.search(said)) is not None:
            text = words(found)
            return text if pattern in (_NO_FIELD, _SYNTAX) or not fields else f"{fields}: {text}"
    said = _FIELD.sub("", said)
    return f"{fields}: {said}" if fields else said
