"""Compare the cables of a sweep with the published InfiniBand cables, which are the record.

An end of a cable is a number: the index of its device in a sorted table of GUIDs, and its port.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.infiniband.ibnetdiscover import SWITCH, Sweep
from hyperscout_topology.link_changes import contains, table_of
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import LinkTable, Switch, Topology

from hyperscout_inference.fabric.adapter_owners import adapters_by_id
from hyperscout_inference.fabric.identify import claims as hosts_described
from hyperscout_inference.fabric.network import distinct, distinct_places

Rows = npt.NDArray[np.intp]
Ends = npt.NDArray[np.int64]  # index of a device << 8 | port (a port number has 8 bits)
_Words = npt.NDArray[np.uint64]
_SEVERAL: Final = 1 << 62  # no end: the sweep connects a port to several others


class Record(NamedTuple):
    """The published InfiniBand cables in columns. `guids`: the GUIDs of all published devices, sorted, the
    same object while they stay; `a_at`, `b_at`: where those of each cable are."""

    a: _Words
    a_port: npt.NDArray[np.int64]
    b: _Words
    b_port: npt.NDArray[np.int64]
    fabric: npt.NDArray[np.int32]
    rate_gbps: npt.NDArray[np.float32]
    width: npt.NDArray[np.uint8]
    guids: _Words
    a_at: Rows
    b_at: Rows

    def ends(self, row: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return GUID and port of both ends of a cable."""
        return (int(self.a[row]), int(self.a_port[row])), (int(self.b[row]), int(self.b_port[row]))


class PortShown(NamedTuple):
    """A port of an adapter that a sweep connects. `row`: of the sweep. `host`: that the description names."""

    row: int
    guid: int
    port: int
    host: str


class Comparison(NamedTuple):
    """What a sweep changes. `known`: how many cables the record has in the fabrics of the sweep.

    `moved`, `missing`: rows of the record. The sweep has an end of the cable at another port, or lacks it.
    `between`: rows of the sweep. These new cables are between switches, or at a switch that is not in the
    record. `ports`: the ports of adapters at all other new cables.
    """

    moved: Rows
    missing: Rows
    known: int
    between: Rows
    ports: tuple[PortShown, ...]


@lru_cache(maxsize=2)
def record_of(table: LinkTable) -> Record:
    guid, guids, place = _guids_of(table.devices)
    port = np.array([int(text) if text.isdecimal() else -1 for text in table.ports], np.int64)
    swept = np.array([name.startswith("infiniband") for name in table.fabrics], np.bool_)
    rows = np.flatnonzero(swept[table.fabric]) if len(table) else np.zeros(0, np.intp)
    a, b = table.a[rows], table.b[rows]
    a_port, b_port = port[table.a_port[rows]], port[table.b_port[rows]]
    good = (
        (guid[a] > 0) & (guid[b] > 0) & (np.minimum(a_port, b_port) >= 0) & (np.maximum(a_port, b_port) < 256)
    )
    speed = np.array([x.speed_gbps for x in table.rates], np.float32)
    width = np.array([x.width for x in table.rates], np.int64).astype(np.uint8)
    rate = table.rate[rows][good]
    at = place[a][good], place[b][good]
    ends = guids[at[0]], a_port[good], guids[at[1]], b_port[good]
    return Record(*ends, table.fabric[rows][good], speed[rate], width[rate], guids, *at)


@memoized
def guids_of_switches(switches: Sequence[Switch]) -> _Words:
    """Return the GUIDs of the switches, sorted."""
    return np.sort(np.array([guid_of(one.id) for one in switches], np.uint64))


@memoized
def _guids_of(devices: Sequence[str]) -> tuple[_Words, _Words, Rows]:
    """Return `guid_of` of each device, these GUIDs sorted, and where that of each device is."""
    rows = [row for row, text in enumerate(devices) if len(text) == 16]
    found = np.zeros(len(devices), np.uint64)
    try:
        parsed = np.frombuffer(bytes.fromhex("".join(devices[row] for row in rows)), ">u8")
    except ValueError:
        parsed = np.zeros(0, ">u8")
    if len(parsed) != len(rows):  # another text has as many characters
        parsed = np.array([guid_of(devices[row]) for row in rows], ">u8")
    found[rows] = parsed
    return found, *distinct_places(found)


