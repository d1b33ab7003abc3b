"""The cables of hosts, as rows and as columns.

Columns are made of the earlier columns where rows stay, so one changed row costs little.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from hyperscout_formats.text.host_list import natural_key
from hyperscout_topology.link_changes import are_in
from hyperscout_topology.memo import changed_nodes

from hyperscout_inference.ethernet.neighbours import HOST
from hyperscout_inference.fabric.network import Ints, distinct
from hyperscout_inference.fabric.part import Longs, Mask

_HOST = attrgetter("host")
_Value = TypeVar("_Value")
_Number = TypeVar("_Number", bound=np.generic)


class HostCable(NamedTuple):
    """A cable of a device that is not a switch. `kind` as in `neighbours`; `shapes`: no other cable
    contradicts it. `heard`: the name under which the host hears the switch."""

    host: str
    interface: str
    chassis: str
    port: str
    speed_mbps: int  # 0 = unknown
    sources: tuple[str, ...]
    note: str = ""
    shapes: bool = True
    kind: int = HOST
    heard: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Column(Generic[_Value]):
    """`values`: the distinct values in order. `places`: the place of each value. `at` (rows,): the place of
    each row's value."""

    values: tuple[_Value, ...]
    at: Ints
    places: Mapping[_Value, int]

    def has(self, rows: Mask) -> Mask:
        """Return for each value whether one of the rows has it."""
        return np.bincount(self.at[rows], minlength=len(self.values)) > 0

    def with_values(
        self, more: Collection[_Value], key: Callable[[_Value], Any] | None = None
    ) -> "Column[_Value]":
        """Return the column with more values, in the order of `key`."""
        values = [*self.values, *dict.fromkeys(x for x in more if x not in self.places)]
        return self if len(values) == len(self.values) else _ordered(values, self.at, range(len(values)), key)


@dataclass(frozen=True, slots=True, eq=False)
class HostCables:
    """Columns as in `HostCable`, of n rows. `texts`: the interfaces of all rows, then the ports of all rows,
    in natural order. `noted`: the row has a note."""

    rows: Sequence[HostCable]
    host: Column[str]
    chassis: Column[str]
    texts: Column[str]
    sources: Column[tuple[str, ...]]
    heard: Column[str]
    speed_mbps: npt.NDArray[np.float64]
    kind: npt.NDArray[np.int8]
    shapes: Mask
    noted: Mask

    @property
    def interface(self) -> Ints:
        return self.texts.at[: len(self.rows)]

    @property
    def port(self) -> Ints:
        return self.texts.at[len(self.rows) :]

    @property
    def ends(self) -> Longs:
        """Return (n,) the switch port of each row as one number."""
        return join(self.chassis.at, self.port)

    def with_rows(self, rows: Sequence[HostCable]) -> "HostCables":
        """Return the columns of these rows. Rows of `self` that stay, the same objects, cost little."""
        return self if rows is self.rows else self.spliced(_splices(self.rows, rows))

    def spliced(self, splices: Sequence["Splice"]) -> "HostCables":
        """Return the columns of these rows after all splices. `self` stays as it is.

        `splices`: ascending, and none begins before the end of the one before. Their numbers are those of
        rows before any splice.
        """
        new = [row for splice in splices for row in splice.rows]
        cuts = [(first, last, len(rows)) for first, last, rows in splices]
        rows: list[HostCable] = []
        kept = 0
        for first, last, now in splices:
            rows += self.rows[kept:first]
            rows += now
            kept = last
        rows += self.rows[kept:]

        count = len(self.rows)
        of_ports = [(first + count, last + count, more) for first, last, more in cuts]
        texts = [row.interface for row in new] + [row.port for row in new]
        return HostCables(
            rows,
            _column(self.host, cuts, [row.host for row in new]),
            _column(self.chassis, cuts, [row.chassis for row in new]),
            _column(self.texts, [*cuts, *of_ports], texts, natural_key),
            _column(self.sources, cuts, [row.sources for row in new]),
            _column(self.heard, cuts, [row.heard for row in new]),
            _filled(self.speed_mbps, cuts, [row.speed_mbps for row in new]),
            _filled(self.kind, cuts, [row.kind for row in new]),
            _filled(self.shapes, cuts, [row.shapes for row in new]),
            _filled(self.noted, cuts, [bool(row.note) for row in new]),
        )


class Splice(NamedTuple):
    """`rows` replace the rows from `first` up to `last`, exclusive. Equal numbers insert rows before `first`,
    and no `rows` remove."""

    first: int
    last: int
    rows: Sequence[HostCable]


