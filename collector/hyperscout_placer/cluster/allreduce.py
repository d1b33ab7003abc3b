"""Predicts the time of an all-reduce over a placement from the latency and bandwidth of each tier.

The model is alpha-beta (Hockney): a message of b bytes over a tier takes alpha + b * beta. Here alpha is the
tier's one-way latency and beta the inverse of its bandwidth. Transfers that leave or reach the same node at
the same time share the node's bandwidth. Transfers over the uplinks of a domain do not share bandwidth in
this model: oversubscription is not measured, and ranks in tree order cross the border of each domain once in
each direction.

- Ring: 2 (n - 1) steps of b / n bytes. Each step is as slow as the slowest of its n hops.
- Tree: two binary trees, each for half of the bytes. Every inner rank of one tree is a leaf of the other
  (Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009). The
  time, up and down, is the latency of the longest path plus the bytes that the busiest node or rank sends or
  receives. The bytes are sent in pieces small enough to keep the path full.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt
from hyperscout_topology.topology import HyperNode, Measured, Tier, Topology

from hyperscout_placer.cluster.forest import Forest, Longs

MESSAGE_BYTES = 1 << 30

_Floats = npt.NDArray[np.float64]
_NVLINK = "nvlink"
_BITS = 8e-9  # Gbit per byte
_TO_S = 1e-6  # seconds per microsecond

# Defaults where nothing was measured: (one-way latency in us, bandwidth of a node in Gbit/s). They stand for
# NVLink 4, one port of 400 Gbit/s, a core with half of that for each node, and a routed network between
# islands.
WITHIN_NODE = (1.0, 3600.0)
BETWEEN_ISLANDS = (30.0, 25.0)
DEFAULTS = {
    _NVLINK: (1.5, 3600.0),
    "leaf": (2.0, 400.0),
    "pod": (3.0, 400.0),
    "core": (4.5, 200.0),
}
_BY_TIER = ("leaf", "pod", "core")  # for other tier names; the last also for higher tiers


@dataclass(frozen=True, slots=True)
class TierSpeed:
    """Latency and bandwidth of one tier.

    `latency_us`: one way. `bandwidth_gbps`: from one node to another, shared by the gang's workers on a node;
    within a node it is the bandwidth between two workers. `measured`: neither value is a default.
    """

    latency_us: float
    bandwidth_gbps: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Predicted:
    """Seconds of one all-reduce of `message_bytes` over all ranks. `measured`: no default was used."""

    ring_s: float
    tree_s: float
    message_bytes: int
    measured: bool


def speeds_of(topology: Topology) -> list[TierSpeed]:
    """Speeds within a node, then of tier 1, 2, ..., and last between islands: (tiers + 2,).

    A tier's speed is the median measured between its nodes; the latency is half of the round trip. A tier
    without a measurement has the default of its tierName. A default is adjusted so that it makes no tier
    faster than a tier below it.
    """
    names = {h.tier: h.tier_name for h in topology.hypernodes}
    tiers = [names.get(tier, "") for tier in range(1, max(names, default=0) + 1)]
    measured_tiers = {t.tier: t for t in topology.tiers}
    found: list[tuple[float | None, float | None]] = [(None, None)]
    for tier, name in enumerate(tiers, 1):
        rtt_us, gbps = _measured(tier, measured_tiers.get(tier), topology.hypernodes)
        # Pings use the network even where the GPUs use NVLink, and bandwidth tests may do so too.
        if name == _NVLINK:
            rtt_us, gbps = None, gbps if gbps and gbps > DEFAULTS[_NVLINK][1] else None
        found.append((rtt_us / 2 if rtt_us else None, gbps or None))
    found.append((None, None))
    usual = [WITHIN_NODE, *(_default(tier, name) for tier, name in enumerate(tiers, 1)), BETWEEN_ISLANDS]
    latency_us = _filled([x for x, _ in found], [x for x, _ in usual])
    slowness = _filled([1 / x if x else None for _, x in found], [1 / x for _, x in usual])
    return [
        TierSpeed(us, 1 / slow, None not in was)
        for us, slow, was in zip(latency_us, slowness, found, strict=True)
    ]


def default_speeds(forest: Forest) -> list[TierSpeed]:
    """The default speeds, without measurements: (tiers + 2,)."""
    usual = [WITHIN_NODE, *(_default(x.tier, x.tier_name) for x in forest.layers), BETWEEN_ISLANDS]
    return [TierSpeed(us, gbps, False) for us, gbps in usual]


def predict(
    forest: Forest, speeds: Sequence[TierSpeed], nodes: Sequence[str], message_bytes: int = MESSAGE_BYTES
) -> Predicted:
    """The predicted all-reduce. `nodes`: by rank. `speeds`: as `speeds_of` returns them."""
    at = np.fromiter(map(forest.index.__getitem__, nodes), np.int64, len(nodes))
    return predict_at(forest, speeds, at, message_bytes)


def predict_at(
    forest: Forest, speeds: Sequence[TierSpeed], nodes: Longs, message_bytes: int = MESSAGE_BYTES
) -> Predicted:
    """Like `predict`, for nodes given by number."""
    count = len(nodes)
    if count < 2:
        return Predicted(0.0, 0.0, message_bytes, measured=True)
    alpha = np.array([x.latency_us * _TO_S for x in speeds])
    beta = np.array([_BITS / x.bandwidth_gbps for x in speeds])
    _, own = np.unique(nodes, return_inverse=True)  # nodes of the gang, numbered from 0
    follower = np.roll(nodes, -1)
    ring = _tiers(forest, nodes, follower)
    leaves = ring > 0
    out, into = np.bincount(own[leaves]), np.bincount(np.roll(own, -1)[leaves])
    shared = np.ones(count)
    shared[leaves] = np.maximum(out[own[leaves]], into[np.roll(own, -1)[leaves]])
    step_s = float((alpha[ring] + message_bytes / count * beta[ring] * shared).max())

    way_s = load_s = 0.0
    ranks = np.arange(count)
    # The second tree is the first one mirrored; for an odd count it is rotated by one rank.
    turned = count - 1 - ranks if count % 2 == 0 else (ranks + 1) % count
    child, up, hops = [], [], []
    for order in (ranks, turned):
        parent = _parents(count)
        hop = _tiers(forest, nodes[order], nodes[order[parent]])
        way_s = max(way_s, float(_to_root(alpha[hop], parent).max()))
        child.append(order[1:])
        up.append(order[parent[1:]])
        hops.append(hop[1:])
    sender, receiver, hop = np.concatenate(child), np.concatenate(up), np.concatenate(hops)
    cost_s = message_bytes / 2 * beta[hop]
    for far, ends in ((hop > 0, own), (hop == 0, ranks)):
        for end in (sender, receiver):
            if far.any():
                load_s = max(load_s, float(np.bincount(ends[end[far]], cost_s[far]).max()))
    return Predicted(
        2 * (count - 1) * step_s,
        2 * (way_s + load_s),
        message_bytes,
        all(speeds[tier].measured for tier in np.unique(np.concatenate((ring, hop))).tolist()),
    )


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


def _to_root(cost: _Floats, parent: Longs) -> _Floats:
    """The cost of the path from each number to the root, by pointer doubling."""
    total = cost.copy()
    total[0] = 0.0
    while parent.any():
        total, parent = total + total[parent], parent[parent]
    return total


def _measured(
    tier: int, found: Tier | None, hypernodes: Sequence[HyperNode]
) -> tuple[float | None, float | None]:
    """Round trip in us and bandwidth in Gbit/s: those of the tier, else the medians over its domains."""
    if found is not None and (found.latency_us or found.bandwidth_gbps):
        return _middle([found.latency_us]), _middle([found.bandwidth_gbps])
    mine = [h for h in hypernodes if h.tier == tier]
    return _middle([h.latency_us for h in mine]), _middle([h.bandwidth_gbps for h in mine])


def _middle(figures: Sequence[Measured | None]) -> float | None:
    values = [m.median for m in figures if m is not None and m.median > 0]
    return median(values) if values else None


def _default(tier: int, name: str) -> tuple[float, float]:
    return DEFAULTS.get(name) or DEFAULTS[_BY_TIER[min(tier, len(_BY_TIER)) - 1]]


def _filled(measured: Sequence[float | None], usual: Sequence[float]) -> list[float]:
    """Measured values unchanged; each default is limited by the measured values below and above it."""
    found: list[float] = []
    for value, default in zip(measured, usual, strict=True):
        found.append(value if value is not None else max([default, *found[-1:]]))
    least = np.inf
    for i in range(len(found) - 1, -1, -1):
        if measured[i] is None:
            found[i] = min(found[i], least)
        least = found[i]
    return found
