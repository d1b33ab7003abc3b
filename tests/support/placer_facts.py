"""What the oracles look up, in plain Python: which nodes a gang may use, what fits, what nodes cost."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hyperscout_placer.cluster.answer import Cost
from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import MAX_WORKERS, Group, Request, Workers, ends, ranks, size

NO_MASKS: Mapping[str, Mask] = {}


class Room(Protocol):
    """What is needed of a Capacity."""

    forest: Forest

    def free_of(self, node: str) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True)
class Free:
    """A Capacity that only says what is free: nothing of the placer's own is in it."""

    forest: Forest
    free: Mapping[str, Mapping[str, int]]

    def free_of(self, node: str) -> dict[str, int]:
        self.forest.index[node]
        return dict(self.free.get(node, {}))


class Facts:
    """What both judges look up: which nodes a gang may use, what fits, the domains, what a set costs."""

    def __init__(self, room: Room, request: Request, masks: Mapping[str, Mask]) -> None:
        self.forest = forest = room.forest
        self.request = request
        self.tiers = len(forest.layers)
        self.kinds = list(dict.fromkeys(ends(request.gang)))
        self.free = [room.free_of(name) for name in forest.nodes]
        # domain_of[tier][node]; a node is its own domain of tier 0; all islands are one above the top.
        self.domain_of: list[list[int]] = [list(range(len(forest.nodes)))]
        for layer in forest.layers:
            column = [-1] * len(forest.nodes)
            for at in range(len(layer)):
                for node in range(int(layer.start[at]), int(layer.stop[at])):
                    column[node] = at
            self.domain_of.append(column)
        self.domain_of.append([0] * len(forest.nodes))
        self.usable = {kind: self._usable(kind, masks) for kind in self.kinds}
        # By mask that has preferences: what each node lacks, and the roles that have this mask.
        self.lacking: dict[str, tuple[list[int], set[str]]] = {}
        for kind in self.kinds:
            mask = masks.get(kind.role)
            if mask is not None and mask.lacking is not None:
                lacks = mask.lacking.tolist()
                self.lacking.setdefault(mask.key, (lacks, set()))[1].add(kind.role)
        # Workers that need the same and may be on the same nodes are alike, whatever their role is.
        total: Counter[tuple[object, ...]] = Counter()
        for end, count in copies(request.gang):
            total[self._alike(end, masks)] += count
        self.placed = max(total.values())
        self.reference = next(end for end in self.kinds if total[self._alike(end, masks)] == self.placed)
        fits = [self.fit(self.reference, node) for node in range(len(forest.nodes))]
        none = [node for node, fit in enumerate(fits) if not fit]
        self.broken = [{column[node] for node in none} for column in self.domain_of]
        self.fit_in: list[Counter[int]] = []
        for column in self.domain_of:
            total: Counter[int] = Counter()
            for node, fit in enumerate(fits):
                total[column[node]] += fit
            self.fit_in.append(total)

    def _alike(self, end: Workers, masks: Mapping[str, Mask]) -> tuple[object, ...]:
        return end.resources, masks[end.role].key if end.role in masks else None

    def _usable(self, kind: Workers, masks: Mapping[str, Mask]) -> list[bool]:
        forest, request = self.forest, self.request
        found = []
        for node, name in enumerate(forest.nodes):
            ok = name not in request.avoid and (request.use_down or not forest.down[node])
            for tier, layer in enumerate(forest.layers, 1):
                ok = ok and layer.names[self.domain_of[tier][node]] not in request.avoid
            if kind.role in masks:
                ok = ok and bool(masks[kind.role].allowed[node])
            found.append(bool(ok))
        return found

    def fit(self, kind: Workers, node: int) -> int:
        if not self.usable[kind][node]:
            return 0
        fits = (self.free[node].get(name, 0) // need for name, need in kind.resources if need)
        return min(MAX_WORKERS, *fits)

    def top_of(self, nodes: Sequence[int]) -> int:
        """The lowest tier with one domain for all of them; one above the highest where there is none."""
        return next(t for t in range(1, self.tiers + 2) if len({self.domain_of[t][n] for n in nodes}) == 1)

    def cost(self, nodes: Sequence[int]) -> Cost:
        """Of a gang whose ranks are on these nodes."""
        lacking = 0
        for lacks, roles in self.lacking.values():
            at = zip(nodes, ranks(self.request.gang), strict=True)
            lacking += sum(lacks[node] for node in {node for node, worker in at if worker.role in roles})
        widths = tuple(self.widths(self.request.gang, [nodes]))
        return replace(self.cost_of_set(nodes), unpreferred=lacking, widths=widths)

    def widths(self, group: Group, copies: Sequence[Sequence[int]]) -> Iterator[int]:
        """Of each group inside: the tier at which the widest of its copies is in one domain."""
        at = 0
        for part in group.parts:
            if isinstance(part, Group):
                one = size(part) // part.count
                starts = range(at, at + size(part), one)
                runs = [copy[start : start + one] for copy in copies for start in starts]
                yield max(self._width(run) for run in runs)
                yield from self.widths(part, runs)
            at += size(part)

    def _width(self, nodes: Sequence[int]) -> int:
        return next(t for t in range(self.tiers + 2) if len({self.domain_of[t][n] for n in nodes}) == 1)

    def cost_of_set(self, nodes: Sequence[int]) -> Cost:
        """Of a gang that uses just these nodes, whichever rank is where: all roles prefer the same."""
        top = self.top_of(nodes)
        used = [{column[node] for node in nodes} for column in self.domain_of]
        degraded = sum(int(self.forest.degraded[node]) for node in used[0])
        for tier in range(1, min(top, self.tiers) + 1):
            degraded += sum(int(self.forest.layers[tier - 1].degraded[at]) for at in used[tier])
        left = [sum(self.fit_in[t][at] for at in used[t]) - self.placed for t in range(self.tiers, -1, -1)]
        if top > self.tiers:
            left.insert(0, sum(self.fit_in[top].values()) - self.placed)
        below = tuple(len(used[tier]) for tier in range(top - 1, 0, -1))
        above = max(0, self.tiers - top)
        whole = sum(self.is_whole(t, at) for t in range(1, top + 1) for at in used[t])
        lacking = sum(lacks[node] for lacks, _ in self.lacking.values() for node in used[0])
        lefts = tuple(left[above:]), tuple(left[:above])
        first = lefts[0] if self.request.packing == "fragments" else ()
        more = {"unpreferred": lacking, "fragments": first}
        return Cost(top, below, len(used[0]), degraded, *lefts, whole, **more)

    def is_whole(self, tier: int, domain: int) -> bool:
        """Whether each node of the domain has room for one of those that count."""
        return domain not in self.broken[tier]

    @property
    def highest(self) -> int:
        """The highest tier that is allowed (0 = one node); hard without a tier means some HyperNode."""
        if self.request.mode == "soft":
            return self.tiers + 1
        return self.tiers if self.request.gang.tier is None else self.request.gang.tier

    @property
    def on_node(self) -> bool:
        """Whether one node has to do."""
        return self.request.mode == "hard" and self.request.gang.tier == 0


def copies(part: Group | Workers, times: int = 1) -> Iterator[tuple[Workers, int]]:
    """Each end with how many of its workers are in the whole gang."""
    if isinstance(part, Workers):
        yield part, part.count * times
    else:
        for inner in part.parts:
            yield from copies(inner, times * part.count)
