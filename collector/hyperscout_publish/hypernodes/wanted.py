"""The HyperNodes that a topology requires, as values for all output formats.

A domain without Kubernetes nodes is omitted, and its parent does not name it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hyperscout_topology.figures import digits, has_moved
from hyperscout_topology.names import is_node_name
from hyperscout_topology.topology import Condition, HyperNode, Topology

GROUP = "topology.volcano.sh"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "HyperNode"
SOURCE_LABEL = "volcano.sh/network-topology-source"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
OWNER = "hyperscout"
OWNER_LABELS: Mapping[str, str] = {MANAGED_BY_LABEL: OWNER, SOURCE_LABEL: OWNER}
NODES_ANNOTATION = "hyperscout.io/nodes"
SOURCE_ANNOTATION = "hyperscout.io/source"  # of domains not found by links; confidence is 0 to 1
CONFIDENCE_ANNOTATION = "hyperscout.io/confidence"
LATENCY_ANNOTATION = "hyperscout.io/latency-us"  # medians with two significant digits
BANDWIDTH_ANNOTATION = "hyperscout.io/bandwidth-gbps"
FIGURES = (BANDWIDTH_ANNOTATION, CONFIDENCE_ANNOTATION, LATENCY_ANNOTATION)
MEASURED_ANNOTATIONS = (*FIGURES, SOURCE_ANNOTATION)  # sorted
TIER_LABEL_PREFIX = "hyperscout.io/"  # followed by tierName; the value is the HyperNode's name
MAX_EXACT_NAME = 63  # the consumer's admission policy rejects longer exactMatch names


@dataclass(frozen=True, slots=True)
class Wanted:
    """A required HyperNode. `children`: names of HyperNodes; `nodes`: nodes of a leaf; both sorted.

    `annotations`: all annotations except the count of nodes, sorted.
    """

    name: str
    tier: int
    tier_name: str
    children: tuple[str, ...]
    nodes: tuple[str, ...]
    count: int  # of all nodes below
    conditions: tuple[Condition, ...] = field(default=(), compare=False)
    annotations: tuple[tuple[str, str], ...] = ()

    @property
    def tier_label(self) -> str:
        """The label key that selects nodes with long names."""
        return TIER_LABEL_PREFIX + (self.tier_name or f"tier-{self.tier}")

    @property
    def exact_nodes(self) -> tuple[str, ...]:
        return tuple(node for node in self.nodes if len(node) <= MAX_EXACT_NAME)

    @property
    def has_long_names(self) -> bool:
        """Whether it has nodes with names too long for exactMatch."""
        return any(len(node) > MAX_EXACT_NAME for node in self.nodes)

    def members(self) -> list[dict[str, Any]]:
        """Return the value of `spec.members`."""
        found: list[dict[str, Any]] = [_exact(KIND, child) for child in self.children]
        found += [_exact("Node", node) for node in self.exact_nodes]
        if self.has_long_names:
            selector = {"labelMatch": {"matchLabels": {self.tier_label: self.name}}}
            found.append({"type": "Node", "selector": selector})
        return found


@dataclass(frozen=True, slots=True)
class Held:
    """What is not published now because of HyperNodes of other owners. All are names.

    `hypernodes`: HyperNodes that must not exist. `nodes`: nodes that are added to no HyperNode. `adopted`:
    HyperNodes that are members of another owner's HyperNode, and may not be members of a second one.
    """

    hypernodes: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    adopted: frozenset[str] = frozenset()


NOTHING_HELD = Held()


def _exact(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def unpublishable(topology: Topology) -> tuple[str, ...]:
    """Return hosts with invalid Kubernetes node names, sorted. They are in no published HyperNode."""
    return tuple(
        sorted({n for h in topology.hypernodes if not h.children for n in h.nodes if not is_node_name(n)})
    )


def wanted(topology: Topology, held: Held = NOTHING_HELD) -> Iterator[Wanted]:
    """Yield HyperNodes by tier, then by name, without those that are held back."""
    lacking = held.nodes.union(unpublishable(topology))
    counts: dict[str, int] = {}  # nodes of the HyperNodes so far
    for h in sorted(topology.hypernodes, key=lambda h: (h.tier, h.name)):
        children = tuple(c for c in h.children if c in counts and c not in held.adopted)
        nodes = () if h.children else tuple(n for n in h.nodes if n not in lacking)
        count = sum(counts[c] for c in children) + len(nodes)
        if h.name in held.hypernodes or not count:
            continue
        counts[h.name] = count
        yield Wanted(h.name, h.tier, h.tier_name, children, nodes, count, h.conditions, _annotations(h))


def _annotations(h: HyperNode) -> tuple[tuple[str, str], ...]:
    found = {}
    if h.source != "wires":
        found = {SOURCE_ANNOTATION: h.source, CONFIDENCE_ANNOTATION: digits(h.confidence)}
    if h.latency_us is not None:
        found[LATENCY_ANNOTATION] = digits(h.latency_us.median)
    if h.bandwidth_gbps is not None:
        found[BANDWIDTH_ANNOTATION] = digits(h.bandwidth_gbps.median)
    return tuple(sorted(found.items()))


def settled(w: Wanted, there: Mapping[str, str]) -> Wanted:
    """Keep figures that are already published (annotations by key) if they have not moved."""
    kept = tuple((key, _kept(key, value, there.get(key))) for key, value in w.annotations)
    return w if kept == w.annotations else replace(w, annotations=kept)


def _kept(key: str, value: str, there: str | None) -> str:
    if there is None or there == value or key not in FIGURES:
        return value
    try:
        figure = float(there)
    except ValueError:
        return value
    return there if 0 < figure < math.inf and not has_moved(figure, float(value)) else value
