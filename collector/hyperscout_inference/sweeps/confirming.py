"""Find what the sweep of another node confirms of a sweep."""

from typing import Final

import numpy as np
import numpy.typing as npt
from hyperscout_formats.infiniband.ibnetdiscover import SWITCH, Sweep

from hyperscout_inference.fabric.network import distinct
from hyperscout_inference.fabric.part import Guids
from hyperscout_inference.sweeps.record import Ends, Record, Rows, ends_in_record, ends_in_sweep

_SEVERAL: Final = 1 << 62  # no end: the sweep connects a port to several others


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
    guids = distinct(np.concatenate([record.guids, one.guid, other.guid]))
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


def _peers(sweep: Sweep, guids: Guids) -> tuple[Ends, Ends]:
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
