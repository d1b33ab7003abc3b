"""Decides when a change of membership is published, and whether it waits for approval.

A sweep of half a fabric, a collector that lost its evidence or a mistyped label selector resembles the loss
of half a cluster. Growth is harmless and never waits.

A share alone would be wrong for small trees, where every single item is a large share. One HyperNode and one
node may therefore always be removed. The removal of a rack still waits in a small cluster, because it removes
more nodes than the share. So does the removal of a whole tree, however small, because the number of tiers
becomes zero. Recently published removals count too: a fabric that shrinks in small steps is the same loss.

Of several clusters, the share of nodes is that of each cluster, or a small one could disappear unnoticed. The
removal of the last node of a cluster always waits.

`Membership` is the state machine. `TRANSITIONS` lists how events change its state.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal

from hyperscout_formats.text.reporters import cluster_of
from hyperscout_runtime.event_log import EventLog, copied
from hyperscout_runtime.units import NS
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import HyperNode, Topology

_ALWAYS_MAY_GO = 1


@dataclass(frozen=True, slots=True)
class Loss:
    """What is removed from one tree to the next. `tiers`: (before, after) if the number of tiers changes.

    `clusters`: those that lose their last node; "" = the collector's own.
    """

    hypernodes: frozenset[str]
    nodes: frozenset[str]
    tiers: tuple[int, int] | None = None
    clusters: frozenset[str] = frozenset()

    @property
    def always_waits(self) -> bool:
        """Whether it waits however few it removes."""
        return self.tiers is not None or bool(self.clusters)


NO_LOSS = Loss(frozenset(), frozenset())


def nodes_of(hypernodes: Sequence[HyperNode]) -> frozenset[str]:
    """Returns all nodes of a tree."""
    return _nodes_of(tuple([h.nodes for h in hypernodes if not h.children]))


@memoized  # members change far less often than conditions
def _nodes_of(nodes: tuple[tuple[str, ...], ...]) -> frozenset[str]:
    return frozenset(chain.from_iterable(nodes))


def by_cluster(nodes: Iterable[str]) -> dict[str, set[str]]:
    """Returns the nodes of each cluster; "" = the collector's own."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        found.setdefault(cluster_of(node), set()).add(node)
    return found


def loss(before: Topology, after: Topology) -> Loss:
    """Returns what is lost between two trees. A changed number of tiers is a loss, except for growth on top:
    no HyperNode or node is removed, and every HyperNode stays in its tier."""
    tier_after = {h.name: h.tier for h in after.hypernodes}
    hypernodes = frozenset(h.name for h in before.hypernodes if h.name not in tier_after)
    remaining = nodes_of(after.hypernodes)
    nodes = frozenset(nodes_of(before.hypernodes) - remaining)
    clusters = frozenset(set(map(cluster_of, nodes)).difference(map(cluster_of, remaining)))
    tiers = (
        max((h.tier for h in before.hypernodes), default=0),
        max((h.tier for h in after.hypernodes), default=0),
    )
    moved = any(tier_after.get(h.name, h.tier) != h.tier for h in before.hypernodes)
    grew = tiers[1] > tiers[0] and not hypernodes and not nodes and not moved
    return Loss(hypernodes, nodes, None if grew or tiers[0] == tiers[1] or not tiers[0] else tiers, clusters)


@dataclass(slots=True)
class Removals:
    """The removals within the last `window_ns`, and the limit on them, which also bounds the memory.

    `hypernodes`, `nodes`: when each name was removed, Unix ns.
    """

    share: float
    window_ns: int
    hypernodes: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)

    def too_many(self, lost: Loss, hypernodes: int, nodes: Mapping[str, int], now_ns: int) -> bool:
        """Whether this loss, with the recent ones, exceeds the limit and needs approval.

        `hypernodes`, `nodes`: their numbers before the loss; of nodes, the number in each cluster.
        """
        self._expire(now_ns)
        lately = by_cluster(self.nodes)
        return self._over(lost.hypernodes, self.hypernodes.keys(), hypernodes) or any(
            self._over(mine, lately.get(cluster, set()), nodes.get(cluster, 0))
            for cluster, mine in by_cluster(lost.nodes).items()
        )

    def record(self, lost: Loss, now_ns: int) -> None:
        """Record a loss that was published without approval."""
        self._expire(now_ns)
        self.hypernodes.update(dict.fromkeys(lost.hypernodes, now_ns))
        self.nodes.update(dict.fromkeys(lost.nodes, now_ns))

    def forget(self, back: Loss) -> None:
        """HyperNodes and nodes that came back no longer count."""
        for name in back.hypernodes:
            self.hypernodes.pop(name, None)
        for name in back.nodes:
            self.nodes.pop(name, None)

    def agree(self) -> None:
        """Reset the count after an approval, or after a loss that lasted."""
        self.hypernodes.clear()
        self.nodes.clear()

    def in_tree(self, tree: Topology) -> Loss:
        """Returns the recently removed names that a tree contains."""
        if not self.hypernodes and not self.nodes:
            return NO_LOSS
        hypernodes = frozenset(h.name for h in tree.hypernodes if h.name in self.hypernodes)
        return Loss(hypernodes, frozenset(nodes_of(tree.hypernodes) & self.nodes.keys()))

    def _over(self, lost: Set[str], lately: Set[str], now: int) -> bool:
        """`now`: the number of items before the loss."""
        return bool(lost) and len(lost | lately) > max(_ALWAYS_MAY_GO, self.share * (now + len(lately)))

    def _expire(self, now_ns: int) -> None:
        for lately in (self.hypernodes, self.nodes):
            for name in [name for name, at in lately.items() if now_ns - at >= self.window_ns]:
                del lately[name]


