"""The simulated cluster: nodes of eight GPUs under leaves, pods and one core; what a placement on it costs.

The cost is reckoned here from its definition, over the nodes chosen and what was free before, and not by the
engine under test.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from bench.quality.workload import GPUS_PER_NODE
from hyperscout_placer.cluster.answer import Cost
from hyperscout_topology.topology import HyperNode, Topology

GPU = "nvidia.com/gpu"
CORE = 3  # the highest tier
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """`leaf`, `pod`: of each node, in tree order. Domain `d` of tier t has the nodes start[t][d] to
    start[t][d + 1]; tier 0 are the nodes."""

    names: tuple[str, ...]
    leaf: Longs
    pod: Longs
    start: tuple[Longs, ...]

    @classmethod
    def of(cls, leaves: Sequence[Sequence[int]]) -> "Shape":
        """Nodes of each leaf of each pod."""
        sizes = [size for pod in leaves for size in pod]
        leaf = np.repeat(np.arange(len(sizes)), sizes)
        pod = np.repeat(np.arange(len(leaves)), [sum(pod) for pod in leaves])
        bounds = (np.arange(len(leaf) + 1), _bounds(leaf), _bounds(pod), np.array([0, len(leaf)]))
        return cls(tuple(f"n{i:06}" for i in range(len(leaf))), leaf, pod, bounds)

    @property
    def gpus(self) -> int:
        return len(self.names) * GPUS_PER_NODE

    def domains(self, nodes: Longs, tier: int) -> Longs:
        """The domain of each of these nodes."""
        return (nodes, self.leaf[nodes], self.pod[nodes], np.zeros_like(nodes))[tier]

    def top(self, nodes: Longs) -> int:
        """Tier of the lowest domain that holds them all."""
        tiers = range(1, CORE + 1)
        return next(tier for tier in tiers if len(np.unique(self.domains(nodes, tier))) == 1)

    def lowest(self, workers: int) -> int:
        """The lowest tier with a domain that holds so many whole nodes when it is empty."""
        tiers = range(1, CORE + 1)
        return next((tier for tier in tiers if np.diff(self.start[tier]).max() >= workers), CORE + 1)

    def topology(self) -> Topology:
        """The same as HyperNodes."""
        names = [
            [f"{kind}-{i:04}" for i in range(len(bounds) - 1)]
            for kind, bounds in zip(("leaf", "pod", "core"), self.start[1:], strict=True)
        ]
        found = []
        for tier, kind in enumerate(("leaf", "pod", "core"), 1):
            for i, name in enumerate(names[tier - 1]):
                first, end = self.start[tier][i], self.start[tier][i + 1]
                inside = np.unique(self.domains(np.arange(first, end), tier - 1)) if tier > 1 else ()
                parent = names[tier][self.domains(np.array([first]), tier + 1)[0]] if tier < CORE else None
                children = tuple(names[tier - 2][child] for child in inside)
                nodes = tuple(self.names[first:end])
                found.append(HyperNode(name, tier, kind, parent, children, nodes, ()))
        return Topology(1, tuple(found))


def _bounds(domain: Longs) -> Longs:
    return np.concatenate(([0], np.flatnonzero(np.diff(domain)) + 1, [len(domain)]))


SHAPES = {
    # Four pods of four scalable units.
    512: Shape.of([[32] * 4] * 4),
    # Twenty pods of eight units, most of which have 31 nodes (one place is the fabric manager's).
    5000: Shape.of([[32, 31, 31, 31, 32, 31, 31, 31]] * 20),
}


@dataclass(slots=True, eq=False)
class State:
    """`free` GPUs by node; a node that is down has none, `held` keeps what it would have."""

    shape: Shape
    free: Longs = field(init=False)

    def __post_init__(self) -> None:
        self.free = np.full(len(self.shape.names), GPUS_PER_NODE, dtype=np.int64)

    def fits(self, need: int) -> tuple[Longs, ...]:
        """Workers of so many GPUs that fit, by tier from the nodes up, by domain."""
        fit = self.free // need
        return (fit, *(np.add.reduceat(fit, start[:-1]) for start in self.shape.start[1:]))

    def take(self, nodes: Longs, need: int) -> None:
        np.subtract.at(self.free, nodes, need)
        if self.free[nodes].min() < 0:
            raise AssertionError("more was placed on a node than it has")

    def give(self, nodes: Longs, need: int) -> None:
        np.add.at(self.free, nodes, need)
        if self.free[nodes].max() > GPUS_PER_NODE:
            raise AssertionError("more was given back to a node than it has")


def cost(state: State, nodes: Longs, need: int) -> Cost:
    """Of workers of `need` GPUs on these nodes (by rank), on what is free before they are placed."""
    shape, fits = state.shape, state.fits(need)
    top = shape.top(nodes)
    used = [np.unique(shape.domains(nodes, tier)) for tier in range(top + 1)]
    left = [int(fits[tier][used[tier]].sum()) - len(nodes) for tier in range(top + 1)]
    domains = tuple(len(used[tier]) for tier in range(top - 1, 0, -1))
    return Cost(top, domains, len(used[0]), 0, tuple(reversed(left)))


@dataclass(frozen=True, slots=True)
class Scattered:
    """How what is free lies, in GPUs. `in_used_leaves`, `in_used_nodes`: in those that are partly taken.
    `largest`: the largest gang of whole nodes that fits in a leaf, in a pod."""

    free: int
    in_used_leaves: int
    in_used_nodes: int
    largest: tuple[int, int]

    @classmethod
    def of(cls, state: State) -> "Scattered":
        free, start = state.free, state.shape.start[1]
        by_leaf, size = np.add.reduceat(free, start[:-1]), np.diff(start) * GPUS_PER_NODE
        whole = state.fits(GPUS_PER_NODE)
        largest = (int(whole[1].max()) * GPUS_PER_NODE, int(whole[2].max()) * GPUS_PER_NODE)
        in_nodes = int(free[free < GPUS_PER_NODE].sum())
        return cls(int(free.sum()), int(by_leaf[by_leaf < size].sum()), in_nodes, largest)
