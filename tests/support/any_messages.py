"""Random messages of the wire contract, made from its descriptors: valid protobuf with arbitrary contents."""

from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

_INTEGERS = (0, 1, 2, 7, 36, 255, 65_535, 100_000, 2**31 - 1)
# The bits of each kind of integer, and whether it has a sign.
_BITS = {
    FieldDescriptor.CPPTYPE_INT32: (31, True),
    FieldDescriptor.CPPTYPE_INT64: (63, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
}
_REALS = (0.0, -0.0, 0.5, 1.0, 400.0, -1.0, 1e-300, 1e308, float("inf"), float("-inf"), float("nan"))
_STRINGS = (
    "",
    " ",
    "x",
    "\x1b[31m",
    "a\nb",
    "\x00",
    "ÿ" * 300,
    "名前",
    "z" * 5000,
    "-1",
    "1e999",
    "None",
    "/",
)


class AnyMessages:
    """`strings` and `numbers` are those of other reporters, so that messages are about the same things."""

    def __init__(self, random: Random, strings: tuple[str, ...], numbers: tuple[int, ...]) -> None:
        self._random = random
        self._strings = (*strings, *strings, *_STRINGS)
        self._numbers = numbers

    def fill(self, message: Message, *, depth: int = 0) -> None:
        """Set most fields of a message; of a oneof the last one that is set stays."""
        if isinstance(message, Timestamp):
            self._fill_time(message)
            return
        for field in message.DESCRIPTOR.fields:
            if self._random.random() < 0.25 or depth > 4:
                continue
            if field.is_repeated:
                self._fill_list(message, field, depth)
            elif field.message_type is not None:
                one = getattr(message, field.name)
                one.SetInParent()
                self.fill(one, depth=depth + 1)
            else:
                setattr(message, field.name, self._value(field))

    def text(self) -> str:
        return self._random.choice(self._strings)

    def _fill_list(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        found = getattr(message, field.name)
        for _ in range(self._random.choice((0, 1, 1, 2, 3, 40))):
            if field.message_type is None:
                found.append(self._value(field))
            else:
                self.fill(found.add(), depth=depth + 1)

    def _fill_time(self, message: Timestamp) -> None:
        if self._random.random() < 0.8:
            message.GetCurrentTime()
        else:
            message.seconds = self._random.choice((0, -1, 1 << 40, -(1 << 62), (1 << 63) - 1))
            message.nanos = self._random.choice((0, -1, 999_999_999, (1 << 31) - 1))

    def _value(self, field: FieldDescriptor) -> Any:
        random, kind = self._random, field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return random.randbytes(random.choice((0, 1, 31, 32, 32, 33, 5000)))
            return self.text()
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return random.random() < 0.5
        if kind in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
            return random.choice(_REALS)
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            return random.choice((0, 1, 1, 1, 2, 3, 99, -1))
        bits, is_signed = _BITS[kind]
        largest = (1 << bits) - 1
        edges = (largest, largest - 1, -largest - 1 if is_signed else largest >> 1)
        return min(random.choice((*_INTEGERS, *edges, *self._numbers)), largest)
