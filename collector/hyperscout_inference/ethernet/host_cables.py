"""The cables of hosts, as rows and as columns.

Columns are made of the earlier columns where rows stay, so one changed row costs little.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from hyperscout_formats.text.host_list import natural_key
from hyperscout_topology.link_changes import unaligned
from hyperscout_topology.memo import changed_nodes

from hyperscout_inference.ethernet.neighbours import HOST
from hyperscout_inference.fabric.network import Ints
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
        values = [*dict.fromkeys((*self.values, *more))]
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

    def with_rows(self, rows: Sequence[HostCable], same: Longs | None = None) -> "HostCables":
        """Return the columns of these rows. Rows of `self` that stay, the same objects, cost little.

        `same` (rows,): where each row is in `self`, -1 = nowhere; None = it is found out.
        """
        if rows is self.rows:
            return self
        if same is None:
            same = _places(*(np.fromiter(map(id, x), np.int64, len(x)) for x in (self.rows, rows)))
        new = [rows[i] for i in np.flatnonzero(same < 0).tolist()]

        def column(old: Column[_Value], name: str) -> Column[_Value]:
            return _column(old, same, map(attrgetter(name), new))

        def numbers(old: npt.NDArray[_Number], found: Iterable[Any]) -> npt.NDArray[_Number]:
            return _filled(old, same, list(found))

        ports = np.where(same < 0, same, same + len(self.rows))
        texts = [*(row.interface for row in new), *(row.port for row in new)]
        return HostCables(
            rows,
            column(self.host, "host"),
            column(self.chassis, "chassis"),
            _column(self.texts, np.concatenate([same, ports]), texts, natural_key),
            column(self.sources, "sources"),
            column(self.heard, "heard"),
            numbers(self.speed_mbps, (row.speed_mbps for row in new)),
            numbers(self.kind, (row.kind for row in new)),
            numbers(self.shapes, (row.shapes for row in new)),
            numbers(self.noted, (bool(row.note) for row in new)),
        )


_TEXTS: Column[str] = Column((), np.zeros(0, np.int32), {})
_BOOLS = np.zeros(0, np.bool_)
_NO_CABLES = HostCables(
    [],
    _TEXTS,
    _TEXTS,
    _TEXTS,
    Column((), _TEXTS.at, {}),
    _TEXTS,
    np.zeros(0),
    np.zeros(0, np.int8),
    _BOOLS,
    _BOOLS,
)
_FEW = 64  # hosts whose rows change at a time; with more, all rows are compared


class KeptCables:
    """Keeps the columns of the last rows, for the next ones. It takes the rows of each host.

    The rows of all hosts are in the order of hosts.
    """

    def __init__(self) -> None:
        self._of_hosts: Mapping[str, Sequence[HostCable]] = {}
        self._kept = _NO_CABLES

    def __call__(self, of_hosts: Mapping[str, Sequence[HostCable]]) -> HostCables:
        changed = changed_nodes(self._of_hosts, of_hosts)
        if len(changed) > _FEW or not all(host in of_hosts and host in self._of_hosts for host in changed):
            rows = chain.from_iterable(map(of_hosts.__getitem__, sorted(of_hosts)))
            self._kept = self._kept.with_rows(list(rows))
        elif changed:
            self._kept = self._kept.with_rows(*self._spliced(of_hosts, sorted(changed)))
        self._of_hosts = of_hosts
        return self._kept

    def _spliced(
        self, of_hosts: Mapping[str, Sequence[HostCable]], changed: Sequence[str]
    ) -> tuple[list[HostCable], Longs]:
        """Return the rows with those of `changed` hosts as they are now, and where each row was, -1 =
        nowhere."""
        rows, before = list(self._kept.rows), self._of_hosts
        same: list[Longs] = []
        last = len(rows)
        for host in reversed(changed):
            mine, now = before[host], of_hosts[host]
            first = bisect_left(rows, host, key=_HOST)
            at = first + len(mine)
            rows[first:at] = now
            known = [first + mine.index(row) if row in mine else -1 for row in now]
            same += [np.arange(at, last), np.array(known, np.int64)]
            last = first
        return rows, np.concatenate([np.arange(last), *reversed(same)])


def join(one: Ints, other: Ints) -> Longs:
    """Return two numbers of each row as one number."""
    return one.astype(np.int64) << 32 | other


def _places(old: Longs, new: Longs) -> Longs:
    """Return where each of `new` is in `old`, -1 = nowhere."""
    same = np.full(len(new), -1)
    gone, come = unaligned(old, new)
    stay, stays = np.ones(len(old), np.bool_), np.ones(len(new), np.bool_)
    stay[gone] = stays[come] = False
    same[stays] = np.flatnonzero(stay)
    if len(gone) and len(come):
        order = gone[np.argsort(old[gone])]
        found = order[np.minimum(np.searchsorted(old[order], new[come]), len(order) - 1)]
        same[come] = np.where(old[found] == new[come], found, -1)
    return same


def _filled(old: npt.NDArray[_Number], same: Longs, new: Sequence[Any]) -> npt.NDArray[_Number]:
    """Return the old numbers at `same`, and the new ones in order where that is -1."""
    found = old[same] if len(old) else np.empty(len(same), old.dtype)
    found[same < 0] = new
    return found


def _column(
    old: Column[_Value],
    same: Longs,
    new: Iterable[_Value],
    key: Callable[[_Value], Any] | None = None,
) -> Column[_Value]:
    """Return the values of `old` at `same`, and the new ones in order where that is -1."""
    more: dict[_Value, int] = {}
    known = old.places
    new_at = [
        known[value] if value in known else more.setdefault(value, len(known) + len(more)) for value in new
    ]
    at = _filled(old.at, same, new_at)
    used = np.bincount(at, minlength=len(known) + len(more)) > 0
    if not more and used.all():
        return Column(old.values, at, known)
    return _ordered((*old.values, *more), at, np.flatnonzero(used).tolist(), key)


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
