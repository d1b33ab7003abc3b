"""Builders of topology facts and of gangs. A test names only what matters to it."""

from collections.abc import Iterable, Mapping
from typing import Any

from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import WORKERS, Group, Request, Spread, Workers
from hyperscout_topology.topology import Anomaly, Endpoint, Figure, HyperNode

TIER_NAMES = ("leaf", "pod", "core")
DEVICE = Endpoint("device", "device")


def hypernode(
    name: str,
    nodes: Iterable[str] = (),
    *,
    parent: str | None = None,
    children: Iterable[str] = (),
    tier: int = 0,
    tier_name: str = "",
    switches: Iterable[str] = (),
    **more: Any,
) -> HyperNode:
    """A HyperNode. Without `tier`: tier 2 if it has children, else tier 1. The tier name follows the tier."""
    children = tuple(children)
    tier = tier or (2 if children else 1)
    tier_name = tier_name or TIER_NAMES[tier - 1]
    return HyperNode(name, tier, tier_name, parent, children, tuple(nodes), tuple(switches), **more)


def anomaly(
    kind: str = "MissingLink",
    subject: Endpoint = DEVICE,
    peer: Endpoint | None = None,
    *,
    tier: int | None = 1,
    sources: tuple[str, ...] = ("ibnetdiscover",),
    confidence: float = 0.9,
    message: str = "",
    hypernode: str | None = None,
    since_ns: int = 0,
    figures: tuple[Figure, ...] = (),
) -> Anomaly:
    """An anomaly of a tier-1 domain that one sweep reported."""
    return Anomaly(
        kind, subject, peer, tier, sources, confidence, message, hypernode, since_ns, figures=figures
    )


def gang(
    *parts: Group | Workers | int,
    resources: Mapping[str, int] | None = None,
    tier: int | None = None,
    spread: Spread | None = None,
    **more: Any,
) -> Request:
    """A request for one gang. A number is that many workers, each in need of `resources`."""
    needs = (tuple(sorted(resources.items())),) if resources else ()
    listed = tuple(Workers(part, *needs) if isinstance(part, int) else part for part in parts)
    return Request(Group(1, listed, tier, spread), **more)


def worker_capacity(forest: Forest, workers: Mapping[str, int] | None = None) -> Capacity:
    """A capacity that only counts workers: one for each node, or the numbers in `workers`."""
    if workers is None:
        workers = dict.fromkeys(forest.nodes, 1)
    return Capacity(forest, {node: {WORKERS: count} for node, count in workers.items()})
