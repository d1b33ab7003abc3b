"""Finds the links that two tables do not share, without an object for each of a million rows.

Rows are compared by 64-bit hashes of their columns. Only differing rows become objects.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from hyperscout_topology.memo import memoized, positions
from hyperscout_topology.topology import Link, LinkTable

# How the note of a link begins that others contradict, so that it places nothing.
DENIED = "does not count: "
# The note of a link that no reporter could show now, and that stays as it was published.
UNREPORTED = "not confirmed now: neither end has reported; `hyperscout status` lists the agents"

_PLACES = 64  # with more differences, sorting is as fast as comparing the rest for each
_FEW = 64  # up to so many numbers are looked for one by one: that is faster than to sort
_NEAR = 32  # how many rows may be left out, inserted or replaced in one place
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads neighbouring hashes (Knuth, TAOCP 6.4)
_Hashes = npt.NDArray[np.uint64]
_Number = TypeVar("_Number", bound=np.generic)
# The value lists of a table, and the columns that index them.
_COLUMNS = {
    "devices": ("a", "b"),
    "ports": ("a_port", "b_port"),
    "fabrics": ("fabric",),
    "source_sets": ("sources",),
    "rates": ("rate",),
}


def contains(ordered: npt.NDArray[_Number], values: npt.NDArray[_Number]) -> npt.NDArray[np.bool_]:
    """Return which values are in `ordered`, which is sorted. `np.isin` would sort the values, too."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: npt.NDArray[np.bool_] = ordered[at] == values
    return found


def link_changes(old: Sequence[Link], new: Sequence[Link]) -> tuple[list[Link], list[Link]]:
    """Links added and links removed.

    A link with other sources, note, fabric, speed or width is another link.
    """
    if old is new:
        return [], []
    before, after = table_of(old), table_of(new)
    had, has = _rows(before), _rows(after)
    lost, more = unaligned(had, has)
    gone, come = lost[~are_in(has, had[lost])], more[~are_in(had, has[more])]
    return [after[i] for i in come.tolist()], [before[i] for i in gone.tolist()]


