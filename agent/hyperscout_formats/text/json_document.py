"""Reads JSON documents from other systems, with a bound on their size, and texts and lists in them."""

import json
from typing import Any, Final

from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.errors import FormatError

MAX_NAME: Final = 253  # RFC 1123: the longest host name
_MAX_READ: Final = 1024  # characters of a text that are read


def document(data: bytes, source: str, most_bytes: int, expected: str) -> Any:
    """Return the value of a JSON document. Raises FormatError if it is invalid or larger than `most_bytes`.

    The reason for invalid JSON ends with `expected`.
    """
    if len(data) > most_bytes:
        raise FormatError(source, 0, f"{len(data)} bytes, at most {most_bytes} are read")
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise FormatError(source, error.lineno, f"not JSON: {error.msg}; {expected}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, a huge number, or nested too deeply
        raise FormatError(source, 0, f"not JSON; {expected}") from error


def listed(value: Any) -> list[Any]:
    """Return a list. None gives [], and any other value a list of one: some systems omit the brackets."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def name_in(value: Any) -> str:
    """Return a name, "" = not a text, or longer than `MAX_NAME`."""
    text = cleaned(value[:_MAX_READ]).strip() if isinstance(value, str) else ""
    return text if len(text) <= MAX_NAME else ""