# Columns without rows.
_NO_INTS = np.zeros(0, np.int32)
_NO_TEXTS: Column[str] = Column((), _NO_INTS, {})
_NO_BOOLS = np.zeros(0, np.bool_)
_NO_CABLES = HostCables(
    [],
    _NO_TEXTS,
    _NO_TEXTS,
    _NO_TEXTS,
    Column((), _NO_INTS, {}),
    _NO_TEXTS,
    np.zeros(0),
    np.zeros(0, np.int8),
    _NO_BOOLS,
    _NO_BOOLS,
)


class KeptCables:
    """Keeps the columns of the last rows, for the next ones. It takes the rows of each host.

    The rows of all hosts are in the order of hosts.
    """

    def __init__(self) -> None:
        # Calls in other threads see both of before, or both of now.
        self._last: tuple[Mapping[str, Sequence[HostCable]], HostCables] = {}, _NO_CABLES

    def __call__(self, of_hosts: Mapping[str, Sequence[HostCable]]) -> HostCables:
        before, kept = self._last
        splices: list[Splice] = []
        for host in sorted(changed_nodes(before, of_hosts)):
            first = bisect_left(kept.rows, host, key=_HOST)
            splices.append(Splice(first, first + len(before.get(host, ())), of_hosts.get(host, ())))
        if splices:
            kept = kept.spliced(splices)
        self._last = of_hosts, kept
        return kept


def join(one: Ints | Longs, other: Ints | Longs) -> Longs:
    """Return two numbers of each row as one number."""
    return one.astype(np.int64) << 32 | other


def split(both: Longs) -> tuple[Longs, Longs]:
    """Return the two numbers of each row that `join` has made one."""
    return both >> 32, both & 0xFFFFFFFF


_Cut = tuple[int, int, int]  # numbers from the first up to the last one, exclusive, and how many replace them


def _splices(old: Sequence[HostCable], new: Sequence[HostCable]) -> list[Splice]:
    """Return what makes `new` of `old`. Rows stay where the same objects are in the same order."""
    places = {id(row): i for i, row in enumerate(old)}
    found: list[Splice] = []
    kept = first = 0  # of `old` and of `new`: all before is done
    for i, row in enumerate([*new, None]):
        at = len(old) if row is None else places.get(id(row), -1)
        if at >= kept:
            if at > kept or i > first:
                found.append(Splice(kept, at, new[first:i]))
            kept, first = at + 1, i + 1
    return found


def _filled(old: npt.NDArray[_Number], cuts: Sequence[_Cut], new: Sequence[Any]) -> npt.NDArray[_Number]:
    """Return the old numbers with new ones at the cuts."""
    more = np.array(new, old.dtype)
    pieces: list[npt.NDArray[_Number]] = []
    kept = used = 0
    for first, last, count in cuts:
        pieces += [old[kept:first], more[used : used + count]]
        kept, used = last, used + count
    return np.concatenate([*pieces, old[kept:]])


def _column(
    old: Column[_Value],
    cuts: Sequence[_Cut],
    new: Sequence[_Value],
    key: Callable[[_Value], Any] | None = None,
) -> Column[_Value]:
    """Return the old column with new values at the cuts."""
    more: dict[_Value, int] = {}
    known = old.places
    new_at = [
        known[value] if value in known else more.setdefault(value, len(known) + len(more)) for value in new
    ]
    at = _filled(old.at, cuts, new_at)
    left = distinct(np.concatenate([_NO_INTS, *(old.at[first:last] for first, last, _ in cuts)]))
    unused = set(left[~are_in(at, left)].tolist())
    if not (more or unused):
        return Column(old.values, at, known)
    used = (i for i in range(len(known) + len(more)) if i not in unused)
    return _ordered((*old.values, *more), at, used, key)


def _ordered(
    values: Sequence[_Value], at: Ints, used: Iterable[int], key: Callable[[_Value], Any] | None
) -> Column[_Value]:
    """Return the `used` ones of the values, to which `at` points, as a column."""
    sort_keys: Sequence[Any] = values if key is None else [key(value) for value in values]
    order = sorted(used, key=sort_keys.__getitem__)
    moved = np.zeros(len(values), np.int32)
    moved[order] = np.arange(len(order))
    kept = tuple([values[i] for i in order])
    return Column(kept, moved[at], {value: i for i, value in enumerate(kept)})
