"""Finds nodes for some ranks of a gang while the other ranks stay where they are.

What the staying ranks use adds no cost, and the cost counts domains from the top down. So the search runs in
stages. The first stage opens no new domain, the next may open new leaf domains, the next domains of tier 2,
and so on. It therefore reads the few domains of the gang, and other domains only where those are full. Each
stage first makes a greedy answer. If its cost reaches a lower bound, it is optimal. Otherwise the stage tries
other choices up to a limit, and the answer reports whether all were tried.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hyperscout_placer.cluster.forest import Longs
from hyperscout_placer.repair.calculations import runs
from hyperscout_placer.repair.layout import GANG, Layout
from hyperscout_placer.repair.partial_gang import PartialGang
from hyperscout_placer.repair.view import View

SMALL: Final = 32  # nodes with free resources for any of the kinds; up to this number the search is thorough
STEPS: Final = 4000  # node trials in a thorough search
STEPS_LARGE: Final = 24  # node trials in any other search
_WIDTH: Final = 32  # nodes that are tried for one rank
_DEEPEST: Final = 64  # ranks; above this number only the greedy answer is used

_Costs = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Filled:
    """`nodes`: by rank, of the whole gang. `exact`: no other choice costs less."""

    nodes: tuple[int, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class Stuck:
    """`rank`: a rank without a node. `proven`: there is no place for all of the ranks."""

    rank: int
    proven: bool


class Filling(PartialGang):
    """The search. `highest`: the highest tier that may contain the gang afterwards."""

    def __init__(
        self, view: View, layout: Layout, at: Sequence[int], before: Sequence[int], highest: int
    ) -> None:
        super().__init__(view, layout, at, before)
        self._highest = highest
        self._best: tuple[_Costs, tuple[int, ...]] | None = None
        self._steps = 0

    def run(self) -> Filled | Stuck:
        wrong = self._settle()
        if wrong is not None:
            return Stuck(wrong, True)
        if not self._open:
            return Filled(tuple(self._at), True)
        self._bound = self._bindings()
        staying = [node for node in self._at if node >= 0]
        holder = self._forest.holder(staying)
        lowest = self._forest.top + 1 if holder is None else holder[0]
        if lowest > self._highest:
            return Stuck(self._open[0], True)
        short = self._short()
        if short is not None:
            return Stuck(short, True)
        order = self._order()
        stuck, proven = Stuck(order[0], True), True
        for stage in range(1, self._highest + 1):
            region = self._region(stage)
            if not self._could_fit(region):
                continue
            found = self._stage(order, region, stage, max(lowest, stage), proven)
            if isinstance(found, Filled):
                return found
            stuck, proven = found, proven and found.proven
        return Stuck(stuck.rank, proven)

    # Candidate nodes

    def _order(self) -> list[int]:
        """The order in which ranks are placed.

        Ranks of groups that are bound to a domain come first, those of the lowest tier before others. Then
        larger groups come before smaller ones.
        """

        def key(rank: int) -> tuple[int, int, int]:
            tight, whole = self._forest.top + 1, 0
            for number in self._layout.around(rank):
                copy = self._layout.copies[number]
                if copy.tier is None:
                    continue
                if self._in_copy[number]:
                    tight = copy.tier
                    break
                whole = copy.stop - copy.start
            return tight, -whole, rank

        return sorted(self._open, key=key)

    def _region(self, stage: int) -> Longs:
        """Tier-1 domains that can be used without a new domain at tier `stage` or above."""
        layers = self._forest.layers
        if stage > len(layers):
            return np.arange(len(layers[0]))
        domains = np.flatnonzero(self._used[stage])
        for layer in reversed(layers[1:stage]):
            domains = runs(layer.child[domains], layer.child_stop[domains])
        return domains

    def _could_fit(self, region: Longs) -> bool:
        wanted = Counter(self._layout.kind[rank] for rank in self._open)
        return all(int(self._fits[kind].domains[0][region].sum()) >= n for kind, n in wanted.items())

    def _candidates(self, rank: int, region: Longs) -> Longs:
        """Nodes on which the rank can be placed."""
        layers, kind = self._forest.layers, self._layout.kind[rank]
        fit = self._fits[kind]
        leaves = region[fit.domains[0][region] > 0]
        alone: list[int] = []  # the groups around that are bound to a node
        for number in self._layout.around(rank):
            copy = self._layout.copies[number]
            if copy.tier == 0:
                alone.append(number)
            if not copy.tier:
                continue
            layer = layers[copy.tier - 1]
            of_leaf = layer.of_node[layers[0].start[leaves]]
            if self._in_copy[number]:
                leaves = leaves[of_leaf == layer.of_node[self._somewhere[number]]]
            else:
                leaves = leaves[fit.domains[copy.tier - 1][of_leaf] >= self._left[number][kind]]
        nodes = runs(layers[0].start[leaves], layers[0].stop[leaves])
        nodes = nodes[fit.nodes[nodes] > 0]
        for number in alone:
            if self._in_copy[number]:
                nodes = nodes[nodes == self._somewhere[number]]
            else:
                nodes = nodes[fit.nodes[nodes] >= self._left[number][kind]]
        for number in self._layout.around(rank):
            spread = self._layout.copies[number].spread
            if spread is not None:
                full = [d for d, n in self._spread[number].items() if n >= spread.most]
                which = self._forest.domain_of(spread.tier, nodes)
                nodes = nodes[~np.isin(which, np.array(full, np.int64))]
        return nodes

    def _sorted(self, rank: int, nodes: Longs, stage: int, *, first: bool) -> list[int]:
        """The nodes, best first. `first`: only the best one is returned.

        Used domains come first, then those that fit the rest of the group, then those with the least left
        over.
        """
        kind = self._layout.kind[rank]
        fit, reference = self._fits[kind], self._fits[self._layout.reference_kind]
        rest = self._rest(rank)
        columns: list[Longs] = []
        late: list[Longs] = []
        degraded = np.zeros(len(nodes), np.int64)
        for tier in range(min(stage - 1, self._forest.top), 0, -1):
            layer = self._forest.layers[tier - 1]
            which = layer.of_node[nodes]
            fresh = self._used[tier][which] == 0
            columns += [fresh * 1, -np.minimum(fit.domains[tier - 1][which], rest) * fresh]
            degraded += layer.degraded[which] * fresh
            late.append(reference.domains[tier - 1][which] * fresh)
        fresh = self._used[0][nodes] == 0
        columns += [fresh * 1, -np.minimum(fit.nodes[nodes], rest) * fresh]
        degraded += self._forest.degraded[nodes] * fresh
        columns.append(degraded)
        homes = np.zeros(len(nodes), np.int64)
        for number in self._layout.around(rank):
            if number in self._homes:
                tier, domain = self._homes[number]
                homes += self._forest.domain_of(tier, nodes) != domain
        columns += [homes, *late, reference.nodes[nodes] * fresh]
        if first:
            keep = np.arange(len(nodes))
            for column in columns:
                values = column[keep]
                keep = keep[values == values.min()]
                if len(keep) == 1:
                    break
            return [int(nodes[keep[0]])]
        order = np.lexsort((nodes, *reversed(columns)))
        return [int(node) for node in nodes[order]]

    def _rest(self, rank: int) -> int:
        """How many ranks of the same kind are still to be placed together with this one.

        These are the ranks of its group if the whole group is placed anew, else all that are bound to the
        same domain.
        """
        kind = self._layout.kind[rank]
        for number in self._layout.around(rank):
            tier = self._layout.copies[number].tier
            if tier is not None:
                domain = self._domain(tier, self._somewhere[number])
                ranks = self._bound.get((tier, domain, kind), set())
                if rank in ranks:
                    return sum(self._at[other] < 0 for other in ranks)
                return self._left[number][kind]
        return self._left[GANG][kind]

    # The search

    def _stage(
        self, order: Sequence[int], region: Longs, stage: int, top: int, proven: bool
    ) -> Filled | Stuck:
        self._best = None
        least = self._least(region, stage, top, proven)
        # Fragmentation counts what fits before anything is placed.
        reference = self._fits[self._layout.reference_kind]
        self._before = reference.nodes.copy(), [sums.copy() for sums in reference.domains]
        costs: list[_Costs] = []
        stuck: int | None = None
        for rank in order:
            nodes = self._candidates(rank, region)
            if not len(nodes):
                stuck = rank
                break
            node = self._sorted(rank, nodes, stage, first=True)[0]
            costs.append(self._more(rank, node, top))
            self._put(rank, node, 1)
        if stuck is None:
            self._best = (_sum(costs, top), tuple(self._at))
        for rank in reversed(order[: len(costs)]):
            self._put(rank, self._at[rank], -1)
        if self._best is not None and self._best[0] <= least:
            return Filled(self._best[1], proven)
        whole = False
        if len(order) <= _DEEPEST:
            leaf = self._forest.layers[0]
            there = runs(leaf.start[region], leaf.stop[region])
            roomy = sum(np.count_nonzero(fit.nodes[there]) for fit in self._fits.values())
            self._small = roomy <= SMALL
            self._steps = STEPS if self._small else STEPS_LARGE
            self._seen: set[object] = set()
            self._whole = True
            self._descend(order, 0, _sum([], top), region, stage, top, least)
            whole = self._whole
        if self._best is None:
            return Stuck(order[0] if stuck is None else stuck, whole)
        return Filled(self._best[1], whole and proven)

    def _descend(
        self,
        order: Sequence[int],
        depth: int,
        cost: _Costs,
        region: Longs,
        stage: int,
        top: int,
        least: _Costs,
    ) -> None:
        if depth == len(order):
            if self._best is None or cost < self._best[0]:
                self._best = (cost, tuple(self._at))
            return
        key = (cost[-1], self._key(order, depth))
        if key in self._seen:
            return
        self._seen.add(key)
        rank = order[depth]
        for node in self._different(rank, self._candidates(rank, region), stage):
            if self._best is not None and self._best[0] <= least:
                return
            if self._steps <= 0:
                self._whole = False
                return
            self._steps -= 1
            more = tuple(a + b for a, b in zip(cost, self._more(rank, node, top), strict=True))
            if self._best is not None and more >= self._best[0]:
                continue
            self._put(rank, node, 1)
            self._descend(order, depth + 1, more, region, stage, top, least)
            self._put(rank, node, -1)

    def _key(self, order: Sequence[int], depth: int) -> object:
        """The part of the state that the remaining choices depend on."""
        open_copies = sorted(
            {number for rank in order[depth:] for number in self._layout.around(rank) if number != GANG}
        )
        mine: dict[int, list[tuple[int, int]]] = {number: [] for number in open_copies}
        everything = []
        for rank in order[:depth]:
            pair = (self._layout.kind[rank], self._at[rank])
            everything.append(pair)
            for number in self._layout.around(rank):
                if number in mine:
                    mine[number].append(pair)
        return depth, tuple(sorted(everything)), tuple(tuple(sorted(x)) for x in mine.values())

    def _different(self, rank: int, nodes: Longs, stage: int) -> Iterator[int]:
        """The nodes to try, and only the first of several equal unused ones."""
        if not len(nodes):
            return
        seen: set[object] = set()
        count = 0
        leaf_of = self._forest.layers[0].of_node
        for node in self._sorted(rank, nodes, stage, first=False):
            if not self._used[0][node]:
                fits = tuple(int(fit.nodes[node]) for fit in self._fits.values())
                more = () if self._one_kind else tuple(sorted(self._view.free(node).items()))
                key = (int(leaf_of[node]), int(self._forest.degraded[node]), fits, more)
                if key in seen:
                    continue
                seen.add(key)
            if count == _WIDTH and not self._small:
                self._whole = False
                return
            count += 1
            yield node

    # Costs

    def _more(self, rank: int, node: int, top: int) -> _Costs:
        """The cost that this rank adds to what is used already.

        In order: domains from below the top down, nodes, degraded links, workers that fit there, groups that
        become wider.
        """
        domains, left = [], []
        degraded = 0
        for tier in range(top - 1, 0, -1):
            layer = self._forest.layers[tier - 1]
            domain = int(layer.of_node[node])
            fresh = not self._used[tier][domain]
            domains.append(int(fresh))
            degraded += fresh * int(layer.degraded[domain])
            left.append(fresh * int(self._before[1][tier - 1][domain]))
        fresh = not self._used[0][node]
        degraded += fresh * int(self._forest.degraded[node])
        left.append(fresh * int(self._before[0][node]))
        return (*domains, int(fresh), degraded, *left, self._wider(rank, node))

    def _least(self, region: Longs, stage: int, top: int, proven: bool) -> _Costs:
        """A lower bound of each part of the cost in this stage."""
        opens = 1 if proven else 0  # every stage before was proven to have no place
        domains = [opens if tier < stage else 0 for tier in range(top - 1, 0, -1)]
        kinds = {self._layout.kind[rank] for rank in self._open}
        if len(kinds) > 1:
            return (*domains, 0, 0, *[0] * (top - 1), 0, 0)
        (kind,) = kinds
        leaf, fit = self._forest.layers[0], self._fits[kind]
        bound = self._bound_to_leaves()
        if bound is None:
            there = runs(leaf.start[region], leaf.stop[region])
            nodes, least = self._fresh(fit.nodes, there, len(self._open))
        else:  # each leaf domain has to place its own ranks
            nodes = least = 0
            for domain, ranks in bound.items():
                there = np.arange(leaf.start[domain], leaf.stop[domain])
                some, more = self._fresh(fit.nodes, there, ranks)
                nodes, least = nodes + some, least + more
        if kind != self._layout.reference_kind:
            return (*domains, nodes, 0, *[0] * (top - 1), 0, 0)
        left = [
            self._least_left(kind, region, tier) if opens and tier < stage else 0
            for tier in range(top - 1, 0, -1)
        ]
        return (*domains, nodes, 0, *left, least, 0)


def _sum(costs: Sequence[_Costs], top: int) -> _Costs:
    if not costs:
        return (0,) * (2 * (top - 1) + 4)
    return tuple(sum(column) for column in zip(*costs, strict=True))
