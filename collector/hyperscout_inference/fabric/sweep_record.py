"""Compare the cables of a sweep with the published InfiniBand cables, which are the record.

An end of a cable is a number: the index of its device in a sorted table of GUIDs, and its port.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from hyperscout_formats.infiniband.ibnetdiscover import CA, SWITCH, Sweep
from hyperscout_topology.connected_parts import connected_parts
from hyperscout_topology.link_changes import contains, table_of
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import LinkTable, Topology

from hyperscout_inference.fabric.adapter_owners import adapters_by_id
from hyperscout_inference.fabric.identify import claims as hosts_described
from hyperscout_inference.fabric.network import distinct, with_id

Rows = npt.NDArray[np.intp]
_Ends = npt.NDArray[np.int64]  # index of a device << 8 | port (a port number has 8 bits)
_Words = npt.NDArray[np.uint64]
_SEVERAL: Final = 1 << 62  # no end: the sweep connects a port to several others
_Number = TypeVar("_Number", bound=np.generic)


class Record(NamedTuple):
    """The published InfiniBand cables in columns. `guids`: the GUIDs of their ends, sorted; `a_at`, `b_at`:
    where those of each cable are."""

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
    guid = _guids_of(table.devices)
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
    ends = guid[a][good], a_port[good], guid[b][good], b_port[good]
    guids = distinct(np.concatenate([ends[0], ends[2]]))
    at = np.searchsorted(guids, ends[0]), np.searchsorted(guids, ends[2])
    return Record(*ends, table.fabric[rows][good], speed[rate], width[rate], guids, *at)


@memoized
def _guids_of(devices: Sequence[str]) -> _Words:
    """Return `guid_of` of each device."""
    rows = [row for row, text in enumerate(devices) if len(text) == 16]
    found = np.zeros(len(devices), np.uint64)
    try:
        parsed = np.frombuffer(bytes.fromhex("".join(devices[row] for row in rows)), ">u8")
    except ValueError:
        parsed = np.zeros(0, ">u8")
    if len(parsed) != len(rows):  # another text has as many characters
        parsed = np.array([guid_of(devices[row]) for row in rows], ">u8")
    found[rows] = parsed
    return found


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


class _KeptComparisons:
    """Compares sweeps with a record, and keeps what it found for the next record: a change in one fabric
    leaves the cables of the others as they are. Older results are dropped. At a start they name each port.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[Sweep, tuple[bytes, ...]], Comparison] = {}

    def __call__(self, sweeps: Sequence[Sweep], record: Record) -> tuple[Comparison, ...]:
        fresh, found = dict[tuple[Sweep, tuple[bytes, ...]], Comparison](), list[Comparison]()
        for sweep in sweeps:
            rows, columns = _cables_of(sweep, record)
            known = self._kept.get((sweep, columns))
            fresh[sweep, columns] = one = _compare_cables(sweep, *columns) if known is None else known
            found.append(one._replace(moved=rows[one.moved], missing=rows[one.missing]))
        self._kept = fresh
        return tuple(found)


_kept_comparisons = _KeptComparisons()


def _cables_of(sweep: Sweep, record: Record) -> tuple[Rows, tuple[bytes, ...]]:
    """Return the rows of the record that may concern a sweep, and their columns.

    Rows of fabrics without a device of the sweep change nothing.
    """
    shown = contains(np.sort(sweep.guid), record.guids)
    fabrics = record.fabric[shown[record.a_at] | shown[record.b_at]]
    highest = int(record.fabric.max(initial=0))
    rows = np.flatnonzero(_marked(highest + 1, fabrics)[record.fabric])
    columns = (record.a, record.a_port, record.b, record.b_port, record.fabric)
    return rows, tuple(column[rows].tobytes() for column in columns)


def _compare_cables(
    sweep: Sweep, a_guid: bytes, a_port: bytes, b_guid: bytes, b_port: bytes, fabrics: bytes
) -> Comparison:
    """Compare a sweep with these cables, the columns of a record. Rows count from the first of them."""
    ends = [np.frombuffer(one, np.uint64) for one in (a_guid, b_guid)]
    fabric = np.frombuffer(fabrics, np.int32)
    guids = distinct(np.concatenate([*ends, sweep.guid]))
    a, b = (
        np.searchsorted(guids, end) << 8 | np.frombuffer(port, np.int64)
        for end, port in zip(ends, (a_port, b_port), strict=True)
    )
    own_ends, peers = _peers(sweep, guids)
    at_a, at_b = _peer_of(a, own_ends, peers), _peer_of(b, own_ends, peers)
    place = np.searchsorted(guids, sweep.guid)
    is_switch = sweep.kind == SWITCH
    swept = _marked(len(guids), place[is_switch])  # switches, by index of the device
    touched = (at_a >= 0) | (at_b >= 0) | swept[a >> 8] | swept[b >> 8]
    of_fabric = _marked(int(fabric.max(initial=0)) + 1, fabric[touched])[fabric]
    moved = ((at_a >= 0) & (at_a != b)) | ((at_b >= 0) & (at_b != a))
    missing = of_fabric & (at_a < 0) & (at_b < 0)
    own, far = _ends_of(sweep, guids)
    recorded = _marked(len(guids) << 8, np.concatenate([a, b]))
    new = ~(recorded[own] | recorded[far])
    at_switches = is_switch[sweep.device] & is_switch[sweep.peer]
    foreign = is_switch & ~_marked(len(guids), np.concatenate([a >> 8, b >> 8]))[place]
    has_foreign = foreign[sweep.device] | foreign[sweep.peer]
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


