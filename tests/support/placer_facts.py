"""What the oracles look up, in plain Python: which nodes a gang may use, what fits, what nodes cost."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hyperscout_placer.cluster.answer import Cost
from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import MAX_WORKERS, Group, Request, Workers, ends

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
        found = list(copies(request.gang))
        most = max(found, key=lambda pair: pair[1])[1]
        self.reference = next(end for end, count in found if count == most)
        self.placed = most
        fits = [self.fit(self.reference, node) for node in range(len(forest.nodes))]
        self.fit_in: list[Counter[int]] = []
        for column in self.domain_of:
            total: Counter[int] = Counter()
            for node, fit in enumerate(fits):
                total[column[node]] += fit
            self.fit_in.append(total)

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
        """Of a gang that uses just these nodes."""
        top = self.top_of(nodes)
        used = [{column[node] for node in nodes} for column in self.domain_of]
        degraded = sum(int(self.forest.degraded[node]) for node in used[0])
        for tier in range(1, min(top, self.tiers) + 1):
            degraded += sum(int(self.forest.layers[tier - 1].degraded[at]) for at in used[tier])
        left = (sum(self.fit_in[t][at] for at in used[t]) - self.placed for t in range(top, -1, -1))
        below = tuple(len(used[tier]) for tier in range(top - 1, 0, -1))
        return Cost(top, below, len(used[0]), degraded, tuple(left))

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
