"""The hierarchy as the placer uses it: columns by tier, every domain one run of nodes.

Nodes and domains are numbered in tree order (children by name), so a domain is a slice, its children are
a slice of the tier below, and ranks that follow the numbers follow the tree.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperscout_collector.topology import Topology

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class ForestError(ValueError):
    """HyperNodes that are no laminar forest of one depth; names the HyperNode."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """The domains of one tier, in tree order; all columns are (domains,).

    `start`, `stop`: its nodes. `child`, `child_stop`: its children in the tier below (nodes, at tier 1).
    `parent`: in the tier above; 0 at the top. `degraded`: links that count against the domain itself.
    """

    tier: int
    tier_name: str
    names: tuple[str, ...]
    start: Longs
    stop: Longs
    child: Longs
    child_stop: Longs
    parent: Longs
    degraded: Longs

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """`nodes`: names in tree order; `index` finds them. `layers`: tier 1 first. `degraded`: (nodes,) links of
    the node's own that are degraded; `down`: (nodes,) whether one of them is down."""

    generation: int
    nodes: tuple[str, ...]
    index: dict[str, int]
    layers: tuple[Layer, ...]
    degraded: Longs
    down: Flags

    @classmethod
    def of(cls, topology: Topology) -> "Forest":
        """Of the HyperNodes. Raises ForestError: two parents, a cycle, nodes in two, other depths..."""
        raise NotImplementedError

    @property
    def top(self) -> int:
        """The highest tier; 0 = there are no HyperNodes."""
        return len(self.layers)

    def tier(self, text: str) -> int:
        """A tier by its number or tierName. Raises ForestError that lists those there are."""
        raise NotImplementedError

    def parts_of(self, nodes: Sequence[int]) -> list[Longs]:
        """For each tier from 1 up the domain of each of these nodes: (nodes,) each."""
        raise NotImplementedError

    def holder(self, nodes: Sequence[int]) -> tuple[int, str] | None:
        """Tier and name of the lowest domain that holds them all; None where none does."""
        raise NotImplementedError
