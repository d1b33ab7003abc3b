"""Makes text from outside safe: names and messages of devices, agents, tools and other systems.

Such a text reaches logs, terminals, Kubernetes objects, metrics and pages. Control characters (ESC, BEL, line
breaks), characters that change the direction of writing, and halves of surrogate pairs become blanks. Each
text passes through here where it enters, so what shows it need not check it.
"""

from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message


def cleaned(text: str) -> str:
    """Return the text with each character that cannot be printed (`str.isprintable`) as a blank."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


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