def guid_of(text: str) -> int:
    """Return the GUID that is the id of a device, 0 for a device of another kind of fabric."""
    try:
        return int(text, 16) if len(text) == 16 else 0
    except ValueError:
        return 0  # an Ethernet device or a GPU


def compare(sweeps: Sequence[Sweep], previous: Topology | None) -> tuple[Comparison, ...]:
    """Compare each sweep with the record. The result is kept until a sweep or the record changes."""
    return _compared(tuple(sweeps), table_of(previous.links if previous is not None else ()))


@lru_cache(maxsize=1)  # sweeps and the record change far less often than what agents report
def _compared(sweeps: tuple[Sweep, ...], table: LinkTable) -> tuple[Comparison, ...]:
    return _kept_comparisons(sweeps, record_of(table))


class _Swept(NamedTuple):
    """The devices and cables of a sweep. `guids`: sorted; `place`: where that of each device is. `is_switch`:
    of each of `guids`, and False of no device (-1). `peers`: see `_peers`."""

    guids: _Words
    place: Rows
    is_switch: npt.NDArray[np.bool_]
    peers: tuple[Ends, Ends]


def _swept(sweep: Sweep) -> _Swept:
    guids, place = distinct_places(sweep.guid)
    is_switch = _marked(len(guids) + 1, place[sweep.kind == SWITCH])
    return _Swept(guids, place, is_switch, _peers(sweep, guids))


class _Kept(NamedTuple):
    """What is kept of a sweep: its place of each GUID of a record, -1 = none, and what it was found to change
    in these columns of the record."""

    swept: _Swept
    guids: _Words
    local: Rows
    columns: tuple[npt.NDArray[Any], ...]
    found: Comparison


class _KeptComparisons:
    """Compares sweeps with a record, and keeps what it found for the next record: a change in one fabric
    leaves the cables of the others as they are. Older results are dropped. At a start they name each port.
    """

    def __init__(self) -> None:
        self._kept: dict[Sweep, _Kept] = {}

    def __call__(self, sweeps: Sequence[Sweep], record: Record) -> tuple[Comparison, ...]:
        fresh, found = dict[Sweep, _Kept](), list[Comparison]()
        for sweep in sweeps:
            known = self._kept.get(sweep)
            swept = _swept(sweep) if known is None else known.swept
            if known is not None and known.guids is record.guids:
                local = known.local
            else:
                local = np.searchsorted(swept.guids, record.guids)
                local[~contains(swept.guids, record.guids)] = -1
            rows = _rows_of(local, record)
            columns: tuple[npt.NDArray[Any], ...] = tuple(
                column[rows]
                for column in (record.a_at, record.a_port, record.b_at, record.b_port, record.fabric)
            )
            if (
                known is None
                or known.local is not local
                or not all(map(np.array_equal, known.columns, columns))
            ):
                a, a_port, b, b_port, fabric = columns
                ends = local[a] << 8 | a_port, local[b] << 8 | b_port
                known = _Kept(
                    swept, record.guids, local, columns, _compared_cables(sweep, swept, *ends, fabric)
                )
            fresh[sweep], one = known, known.found
            found.append(one._replace(moved=rows[one.moved], missing=rows[one.missing]))
        self._kept = fresh
        return tuple(found)


_kept_comparisons = _KeptComparisons()


def _rows_of(local: Rows, record: Record) -> Rows:
    """Return the rows of the record that may concern a sweep. Rows of fabrics without a device of the sweep
    change nothing. `local`: see `_Kept`."""
    shown = local >= 0
    fabrics = record.fabric[shown[record.a_at] | shown[record.b_at]]
    highest = int(record.fabric.max(initial=0))
    return np.flatnonzero(_marked(highest + 1, fabrics)[record.fabric])


