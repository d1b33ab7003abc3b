"""Compare the cables of sweeps with the record, and keep the result while both stay."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.infiniband.ibnetdiscover import SWITCH, Sweep
from hyperscout_topology.link_changes import contains, table_of, unaligned
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import LinkTable, Topology

from hyperscout_inference.fabric.identify import claims as hosts_described
from hyperscout_inference.fabric.network import distinct, distinct_places
from hyperscout_inference.fabric.part import Guids
from hyperscout_inference.sweeps.record import Ends, Record, Rows, ends_in_sweep, record_of

SEVERAL: Final = -2  # the sweep connects a port to several others
_NO_ENDS: Final[Ends] = np.zeros((2, 0), np.int64)


class Swept(NamedTuple):
    """The devices and cables of a sweep.

    `guids`: sorted. `is_switch`: of each of these, and False of no device (-1). `ends`: those with a cable,
    sorted. `own`, `far`: where those of each row of the sweep are. `peer`: where the other side of each end
    is, `SEVERAL` = there are two, and -1 of no end (-1).
    """

    guids: Guids
    is_switch: npt.NDArray[np.bool_]
    ends: Ends
    own: Rows
    far: Rows
    peer: Rows

    def places(self, local: Rows, ends: Ends) -> Rows:
        """Return where these ends of the record are among those of the sweep, -1 = it has no cable there.

        `local`: the place in `guids` of each device of the record, -1 = none.
        """
        return places_of(local[ends >> 8] << 8 | ends & 0xFF, self.ends)


def places_of(ends: Ends, ordered: Ends) -> Rows:
    """Return where these ends are among the ordered ones, -1 = nowhere."""
    if not len(ordered):
        return np.full(ends.shape, -1, np.intp)
    place = np.minimum(np.searchsorted(ordered, ends), len(ordered) - 1)
    return np.where(ordered[place] == ends, place, -1)


def _swept(sweep: Sweep) -> Swept:
    guids, place = distinct_places(sweep.guid)
    is_switch = _marked(len(guids) + 1, place[sweep.kind == SWITCH])
    ends, places = distinct_places(np.concatenate(ends_in_sweep(sweep, guids)))
    own, far = np.split(places, 2)
    peer = np.full(len(ends) + 1, -1, np.intp)
    peer[own] = far
    peer[far] = own
    for one, other in ((own, far), (far, own)):
        peer[one[peer[one] != other]] = SEVERAL
    return Swept(guids, is_switch, ends, own, far, peer)


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
    record. `ports`: the ports of adapters at all other new cables. `swept`: the cables of the sweep.
    """

    moved: Rows
    missing: Rows
    known: int
    between: Rows
    ports: tuple[PortShown, ...]
    swept: Swept


def compare(sweeps: Sequence[Sweep], previous: Topology | None) -> tuple[Comparison, ...]:
    """Compare each sweep with the record. The result is kept until a sweep or the record changes."""
    return _compared(tuple(sweeps), table_of(previous.links if previous is not None else ()))


@lru_cache(maxsize=1)  # sweeps and the record change far less often than what agents report
def _compared(sweeps: tuple[Sweep, ...], table: LinkTable) -> tuple[Comparison, ...]:
    return _kept_comparisons(sweeps, record_of(table))


class _Changed(NamedTuple):
    """The cables of a fabric of the record that are not as before. `ends`: (2, cables).

    `gone`: which cables of the record before are not here. `come`: which of these were not there. The others
    are the same, in the same order.
    """

    ends: Ends
    gone: Rows
    come: Rows


class _Kept(NamedTuple):
    """What is kept of a sweep. `local`: see `Swept.places`.

    `places`: `Swept.places` of the ends, (2, cables), by each fabric of the record of which the sweep shows
    something. `found`: what it changes in them. `moved` and `missing` are not rows of the record there: they
    number the cables of the first fabric in `places`, then those of the second, and so on. The order of
    `places` is therefore a part of the value. A change in another fabric changes neither.
    """

    swept: Swept
    local: Rows
    places: dict[int, Rows]
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


def _places_after(swept: Swept, local: Rows, changed: _Changed, before: Rows | None) -> Rows | None:
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


def _is_shown(swept: Swept, local: Rows, ends: Ends, places: Rows) -> bool:
    """Return whether the sweep shows a cable at these ends of a fabric, or a switch."""
    return bool((places >= 0).any() or swept.is_switch[local[ends >> 8]].any())


def _in_record(kept: _Kept, record: Record) -> Comparison:
    """Return what a sweep changes, with rows of the record."""
    found = kept.found
    if not (len(found.moved) or len(found.missing)):  # the common case
        return found
    rows = np.concatenate([record.rows_in(fabric) for fabric in kept.places])  # as `found` numbers them
    return found._replace(moved=np.sort(rows[found.moved]), missing=np.sort(rows[found.missing]))


def _compared_cables(
    sweep: Sweep, swept: Swept, local: Rows, places: dict[int, Rows], record: Record
) -> Comparison:
    """Compare a sweep with the cables of the fabrics that it shows. Return `_Kept.found`."""
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
        swept,
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


def other_kinds(sweeps: tuple[Sweep, ...], record: Record, switches: Guids) -> list[Rows]:
    """Return for each sweep which of its devices (indexes) are a switch there and none in the record, or the
    reverse. Devices that are in no cable of the record are not among them.

    `switches`: the GUIDs of the published switches, sorted.
    """
    found = _other_kinds(sweeps, switches)
    if not any(map(len, found)):
        return found
    wired = _marked(len(record.guids), np.concatenate([record.a, record.b]) >> 8)
    guids = record.guids[wired]
    return [rows[contains(guids, sweep.guid[rows])] for sweep, rows in zip(sweeps, found, strict=True)]


@memoized
def _other_kinds(sweeps: tuple[Sweep, ...], switches: Guids) -> list[Rows]:
    return [np.flatnonzero(contains(switches, x.guid) != (x.kind == SWITCH)) for x in sweeps]
