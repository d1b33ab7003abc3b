"""The resources that are free for one gang, and the cost of using them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from hyperscout_placer.cluster.forest import Flags, Forest, Longs
from hyperscout_placer.cluster.units import GANG, Units
from hyperscout_placer.solve.costs import Packing


@dataclass(slots=True, eq=False)
class Free:
    """How many workers fit where, and the resources that several kinds of workers share.

    `reference`: the kind whose workers the cost counts. `placed`: how many of these the gang has. `fits`: by
    kind (nodes,). `sums`: by kind, by tier from 1 up (domains,). `free`: (resources, nodes) and `needs`:
    (kinds, resources), of the shared resources. Tier 0 is the nodes. The tier above the forest's highest is
    one domain: all islands together.

    `lacking`: (nodes,) what nodes lack of the preferences of a kind, once for each different mask. `prefers`:
    by kind, the index in `lacking`; None = it has no preferences. `fragments`: what still fits in used
    domains and nodes is compared first.
    """

    forest: Forest
    reference: int
    placed: int
    fits: Sequence[Longs]
    sums: Sequence[Sequence[Longs]]
    free: Longs
    needs: Longs
    lacking: Sequence[Longs]
    prefers: Sequence[int | None]
    fragments: bool
    _whole: dict[int, Flags] = field(default_factory=dict)  # by tier

    def nodes(self, tier: int, index: int) -> tuple[int, int]:
        """The run of nodes in a domain."""
        if tier > self.forest.top:
            return 0, len(self.forest.nodes)
        layer = self.forest.layers[tier - 1]
        return int(layer.start[index]), int(layer.stop[index])

    def children(self, tier: int, index: int) -> tuple[int, int]:
        """The run of a domain's children."""
        if tier > self.forest.top:
            return 0, self.forest.count(tier - 1)
        layer = self.forest.layers[tier - 1]
        return int(layer.child[index]), int(layer.child_stop[index])

    def fit(self, kind: int, tier: int) -> Longs:
        """(domains of the tier,) how many workers of a kind fit."""
        if tier > self.forest.top:
            return np.array([self.fits[kind].sum()])
        return self.sums[kind][tier - 1] if tier else self.fits[kind]

    def degraded(self, tier: int) -> Longs:
        """(domains of the tier,) number of degraded links."""
        if tier > self.forest.top:
            return np.zeros(1, np.int64)
        return self.forest.layers[tier - 1].degraded if tier else self.forest.degraded

    def whole(self, tier: int) -> Flags:
        """(domains of the tier,) whether a worker of the reference kind fits on every node."""
        found = self._whole.get(tier)
        if found is None:
            full = self.fits[self.reference] > 0 if tier == 1 else self.whole(tier - 1)
            if tier > self.forest.top:
                found = np.array([full.all()])
            else:
                layer = self.forest.layers[tier - 1]
                found = layer.summed(full.astype(np.int64)) == layer.child_stop - layer.child
            self._whole[tier] = found
        return found

    def above(self, tier: int, which: Longs) -> list[Longs]:
        """For each tier above, the highest first: (which,) what fits around these domains beside the gang."""
        found: list[Longs] = []
        at = which
        for higher in range(tier + 1, self.forest.top + 1):
            at = self.forest.layers[higher - 2].parent[at]
            found.insert(0, self.fit(self.reference, higher)[at] - self.placed)
        return found

    def lacked(self, kinds: Collection[int], nodes: Longs) -> Longs:
        """(nodes,) what these nodes lack of the preferences of workers of these kinds on them."""
        masks = {self.prefers[kind] for kind in kinds} if self.lacking else set()
        return sum((self.lacking[i][nodes] for i in masks if i is not None), np.zeros(len(nodes), np.int64))

    def below(self, tier: int, index: int, lower: int) -> slice:
        """The slice of a domain's domains of a lower tier (its nodes, at 0)."""
        start, stop = self.nodes(tier, index)
        if lower == 0:
            return slice(start, stop)
        first, last = np.searchsorted(self.forest.layers[lower - 1].start, (start, stop))
        return slice(int(first), int(last))


class Parts:
    """The parts of a cost below one domain, packed.

    In order: used domains from the tier below it down, nodes; what nodes lack of preferences; degraded links;
    workers that still fit into what is used, from the tier below down to nodes; used domains that were whole.
    `whole_nodes`: every node fits at most one worker. Then the parts for nodes are constant and left out.
    `sound`: nothing that is used has degraded links.
    """

    def __init__(
        self, free: Free, units: Units, domain: int, *, whole_nodes: bool = False, sound: bool = False
    ) -> None:
        self._free = free
        self._tiers = tiers = units.top
        self._whole_nodes = whole_nodes
        self._gang = gang = units.units[GANG].size
        runs = [free.below(tiers, domain, t) for t in range(tiers - 1, -1, -1)]
        counts = [min(gang, run.stop - run.start) for run in runs]
        degraded = sum(
            int(free.degraded(t)[run].sum()) for t, run in zip(range(tiers - 1, -1, -1), runs, strict=True)
        )
        if sound:
            degraded = 0
        left = [int(free.fit(free.reference, tiers)[domain])] * tiers
        if whole_nodes:
            counts[-1] = left[-1] = 0
        whole = sum(int(free.whole(tiers - 1 - i)[run].sum()) for i, run in enumerate(runs[:-1]))
        lacking = sum(int(lacks[runs[-1]].sum()) for lacks in free.lacking)
        parts = range(len(counts) + len(left) + 3)
        first = parts[len(counts) + 2 : -1] if free.fragments else range(0)
        order = [*first, *(part for part in parts if part not in first)]
        self.packing = Packing([*counts, lacking, degraded, *left, whole], order)

    def own(self, tier: int, index: int | Longs) -> Longs:
        """(words, ...) the cost of using a domain or node, or each of several, at all."""
        fits = self._free.fit(self._free.reference, tier)[index]
        found = self.of_used(tier, np.ones_like(fits), fits)
        word, shift = self.packing.place(self._tiers + 1)
        found[word] += self._free.degraded(tier)[index] << shift
        if tier:
            word, shift = self.packing.place(2 * self._tiers + 2)
            found[word] += self._free.whole(tier)[index].astype(np.int64) << shift
        return found

    def of_used(self, tier: int, count: Longs, fits: Longs) -> Longs:
        """(words, ...) the cost of using that many domains or nodes that together fit that many workers."""
        found = np.zeros((self.packing.words, *count.shape), np.int64)
        if tier or not self._whole_nodes:
            at = self._tiers - 1 - tier
            for part, amount in ((at, count), (self._tiers + 2 + at, fits)):
                word, shift = self.packing.place(part)
                found[word] += amount << shift
        return found

    def lacks(self, kinds: Collection[int], nodes: Longs) -> Longs:
        """(words, nodes) the cost of what each node lacks of the preferences of these kinds."""
        word, shift = self.packing.place(self._tiers)
        found = np.zeros((self.packing.words, len(nodes)), np.int64)
        found[word] = self._free.lacked(kinds, nodes) << shift
        return found

    def of_nodes(self, nodes: Longs) -> Longs:
        """(words, nodes) the cost of each node if every node fits at most one worker of one kind."""
        word, shift = self.packing.place(self._tiers + 1)
        found = self.lacks((0,), nodes)
        found[word] += self._free.forest.degraded[nodes] << shift
        return found

    def unpacked(self, words: Longs) -> tuple[int, ...]:
        parts = list(self.packing.unpack(words))
        if self._whole_nodes:
            parts[self._tiers - 1] = self._gang
            parts[-2] = self._free.placed
        return tuple(parts)
