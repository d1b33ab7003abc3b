"""The published InfiniBand cables: the record that sweeps are compared with.

An end of a cable is a number: the index of its device in a sorted table of GUIDs, and its port.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.infiniband.ibnetdiscover import Sweep
from hyperscout_topology.link_changes import contains
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import LinkTable, Rate, Switch, Topology

from hyperscout_inference.fabric.adapter_owners import adapters_by_id, guid_of
from hyperscout_inference.fabric.network import distinct_places
from hyperscout_inference.fabric.part import Guids

Rows = npt.NDArray[np.intp]
Ends = npt.NDArray[np.int64]  # index of a device << 8 | port (a port number has 8 bits)
_MAX_PORT, _PORT_DIGITS = 255, 3


class Record(NamedTuple):
    """The published InfiniBand cables in columns. `guids`: of all published devices, sorted, the same object
    while they stay. `a`, `b`: the ends of each cable, at devices in `guids`. `rate`: indexes `rates`."""

    guids: Guids
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
def guids_of_switches(switches: Sequence[Switch]) -> Guids:
    """Return the GUIDs of the switches, sorted."""
    return np.sort(np.array([guid_of(one.id) for one in switches], np.uint64))


@memoized
def _guids_of(devices: Sequence[str]) -> tuple[Guids, Guids, Rows]:
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


def names_of(guids: Collection[int], sweep: Sweep, previous: Topology | None) -> dict[int, str]:
    """Return a name of each device, by its GUID: of a published switch its name, of a published adapter its
    node and its name on that node, else the first 64 characters of its description in the sweep, else its
    GUID as 16 hexadecimal digits."""
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


def ends_in_sweep(sweep: Sweep, guids: Guids) -> tuple[Ends, Ends]:
    """Return both ends of each row of the sweep."""
    place = np.searchsorted(guids, sweep.guid).astype(np.int64)
    return (place[sweep.device] << 8) | sweep.port, (place[sweep.peer] << 8) | sweep.peer_port


def ends_in_record(record: Record, guids: Guids) -> tuple[Ends, Ends]:
    """Return both ends of each row of the record."""
    return renumbered(record.a, record.guids, guids), renumbered(record.b, record.guids, guids)


def renumbered(ends: Ends, old: Guids, new: Guids) -> Ends:
    """Return ends at devices in the table `old` as ends at devices in `new`, which has all of them."""
    place = np.searchsorted(new, old).astype(np.int64) << 8
    found: Ends = place[ends >> 8] | ends & 0xFF
    return found


def cable_at(sweep: Sweep, row: int) -> frozenset[tuple[str, str | None]]:
    """Return both ends of the cable in this row, as `Anomaly.ends` has them."""
    both = (sweep.device[row], sweep.port[row]), (sweep.peer[row], sweep.peer_port[row])
    return frozenset((f"{int(sweep.guid[device]):016x}", str(int(port))) for device, port in both)
