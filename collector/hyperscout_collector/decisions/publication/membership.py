"""What a change of membership takes away, and whether that is so much that it waits for a person.

A sweep that saw half a fabric, a collector that lost its evidence or a mistyped label selector look
like the end of half a cluster. Growth harms nobody and is never held.

A share alone would be wrong for small trees, where every single thing is a large share, so one
HyperNode and one node may always go. A rack that goes is still held in a small cluster: it takes more
nodes than the share with it. So is the end of the whole tree, however small: its tiers go to none.
Removals that were published lately count too: a fabric that fades away in small steps is the same loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hyperscout_topology.topology import HyperNode, Topology

_ALWAYS_MAY_GO = 1


@dataclass(frozen=True, slots=True)
class Loss:
    """What goes from one tree to the next. `tiers` is (before, after) where the number changes."""

    hypernodes: frozenset[str]
    nodes: frozenset[str]
    tiers: tuple[int, int] | None = None


NO_LOSS = Loss(frozenset(), frozenset())


def same_members(a: Topology, b: Topology) -> bool:
    """Whether two trees have the same HyperNodes with the same members.

    Conditions are left aside, and switches: one that is missing is told by a condition, at once.
    """

    def shape(h: HyperNode) -> tuple[object, ...]:
        return (h.name, h.tier, h.tier_name, h.parent, h.children, h.nodes)

    return len(a.hypernodes) == len(b.hypernodes) and all(
        x is y or shape(x) == shape(y) for x, y in zip(a.hypernodes, b.hypernodes, strict=True)
    )


def nodes_of(hypernodes: Sequence[HyperNode]) -> set[str]:
    """All nodes of a tree."""
    return {node for h in hypernodes if not h.children for node in h.nodes}


def loss(before: Topology, after: Topology) -> Loss:
    """Another number of tiers is a loss, unless every HyperNode stays in its tier: that tree grew on top."""
    tier_after = {h.name: h.tier for h in after.hypernodes}
    hypernodes = frozenset(h.name for h in before.hypernodes if h.name not in tier_after)
    nodes = frozenset(nodes_of(before.hypernodes) - nodes_of(after.hypernodes))
    tiers = (
        max((h.tier for h in before.hypernodes), default=0),
        max((h.tier for h in after.hypernodes), default=0),
    )
    moved = any(tier_after.get(h.name, h.tier) != h.tier for h in before.hypernodes)
    grew = tiers[1] > tiers[0] and not hypernodes and not nodes and not moved
    return Loss(hypernodes, nodes, None if grew or tiers[0] == tiers[1] or not tiers[0] else tiers)


class Removals:
    """What was removed within the last `window_ns`, and the limit on it, which bounds the memory too."""

    def __init__(self, share: float, window_ns: int) -> None:
        self._share = share
        self._window_ns = window_ns
        self._hypernodes: dict[str, int] = {}
        self._nodes: dict[str, int] = {}

    def too_many(self, before: Topology, lost: Loss, now_ns: int) -> bool:
        """Whether this loss, with those of late, is more than may go unasked."""
        self._expire(now_ns)
        nodes = nodes_of(before.hypernodes)
        return self._over(lost.hypernodes, self._hypernodes, len(before.hypernodes)) or self._over(
            lost.nodes, self._nodes, len(nodes)
        )

    def record(self, lost: Loss, after: Topology, now_ns: int) -> None:
        """This loss was published on its own; what came back since does not count."""
        self._expire(now_ns)
        self._hypernodes.update(dict.fromkeys(lost.hypernodes, now_ns))
        self._nodes.update(dict.fromkeys(lost.nodes, now_ns))
        if self._hypernodes:
            for h in after.hypernodes:
                self._hypernodes.pop(h.name, None)
        if self._nodes:
            for node in nodes_of(after.hypernodes):
                self._nodes.pop(node, None)

    def agree(self) -> None:
        """Somebody agreed, or it lasted: start to count anew."""
        self._hypernodes.clear()
        self._nodes.clear()

    def _over(self, lost: frozenset[str], lately: dict[str, int], now: int) -> bool:
        """`now` is how many there are before the loss."""
        return bool(lost) and len(lost | lately.keys()) > max(
            _ALWAYS_MAY_GO, self._share * (now + len(lately))
        )

    def _expire(self, now_ns: int) -> None:
        for lately in (self._hypernodes, self._nodes):
            for name in [name for name, at in lately.items() if now_ns - at >= self._window_ns]:
                del lately[name]
