"""Reads the query parameters of REST. Their definitions are also the source of the OpenAPI document.

Unknown parameters are errors: a misspelt filter must not be ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from google.protobuf.timestamp_pb2 import Timestamp
from starlette.requests import Request

from hyperscout_collector.serve.http.problems import bad

_MAX_CHARS = 4096
_MAX_VALUES = 100
_FIRST_NS, _LAST_NS = 0, 2**63 - 1  # Unix time in signed 64 bits


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter.

    `kind`: "time" is RFC 3339 and becomes Unix ns. `repeated`: may be given several times, and any value may
    match. `choices`: the permitted texts, () = any. `least`, `most`: the range of a number.
    """

    name: str
    description: str
    kind: Literal["text", "number", "flag", "time"] = "text"
    example: Any = None
    repeated: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = 2**31 - 1


def read(request: Request, known: Sequence[Parameter]) -> dict[str, Any]:
    """The given values by name; a tuple if the parameter is `repeated`. Raises ProblemError."""
    given: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        given.setdefault(name, []).append(value)
    by_name: Mapping[str, Parameter] = {one.name: one for one in known}
    found: dict[str, Any] = {}
    for name, texts in given.items():
        if (one := by_name.get(name)) is None:
            expected = ", ".join(by_name) or "none"
            raise bad(name[:100], f"unknown parameter; known parameters: {expected}")
        if len(texts) > (limit := _MAX_VALUES if one.repeated else 1):
            raise bad(name, f"given {len(texts)} times, expected at most {limit}")
        values = tuple(_value(one, text) for text in texts)
        found[name] = values if one.repeated else values[0]
    for one in known:
        if one.required and one.name not in found:
            raise bad(one.name, "missing: this parameter is required")
    return found


def _value(one: Parameter, text: str) -> Any:
    if len(text) > _MAX_CHARS or "\0" in text:
        raise bad(one.name, f"expected at most {_MAX_CHARS} characters without NUL")
    match one.kind:
        case "number":
            # Python also accepts digits of other scripts as decimal.
            if not (text.isascii() and text.isdecimal()) or not one.least <= int(text[:20]) <= one.most:
                raise bad(one.name, f"{text[:100]!r}: expected an integer from {one.least} to {one.most}")
            return int(text)
        case "flag":
            if text not in ("true", "false"):
                raise bad(one.name, f"{text[:100]!r}: expected true or false")
            return text == "true"
        case "time":
            return _time_ns(one.name, text)
        case "text":
            if one.choices and text not in one.choices:
                raise bad(one.name, f"{text[:100]!r}: expected one of {', '.join(one.choices)}")
            if one.required and not text:
                raise bad(one.name, "empty: expected a value")
            return text


def _time_ns(name: str, text: str) -> int:
    stamp = Timestamp()
    try:
        stamp.FromJsonString(text)
        found = stamp.ToNanoseconds()
    except (ValueError, OverflowError):
        found = -1
    if not _FIRST_NS <= found <= _LAST_NS:
        raise bad(name, f"{text[:100]!r}: expected an RFC 3339 time, for example 2026-01-31T14:03:07Z")
    return found
