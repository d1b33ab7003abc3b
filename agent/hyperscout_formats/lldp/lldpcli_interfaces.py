"""Reads `lldpcli -f json0 show interfaces` (lldpd, lldpcli(8)): what the local host announces.

The document has the same shape as neighbours in `lldpctl -f json0`, so the same reader is used. The entry of
a port contains what the device at the other end of the link receives.
"""

from typing import Final

from hyperscout_formats.facts.facts import LldpNeighbour
from hyperscout_formats.lldp.lldpctl import parse as parse_neighbours
from hyperscout_formats.text.errors import Problem

SOURCE: Final = "lldpcli"


def parse(data: bytes, source: str = SOURCE) -> tuple[dict[str, LldpNeighbour], tuple[Problem, ...]]:
    """Return the announced identifiers by interface, in order of first mention, and the problems.

    An interface that lacks an id is left out and reported. The document contains only ports on which lldpd
    runs. Raises FormatError if the text is not lldpcli's JSON.
    """
    ports, problems = parse_neighbours(data, source)
    return {port.interface: port.neighbours[0] for port in ports}, problems
