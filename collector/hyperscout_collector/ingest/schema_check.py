"""Checks a value against one of the project's JSON Schemas and reports the first mismatch. Pure.

It supports the part of JSON Schema (draft 2020-12, validation) that `findings_schema` uses. The collector
thus needs no library for it, and the reasons are readable without the schema.
"""

import re
from typing import Any

_MAX_SAID_CHARS = 64
# Supported keywords, and keywords that constrain nothing.
KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "maxItems", "enum"),
        *("minLength", "maxLength", "minimum", "maximum", "pattern", "$ref", "allOf", "not"),
        *("$schema", "$id", "$defs", "title", "description"),
    }
)


def problem(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str = "") -> str | None:
    """Returns the first mismatch, as "findings[2].lldp.mac: ..."; None = the value is valid.

    `root` contains `$defs`.
    """
    if (ref := schema.get("$ref")) is not None:
        return problem(value, root["$defs"][ref.rpartition("/")[2]], root, where)
    at = f"{where}: " if where else ""
    if (kinds := schema.get("type")) is not None:
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not any(_is(value, kind) for kind in kinds):
            return f"{at}expected {' or '.join(kinds)}, found {_kind(value)}"
    if (allowed := schema.get("enum")) is not None and value not in allowed:
        return f"{at}{_said(value)} is none of {', '.join(map(str, allowed))}"
    if isinstance(value, dict):
        return _object(value, schema, root, where)
    if isinstance(value, list):
        return _list(value, schema, root, where)
    if isinstance(value, str):
        return _text(value, schema, at)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value, schema, at)
    return None


def _object(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], where: str) -> str | None:
    at = f"{where}: " if where else ""
    properties: dict[str, Any] = schema["properties"]
    if (
        missing := next((name for name in schema.get("required", ()) if name not in value), None)
    ) is not None:
        return f"{at}{missing} is missing"
    for name, inner in value.items():
        if name not in properties:
            return f"{at}no such field: {_said(name)}"
        if found := problem(inner, properties[name], root, f"{where}.{name}" if where else name):
            return found
    for rule in schema.get("allOf", ()):
        both = rule["not"]["required"]
        if all(name in value for name in both):
            return f"{at}{' and '.join(both)}: one of them at most"
    return None


def _list(value: list[Any], schema: dict[str, Any], root: dict[str, Any], where: str) -> str | None:
    if len(value) > schema["maxItems"]:
        return f"{where}: {len(value)} of them; up to {schema['maxItems']} are taken"
    for i, inner in enumerate(value):
        if found := problem(inner, schema["items"], root, f"{where}[{i}]"):
            return found
    return None


def _text(value: str, schema: dict[str, Any], at: str) -> str | None:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if len(value) < least or (most is not None and len(value) > most):
        return f"{at}{len(value)} characters; {least} to {most} are taken"
    if (pattern := schema.get("pattern")) is not None and re.fullmatch(pattern, value) is None:
        return f"{at}{_said(value)} is not of the form {pattern}"
    return None


def _number(value: float, schema: dict[str, Any], at: str) -> str | None:
    least, most = schema.get("minimum"), schema.get("maximum")
    if (least is not None and not value >= least) or (most is not None and not value <= most):
        return f"{at}{_said(value)} is not within {least} and {most}"
    return None


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and not isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    words = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return words.get(type(value), "number")


def _said(value: Any) -> str:
    """Returns the value for a message, shortened to fit a line."""
    if isinstance(value, dict | list):
        return _kind(value)
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number of many digits"
    text = ascii(value[:_MAX_SAID_CHARS] if isinstance(value, str) else value)
    return f"{text}..." if isinstance(value, str) and len(value) > _MAX_SAID_CHARS else text
