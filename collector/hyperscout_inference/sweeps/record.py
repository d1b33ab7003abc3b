"""Compare the cables of a sweep with the published InfiniBand cables, which are the record.

An end of a cable is a number: the index of its device in a sorted table of GUIDs, and its port.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.infiniband.ibnetdiscover import SWITCH, Sweep
from hyperscout_topology.link_changes import contains, table_of, unaligned
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import LinkTable, Rate, Switch, Topology

from hyperscout_inference.fabric.adapter_owners import adapters_by_id, guid_of
from hyperscout_inference.fabric.identify import claims as hosts_described
from hyperscout_inference.fabric.network import distinct, distinct_places

Rows = npt.NDArray[np.intp]
Ends = npt.NDArray[np.int64]  # index of a device << 8 | port (a port number has 8 bits)
_Words = npt.NDArray[np.uint64]
_SEVERAL: Final = -2  # the sweep connects a port to several others
_MAX_PORT, _PORT_DIGITS = 255, 3
_NO_ENDS: Final[Ends] = np.zeros((2, 0), np.int64)


class Record(NamedTuple):
    """The published InfiniBand cables in columns. `guids`: of all published devices, sorted, the same object
    while they stay. `a`, `b`: the ends of each cable, at devices in `guids`. `rate`: indexes `rates`."""

    guids: _Words
    a: Ends
    b: Ends
    fabric: npt.NDArray[np.int32]
    rate: npt.NDArray[np.int32]
    rates: Sequence[Rate]

    def ends(self, row: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return GUID and port of both ends of a cable."""
        return self._end(int(self.a[row])), self._end(int(self.b[row]))

    def _end(self, end: int) -> tuple[int, int]:
        return int(self.guids[end >> 8]), end & 0xFF

    def has(self, guid: int, port: int) -> bool:
        """Return whether a cable ends at this port."""
        if not contains(self.guids, np.array([guid], np.uint64)).all():
            return False
        end = int(np.searchsorted(self.guids, np.uint64(guid))) << 8 | port
        return bool((self.a == end).any() or (self.b == end).any())

    def rows_in(self, fabric: int) -> Rows:
        return np.flatnonzero(self.fabric == fabric)

    def ends_in(self, fabric: int) -> Ends:
        """Return (2, cables) the ends of the cables of a fabric."""
        rows = self.rows_in(fabric)
        return np.stack([self.a[rows], self.b[rows]])


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
    device = np.where(guid > 0, place << 8, -1)
    port = np.array([_port_number(text) for text in table.ports], np.int64)
    is_swept = np.array([name.startswith("infiniband") for name in table.fabrics], np.bool_)
    rows = np.flatnonzero(is_swept.take(table.fabric))
    a = device.take(table.a[rows]) | port.take(table.a_port[rows])  # < 0 if either is
    b = device.take(table.b[rows]) | port.take(table.b_port[rows])
    is_cable = (a >= 0) & (b >= 0)
    if not is_cable.all():
        a, b, rows = a[is_cable], b[is_cable], rows[is_cable]
    return Record(guids, a, b, table.fabric[rows], table.rate[rows], table.rates)


def _port_number(text: str) -> int:
    """Return the number of an InfiniBand port, -1 for a port of another kind of fabric."""
    number = int(text) if text.isdecimal() and len(text) <= _PORT_DIGITS else -1
    return number if number <= _MAX_PORT else -1


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


def compare(sweeps: Sequence[Sweep], previous: Topology | None) -> tuple[Comparison, ...]:
    """Compare each sweep with the record. The result is kept until a sweep or the record changes."""
    return _compared(tuple(sweeps), table_of(previous.links if previous is not None else ()))


@lru_cache(maxsize=1)  # sweeps and the record change far less often than what agents report
def _compared(sweeps: tuple[Sweep, ...], table: LinkTable) -> tuple[Comparison, ...]:
    return _kept_comparisons(sweeps, record_of(table))


