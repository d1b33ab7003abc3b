"""Decides whether a change of membership removes so much that it waits for approval.

A sweep of half a fabric, a collector that lost its evidence or a mistyped label selector resembles the loss
of half a cluster. Growth is harmless and never waits.

A share alone would be wrong for small trees, where every single item is a large share. One HyperNode and one
node may therefore always be removed. The removal of a rack still waits in a small cluster, because it removes
more nodes than the share. So does the removal of a whole tree, however small, because the number of tiers
becomes zero. Recently published removals count too: a fabric that shrinks in small steps is the same loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hyperscout_topology.topology import HyperNode, Topology

_ALWAYS_MAY_GO = 1


@dataclass(frozen=True, slots=True)
class Loss:
    """What is removed from one tree to the next. `tiers`: (before, after) if the number of tiers changes."""

    hypernodes: frozenset[str]
    nodes: frozenset[str]
    tiers: tuple[int, int] | None = None


NO_LOSS = Loss(frozenset(), frozenset())


def same_members(a: Topology, b: Topology) -> bool:
    """Whether two trees have the same HyperNodes with the same members.

    Conditions and switches are ignored: a condition reports a missing switch at once.
    """

    def shape(h: HyperNode) -> tuple[object, ...]:
        return (h.name, h.tier, h.tier_name, h.parent, h.children, h.nodes)

    return len(a.hypernodes) == len(b.hypernodes) and all(
        x is y or shape(x) == shape(y) for x, y in zip(a.hypernodes, b.hypernodes, strict=True)
    )


def nodes_of(hypernodes: Sequence[HyperNode]) -> set[str]:
    """Returns all nodes of a tree."""
    return {node for h in hypernodes if not h.children for node in h.nodes}


def loss(before: Topology, after: Topology) -> Loss:
    """Returns what is lost between two trees. A changed number of tiers is a loss, except for growth on top:
    no HyperNode or node is removed, and every HyperNode stays in its tier."""
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
    """The removals within the last `window_ns`, and the limit on them, which also bounds the memory."""

    def __init__(self, share: float, window_ns: int) -> None:
        self._share = share
        self._window_ns = window_ns
        self._hypernodes: dict[str, int] = {}
        self._nodes: dict[str, int] = {}

    def too_many(self, before: Topology, lost: Loss, now_ns: int) -> bool:
        """Whether this loss, with the recent ones, exceeds the limit and needs approval."""
        self._expire(now_ns)
        nodes = nodes_of(before.hypernodes)
        return self._over(lost.hypernodes, self._hypernodes, len(before.hypernodes)) or self._over(
            lost.nodes, self._nodes, len(nodes)
        )

    def record(self, lost: Loss, after: Topology, now_ns: int) -> None:
        """Record a loss that was published without approval.

        HyperNodes and nodes that came back no longer count.
        """
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
        """Reset the count after an approval, or after a loss that lasted."""
        self._hypernodes.clear()
        self._nodes.clear()

    def _over(self, lost: frozenset[str], lately: dict[str, int], now: int) -> bool:
        """`now`: the number of items before the loss."""
        return bool(lost) and len(lost | lately.keys()) > max(
            _ALWAYS_MAY_GO, self._share * (now + len(lately))
        )

    def _expire(self, now_ns: int) -> None:
        for lately in (self._hypernodes, self._nodes):
            for name in [name for name, at in lately.items() if now_ns - at >= self._window_ns]:
                del lately[name]
