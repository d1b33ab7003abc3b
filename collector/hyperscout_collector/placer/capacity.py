"""What is free on each node, and for each kind of worker how many fit where: kept, not reckoned anew.

A change of a node costs its tiers' worth of additions for each kind of worker that was asked for lately.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperscout_collector.placer.forest import Flags, Forest, Longs
from hyperscout_collector.placer.request import Workers

Resources = Mapping[str, int]  # name -> amount in base units


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """Nodes that a role may use: (nodes,). `key`: the same text for the same nodes."""

    key: str
    allowed: Flags


@dataclass(slots=True, eq=False)
class Fit:
    """How many workers of one kind fit: `nodes` (nodes,), and summed `domains` by tier from 1 up."""

    nodes: Longs
    domains: list[Longs]


class CapacityError(ValueError):
    """Free resources that cannot be: names the node and the resource."""


class Capacity:
    """`free`: by node name; a node that is not named has nothing. Names that the forest has not are passed
    over. Raises CapacityError for amounts that are negative or no 62-bit integers."""

    def __init__(self, forest: Forest, free: Mapping[str, Resources]) -> None:
        self.forest = forest
        raise NotImplementedError

    @classmethod
    def of_workers(cls, forest: Forest, workers: Mapping[str, int] | None = None) -> "Capacity":
        """Where only workers are counted; one on every node, unless `workers` says how many."""
        raise NotImplementedError

    def free_of(self, node: str) -> dict[str, int]:
        """What is free there now. Raises KeyError for a node that the forest has not."""
        raise NotImplementedError

    def set_free(self, node: str, free: Resources) -> None:
        """Say anew what is free on a node. Raises KeyError, CapacityError."""
        raise NotImplementedError

    def take(self, nodes: Sequence[str], needs: Sequence[Workers]) -> None:
        """Put a worker on each of these nodes (by rank). All or nothing: raises CapacityError that names the
        node on which it does not fit, and KeyError for a node that is not there."""
        raise NotImplementedError

    def give(self, nodes: Sequence[str], needs: Sequence[Workers]) -> None:
        """The other way round; nodes that are gone are passed over."""
        raise NotImplementedError

    def fit(self, workers: Workers, mask: Mask | None = None, *, use_down: bool = False) -> Fit:
        """How many workers of this kind fit where, as of now. Not to be changed by the caller."""
        raise NotImplementedError
