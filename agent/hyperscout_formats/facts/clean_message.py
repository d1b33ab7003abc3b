"""Makes all texts of a protobuf message safe, as `clean_text` does with one.

A module of its own, so that commands that only read files need not wait for protobuf.
"""

from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from hyperscout_formats.text.clean_text import cleaned


def clean(message: Message) -> None:
    """Replace each text in a message, at any depth, by the cleaned text."""
    fields = _fields(message.DESCRIPTOR)
    for name in fields.texts:
        text = getattr(message, name)
        if not text.isprintable():
            setattr(message, name, cleaned(text))
    for name in fields.lists:
        values = getattr(message, name)
        if not all(text.isprintable() for text in values):
            values[:] = [cleaned(text) for text in values]
    for name in fields.maps:
        values = getattr(message, name)
        # A map must not change while it is read: protobuf then skips entries.
        for key, value in list(values.items()):
            if not key.isprintable():
                del values[key]
            safe = cleaned(value) if isinstance(value, str) else value
            if safe != value or not key.isprintable():
                values[cleaned(key)] = safe
    for name in fields.messages:
        if message.HasField(name):
            clean(getattr(message, name))
    for name in fields.message_lists:
        for one in getattr(message, name):
            clean(one)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a kind of message that are or contain texts, by what they hold; maps have text keys."""

    texts: tuple[str, ...]
    lists: tuple[str, ...]
    maps: tuple[str, ...]
    messages: tuple[str, ...]
    message_lists: tuple[str, ...]


@lru_cache(maxsize=256)
def _fields(kind: Descriptor) -> _Fields:
    found: dict[str, list[str]] = {"texts": [], "lists": [], "maps": [], "messages": [], "message_lists": []}
    for field in kind.fields:
        is_list = field.is_repeated
        if field.type == FieldDescriptor.TYPE_STRING:
            found["lists" if is_list else "texts"].append(field.name)
        elif field.message_type is not None and _has_text(field.message_type, ()):
            is_map = field.message_type.GetOptions().map_entry
            found["maps" if is_map else "message_lists" if is_list else "messages"].append(field.name)
    return _Fields(**{name: tuple(names) for name, names in found.items()})


def _has_text(kind: Descriptor, above: tuple[str, ...]) -> bool:
    if kind.full_name in above:
        return False  # a message that contains itself: decided where it begins
    return any(
        field.type == FieldDescriptor.TYPE_STRING
        or (field.message_type is not None and _has_text(field.message_type, (*above, kind.full_name)))
        for field in kind.fields
    )
