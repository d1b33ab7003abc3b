"""Control characters in every text field of messages, and where such characters are left in an output."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

PLANTED = "\x1b[31mred\x07\r\n\u202egnp\x9b\u2028"
"""ESC, BEL, a line break, an override of the direction of writing, CSI as one character, a line separator."""


def plant(message: Message, prefix: str = "", omit: frozenset[str] = frozenset()) -> None:
    """Fill every text field at any depth. Empty lists get an element. `omit`: fields by name."""
    for field in message.DESCRIPTOR.fields:
        if field.name in omit:
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            text = f"{prefix}{field.name}{PLANTED}"
            if field.is_repeated:
                getattr(message, field.name).append(text)
            else:
                setattr(message, field.name, text)
        elif field.message_type is not None and field.message_type.full_name.startswith("hyperscout."):
            if field.containing_oneof is not None and len(field.containing_oneof.fields) > 1:
                continue
            value = getattr(message, field.name)
            for one in (list(value) or [value.add()]) if field.is_repeated else [value]:
                plant(one, prefix, omit)


def texts_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The texts in a message, in JSON or in Kubernetes objects, with their paths."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Message):
        for field, inner in value.ListFields():
            yield from texts_in(inner, f"{path}.{field.name}")
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}.{name!r}", str(name)
            yield from texts_in(inner, f"{path}.{name!r}")
    elif not isinstance(value, bytes) and hasattr(value, "__iter__"):
        for i, inner in enumerate(value):
            yield from texts_in(inner, f"{path}[{i}]")


def unprintable(value: Any, *, lines: bool = False) -> list[tuple[str, str]]:
    """The texts that cannot be printed. `lines`: they may consist of several lines."""
    return [
        (path, text)
        for path, text in texts_in(value)
        if not (text.replace("\n", "") if lines else text).isprintable()
    ]
