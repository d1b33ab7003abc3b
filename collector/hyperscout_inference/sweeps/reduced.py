"""Reduce a sweep to what counts: published cables are in the place of the disputed ones."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from hyperscout_formats.infiniband.ibnetdiscover import CA, SWITCH, Sweep
from hyperscout_topology.connected_parts import connected_parts
from hyperscout_topology.link_changes import contains
from hyperscout_topology.topology import Topology

from hyperscout_inference.fabric.adapter_owners import adapters_by_id
from hyperscout_inference.fabric.network import distinct, with_id
from hyperscout_inference.sweeps.record import Ends, Record, Rows, ends_in_record, ends_in_sweep

_Number = TypeVar("_Number", bound=np.generic)


def reduced(sweep: Sweep, record: Record, kept: Rows, left_out: Rows, previous: Topology | None) -> Sweep:
    """Return the sweep without its rows `left_out`, and with these rows of the record in place of what it
    reports about their ends."""
    guids = distinct(np.concatenate([record.guids, sweep.guid]))
    (a, b), (own, far) = ends_in_record(record, guids), ends_in_sweep(sweep, guids)
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
    rates = [record.rates[at] for at in record.rate[closed].tolist()]
    speed = np.array([x.speed_gbps for x in rates], np.float32)
    lanes = np.array([x.width & 0xFF for x in rates], np.uint8)  # a damaged topology may have any
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
        rate_gbps=np.concatenate([sweep.rate_gbps, np.repeat(speed, 2)]),
        width=np.concatenate([sweep.width, np.repeat(lanes, 2)]),
        line=_more(sweep.line, unknown),
    )


def _closed(recorded: tuple[Ends, Ends], swept: tuple[Ends, Ends], kept: Rows) -> Rows:
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
