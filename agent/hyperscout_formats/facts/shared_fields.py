"""Copies the fields that a fact and its message share: the same name, and a value to copy as it is."""

from dataclasses import fields
from operator import attrgetter
from typing import Any


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
