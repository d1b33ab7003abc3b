"""What live anomalies mean to placement: which nodes' own links are down or degraded, and how many links
count against each domain."""

from collections.abc import Mapping
from dataclasses import dataclass

from hyperscout_collector.topology import Topology


@dataclass(frozen=True, slots=True)
class Health:
    """`down`: nodes with a link of their own that is down. `nodes`, `hypernodes`: degraded links by name; a
    link is counted once: with its node if it is a node's own, else with the one domain it counts against."""

    down: frozenset[str]
    nodes: Mapping[str, int]
    hypernodes: Mapping[str, int]


def health_of(topology: Topology) -> Health:
    raise NotImplementedError
