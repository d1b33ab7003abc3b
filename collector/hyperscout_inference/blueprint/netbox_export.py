"""Write links as CSV for NetBox's bulk import of cables, with the names that a blueprint uses."""

import csv
import io
from dataclasses import dataclass

from hyperscout_formats.cabling.netbox_csv import IMPORT_COLUMNS, INTERFACE
from hyperscout_topology.topology import Endpoint, Topology

from hyperscout_inference.blueprint.accepting import is_end
from hyperscout_inference.blueprint.declared import End, plain_port
from hyperscout_inference.blueprint.matching import Present


@dataclass(frozen=True, slots=True)
class Exported:
    """`left_out`: number of links without both ports, on a port used twice, or with an invalid name."""

    text: str
    left_out: int


def netbox_csv(topology: Topology) -> Exported:
    """Return a row for each link, the lower end first. Links with a note come last: they are less certain."""
    present = Present.of(topology)
    noted = present.table.notes
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow((*IMPORT_COLUMNS, "status"))
    taken: set[End] = set()
    left_out = 0
    for row in sorted(range(len(present.table)), key=lambda row: (row in noted, row)):
        ends = present.ends(row)
        names = {End(present.called(end.device), end.port) for end in ends}
        if len(names) < 2 or names & taken or not all(end.port and is_end(end, present) for end in ends):
            left_out += 1
            continue
        taken |= names
        ports = zip(ends, present.endpoints(row), strict=True)
        cells = [(present.called(end.device), INTERFACE, _shown(end, point)) for end, point in ports]
        writer.writerow((*cells[0], *cells[1], "connected"))
    return Exported(buffer.getvalue(), left_out)


def _shown(end: End, point: Endpoint) -> str:
    """Return the port as discovered; at an adapter, what a blueprint calls it."""
    port = point.port or ""
    return port if plain_port(port) == end.port else end.port