def other_kinds(sweep: Sweep, record: Record, switches: _Words) -> Rows:
    """Return the devices of the sweep that are a switch there and none in the record, or the reverse.

    `switches`: the GUIDs of those in the record, sorted.
    """
    other = np.flatnonzero(contains(switches, sweep.guid) != (sweep.kind == SWITCH))
    return other[contains(record.guids, sweep.guid[other])]


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
    return bool((peers == _peer_of(ends, *_peers(other, guids))).all())


def confirmed_rows(one: Sweep, other: Sweep, record: Record, rows: Rows, *, is_partial: bool) -> Rows:
    """Return which of these cables of the record the other sweep shows as changed in the same way.

    `is_partial`: of the other sweep. That a partial sweep lacks a cable confirms nothing.
    """
    guids = distinct(np.concatenate([record.a, record.b, one.guid, other.guid]))
    mine, theirs = _peers(one, guids), _peers(other, guids)
    same = np.ones(len(rows), np.bool_)
    for ends in _of_record(record, guids):
        shown = _peer_of(ends[rows], *theirs)
        same &= (_peer_of(ends[rows], *mine) == shown) & (shown != _SEVERAL)
        if is_partial:
            same &= shown >= 0
    return rows[same]


def confirmed_new(one: Sweep, other: Sweep, rows: Rows) -> Rows:
    """Return which of these rows of the sweep `one` the other sweep shows."""
    guids = distinct(np.concatenate([one.guid, other.guid]))
    own, far = _ends_of(one, guids)
    same: npt.NDArray[np.bool_] = _peer_of(own[rows], *_peers(other, guids)) == far[rows]
    return rows[same]


def reduced(sweep: Sweep, record: Record, kept: Rows, left_out: Rows, previous: Topology | None) -> Sweep:
    """Return the sweep without its rows `left_out`, and with these rows of the record in place of what it
    reports about their ends."""
    guids = distinct(np.concatenate([record.guids, sweep.guid]))
    (a, b), (own, far) = _of_record(record, guids), _ends_of(sweep, guids)
    closed = _closed((a, b), (own, far), kept)
    old = [record.ends(row) for row in closed.tolist()]
    disputed = distinct(np.concatenate([a[closed], b[closed]]))
    stays = ~(contains(disputed, own) | contains(disputed, far))
    stays[left_out] = False
    shown = np.zeros(len(sweep.guid), np.bool_)
    shown[sweep.device[stays]] = shown[sweep.peer[stays]] = True
    shown |= np.isin(sweep.guid, np.array([guid for pair in old for guid, _ in pair], np.uint64))
    shown |= sweep.kind == SWITCH
    sweep = _with_devices(sweep, np.flatnonzero(stays), np.flatnonzero(shown))
    guid = sweep.guid.tolist()
    new = sorted({guid for pair in old for guid, _ in pair} - set(guid))
    ids = {f"{one:016x}" for one in new}
    named = previous.switches if ids and previous is not None else ()
    # Without the id that inference adds to a name that several switches have.
    switches = {one.id: one.name.removesuffix(with_id("", one.id)) for one in named if one.id in ids}
    adapters = adapters_by_id(previous.adapters) if previous is not None else {}
    mine = (adapters[one] for one in ids if one in adapters)
    names = switches | {one.id: f"{one.node} {one.name}" for one in mine}
    at = {one: i for i, one in enumerate([*guid, *new])}
    rows = [row for (a, p), (b, q) in old for row in ((at[a], p, at[b], q), (at[b], q, at[a], p))]
    device, port, peer, peer_port = np.array(rows, np.int64).reshape(-1, 4).T.tolist()
    none, unknown = [0] * len(new), [0] * len(rows)
    return replace(
        sweep,
        guid=_more(sweep.guid, new),
        kind=_more(sweep.kind, [SWITCH if f"{one:016x}" in switches else CA for one in new]),
        port_count=_more(sweep.port_count, none),
        declared=_more(sweep.declared, none),
        system_image_guid=_more(sweep.system_image_guid, none),
        descriptions=[*sweep.descriptions, *(names.get(f"{one:016x}", "") for one in new)],
        device=_more(sweep.device, device),
        port=_more(sweep.port, port),
        port_guid=_more(sweep.port_guid, unknown),
        peer=_more(sweep.peer, peer),
        peer_port=_more(sweep.peer_port, peer_port),
        rate_gbps=np.concatenate([sweep.rate_gbps, np.repeat(record.rate_gbps[closed], 2)]),
        width=np.concatenate([sweep.width, np.repeat(record.width[closed], 2)]),
        line=_more(sweep.line, unknown),
    )


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