class _Swept(NamedTuple):
    """The devices and cables of a sweep.

    `guids`: sorted. `is_switch`: of each of these, and False of no device (-1). `ends`: those with a cable,
    sorted. `own`, `far`: where those of each row of the sweep are. `peer`: where the other side of each end
    is, `_SEVERAL` = there are two, and -1 of no end (-1).
    """

    guids: _Words
    is_switch: npt.NDArray[np.bool_]
    ends: Ends
    own: Rows
    far: Rows
    peer: Rows

    def places(self, local: Rows, ends: Ends) -> Rows:
        """Return where these ends of the record are among those of the sweep, -1 = it has no cable there.

        `local`: the place in `guids` of each device of the record, -1 = none.
        """
        if not len(self.ends):
            return np.full(ends.shape, -1, np.intp)
        mine = local[ends >> 8] << 8 | ends & 0xFF
        place = np.minimum(np.searchsorted(self.ends, mine), len(self.ends) - 1)
        return np.where(self.ends[place] == mine, place, -1)


def _swept(sweep: Sweep) -> _Swept:
    guids, place = distinct_places(sweep.guid)
    is_switch = _marked(len(guids) + 1, place[sweep.kind == SWITCH])
    ends, places = distinct_places(np.concatenate(ends_in_sweep(sweep, guids)))
    own, far = np.split(places, 2)
    peer = np.full(len(ends) + 1, -1, np.intp)
    peer[own] = far
    peer[far] = own
    for one, other in ((own, far), (far, own)):
        peer[one[peer[one] != other]] = _SEVERAL
    return _Swept(guids, is_switch, ends, own, far, peer)


class _Changed(NamedTuple):
    """The cables of a fabric of the record that are not as before. `ends`: (2, cables).

    `gone`: which cables of the record before are not here. `come`: which of these were not there. The others
    are the same, in the same order.
    """

    ends: Ends
    gone: Rows
    come: Rows


class _Kept(NamedTuple):
    """What is kept of a sweep. `local`: see `_Swept.places`.

    `places`: (2, cables) of the ends in each fabric of the record of which the sweep shows something.
    `found`: what it changes in them. Its rows count through these fabrics one after the other.
    """

    swept: _Swept
    local: Rows
    places: Mapping[int, Rows]
    found: Comparison


class _KeptComparisons:
    """Compares sweeps with a record, and keeps what it found: the next record differs in few cables.

    What is kept of other sweeps is dropped. At a start it names each port.
    """

    def __init__(self) -> None:
        self._last: tuple[Record | None, dict[Sweep, _Kept]] = None, {}

    def __call__(self, sweeps: Sequence[Sweep], record: Record) -> tuple[Comparison, ...]:
        before, kept = self._last
        changes = _changes(before, record) if before is not None else None
        fresh = dict[Sweep, _Kept]()
        for sweep in sweeps:
            known = kept.get(sweep)
            if known is None or changes is None:
                fresh[sweep] = _kept(sweep, known, record)
            else:
                fresh[sweep] = _followed(sweep, known, record, changes)
        self._last = record, fresh
        return tuple(_in_record(fresh[sweep], record) for sweep in sweeps)


_kept_comparisons = _KeptComparisons()


def _changes(before: Record, now: Record) -> dict[int, _Changed] | None:
    """Return the fabrics with other cables, None = the records have other devices or other fabrics."""
    gone, come = unaligned(_joined(before.a, before.b), _joined(now.a, now.b))
    if now.guids is not before.guids or not np.array_equal(
        np.delete(before.fabric, gone), np.delete(now.fabric, come)
    ):
        return None
    found = {}
    for fabric in {*before.fabric[gone].tolist(), *now.fabric[come].tolist()}:
        ends = now.ends_in(fabric)
        found[fabric] = _Changed(ends, *unaligned(_joined(*before.ends_in(fabric)), _joined(*ends)))
    return found


def _joined(a: Ends, b: Ends) -> Ends:
    """Return both ends of each cable as one number. An end has less than 32 bits."""
    joined: Ends = a << 32 | b
    return joined


def _kept(sweep: Sweep, known: _Kept | None, record: Record) -> _Kept:
    """Compare a sweep with all cables of a record."""
    swept = _swept(sweep) if known is None else known.swept
    local = np.searchsorted(swept.guids, record.guids)
    local[~contains(swept.guids, record.guids)] = -1
    places = {}
    for fabric in distinct(record.fabric).tolist():
        ends = record.ends_in(fabric)
        mine = swept.places(local, ends)
        if _is_shown(swept, local, ends, mine):
            places[fabric] = mine
    return _Kept(swept, local, places, _compared_cables(sweep, swept, local, places, record))


