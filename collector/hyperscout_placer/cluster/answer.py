"""The placer's answers: nodes by rank, their cost, and whether a better placement is excluded."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hyperscout_formats.text.reporters import cluster_of

from hyperscout_placer.cluster.forest import Forest, Longs
from hyperscout_placer.cluster.numa_zones import Zone


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """The objective. Fields are compared in order, and less is better.

    `top`: tier of the lowest domain that contains the gang; one above the highest tier where no domain does.
    `fragments`: `fragmentation` again if the request packs into fragments, so that it is compared first.
    `domains`: number of used domains by tier, from the one below `top` down to tier 1. `unpreferred`: for
    each used node, the weights that it lacks (`Mask`), once for each different mask of the workers on it.
    `degraded`: degraded links in the used domains (including `top`'s) and on the used nodes.
    `fragmentation`: workers that would still fit in the used domains, by tier from `top` down to tier 1, and
    last on the used nodes. `above`: workers that would still fit in the domains above `top` that hold the
    gang, from the highest tier down.
    `whole`: used domains (including `top`'s) in which a worker fits on every node before the gang is there.
    `widths`: by group inside the gang, in the order of the request, the tier of the widest of its copies (0 =
    one node).

    With several kinds of workers, those of the most numerous kind count (the first of equals). Roles with the
    same needs and nodes are one kind.
    """

    top: int
    fragments: tuple[int, ...] = field(default=(), kw_only=True)
    domains: tuple[int, ...]
    nodes: int
    unpreferred: int = field(default=0, kw_only=True)
    degraded: int
    fragmentation: tuple[int, ...]
    above: tuple[int, ...] = ()
    whole: int = 0
    widths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """A found placement.

    `nodes`: by rank. `tier`, `hypernode`: the lowest HyperNode that contains all of them, None where there is
    none. `exact`: no placement has a lower `cost`. Otherwise `bound` is a cost that no placement is below.
    `relaxed`: preferences that could not be met, in words. `zones`: by rank, the NUMA zone of a worker that
    needs one; () = no worker does, or it is not decided yet. `counts`: how many of each elastic part were
    placed, in the order of the request; () = as many as the request says.
    """

    nodes: tuple[str, ...]
    tier: int | None
    hypernode: str | None
    cost: Cost
    exact: bool = True
    bound: Cost | None = None
    relaxed: tuple[str, ...] = ()
    zones: tuple[Zone | None, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def cluster(self) -> str:
        """The cluster of all nodes; "" = the collector's own."""
        return cluster_of(self.nodes[0]) if self.nodes else ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """No placement was found.

    `tier`: the highest allowed tier. `reason`: one sentence that names the resource that is short, the place,
    the tier and the next step.
    """

    tier: int
    reason: str = ""
    # False where the search stopped at its limit; a placement may exist.
    proven: bool = field(default=True)


def cost_of(forest: Forest, fits: Longs, nodes: Sequence[int], placed: int) -> Cost:
    """The cost of a gang on these nodes, without the widths of its groups and without preferences.

    `fits`: (nodes,) workers of the most numerous kind that fit without the gang. `placed`: how many of these
    the gang has.
    """
    used = np.unique(np.asarray(nodes, np.int64))
    sums, full = (np.concatenate(([0], np.cumsum(x))) for x in (fits, fits == 0))
    holder = forest.holder(used)
    top = forest.top + 1 if holder is None else holder[0]
    domains, left, whole = [], [], 0
    for layer in reversed(forest.layers):
        which = np.unique(layer.of_node[used])
        start, stop = layer.start[which], layer.stop[which]
        left.append(int((sums[stop] - sums[start]).sum()) - placed)
        if layer.tier <= top:
            whole += int((full[stop] == full[start]).sum())
        if layer.tier < top:
            domains.append(len(which))
    if holder is None:
        left.insert(0, int(sums[-1]) - placed)
        whole += int(full[-1] == 0)
    left.append(int(fits[used].sum()) - placed)
    higher = max(0, forest.top - top)
    left_over = tuple(left[higher:]), tuple(left[:higher])
    return Cost(top, tuple(domains), len(used), forest.degraded_links(used), *left_over, whole)
