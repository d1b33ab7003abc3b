"""Predicts the time of an all-reduce over a placement from the latency and bandwidth of each tier.

The model is alpha-beta (Hockney): a message of b bytes over a tier takes alpha + b * beta. Here alpha is the
tier's one-way latency and beta the inverse of its bandwidth. Transfers that leave or reach the same node at
the same time share the node's bandwidth. Transfers over the uplinks of a domain do not share bandwidth in
this model: oversubscription is not measured, and ranks in tree order cross the border of each domain once in
each direction.

A hop has the bandwidth of its slower end where the links of nodes were read (`TierSpeed.node_gbps`).

- Ring: 2 (n - 1) steps of b / n bytes. Each step is as slow as the slowest of its n hops.
- Tree: two binary trees, each for half of the bytes. Every inner rank of one tree is a leaf of the other
  (Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009). The
  time, up and down, is the latency of the longest path plus the bytes that the busiest node or rank sends or
  receives. The bytes are sent in pieces small enough to keep the path full.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hyperscout_placer.cluster.forest import Forest, Longs
from hyperscout_placer.cluster.link_speeds import Floats
from hyperscout_placer.cluster.speeds import Source, TierSpeed

MESSAGE_BYTES = 1 << 30

_BITS = 8e-9  # Gbit per byte
_TO_S = 1e-6  # seconds per microsecond
_WITHIN_NODES, _BETWEEN_ISLANDS = "within nodes", "between islands"


@dataclass(frozen=True, slots=True)
class HopSpeed:
    """The figures that a prediction takes for the hops over one tier, and their sources.

    `tier`: 0 within a node, else the tier; one more than the highest between islands. `bandwidth_gbps` is
    that of the slowest hop.
    """

    tier: int
    tier_name: str
    latency_us: float
    latency_source: Source
    bandwidth_gbps: float
    bandwidth_source: Source


@dataclass(frozen=True, slots=True)
class Predicted:
    """Seconds of one all-reduce of `message_bytes` over all ranks. `hops`: one for each tier that it uses."""

    ring_s: float
    tree_s: float
    message_bytes: int
    hops: tuple[HopSpeed, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether all figures were measured."""
        return all(x.latency_source == x.bandwidth_source == "measured" for x in self.hops)

    @property
    def sources(self) -> str:
        """The sources of the figures: "latency assumed, bandwidth read (leaf) and assumed (core)"."""
        if self.measured:
            return "as measured"
        latency = _said([(x.latency_source, x.tier_name) for x in self.hops])
        bandwidth = _said([(x.bandwidth_source, x.tier_name) for x in self.hops])
        if latency == bandwidth:
            return f"latency and bandwidth {latency}"
        return f"latency {latency}, bandwidth {bandwidth}"