State = Literal[
    "empty",  # nothing is published
    "first",  # nothing is published, and the first tree must be stable for a moment
    "steady",  # the offered tree has the published members
    "settling",  # it has other members, and must be stable for a moment
    "held",  # it removes so much that it waits for approval or its deadline
]
TRANSITIONS: Final[dict[State, dict[str, tuple[State, ...]]]] = {
    "empty": {"Offer": ("first",)},
    "first": {"Tick": ("steady",)},
    "steady": {"Offer": ("settling", "held")},
    "settling": {"Tick": ("steady",), "Offer": ("steady", "held")},
    "held": {"Tick": ("steady",), "Approve": ("steady",), "Offer": ("steady", "settling")},
}


@dataclass(frozen=True, slots=True)
class Offer:
    """Inference offers a tree, compared with the published one.

    `is_repeat`: it has the members of the tree offered before. `has_content`: it is not wholly empty.
    `same`: it has the published members. `lost`: what it removes, without what may always be removed.
    `removed`: all that it removes. `back`: recently removed names that it contains. `hypernodes`, `nodes`:
    their published numbers, of nodes the number in each cluster. `is_empty`: it has no HyperNodes. `number`:
    the generation that a hold gets.
    """

    is_repeat: bool
    has_content: bool
    same: bool
    lost: Loss
    removed: Loss
    back: Loss
    hypernodes: int
    nodes: Mapping[str, int]
    is_empty: bool
    number: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Approve:
    """The held tree is approved."""


Event = Offer | Tick | Approve


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """As in `GenerationSettings`. Times in seconds."""

    first_settle_s: float
    settle_s: float
    settle_max_s: float
    hold_s: float
    removal_share: float


@dataclass(frozen=True, slots=True)
class HeldTree:
    """A tree that waits for approval or its deadline. `generation`: its own number, by which it is approved.

    The number stays the same until the loss grows by another share, so the approved tree is the one that was
    read.
    """

    generation: int
    reason: str
    since_ns: int
    applies_at_ns: int
    removes_hypernodes: tuple[str, ...]
    removes_nodes: tuple[str, ...]


@dataclass(slots=True)
class MembershipFacts:
    """All facts of `Membership`, as plain data. Times are Unix ns.

    `is_published`: a tree is published; `is_empty`: without HyperNodes. `differs_since_ns`: since when the
    offered tree has other members than the published one. `still_since_ns`: since when all offers agree.
    `held_loss`: what the held tree removed when it got its number.
    """

    settings: MembershipSettings
    removals: Removals
    is_published: bool
    is_empty: bool
    still_since_ns: int
    differs_since_ns: int | None = None
    offer: Offer | None = None
    held: HeldTree | None = None
    held_loss: Loss = NO_LOSS


