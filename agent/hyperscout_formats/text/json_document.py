"""Reads a JSON document that somebody else wrote: its size, its syntax, and the texts and lists in it."""

import json
from typing import Any, Final

from hyperscout_formats.text.errors import FormatError
from hyperscout_formats.text.lldp_text import cleaned

MAX_NAME: Final = 253  # RFC 1123: the longest host name
_MAX_READ: Final = 1024  # characters of a text that are looked at


def document(data: bytes, source: str, most_bytes: int, expected: str) -> Any:
    """The value. Raises FormatError, with `expected` in its reason, for what is no JSON."""
    if len(data) > most_bytes:
        raise FormatError(source, 0, f"{len(data)} bytes, at most {most_bytes} are read")
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise FormatError(source, error.lineno, f"not JSON: {error.msg}; {expected}") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, a number of thousands of digits, or nested
        raise FormatError(source, 0, f"not JSON; {expected}") from error


def listed(value: Any) -> list[Any]:
    """A list; of anything else one with that alone, since some write a single thing without its brackets."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def name_in(value: Any) -> str:
    """A name; empty where it is none, or too long for one."""
    text = cleaned(value[:_MAX_READ]).strip() if isinstance(value, str) else ""
    return text if len(text) <= MAX_NAME else ""