def _compared_cables(
    sweep: Sweep, swept: _Swept, a: Ends, b: Ends, fabric: npt.NDArray[np.int32]
) -> Comparison:
    """Compare a sweep with the cables of a record with these ends, < 0 at a device that is not in the sweep.
    Rows count from the first of them."""
    at_a, at_b = _peer_of(a, *swept.peers), _peer_of(b, *swept.peers)
    touched = (at_a >= 0) | (at_b >= 0) | swept.is_switch[a >> 8] | swept.is_switch[b >> 8]
    of_fabric = _marked(int(fabric.max(initial=0)) + 1, fabric[touched])[fabric]
    moved = ((at_a >= 0) & (at_a != b)) | ((at_b >= 0) & (at_b != a))
    missing = of_fabric & (at_a < 0) & (at_b < 0)
    ends = np.concatenate([a, b])
    ends = ends[ends >= 0]
    recorded = _marked(len(swept.guids) << 8, ends)
    own, far = swept.place[sweep.device] << 8 | sweep.port, swept.place[sweep.peer] << 8 | sweep.peer_port
    new = ~(recorded[own] | recorded[far])
    is_switch = sweep.kind == SWITCH
    at_switches = is_switch[sweep.device] & is_switch[sweep.peer]
    foreign = swept.is_switch[:-1] & ~_marked(len(swept.guids), ends >> 8)
    has_foreign = foreign[own >> 8] | foreign[far >> 8]
    known = int(np.count_nonzero(of_fabric))
    between = new & (at_switches | has_foreign) if known else np.zeros(len(new), np.bool_)
    return Comparison(
        np.flatnonzero(of_fabric & moved),
        np.flatnonzero(missing),
        known,
        np.flatnonzero(between),
        _ports(sweep, np.flatnonzero(new & ~between & ~at_switches)),
    )


