"""Find what the sweep of another node confirms of a sweep."""

import numpy as np
from hyperscout_formats.infiniband.ibnetdiscover import SWITCH, Sweep

from hyperscout_inference.fabric.network import distinct
from hyperscout_inference.fabric.part import Guids, Mask
from hyperscout_inference.sweeps.comparing import SEVERAL, Swept, places_of
from hyperscout_inference.sweeps.record import Ends, Record, Rows, ends_in_record, renumbered


def share_a_device(one: Sweep, other: Sweep) -> bool:
    return bool(np.isin(one.guid, other.guid).any())


def share_a_switch(one: Sweep, other: Sweep) -> bool:
    return bool(np.isin(one.guid[one.kind == SWITCH], other.guid).any())


def shows_all_of(one: Swept, other: Swept) -> bool:
    """Return whether the other sweep shows all cables of `one`."""
    guids = distinct(np.concatenate([one.guids, other.guids]))
    ends = renumbered(one.ends, one.guids, guids)
    shown = _other_sides(other, guids, ends)
    return bool(((_other_sides(one, guids, ends) == shown) & (shown != SEVERAL)).all())


def confirmed_rows(one: Swept, other: Swept, record: Record, rows: Rows, *, is_partial: bool) -> Rows:
    """Return which of these cables of the record the other sweep shows as changed in the same way.

    `is_partial`: of the other sweep. That a partial sweep lacks a cable confirms nothing.
    """
    guids = distinct(np.concatenate([record.guids, one.guids, other.guids]))
    ends = np.stack(ends_in_record(record, guids))[:, rows]
    shown = _other_sides(other, guids, ends)
    same: Mask = (_other_sides(one, guids, ends) == shown) & (shown != SEVERAL)
    if is_partial:
        same &= shown >= 0
    found: Rows = rows[same.all(axis=0)]
    return found


def confirmed_new(one: Swept, other: Swept, rows: Rows) -> Rows:
    """Return which of these rows of the sweep `one` the other sweep shows."""
    guids = distinct(np.concatenate([one.guids, other.guids]))
    ends = renumbered(one.ends, one.guids, guids)
    same: Mask = _other_sides(other, guids, ends[one.own[rows]]) == ends[one.far[rows]]
    return rows[same]


def _other_sides(swept: Swept, guids: Guids, ends: Ends) -> Ends:
    """Return the other side of each end, `SEVERAL` = there are two, -1 = the sweep has no cable there.

    `guids`: the table of the devices at which all these ends are; it has all devices of the sweep.
    """
    mine = renumbered(swept.ends, swept.guids, guids)
    return np.append(mine, [SEVERAL, -1])[swept.peer[places_of(ends, mine)]]