def _followed(sweep: Sweep, known: _Kept, record: Record, changes: Mapping[int, _Changed]) -> _Kept:
    """Compare a sweep with a record in which these fabrics have other cables."""
    swept, local, places = known.swept, known.local, dict(known.places)
    for fabric, changed in changes.items():
        mine = _places_after(swept, local, changed, places.pop(fabric, None))
        if mine is not None:
            places[fabric] = mine
    if places.keys() == known.places.keys() and places.keys().isdisjoint(changes):
        return known
    return known._replace(places=places, found=_compared_cables(sweep, swept, local, places, record))


def _places_after(swept: _Swept, local: Rows, changed: _Changed, before: Rows | None) -> Rows | None:
    ends, gone, come = changed
    fresh = swept.places(local, ends[:, come])
    if before is None and not _is_shown(swept, local, ends[:, come], fresh):
        return None
    found = np.full(ends.shape, -1, np.intp)
    if before is not None:
        stay = np.ones(ends.shape[1], np.bool_)
        stay[come] = False
        found[:, stay] = np.delete(before, gone, axis=1)
    found[:, come] = fresh
    return found if _is_shown(swept, local, ends, found) else None


def _is_shown(swept: _Swept, local: Rows, ends: Ends, places: Rows) -> bool:
    """Return whether the sweep shows a cable at these ends of a fabric, or a switch."""
    return bool((places >= 0).any() or swept.is_switch[local[ends >> 8]].any())


def _in_record(kept: _Kept, record: Record) -> Comparison:
    """Return a result with rows of the record."""
    found = kept.found
    if not (len(found.moved) or len(found.missing)):  # the common case
        return found
    rows = np.concatenate([record.rows_in(fabric) for fabric in kept.places])
    return found._replace(moved=np.sort(rows[found.moved]), missing=np.sort(rows[found.missing]))


def _compared_cables(
    sweep: Sweep, swept: _Swept, local: Rows, places: Mapping[int, Rows], record: Record
) -> Comparison:
    """Compare a sweep with the cables of the fabrics that it shows. See `_Kept`."""
    a, b = np.concatenate([_NO_ENDS, *places.values()], axis=1)
    moved = ((a >= 0) & (swept.peer[a] != b)) | ((b >= 0) & (swept.peer[b] != a))
    recorded = _marked(len(swept.peer), a) | _marked(len(swept.peer), b)
    new = np.flatnonzero(~(recorded[swept.own] | recorded[swept.far]))
    device, peer = sweep.device[new], sweep.peer[new]
    at_switches = (sweep.kind[device] == SWITCH) & (sweep.kind[peer] == SWITCH)
    between = np.zeros(len(new), np.bool_)
    if len(new) and len(a):
        ends = np.concatenate([record.ends_in(fabric) for fabric in places], axis=1)
        wired = _marked(len(swept.is_switch), local[ends >> 8])
        foreign = swept.is_switch & ~wired
        own, far = (np.searchsorted(swept.guids, sweep.guid[at]) for at in (device, peer))
        between = at_switches | foreign[own] | foreign[far]
    return Comparison(
        np.flatnonzero(moved),
        np.flatnonzero((a < 0) & (b < 0)),
        len(a),
        new[between],
        _ports(sweep, new[~between & ~at_switches]),
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
    wired = _marked(len(record.guids), np.concatenate([record.a, record.b]) >> 8)
    guids = record.guids[wired]
    return [rows[contains(guids, sweep.guid[rows])] for sweep, rows in zip(sweeps, found, strict=True)]


@memoized
def _other_kinds(sweeps: tuple[Sweep, ...], switches: _Words) -> list[Rows]:
    return [np.flatnonzero(contains(switches, x.guid) != (x.kind == SWITCH)) for x in sweeps]


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


def ends_in_record(record: Record, guids: _Words) -> tuple[Ends, Ends]:
    """Return both ends of each row of the record."""
    place = np.searchsorted(guids, record.guids).astype(np.int64) << 8
    return place[record.a >> 8] | record.a & 0xFF, place[record.b >> 8] | record.b & 0xFF


def cable_at(sweep: Sweep, row: int) -> frozenset[tuple[str, str | None]]:
    """Return both ends of the cable in this row, as `Anomaly.ends` has them."""
    both = (sweep.device[row], sweep.port[row]), (sweep.peer[row], sweep.peer_port[row])
    return frozenset((f"{int(sweep.guid[device]):016x}", str(int(port))) for device, port in both)
