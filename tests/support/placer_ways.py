"""All ways to move some ranks of a running gang, for small gangs: what repair and growth are judged by."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hyperscout_placer.cluster.answer import Cost
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.request import Group, Request, Workers, ranks, size

from support.placer_facts import Facts
from support.placer_instances import Instance

WAYS = 40_000  # to move, that a test goes through


def needs(request: Request) -> list[Workers]:
    return list(ranks(request.gang))


def in_groups(part: Group, nodes: Sequence[int], domain_of: Sequence[Sequence[int]]) -> bool:
    """Whether all copies of a group are whole in their tier, and spread as they should be."""
    one = len(nodes) // part.count
    for first in range(0, len(nodes), one):
        run = nodes[first : first + one]
        if part.tier is not None and len({domain_of[part.tier][node] for node in run}) > 1:
            return False
        if part.spread is not None:
            counts = Counter(domain_of[part.spread.tier][node] for node in run)
            if max(counts.values()) > part.spread.most:
                return False
        at = 0
        for inner in part.parts:
            if isinstance(inner, Group) and not in_groups(inner, run[at : at + size(inner)], domain_of):
                return False
            at += size(inner)
    return True


class Ways:
    """All ways in which a gang can move off lost nodes. A rank on the lost node "" has no node yet."""

    def __init__(
        self,
        case: Instance,
        capacity: Capacity,
        request: Request,
        running: Sequence[str],
        lost: frozenset[str],
    ) -> None:
        given = capacity.copy()
        given.give(running, needs(request))
        self.request = request
        self.facts = Facts(given, replace(request, avoid=request.avoid | lost), case.masks(capacity.forest))
        self.capacity = capacity
        self.running = [capacity.forest.index.get(name, -1) for name in running]
        self.leaving = [rank for rank, name in enumerate(running) if name in lost]
        self.staying = [rank for rank, name in enumerate(running) if name not in lost]
        self.needs = [dict(need.resources) for need in needs(request)]
        self.kinds = needs(request)

    def fewest(self, gang: Group, most: int, top: int) -> tuple[int, Cost] | None:
        """The fewest moves, and the least cost of so few. `most`: moves."""
        gang = replace(gang, tier=0 if self.facts.on_node else None)
        for extra in range(min(most, len(self.running)) - len(self.leaving) + 1):
            costs = []
            for more in itertools.combinations(self.staying, extra):
                movers = [*self.leaving, *more]
                free = [self.capacity.free_of(name) for name in self.capacity.forest.nodes]
                for rank in more:
                    for name, amount in self.needs[rank].items():
                        free[self.running[rank]][name] = free[self.running[rank]].get(name, 0) + amount
                costs += [
                    self.facts.cost(nodes)
                    for nodes in self._placed(movers, free, list(self.running))
                    if in_groups(gang, nodes, self.facts.domain_of)
                    and self.facts.top_of(nodes) <= max(1, top)
                ]
            if costs:
                return len(self.leaving) + extra, min(costs)
        return None

    def _placed(self, movers: list[int], free: list[dict[str, int]], nodes: list[int]) -> Iterator[list[int]]:
        if not movers:
            yield nodes
            return
        rank, *rest = movers
        kind = next(k for k in self.facts.kinds if k == self.kinds[rank])
        for node, ok in enumerate(self.facts.usable[kind]):
            if ok and all(free[node].get(name, 0) >= n for name, n in self.needs[rank].items()):
                for name, n in self.needs[rank].items():
                    free[node][name] = free[node].get(name, 0) - n
                nodes[rank] = node
                yield from self._placed(rest, free, nodes)
                nodes[rank] = self.running[rank]
                for name, n in self.needs[rank].items():
                    free[node][name] += n


def first_lines(cost: Cost) -> Cost:
    """Repairs compare the lines 1 to 3, 5 and 6 of the objective."""
    return Cost(cost.top, cost.domains, cost.nodes, cost.degraded, cost.fragmentation)
