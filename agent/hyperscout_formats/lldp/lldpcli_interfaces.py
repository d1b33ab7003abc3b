"""Reader of `lldpcli -f json0 show interfaces` (lldpd, lldpcli(8)): what this machine announces itself as.

The document is shaped as `lldpctl -f json0` shapes neighbours, so it is read as that: what stands at a port
is what the other end of its cable hears.
"""

from typing import Final

from hyperscout_formats.facts.facts import LldpNeighbour
from hyperscout_formats.lldp.lldpctl import parse as parse_neighbours
from hyperscout_formats.text.errors import Problem

SOURCE: Final = "lldpcli"


def parse(data: bytes, source: str = SOURCE) -> tuple[dict[str, LldpNeighbour], tuple[Problem, ...]]:
    """By interface, in order of first mention; and those that were passed over, since they lack an id.

    Only ports that lldpd works on are in it. Raises FormatError where it is not lldpcli's JSON.
    """
    ports, problems = parse_neighbours(data, source)
    return {port.interface: port.neighbours[0] for port in ports}, problems
