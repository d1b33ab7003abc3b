"""Copies the fields that a fact and its message share: the same name, and a value to copy as it is."""

from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

_T = TypeVar("_T")


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
    names = [field.name for field in fields(fact)]  # type: ignore[arg-type]  # a fact is a dataclass
    get = attrgetter(*names)
    changes = [(names.index(name), convert) for name, convert in converted.items()]

    def read(message: Any) -> _T:
        values = list(get(message))
        for index, convert in changes:
            values[index] = convert(values[index])
        return fact(*values)

    return read
