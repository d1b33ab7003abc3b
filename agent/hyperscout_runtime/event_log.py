"""Keeps the latest events of state machines in memory, so that the events of a bug report can be replayed.

A machine is replayed from a snapshot of its state. The log therefore consists of two segments: the current
one, and the one before. A snapshot of a machine precedes its first event in each segment. When the current
segment is full, the log drops the older segment.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Protocol

from hyperscout_runtime.units import NS

EVENTS = 4096
ITEMS = 400_000


class Machine(Protocol):
    """A state machine that can be logged."""

    @property
    def state(self) -> str: ...

    def snapshot(self) -> object:
        """A copy of all facts of the machine, as a dataclass."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Events that a machine handled together at one time (Unix ns), and the state that they led to.

    `subject`: which machine. `snapshot`: its facts in `state`, instead of events.
    """

    subject: str
    at_ns: int
    state: str
    events: tuple[object, ...] = ()
    snapshot: object = None


class EventLog:
    """The latest events of all machines of one kind.

    `most_events`, `most_items`: most entries, and most items of collections in them, in both segments. A
    segment with a large snapshot has as many items of later entries: otherwise each event of a large machine
    would copy the whole machine.
    """

    def __init__(self, kind: str, most_events: int = EVENTS, most_items: int = ITEMS) -> None:
        self.kind = kind
        self._most = most_events // 2
        self._most_items = most_items // 2
        self._before: list[Entry] = []
        self._current: list[Entry] = []
        self._items = 0
        self._largest = 0  # items of the largest snapshot in the current segment
        self._begun: set[str] = set()  # subjects with a snapshot in the current segment
        self._machines = 0

    def subject(self, name: str) -> str:
        """Return a subject for a new machine. Machines with one name have different subjects."""
        self._machines += 1
        return f"{name}#{self._machines}"

    @contextlib.contextmanager
    def handling(
        self, subject: str, machine: Machine, at_ns: int, events: Sequence[object]
    ) -> Iterator[None]:
        """Record events that the block handles. An exception in the block is recorded as the state."""
        full = max(self._most_items, 2 * self._largest)
        if len(self._current) >= self._most or self._items >= full:
            self._before, self._current = self._current, []
            self._begun.clear()
            self._items = self._largest = 0
        if subject not in self._begun:
            self._begun.add(subject)
            snapshot = Entry(subject, at_ns, machine.state, snapshot=machine.snapshot())
            self._largest = max(self._largest, self._add(snapshot))
        try:
            yield
        except Exception as error:
            self._add(Entry(subject, at_ns, error_state(error), tuple(events)))
            raise
        self._add(Entry(subject, at_ns, machine.state, tuple(events)))

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        return [*self._before, *self._current]

    def drop_last(self) -> None:
        """Drop the last entry: the machine ignored its events."""
        self._items -= _items_of(self._current.pop())

    def _add(self, entry: Entry) -> int:
        """Append an entry, and return the number of its items."""
        items = _items_of(entry)
        self._current.append(entry)
        self._items += items
        return items


def error_state(error: Exception) -> str:
    """Return the state to record when a machine raises an exception."""
    return f"raised {type(error).__name__}"


def nanoseconds(at_s: float) -> int:
    """Return Unix seconds as nanoseconds. `nanoseconds(x) / 1_000_000_000` is x again."""
    numerator, denominator = at_s.as_integer_ratio()
    return (numerator * NS + denominator // 2) // denominator


def _items_of(entry: Entry) -> int:
    return _items(entry.snapshot) + sum(map(_items, entry.events))


def _items(value: object) -> int:
    """Return the number of items in the collections of a dataclass, including nested dataclasses."""
    names = _counted_fields(type(value))  # type: ignore[arg-type]  # mypy: a class is no Hashable
    if names is not None:
        return 1 + sum(_items(getattr(value, name)) for name in names)
    return len(value) if _is_collection(type(value)) else 0  # type: ignore[arg-type]  # as above


@cache
def _is_collection(type_: type) -> bool:
    return issubclass(type_, Mapping | Set | list | tuple)


@cache
def _counted_fields(type_: type) -> tuple[str, ...] | None:
    """Return the fields of a dataclass that may hold items; None for any other type.

    A log counts the items of a million pods when a collector starts, so it skips fields with plain values.
    """
    if not is_dataclass(type_):
        return None
    return tuple(f.name for f in fields(type_) if f.type not in (bool, int, float, str))


def copied(value: Any) -> Any:
    """Return a copy of a value that later changes of the original do not affect.

    Collections and unfrozen dataclasses are copied. All other values count as immutable.
    """
    if _is_immutable(type(value)):  # type: ignore[arg-type]  # as above
        return value
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    if isinstance(value, set | list):
        return type(value)(value)
    copy = object.__new__(type(value))
    for f in fields(value):
        setattr(copy, f.name, copied(getattr(value, f.name)))
    return copy


@cache
def _is_immutable(type_: type) -> bool:
    if is_dataclass(type_):
        return type_.__dataclass_params__.frozen  # type: ignore[attr-defined, no-any-return]
    return not issubclass(type_, dict | set | list)
