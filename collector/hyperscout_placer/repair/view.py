"""The free resources for one gang, on which moves are tried. The underlying Capacity never changes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hyperscout_placer.cluster.answer import Cost
from hyperscout_placer.cluster.answer import cost_of as nodes_cost
from hyperscout_placer.cluster.capacity import Capacity, Fit, Mask, summed
from hyperscout_placer.cluster.forest import Flags
from hyperscout_placer.cluster.request import MAX_WORKERS, Request, Workers
from hyperscout_placer.cluster.widths import widths_of
from hyperscout_placer.repair.layout import Layout

_FEW = 64  # barred nodes; up to this number sums are corrected one by one


class View:
    """Free resources for one gang.

    `barred`: (nodes,) never used. `changes`: differences from the capacity.
    """

    def __init__(
        self,
        capacity: Capacity,
        request: Request,
        masks: Mapping[str, Mask],
        barred: Flags,
        changes: "Changes | None" = None,
    ) -> None:
        self.capacity = capacity
        self.forest = capacity.forest
        self.use_down = request.use_down
        self.packing = request.packing
        self.masks = masks
        self.barred = barred
        self._few_barred = np.flatnonzero(barred)
        self._free: dict[int, dict[str, int]] = changes.copy() if changes is not None else Changes()
        self._fits: dict[Workers, Fit] = {}

    def usable(self, kind: Workers) -> Flags:
        """(nodes,) whether a worker of this kind may use the node."""
        found = ~self.barred
        if not self.use_down:
            found &= ~self.forest.down
        if kind.role in self.masks:
            found &= self.masks[kind.role].allowed
        return found

    def fit(self, kind: Workers) -> Fit:
        """How many workers fit where. The result is updated in place by later changes of this view."""
        found = self._fits.get(kind)
        if found is None:
            base = self.capacity.fit(kind, self.masks.get(kind.role), use_down=self.use_down)
            nodes = base.nodes.copy()
            if len(self._few_barred) <= _FEW:
                found = Fit(nodes, [sums.copy() for sums in base.domains])
                for at in self._few_barred.tolist():
                    self._set(found, at, 0)
            else:
                nodes[self.barred] = 0
                found = Fit(nodes, summed(self.forest, nodes))
            self._fits[kind] = found
            for at in self._free:
                self._follow(kind, found, at)
        return found

    def free(self, at: int) -> dict[str, int]:
        """What is free on a node. The caller must not change the result."""
        found = self._free.get(at)
        return self.capacity.free_of(self.forest.nodes[at]) if found is None else found

    def take(self, at: int, kind: Workers, sign: int = -1) -> None:
        """Place a worker on a node (`sign` -1), or remove it (1)."""
        free = self._free.get(at)
        if free is None:
            free = self._free[at] = self.capacity.free_of(self.forest.nodes[at])
        for name, amount in kind.resources:
            if amount:
                free[name] = free.get(name, 0) + sign * amount
        for known, fit in self._fits.items():
            self._follow(known, fit, at)

    def give(self, at: int, kind: Workers) -> None:
        self.take(at, kind, 1)

    def changes(self) -> "Changes":
        """The free resources of the nodes that were changed so far."""
        return Changes({at: dict(free) for at, free in self._free.items()})

    def _follow(self, kind: Workers, fit: Fit, at: int) -> None:
        if self.barred[at] or (not self.use_down and self.forest.down[at]):
            return
        mask = self.masks.get(kind.role)
        if mask is None or mask.allowed[at]:
            self._set(fit, at, _fits(self._free[at], kind))

    def _set(self, fit: Fit, at: int, count: int) -> None:
        if more := count - int(fit.nodes[at]):
            fit.nodes[at] = count
            for layer, sums in zip(self.forest.layers, fit.domains, strict=True):
                sums[layer.of_node[at]] += more


class Changes(dict[int, dict[str, int]]):
    """The free resources by node number, for nodes where they differ from the Capacity."""

    def copy(self) -> "Changes":
        return Changes({at: dict(free) for at, free in self.items()})


def _fits(free: Mapping[str, int], kind: Workers) -> int:
    return min(MAX_WORKERS, *(free.get(name, 0) // amount for name, amount in kind.resources if amount))


def cost_of(view: View, layout: Layout, was: Sequence[int], now: Sequence[int]) -> Cost:
    """The cost of these nodes, as `place` computes it: from what fits without the gang.

    Ranks may have stayed on nodes that are no longer usable. Nothing else fits there.
    """
    forest, kind = view.forest, layout.kinds[layout.reference_kind]
    fits = view.fit(kind).nodes.copy()
    here = [(rank, at) for rank, at in enumerate(was) if at >= 0]
    if len({x.resources for x in layout.kinds}) == 1:
        np.add.at(fits, np.array([at for _, at in here], np.int64), 1)
        np.minimum(fits, MAX_WORKERS, out=fits)
    else:
        free: dict[int, dict[str, int]] = {}
        for rank, at in here:
            there = free[at] if at in free else free.setdefault(at, dict(view.free(at)))
            for name, amount in layout.kinds[layout.kind[rank]].resources:
                there[name] = there.get(name, 0) + amount
        for at, there in free.items():
            fits[at] = _fits(there, kind)
    usable = view.usable(kind)
    fits[~usable] = 0
    for rank, at in enumerate(now):
        if layout.kind[rank] in layout.reference and not usable[at]:
            fits[at] += 1
    found = nodes_cost(forest, fits, now, layout.placed)
    return replace(
        found,
        fragments=found.fragmentation if view.packing == "fragments" else (),
        unpreferred=_unpreferred(view.masks, layout, now),
        widths=widths_of(forest, layout.gang, now),
    )


def _unpreferred(masks: Mapping[str, Mask], layout: Layout, now: Sequence[int]) -> int:
    """What these nodes (by rank) lack of preferences, as `Cost` counts it."""
    of_kind = [masks.get(kind.role) for kind in layout.kinds]
    lacking = {x.key: x.lacking for x in of_kind if x is not None and x.lacking is not None}
    used: dict[str, set[int]] = {key: set() for key in lacking}
    for at, kind in zip(now, layout.kind, strict=True) if lacking else ():
        if (mask := of_kind[kind]) is not None and mask.key in used:
            used[mask.key].add(at)
    return sum(int(lacking[key][list(nodes)].sum()) for key, nodes in used.items())