def _marked(size: int, places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    found = np.zeros(size, np.bool_)
    found[places] = True
    return found


def _ports(sweep: Sweep, rows: Rows) -> tuple[PortShown, ...]:
    shown = [
        (row, device, port)
        for devices, ports in ((sweep.device, sweep.port), (sweep.peer, sweep.peer_port))
        for row, device, port in zip(rows.tolist(), devices[rows].tolist(), ports[rows].tolist(), strict=True)
        if sweep.kind[device] != SWITCH
    ]
    devices = sorted({device for _, device, _ in shown})
    named = hosts_described([sweep.descriptions[device] for device in devices])
    host = {device: claim.host for device, claim in zip(devices, named, strict=True)}
    return tuple(PortShown(row, int(sweep.guid[at]), port, host[at]) for row, at, port in shown)


def other_kinds(sweeps: tuple[Sweep, ...], record: Record, switches: _Words) -> list[Rows]:
    """Return the devices of each sweep that are a switch there and none in the record, or the reverse.

    `switches`: the GUIDs of those in the record, sorted.
    """
    found = _other_kinds(sweeps, switches)
    if not any(map(len, found)):
        return found
    guids = distinct(np.concatenate([record.a, record.b]))
    return [rows[contains(guids, sweep.guid[rows])] for sweep, rows in zip(sweeps, found, strict=True)]


@memoized
def _other_kinds(sweeps: tuple[Sweep, ...], switches: _Words) -> list[Rows]:
    return [np.flatnonzero(contains(switches, x.guid) != (x.kind == SWITCH)) for x in sweeps]


def share_a_device(one: Sweep, other: Sweep) -> bool:
    return bool(np.isin(one.guid, other.guid).any())


def share_a_switch(one: Sweep, other: Sweep) -> bool:
    return bool(np.isin(one.guid[one.kind == SWITCH], other.guid).any())


def shows_all_of(one: Sweep, other: Sweep) -> bool:
    """Return whether the other sweep shows all cables of `one`, and they share a switch."""
    if not share_a_switch(one, other):
        return False
    guids = distinct(np.concatenate([one.guid, other.guid]))
    ends, peers = _peers(one, guids)
    return bool(((peers == _peer_of(ends, *_peers(other, guids))) & (peers != _SEVERAL)).all())


def confirmed_rows(one: Sweep, other: Sweep, record: Record, rows: Rows, *, is_partial: bool) -> Rows:
    """Return which of these cables of the record the other sweep shows as changed in the same way.

    `is_partial`: of the other sweep. That a partial sweep lacks a cable confirms nothing.
    """
    guids = distinct(np.concatenate([record.a, record.b, one.guid, other.guid]))
    mine, theirs = _peers(one, guids), _peers(other, guids)
    same = np.ones(len(rows), np.bool_)
    for ends in ends_in_record(record, guids):
        shown = _peer_of(ends[rows], *theirs)
        same &= (_peer_of(ends[rows], *mine) == shown) & (shown != _SEVERAL)
        if is_partial:
            same &= shown >= 0
    return rows[same]


def confirmed_new(one: Sweep, other: Sweep, rows: Rows) -> Rows:
    """Return which of these rows of the sweep `one` the other sweep shows."""
    guids = distinct(np.concatenate([one.guid, other.guid]))
    own, far = ends_in_sweep(one, guids)
    same: npt.NDArray[np.bool_] = _peer_of(own[rows], *_peers(other, guids)) == far[rows]
    return rows[same]


def names_of(guids: Collection[int], sweep: Sweep, previous: Topology | None) -> dict[int, str]:
    """Return the published names of devices, else their descriptions in the sweep, else their GUIDs."""
    found = {guid: f"{guid:016x}" for guid in guids}
    at = np.flatnonzero(np.isin(sweep.guid, np.array(list(guids), np.uint64)))
    found |= {int(sweep.guid[i]): text[:64] for i in at.tolist() if (text := sweep.descriptions[i])}
    if previous is not None:
        ids = {f"{guid:016x}": guid for guid in guids}
        found |= {ids[one.id]: one.name for one in previous.switches if one.id in ids}
        adapters = adapters_by_id(previous.adapters)
        mine = (adapters[one] for one in ids if one in adapters)
        found |= {ids[one.id]: f"{one.node} {one.name}" for one in mine}
    return found


def ends_in_sweep(sweep: Sweep, guids: _Words) -> tuple[Ends, Ends]:
    """Return both ends of each row of the sweep."""
    place = np.searchsorted(guids, sweep.guid).astype(np.int64)
    return (place[sweep.device] << 8) | sweep.port, (place[sweep.peer] << 8) | sweep.peer_port


def _peers(sweep: Sweep, guids: _Words) -> tuple[Ends, Ends]:
    """Return the ends of the sweep's cables, sorted, and the end at the other side of each: `_SEVERAL` where
    there are two."""
    own, far = ends_in_sweep(sweep, guids)
    pairs = np.sort(np.concatenate([own << 32 | far, far << 32 | own]))  # an end has less than 32 bits
    ends, peers = pairs >> 32, pairs & 0xFFFFFFFF
    first = np.flatnonzero(np.diff(ends, prepend=-1))
    last = np.append(first, len(ends))[1:] - 1
    return ends[first], np.where(peers[first] == peers[last], peers[first], _SEVERAL)


def _peer_of(at: Ends, ends: Ends, peers: Ends) -> Ends:
    """Return the other side of each end, -1 where the sweep has no cable. `ends`, `peers`: see `_peers`."""
    if not len(ends):
        return np.full(len(at), -1, np.int64)
    place = np.minimum(np.searchsorted(ends, at), len(ends) - 1)
    return np.where(ends[place] == at, peers[place], -1)


def ends_in_record(record: Record, guids: _Words) -> tuple[Ends, Ends]:
    """Return both ends of each row of the record."""
    place = np.searchsorted(guids, record.guids).astype(np.int64) << 8
    return place[record.a_at] | record.a_port, place[record.b_at] | record.b_port


def cable_at(sweep: Sweep, end: tuple[int, int]) -> frozenset[tuple[str, str | None]]:
    """Return both ends of the cable in this port, as `Anomaly.ends` has them; nothing without one."""
    rows = np.flatnonzero((sweep.guid[sweep.device] == np.uint64(end[0])) & (sweep.port == end[1]))
    far = [(int(sweep.guid[sweep.peer[row]]), int(sweep.peer_port[row])) for row in rows[:1].tolist()]
    return frozenset((f"{guid:016x}", str(port)) for guid, port in (end, *far))