def unaligned(
    one: npt.NDArray[_Number], other: npt.NDArray[_Number]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the positions in `one` and in `other` that have no equal counterpart in the same order.

    In successive generations these are few: a row was left out, inserted or replaced here and there. Each
    such place costs a comparison of the rest. After `_PLACES` of them the rest counts as different.
    """
    gone: list[npt.NDArray[np.intp]] = []
    come: list[npt.NDArray[np.intp]] = []
    i = j = 0
    for _ in range(_PLACES):
        n = min(len(one) - i, len(other) - j)
        differ = one[i : i + n] != other[j : j + n]
        first = int(differ.argmax()) if n else 0
        if n and differ[first]:
            i, j = i + first, j + first
        else:
            i, j = i + n, j + n
            break
        skip, skipped = _next_match(one[i:], other[j:])
        gone.append(np.arange(i, i + skip))
        come.append(np.arange(j, j + skipped))
        i, j = i + skip, j + skipped
    return (
        np.concatenate([*gone, np.arange(i, len(one))]),
        np.concatenate([*come, np.arange(j, len(other))]),
    )


def _next_match(one: npt.NDArray[_Number], other: npt.NDArray[_Number]) -> tuple[int, int]:
    """Return how many elements to skip in each, so that equal ones follow; all, if none are near."""
    near, far = one[:_NEAR], other[:_NEAR]
    equal = near[:, None] == far[None, :]
    at = np.argwhere(equal)
    if not len(at):
        return len(near), len(far)
    best = at[at.sum(axis=1).argmin()]
    return int(best[0]), int(best[1])


def are_in(values: npt.NDArray[_Number], few: npt.NDArray[_Number]) -> npt.NDArray[np.bool_]:
    """(few,) which of these few are among the values."""
    if len(few) <= _FEW:
        return np.array([bool((values == one).any()) for one in few], np.bool_)
    ordered = np.sort(few)
    return contains(np.sort(values[contains(ordered, values)]), few)


def lost_links(old: Sequence[Link], new: Sequence[Link]) -> list[Link]:
    """Links of `old` without a link in `new` between the same ends, in either order."""
    before, after = table_of(old), table_of(new)
    had, has = _joined_ends(before), _joined_ends(after)
    rows, _ = unaligned(had, has)
    rows = rows[~are_in(has, had[rows])]
    if len(rows):
        a, b = _ends(before, rows)
        rows = rows[~are_in(has, joined_hashes(b, a))]
    return [before[i] for i in rows.tolist()]


def links_at(links: Sequence[Link], devices: set[str]) -> list[Link]:
    """Links with an end at one of these devices."""
    table = table_of(links)
    return [table[i] for i in _rows_at(table, devices).tolist()]


def denied_rows(table: LinkTable) -> list[int]:
    """The rows of links that others contradict."""
    return [row for row, note in table.notes.items() if note.startswith(DENIED)]


def ports_in_use(links: Sequence[Link], ports: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of the ports (device, port) at which a link ends, except denied links."""
    table = table_of(links)
    near = mask_of(table, {device for device, _ in ports})
    texts = {text for _, text in ports}
    named = np.fromiter((text in texts for text in table.ports), np.bool_, len(table.ports))
    denied = denied_rows(table)
    found: set[tuple[str, str]] = set()
    for device, port in ((table.a, table.a_port), (table.b, table.b_port)):
        rows = np.flatnonzero(near.take(device))
        rows = rows[named[port[rows]]]
        if denied:
            rows = np.setdiff1d(rows, denied)
        names = map(table.devices.__getitem__, device[rows].tolist())
        found.update(zip(names, map(table.ports.__getitem__, port[rows].tolist()), strict=True))
    return found.intersection(ports)


def wired_devices(links: Sequence[Link]) -> set[str]:
    """Devices at which a link ends."""
    table = table_of(links)
    return {table.devices[i] for i in np.unique(np.concatenate([table.a, table.b])).tolist()}


def replaced(links: Sequence[Link], removed: Collection[Link], added: Sequence[Link]) -> LinkTable:
    """The links without `removed`, followed by `added`."""
    table = table_of(links)
    if removed:
        ends = {link.a_device for link in removed}
        near = np.fromiter((device in ends for device in table.devices), np.bool_, len(table.devices))
        rows = [i for i in np.flatnonzero(near[table.a]).tolist() if table[i] in removed]
        table = without(table, rows)
    return extended(table, added)


def unreported_devices(links: Sequence[Link]) -> set[str]:
    """Devices that only links with the note `UNREPORTED` show."""
    table = table_of(links)
    rows = [row for row, note in table.notes.items() if note == UNREPORTED]
    return wired_devices(table) - wired_devices(without(table, rows)) if rows else set()


def without(table: LinkTable, rows: Sequence[int]) -> LinkTable:
    """The table without these rows."""
    if not rows:
        return table
    stay = np.ones(len(table), np.bool_)
    stay[list(rows)] = False
    place = np.cumsum(stay) - 1
    notes = {int(place[row]): note for row, note in table.notes.items() if stay[row]}
    columns = {name: getattr(table, name)[stay] for names in _COLUMNS.values() for name in names}
    return replace(table, **columns, notes=notes)


def extended(table: LinkTable, links: Sequence[Link]) -> LinkTable:
    """The table with these links appended."""
    if not links:
        return table
    more = LinkTable.of(links)
    fields: dict[str, Any] = {}
    for values, columns in _COLUMNS.items():
        known = list(getattr(table, values))  # a value may be there twice
        index = {value: i for i, value in enumerate(known)}
        new = [value for value in getattr(more, values) if value not in index]
        index |= {value: len(known) + i for i, value in enumerate(new)}
        renumber = np.array([index[value] for value in getattr(more, values)], np.int32)
        fields[values] = known + new
        for name in columns:
            fields[name] = np.concatenate([getattr(table, name), renumber[getattr(more, name)]])
    notes = {len(table) + row: note for row, note in more.notes.items()}
    return replace(table, **fields, notes={**table.notes, **notes})


def table_of(links: Sequence[Link]) -> LinkTable:
    """The links in columns; a `LinkTable` is returned as it is."""
    return links if isinstance(links, LinkTable) else LinkTable.of(links)


def mask_of(table: LinkTable, devices: Collection[str]) -> npt.NDArray[np.bool_]:
    """(devices of the table,) which are among these devices."""
    at = positions(table.devices)
    chosen = np.zeros(len(table.devices), np.bool_)
    chosen[[at[device] for device in devices if device in at]] = True
    return chosen


def _rows_at(table: LinkTable, devices: set[str]) -> npt.NDArray[np.intp]:
    """The rows with an end at one of these devices."""
    near = mask_of(table, devices)
    return np.flatnonzero(near.take(table.a) | near.take(table.b))


@lru_cache(maxsize=3)  # all watchers compare a generation with the one before, and later with the next
def _rows(table: LinkTable) -> _Hashes:
    """A hash of each whole row. The caller must not change the array."""
    hashes = _joined_ends(table)
    columns: tuple[tuple[Sequence[object], npt.NDArray[np.int32]], ...] = (
        (table.fabrics, table.fabric),
        (table.source_sets, table.sources),
        (table.rates, table.rate),
    )
    for values, column in columns:
        hashes = joined_hashes(hashes, _of(values)[column] if len(column) else hashes)
    if table.notes:
        rows = np.fromiter(table.notes, np.int64, len(table.notes))
        hashes[rows] = joined_hashes(hashes[rows], _of(list(table.notes.values())))
    return hashes


def _ends(table: LinkTable, rows: npt.NDArray[np.intp] | slice) -> tuple[_Hashes, _Hashes]:
    devices, ports = _of_devices(table.devices), _of(table.ports)
    return (
        devices.take(table.a[rows]) ^ ports.take(table.a_port[rows]),
        devices.take(table.b[rows]) ^ ports.take(table.b_port[rows]),
    )


@lru_cache(maxsize=3)  # each generation is compared with the one before
def _joined_ends(table: LinkTable) -> _Hashes:
    return joined_hashes(*_ends(table, slice(None)))


@memoized  # the devices stay where only links change
def _of_devices(devices: Sequence[str]) -> _Hashes:
    """Hashes that differ from those of ports with the same text."""
    return _mixed(_of(devices))


def _of(values: Sequence[object]) -> _Hashes:
    return np.fromiter(map(hash, values), np.int64, len(values)).view(np.uint64)


def joined_hashes(one: _Hashes, other: _Hashes) -> _Hashes:
    """A hash of both hashes, in this order."""
    mixed = _mixed(one)
    mixed ^= other
    return _mixed(mixed)


def _mixed(hashes: _Hashes) -> _Hashes:
    mixed = hashes * _MIX
    mixed ^= mixed >> np.uint64(29)
    return mixed
