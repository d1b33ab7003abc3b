"""Latency and bandwidth of each tier: measured, else read from the links, else assumed.

A tier's latency is measured or assumed. Its bandwidth is measured (NCCL between nodes, or one port), else
read from the speeds of links, else assumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Literal, overload

import numpy as np
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_topology.topology import HyperNode, Measured, Tier, Topology

from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.link_speeds import LEAST, Floats, node_speeds, usual

Source = Literal["measured", "read", "assumed"]

# Defaults where nothing was measured: (one-way latency in us, bandwidth of a node in Gbit/s). They stand for
# NVLink 4 (also in place of other accelerator fabrics), one port of 400 Gbit/s, a core with half of that for
# each node, and a routed network between islands.
WITHIN_NODE = (1.0, 3600.0)
BETWEEN_ISLANDS = (30.0, 25.0)
DEFAULTS = {
    **dict.fromkeys(KINDS, (1.5, 3600.0)),
    "leaf": (2.0, 400.0),
    "pod": (3.0, 400.0),
    "core": (4.5, 200.0),
}
_BY_TIER = ("leaf", "pod", "core")  # for other tier names; the last also for higher tiers


@dataclass(frozen=True, slots=True)
class TierSpeed:
    """Latency and bandwidth of one tier, and where they come from.

    `latency_us`: one way. `bandwidth_gbps`: from one node to another, shared by the gang's workers on a node;
    within a node it is the bandwidth between two workers. `node_gbps`: (nodes,) the bandwidth of each node
    over the tier, where links were read; a hop has that of its slower end. None = `bandwidth_gbps` for all.
    """

    latency_us: float
    bandwidth_gbps: float
    latency_source: Source = "assumed"
    bandwidth_source: Source = "assumed"
    node_gbps: Floats | None = field(default=None, compare=False, repr=False)


class LazySpeeds(Sequence[TierSpeed]):
    """The result of `speeds_of`, which is called at the first use.

    It takes tens of ms for 10,000 nodes, and most generations end before a prediction needs it. Use it in
    a thread where the topology is large.
    """

    def __init__(self, topology: Topology, forest: Forest) -> None:
        self._of = topology, forest

    @cached_property
    def _speeds(self) -> Sequence[TierSpeed]:  # two threads may both compute it, with the same result
        return speeds_of(*self._of)

    @overload
    def __getitem__(self, index: int) -> TierSpeed: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[TierSpeed]: ...

    def __getitem__(self, index: int | slice) -> TierSpeed | Sequence[TierSpeed]:
        return self._speeds[index]

    def __len__(self) -> int:
        return self._of[1].top + 2


def speeds_of(topology: Topology, forest: Forest) -> list[TierSpeed]:
    """Speeds within a node, then of tier 1, 2, ..., and last between islands: (tiers + 2,).

    `forest`: of the topology, or of a part of its nodes. A measured speed is the median between the tier's
    nodes; the latency is half of the round trip. A read bandwidth is the median over the nodes. What is
    neither measured nor read has the default of the tierName, adjusted so that it makes no tier faster than a
    tier below it.
    """
    measured_tiers = {t.tier: t for t in topology.tiers}
    none = np.zeros(len(forest.nodes))
    known: list[tuple[float | None, float | None, Floats]] = [(None, None, none)]
    for layer, by_node in zip(forest.layers, node_speeds(topology, forest), strict=True):
        rtt_us, gbps = _measured(layer.tier, measured_tiers.get(layer.tier), topology.hypernodes)
        # Pings use the network even where the GPUs use NVLink, and bandwidth tests may do so too.
        if layer.tier_name in KINDS:
            rtt_us, gbps = None, gbps if gbps and gbps > DEFAULTS[layer.tier_name][1] else None
        known.append((rtt_us / 2 if rtt_us else None, gbps or None, by_node))
    known.append((None, None, none))
    read = [usual(by_node) for _, _, by_node in known]
    assumed = default_speeds(forest)
    latency_us = _filled([us for us, _, _ in known], [x.latency_us for x in assumed])
    slowness = _filled(
        [1 / one if (one := gbps or r) else None for (_, gbps, _), r in zip(known, read, strict=True)],
        [1 / x.bandwidth_gbps for x in assumed],
    )
    found: list[TierSpeed] = []
    below: Floats | None = None
    for us, slow, (was_us, gbps, by_node), usual_gbps in zip(latency_us, slowness, known, read, strict=True):
        below = _by_node(by_node, gbps, usual_gbps, 1 / slow, below)
        found.append(
            TierSpeed(
                us,
                1 / slow,
                "assumed" if was_us is None else "measured",
                "measured" if gbps is not None else "assumed" if usual_gbps is None else "read",
                below,
            )
        )
    return found


def _by_node(
    gbps: Floats, measured: float | None, read: float | None, tier_gbps: float, below: Floats | None
) -> Floats | None:
    """(nodes,) the bandwidth of each node over a tier; None = `tier_gbps` for all.

    `gbps`: as read, 0 = not; `read`: its median; `below`: over the tier below. A measured bandwidth is
    lowered only for nodes whose links are slower than usual.
    """
    if read is None and (below is None or measured is not None):
        return None
    found: Floats
    if read is not None and measured is not None:
        found = np.where((gbps > 0) & (gbps < read), np.minimum(gbps, measured), measured)
    else:
        least = tier_gbps if below is None else np.minimum(tier_gbps, below)
        found = np.where(gbps > 0, gbps, least)
    return found


def default_speeds(forest: Forest) -> list[TierSpeed]:
    """The assumed speeds: (tiers + 2,)."""
    assumed = [WITHIN_NODE, *(_default(x.tier, x.tier_name) for x in forest.layers), BETWEEN_ISLANDS]
    return [TierSpeed(us, gbps) for us, gbps in assumed]


def _measured(
    tier: int, found: Tier | None, hypernodes: Sequence[HyperNode]
) -> tuple[float | None, float | None]:
    """Round trip in us and bandwidth in Gbit/s: those of the tier, else the medians over its domains."""
    if found is not None and (found.latency_us or found.bandwidth_gbps):
        return _middle([found.latency_us]), _middle([found.bandwidth_gbps])
    mine = [h for h in hypernodes if h.tier == tier]
    return _middle([h.latency_us for h in mine]), _middle([h.bandwidth_gbps for h in mine])


def _middle(figures: Sequence[Measured | None]) -> float | None:
    values = [m.median for m in figures if m is not None and m.median >= LEAST]
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
