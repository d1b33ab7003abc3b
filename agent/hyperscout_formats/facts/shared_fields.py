"""Copies the fields that a fact and its message share: the same name, and a value to copy as it is.

Each message has texts of its own. Most are the same in many messages, as "ACTIVE" or the name of a switch, so
facts get one copy of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

_T = TypeVar("_T")
_Number = TypeVar("_Number", int, float)

_MAX_COPIES = 16_384  # that are remembered: many texts are of one host
_MAX_CHARS = 255  # of a remembered text: longer than all texts of LLDP (IEEE 802.1AB-2016, 8.5)
_MAX_OTHERS = 4096  # lists of texts, and numbers, that are remembered: ports differ in few of them
_copy = lru_cache(_MAX_COPIES)(str)
_copy_of_texts: Callable[[tuple[str, ...]], tuple[str, ...]] = lru_cache(_MAX_OTHERS)(lambda texts: texts)


def one_copy(text: str) -> str:
    """Return an equal text that was passed before, so that memory contains it once."""
    return _copy(text) if len(text) <= _MAX_CHARS else text


def one_copy_of_all(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts as a tuple, which memory contains once."""
    found = tuple(map(one_copy, texts))
    return _copy_of_texts(found) if sum(map(len, found)) <= _MAX_CHARS else found


@lru_cache(_MAX_OTHERS, typed=True)
def one_number(number: _Number) -> _Number:
    """Return an equal number of the same type that was passed before, so that memory contains it once."""
    return number


class SharedFields:
    """The fields of a fact except `others`, which the caller converts."""

    def __init__(self, fact: type[Any], *others: str) -> None:
        self._names = tuple(field.name for field in fields(fact) if field.name not in others)
        self._get = attrgetter(*self._names)

    def values(self, source: Any) -> tuple[Any, ...]:
        """Return the values of a fact or a message, in the order of the fact's fields."""
        found: tuple[Any, ...] = self._get(source)
        return found

    def of(self, source: Any) -> dict[str, Any]:
        """Return the values of a fact or a message, by name."""
        return dict(zip(self._names, self._get(source), strict=True))


def reader(fact: type[_T], **converted: Callable[[Any], object]) -> Callable[[Any], _T]:
    """Return a function from a message to its fact. `converted`: the fields that are not copied as they are.

    It is as fast as a call that lists all fields: findings are read while agents wait.
    """
    own = fields(fact)  # type: ignore[arg-type]  # a fact is a dataclass
    names = [field.name for field in own]
    get = attrgetter(*names)
    texts = {field.name: one_copy for field in own if field.type is str}
    changes = [(names.index(name), convert) for name, convert in (texts | converted).items()]

    def read(message: Any) -> _T:
        values = list(get(message))
        for index, convert in changes:
            values[index] = convert(values[index])
        return fact(*values)

    return read
