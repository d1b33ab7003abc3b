"""The domain and the level of the ends of links, in columns that are kept while devices stay the same."""

from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import attrgetter

import numpy as np
import numpy.typing as npt
from hyperscout_topology.link_changes import mask_of
from hyperscout_topology.memo import memoized, positions
from hyperscout_topology.topology import Adapter, LinkTable

from hyperscout_inference.grouping.grouping import Longs

_ID_OF = attrgetter("id")


@memoized
def lowest_domains(devices: Sequence[str], *switches: Sequence[str]) -> Longs:
    """Return (devices,) the first HyperNode with this switch, -1 = none. `switches`: of each, by tier."""
    at = positions(devices)
    found = np.full(len(devices), -1, np.int64)
    for number in range(len(switches) - 1, -1, -1):
        found[[at[switch] for switch in switches[number] if switch in at]] = number
    return found


@memoized
def levels_of(devices: Sequence[str], adapters: Sequence[Adapter], switches: Mapping[str, int]) -> Longs:
    """Return (devices,) the level of a switch, 0 for a host, -1 for another endpoint. A switch of unknown
    level is never the lower end."""
    known = dict.fromkeys(map(_ID_OF, adapters), 0)
    other = -1 if known else 0
    known |= {device: level or 1 << 30 for device, level in switches.items()}
    return np.fromiter(map(known.get, devices, repeat(other)), np.int64, len(devices))


def links_between(
    table: LinkTable, rows: npt.NDArray[np.intp], devices: set[str]
) -> set[frozenset[tuple[str, str]]]:
    """Return those of the links (rows of the table) that join two of these devices, by their ends."""
    chosen = mask_of(table, devices)
    rows = rows[chosen[table.a[rows]] & chosen[table.b[rows]]]
    columns = (
        table.a[rows].tolist(),
        table.a_port[rows].tolist(),
        table.b[rows].tolist(),
        table.b_port[rows].tolist(),
    )
    return {
        frozenset(((table.devices[a], table.ports[ap]), (table.devices[b], table.ports[bp])))
        for a, ap, b, bp in zip(*columns, strict=True)
    }