def predict(
    forest: Forest, speeds: Sequence[TierSpeed], nodes: Sequence[str], message_bytes: int = MESSAGE_BYTES
) -> Predicted:
    """The predicted all-reduce. `nodes`: by rank. `speeds`: as `speeds_of` returns them."""
    count = len(nodes)
    if count < 2:
        return Predicted(0.0, 0.0, message_bytes)
    at = np.fromiter(map(forest.index.__getitem__, nodes), np.int64, count)
    alpha = np.array([x.latency_us * _TO_S for x in speeds])
    _, own = np.unique(at, return_inverse=True)  # nodes of the gang, numbered from 0
    follower = np.roll(at, -1)
    ring = _tiers(forest, at, follower)
    ring_gbps = _gbps(speeds, ring, at, follower)
    leaves = ring > 0
    out, into = np.bincount(own[leaves]), np.bincount(np.roll(own, -1)[leaves])
    shared = np.ones(count)
    shared[leaves] = np.maximum(out[own[leaves]], into[np.roll(own, -1)[leaves]])
    step_s = float((alpha[ring] + message_bytes / count * _BITS / ring_gbps * shared).max())

    way_s = load_s = 0.0
    ranks = np.arange(count)
    # The second tree is the first one mirrored; for an odd count it is rotated by one rank.
    turned = count - 1 - ranks if count % 2 == 0 else (ranks + 1) % count
    child, up, hops = [], [], []
    for order in (ranks, turned):
        parent = _parents(count)
        hop = _tiers(forest, at[order], at[order[parent]])
        way_s = max(way_s, float(_to_root(alpha[hop], parent).max()))
        child.append(order[1:])
        up.append(order[parent[1:]])
        hops.append(hop[1:])
    sender, receiver, hop = np.concatenate(child), np.concatenate(up), np.concatenate(hops)
    hop_gbps = _gbps(speeds, hop, at[sender], at[receiver])
    cost_s = message_bytes / 2 * _BITS / hop_gbps
    for far, ends in ((hop > 0, own), (hop == 0, ranks)):
        for end in (sender, receiver):
            if far.any():
                load_s = max(load_s, float(np.bincount(ends[end[far]], cost_s[far]).max()))
    return Predicted(
        2 * (count - 1) * step_s,
        2 * (way_s + load_s),
        message_bytes,
        _hops(forest, speeds, np.concatenate((ring, hop)), np.concatenate((ring_gbps, hop_gbps))),
    )


def _gbps(speeds: Sequence[TierSpeed], tiers: Longs, a: Longs, b: Longs) -> Floats:
    """The bandwidth of each hop over its tier, between the nodes `a` and `b`."""
    found = np.array([x.bandwidth_gbps for x in speeds])[tiers]
    for tier, speed in enumerate(speeds):
        if speed.node_gbps is not None:
            at = np.flatnonzero(tiers == tier)
            found[at] = np.minimum(speed.node_gbps[a[at]], speed.node_gbps[b[at]])
    return found


def _hops(forest: Forest, speeds: Sequence[TierSpeed], tiers: Longs, gbps: Floats) -> tuple[HopSpeed, ...]:
    least = np.full(len(speeds), np.inf)
    np.minimum.at(least, tiers, gbps)
    names = [_WITHIN_NODES, *(x.tier_name or f"tier {x.tier}" for x in forest.layers), _BETWEEN_ISLANDS]
    return tuple(
        HopSpeed(
            tier,
            names[tier],
            speeds[tier].latency_us,
            speeds[tier].latency_source,
            float(least[tier]),
            speeds[tier].bandwidth_source,
        )
        for tier in np.flatnonzero(np.isfinite(least)).tolist()
    )


def _said(sources: Sequence[tuple[Source, str]]) -> str:
    """ "read", or "read (leaf, pod) and assumed (core)"."""
    tiers: dict[Source, list[str]] = {}
    for source, name in sources:
        tiers.setdefault(source, []).append(name)
    if len(tiers) == 1:
        return next(iter(tiers))
    return " and ".join(f"{source} ({', '.join(names)})" for source, names in tiers.items())


def _tiers(forest: Forest, a: Longs, b: Longs) -> Longs:
    """The tier of each hop: 0 within a node, else of the lowest common domain; tiers + 1 where none is."""
    found: Longs = (a != b).astype(np.int64)
    for layer in forest.layers:
        found += layer.of_node[a] != layer.of_node[b]
    return found


def _parents(count: int) -> Longs:
    """A binary tree over the numbers.

    0 is the root and has one child. The depth is logarithmic in `count`.
    """
    numbers = np.arange(count)
    low = numbers & -numbers
    inner = numbers ^ low
    parent = inner | (low << 1)
    found: Longs = np.where(parent < count, parent, inner)
    return found


def _to_root(cost: Floats, parent: Longs) -> Floats:
    """The cost of the path from each number to the root, by pointer doubling."""
    total = cost.copy()
    total[0] = 0.0
    while parent.any():
        total, parent = total + total[parent], parent[parent]
    return total