def _closed(recorded: tuple[_Ends, _Ends], swept: tuple[_Ends, _Ends], kept: Rows) -> Rows:
    """Return these rows of the record, and those at the other ends of the cables that they replace."""
    one, other = (np.concatenate(ends) for ends in zip(recorded, swept, strict=True))
    ends = distinct(np.concatenate([one, other]))
    chain = connected_parts(len(ends), np.searchsorted(ends, one), np.searchsorted(ends, other))
    of_row = chain[np.searchsorted(ends, recorded[0])]
    return np.flatnonzero(np.isin(of_row, of_row[kept]))


def _with_devices(sweep: Sweep, rows: Rows, devices: Rows) -> Sweep:
    """Return the sweep with these rows and devices alone."""
    place = np.zeros(len(sweep.guid), np.int64)
    place[devices] = np.arange(len(devices))
    return replace(
        sweep,
        guid=sweep.guid[devices],
        kind=sweep.kind[devices],
        port_count=sweep.port_count[devices],
        declared=sweep.declared[devices],
        system_image_guid=sweep.system_image_guid[devices],
        descriptions=[sweep.descriptions[device] for device in devices.tolist()],
        device=place[sweep.device[rows]].astype(sweep.device.dtype),
        port=sweep.port[rows],
        port_guid=sweep.port_guid[rows],
        peer=place[sweep.peer[rows]].astype(sweep.peer.dtype),
        peer_port=sweep.peer_port[rows],
        rate_gbps=sweep.rate_gbps[rows],
        width=sweep.width[rows],
        line=sweep.line[rows],
    )


def _more(old: npt.NDArray[_Number], more: Sequence[int]) -> npt.NDArray[_Number]:
    return np.concatenate([old, np.array(more, old.dtype)])


def _ends_of(sweep: Sweep, guids: _Words) -> tuple[_Ends, _Ends]:
    """Return both ends of each row of the sweep."""
    place = np.searchsorted(guids, sweep.guid).astype(np.int64)
    return (place[sweep.device] << 8) | sweep.port, (place[sweep.peer] << 8) | sweep.peer_port


def _peers(sweep: Sweep, guids: _Words) -> tuple[_Ends, _Ends]:
    """Return the ends of the sweep's cables, sorted, and the end at the other side of each."""
    own, far = _ends_of(sweep, guids)
    pairs = np.sort(np.concatenate([own << 32 | far, far << 32 | own]))  # an end has less than 32 bits
    return pairs >> 32, pairs & 0xFFFFFFFF


def _peer_of(at: _Ends, ends: _Ends, peers: _Ends) -> _Ends:
    """Return the other side of each end: -1 where the sweep has no cable, `_SEVERAL` where it has two."""
    if not len(ends):
        return np.full(len(at), -1, np.int64)
    first = np.flatnonzero(np.r_[True, ends[1:] != ends[:-1]])
    last = np.r_[first[1:], len(ends)] - 1
    peer = np.where(peers[first] == peers[last], peers[first], _SEVERAL)
    place = np.minimum(np.searchsorted(ends[first], at), len(first) - 1)
    return np.where(ends[first][place] == at, peer[place], -1)


def _of_record(record: Record, guids: _Words) -> tuple[_Ends, _Ends]:
    """Return both ends of each row of the record."""
    place = np.searchsorted(guids, record.guids).astype(np.int64) << 8
    return place[record.a_at] | record.a_port, place[record.b_at] | record.b_port


def cable_at(sweep: Sweep, end: tuple[int, int]) -> frozenset[tuple[str, str | None]]:
    """Return both ends of the cable in this port, as `Anomaly.ends` has them; nothing without one."""
    rows = np.flatnonzero((sweep.guid[sweep.device] == np.uint64(end[0])) & (sweep.port == end[1]))
    far = [(int(sweep.guid[sweep.peer[row]]), int(sweep.peer_port[row])) for row in rows[:1].tolist()]
    return frozenset((f"{guid:016x}", str(port)) for guid, port in (end, *far))