class Membership:
    """`handle` returns whether the offered tree must be published now. `log`: gets effective events."""

    def __init__(self, facts: MembershipFacts, log: EventLog | None = None) -> None:
        self.facts = facts
        self._log = EventLog("generations") if log is None else log
        self._subject = self._log.subject("generations")

    @classmethod
    def started(
        cls,
        settings: MembershipSettings,
        published: Topology | None,
        now_ns: int,
        log: EventLog | None = None,
    ) -> "Membership":
        removals = Removals(settings.removal_share, round(settings.hold_s * NS))
        is_empty = published is None or not published.hypernodes
        return cls(MembershipFacts(settings, removals, published is not None, is_empty, now_ns), log)

    def snapshot(self) -> MembershipFacts:
        copy: MembershipFacts = copied(self.facts)
        return copy

    @property
    def held(self) -> HeldTree | None:
        return self.facts.held

    @property
    def state(self) -> State:
        facts = self.facts
        if facts.held is not None:
            return "held"
        if not facts.is_published:
            return "empty" if facts.differs_since_ns is None else "first"
        return "steady" if facts.differs_since_ns is None else "settling"

    @property
    def due_ns(self) -> int | None:
        """When the offered tree is published unless something changes; None = it is not."""
        facts = self.facts
        if facts.held is not None:
            return facts.held.applies_at_ns
        if facts.differs_since_ns is None:
            return None
        settings = facts.settings
        settle_s = settings.first_settle_s if facts.is_empty else settings.settle_s
        still_ns = facts.still_since_ns + round(settle_s * NS)
        return min(still_ns, facts.differs_since_ns + round(settings.settle_max_s * NS))

    def handle(self, event: Event, now_ns: int) -> bool:
        take = False
        with self._log.handling(self._subject, self, now_ns, (event,)):
            if isinstance(event, Offer):
                self._offered(event, now_ns)
            else:
                take = isinstance(event, Approve) or (self.due_ns is not None and now_ns >= self.due_ns)
                if take:
                    self._take(now_ns)
        if isinstance(event, Tick) and not take:
            self._log.drop_last()
        return take

    def _offered(self, offer: Offer, now_ns: int) -> None:
        facts = self.facts
        facts.offer = offer
        if not offer.is_repeat:
            facts.still_since_ns = now_ns
        if not facts.is_published:
            if facts.differs_since_ns is None and offer.has_content:
                facts.differs_since_ns = facts.still_since_ns = now_ns
            return
        if offer.same:
            facts.differs_since_ns = facts.held = None
            return
        if facts.differs_since_ns is None:
            facts.differs_since_ns = now_ns
        if not offer.lost.always_waits and not self._too_many(offer, offer.lost, now_ns):
            if facts.held is not None:
                # The loss shrinks, perhaps in steps. The remaining change must be stable again before it is
                # published.
                facts.held = None
                facts.differs_since_ns = facts.still_since_ns = now_ns
        else:
            self._hold(offer, facts.held, now_ns)

    def _hold(self, offer: Offer, held: HeldTree | None, now_ns: int) -> None:
        facts, lost, before = self.facts, offer.lost, self.facts.held_loss
        number, since_ns = offer.number, now_ns
        more = Loss(lost.hypernodes - before.hypernodes, lost.nodes - before.nodes)
        same = (lost.tiers, lost.clusters) == (before.tiers, before.clusters)
        if held is not None and same and not self._too_many(offer, more, now_ns):
            number, since_ns = held.generation, held.since_ns
        else:
            facts.held_loss = lost
        facts.held = HeldTree(
            number,
            self._reason(offer),
            since_ns,
            since_ns + round(facts.settings.hold_s * NS),
            tuple(sorted(lost.hypernodes)),
            tuple(sorted(lost.nodes)),
        )

    def _too_many(self, offer: Offer, lost: Loss, now_ns: int) -> bool:
        return self.facts.removals.too_many(lost, offer.hypernodes, offer.nodes, now_ns)

    def _take(self, now_ns: int) -> None:
        """The offered tree becomes the published one."""
        facts, offer = self.facts, self.facts.offer
        if offer is None:
            return
        if facts.held is not None:
            facts.removals.agree()
        elif facts.is_published:
            facts.removals.record(offer.removed, now_ns)
            facts.removals.forget(offer.back)
        facts.differs_since_ns = facts.held = None
        facts.is_published, facts.is_empty = True, offer.is_empty

    def _reason(self, offer: Offer) -> str:
        lost, parts = offer.lost, []
        if lost.tiers:
            parts.append(f"changes the number of tiers from {lost.tiers[0]} to {lost.tiers[1]}")
        if lost.hypernodes or lost.nodes:
            parts.append(
                f"removes {len(lost.hypernodes)} of {offer.hypernodes} HyperNodes"
                f" and {len(lost.nodes)} of {sum(offer.nodes.values())} nodes{self._of_clusters(offer)}"
            )
        share = self.facts.settings.removal_share
        return f"{' and '.join(parts)} (more than {share:.0%} need an approval)"

    def _of_clusters(self, offer: Offer) -> str:
        if not offer.nodes.keys() - {""}:
            return ""
        lost = sorted((cluster, len(nodes)) for cluster, nodes in by_cluster(offer.lost.nodes).items())
        named = [
            f"{n} of {offer.nodes.get(cluster, 0)} in {cluster or 'the own cluster'}" for cluster, n in lost
        ]
        return f" ({', '.join(named)})" if named else ""
