"""Finds the reader of a cabling plan by its content."""

from collections.abc import Callable
from typing import NamedTuple

from hyperscout_formats.cabling import dot, netbox_csv, netbox_json, ufm_p2p, ufm_topo
from hyperscout_formats.cabling.plan import Plan


class Reader(NamedTuple):
    """`kind`: name of the format in messages. `matches`: whether the data is of this format."""

    kind: str
    matches: Callable[[bytes], bool]
    parse: Callable[[bytes, str], Plan]


READERS = (
    Reader("Graphviz DOT", dot.matches, dot.parse),
    Reader("NetBox JSON", netbox_json.matches, netbox_json.parse),
    Reader("NetBox CSV", netbox_csv.matches, netbox_csv.parse),
    Reader("topology file of UFM", ufm_topo.matches, ufm_topo.parse),
    Reader("P2P file of UFM", ufm_p2p.matches, ufm_p2p.parse),
)


def reader_of(data: bytes) -> Reader | None:
    """Return the reader of the data, None = it is of no other system."""
    return next((reader for reader in READERS if reader.matches(data)), None)
