"""Reads a saved topology that is named on the command line.

A module of its own: it imports NumPy, for which other commands and help texts need not wait.
"""

from hyperscout_topology.json_reader import TopologyError, from_json
from hyperscout_topology.topology import Topology

from hyperscout_cli.shared.errors import BadInputError
from hyperscout_cli.shared.files import SAVED_TOPOLOGY, read_json, shown


def read_topology(path: str) -> Topology:
    """A saved topology (`infer -o json`, `tree -o json`). Raises BadInputError."""
    try:
        topology = from_json(read_json(path))
        _check(topology)
    except TopologyError as error:
        what = f"not a saved topology: {error}; expected {SAVED_TOPOLOGY}"
        raise BadInputError(f"{shown(path)}: {what}") from error
    return topology


def _check(topology: Topology) -> None:
    """Check that parents and children agree, and that a parent's tier is above its children's."""
    by_name = {h.name: h for h in topology.hypernodes}
    if len(by_name) != len(topology.hypernodes):
        raise TopologyError("hypernodes: two have the same name")
    for h in topology.hypernodes:
        for child in h.children:
            below = by_name.get(child)
            if below is None or below.parent != h.name or below.tier >= h.tier:
                raise TopologyError(f"hypernodes: {h.name!r} has the child {child!r}, which does not match")
        if h.parent is not None and (h.parent not in by_name or h.name not in by_name[h.parent].children):
            raise TopologyError(f"hypernodes: {h.name!r} has the parent {h.parent!r}, which does not match")
