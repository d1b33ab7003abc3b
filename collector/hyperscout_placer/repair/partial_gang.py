"""Tracks a gang while some of its ranks are placed: used domains, group limits, and what is needed."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from hyperscout_placer.cluster.forest import Longs
from hyperscout_placer.repair.calculations import least_sum, width
from hyperscout_placer.repair.layout import GANG, Layout
from hyperscout_placer.repair.view import View


class PartialGang:
    """The state of a gang. `at`: by rank the node on which it stays, -1 = to be placed.

    `before`: the earlier nodes by rank (-1 = not known), because groups should not become wider.
    """

    def __init__(self, view: View, layout: Layout, at: Sequence[int], before: Sequence[int]) -> None:
        self._view = view
        self._forest = view.forest
        self._layout = layout
        self._at = list(at)
        self._open = [rank for rank, node in enumerate(at) if node < 0]
        kinds = {layout.kind[rank] for rank in self._open} | {layout.reference_kind}
        self._fits = {kind: view.fit(layout.kinds[kind]) for kind in sorted(kinds)}
        self._one_kind = len({layout.kinds[kind].resources for kind in kinds}) == 1
        sizes = [len(self._forest.nodes), *map(len, self._forest.layers)]
        self._used = [np.zeros(n, np.int64) for n in sizes]  # ranks by tier (nodes first) and domain
        self._in_copy: list[int] = [0] * len(layout.copies)  # number of ranks in each copy that have a node
        self._somewhere = [-1] * len(layout.copies)  # a node of one of these ranks
        self._spread = [Counter[int]() for _ in layout.copies]
        self._left = [Counter[int]() for _ in layout.copies]  # ranks to be placed, by kind
        self._bound: dict[tuple[int, int, int], set[int]] = {}  # ranks to be placed, by tier, domain and kind
        self._homes = self._widths(before)

    def _settle(self) -> int | None:
        """Count the ranks that stay. Returns a rank of a group that violates its limits already, or None."""
        for rank, node in enumerate(self._at):
            if node < 0:
                for copy in self._layout.around(rank):
                    self._left[copy][self._layout.kind[rank]] += 1
        for rank, node in enumerate(self._at):
            if node >= 0:
                if not self._may(rank, node):
                    return rank
                self._count(rank, node, 1)
        return None

    def _may(self, rank: int, node: int) -> bool:
        """Whether the tiers and spreads of the rank's groups allow it on this node."""
        for number in self._layout.around(rank):
            copy = self._layout.copies[number]
            if (
                copy.tier is not None
                and self._in_copy[number]
                and self._domain(copy.tier, node) != self._domain(copy.tier, self._somewhere[number])
            ):
                return False
            spread = copy.spread
            if spread and self._spread[number][self._domain(spread.tier, node)] >= spread.most:
                return False
        return True

    def _domain(self, tier: int, node: int) -> int:
        return node if tier == 0 else int(self._forest.layers[tier - 1].of_node[node])

    def _count(self, rank: int, node: int, sign: int) -> None:
        self._used[0][node] += sign
        for layer in self._forest.layers:
            self._used[layer.tier][layer.of_node[node]] += sign
        for number in self._layout.around(rank):
            copy = self._layout.copies[number]
            if sign > 0 and not self._in_copy[number]:
                self._somewhere[number] = node
            self._in_copy[number] += sign
            if copy.spread is not None:
                self._spread[number][self._domain(copy.spread.tier, node)] += sign

    def _put(self, rank: int, node: int, sign: int) -> None:
        """Place a rank (`sign` 1), or take back the rank that was placed last (-1)."""
        self._count(rank, node, sign)
        self._at[rank] = node if sign > 0 else -1
        kind = self._layout.kind[rank]
        for number in self._layout.around(rank):
            self._left[number][kind] -= sign
        self._view.take(node, self._layout.kinds[kind], -sign)

    def _widths(self, before: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Tier and domain of each copy before, for copies of which some rank stays."""
        found = {}
        for number, copy in enumerate(self._layout.copies):
            nodes = [node for node in before[copy.start : copy.stop] if node >= 0]
            stays = next((node for node in self._at[copy.start : copy.stop] if node >= 0), -1)
            if number != GANG and stays >= 0:
                tier = width(self._forest, nodes)
                if tier <= self._forest.top:
                    found[number] = tier, self._domain(tier, stays)
        return found

    def _wider(self, rank: int, node: int) -> int:
        """How many of the rank's groups would become wider on this node."""
        homes = (self._homes[number] for number in self._layout.around(rank) if number in self._homes)
        return sum(self._domain(tier, node) != domain for tier, domain in homes)

    def _short(self) -> int | None:
        """A rank of a group that is bound to a domain with too few free resources, or None."""
        for (tier, domain, kind), ranks in self._bound.items():
            fits = self._fits[kind].domains[tier - 1] if tier else self._fits[kind].nodes
            if fits[domain] < len(ranks):
                return min(ranks)
        return None

    def _bindings(self) -> dict[tuple[int, int, int], set[int]]:
        """Ranks to be placed, by tier and domain to which their groups are bound, and by kind."""
        found: dict[tuple[int, int, int], set[int]] = {}
        for rank in self._open:
            for number in self._layout.around(rank):
                tier = self._layout.copies[number].tier
                if tier is not None and self._in_copy[number]:
                    domain = self._domain(tier, self._somewhere[number])
                    found.setdefault((tier, domain, self._layout.kind[rank]), set()).add(rank)
        return found

    def _bound_to_leaves(self) -> dict[int, int] | None:
        """Number of ranks to be placed by the leaf domain to which they are bound; None = some are not
        bound."""
        found = {domain: len(ranks) for (tier, domain, _), ranks in self._bound.items() if tier == 1}
        return found if sum(found.values()) == len(self._open) else None

    def _fresh(self, fits: Longs, there: Longs, ranks: int) -> tuple[int, int]:
        """The least number of nodes that have to be opened, and what fits on them at least."""
        used = self._used[0][there] > 0
        missing = ranks - int(fits[there[used]].sum())
        if missing <= 0:
            return 0, 0
        fresh = fits[there[~used]]
        nodes = int(np.searchsorted(np.cumsum(np.sort(fresh)[::-1]), missing)) + 1
        return nodes, least_sum(fresh.tolist(), nodes, missing)

    def _least_left(self, kind: int, region: Longs, tier: int) -> int:
        """The least number of workers that fit in an unused domain that takes all ranks beyond the used
        ones."""
        layer, fits = self._forest.layers[tier - 1], self._fits[kind].domains[tier - 1]
        domains = np.unique(layer.of_node[self._forest.layers[0].start[region]])
        used = self._used[tier][domains] > 0
        enough = fits[domains[~used]]
        enough = enough[enough >= len(self._open) - int(fits[domains[used]].sum())]
        return int(enough.min()) if len(enough) else 0
