"""Reads a topology from published HyperNodes: the initial state of a collector without its own state.

HyperNodes contain names, members, conditions and medians, but no switches or links. An unhealthy condition
becomes an anomaly, so that it is not reported as resolved before inference has checked it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_runtime.units import from_rfc3339
from hyperscout_topology.health import HEALTHY
from hyperscout_topology.topology import Anomaly, Condition, Endpoint, HyperNode, Measured, Topology

from hyperscout_publish.hypernodes.overlap import SOURCE
from hyperscout_publish.hypernodes.plan import EXACT, Present, is_ours, present
from hyperscout_publish.hypernodes.wanted import (
    BANDWIDTH_ANNOTATION,
    CONFIDENCE_ANNOTATION,
    KIND,
    LATENCY_ANNOTATION,
    SOURCE_ANNOTATION,
    TIER_LABEL_PREFIX,
)

_TOO_LARGE = 1e12  # upper bound of any figure

# The kind of anomaly for a condition's reason (hierarchy.conditions). The name of a missing switch is
# unknown, and inference searches for the switches it is given, so the anomaly is a missing link.
_KINDS = {
    "SwitchMissing": "MissingLink",
    "LinksDown": "MissingLink",
    "LinksErroring": "ErroringLink",
    "SlowLinks": "SlowLink",
    "Miswired": "Miswired",
    "SourcesDisagree": "SourcesDisagree",
    "UnknownHost": "UnknownHost",
    "BlueprintDrift": "BlueprintDrift",
    "EvidenceSetAside": "EvidenceSetAside",
}


def topology_of(
    hypernodes: Iterable[Mapping[str, Any]], labels: Mapping[str, Mapping[str, str]]
) -> Topology | None:
    """Return this collector's HyperNodes on the API server as generation 0; None if there are none.

    `labels`: labels of the cluster's nodes by node name (nodes with long names are matched by label). Parts
    that break the rules of a tree, for example after a manual edit, are ignored.
    """
    objects = {found["metadata"]["name"]: found for found in hypernodes if is_ours(found)}
    if not objects:
        return None
    there = {name: present(found) for name, found in objects.items()}
    parent: dict[str, str] = {}
    for name, p in sorted(there.items()):
        for child in _children(p, there):
            parent.setdefault(child, name)
    children: dict[str, list[str]] = {}
    for child, name in sorted(parent.items()):
        children.setdefault(name, []).append(child)
    found = []
    for name, p in sorted(there.items(), key=lambda x: (x[1].tier, x[0])):
        below = _below(name, children)
        nodes = sorted({node for at in below for node in _nodes(there[at], labels)})
        conditions = tuple(_conditions(objects[name], nodes))
        found.append(
            HyperNode(
                name,
                p.tier,
                p.tier_name,
                parent.get(name),
                tuple(children.get(name, ())),
                tuple(nodes),
                (),
                conditions,
                *_measured(dict(p.annotations)),
            )
        )
    return Topology(0, tuple(found), anomalies=tuple(a for h in found for a in _anomalies(h)))


def _measured(annotations: Mapping[str, str]) -> tuple[str, float, Measured | None, Measured | None]:
    """Return source, confidence, latency and bandwidth from annotations. Only the median is known."""

    def figure(key: str) -> float | None:
        try:
            value = float(annotations.get(key, ""))
        except ValueError:
            return None
        return value if 0 < value < _TOO_LARGE else None

    source = annotations.get(SOURCE_ANNOTATION, "wires")
    if source not in (*KINDS, "latency", "labels"):
        source = "wires"
    confidence = 1.0 if source == "wires" else min(figure(CONFIDENCE_ANNOTATION) or 1.0, 1.0)
    medians = (figure(LATENCY_ANNOTATION), figure(BANDWIDTH_ANNOTATION))
    latency, bandwidth = (None if m is None else Measured(m, 0.0, 0) for m in medians)
    return source, confidence, latency, bandwidth


def _children(p: Present, there: Mapping[str, Present]) -> Iterable[str]:
    for kind, how, value in sorted(p.members):
        if kind == KIND and how == EXACT and value in there and there[value].tier < p.tier:
            yield value


def _below(name: str, children: Mapping[str, list[str]]) -> list[str]:
    """Return the HyperNode and all below it. Tiers decrease downwards, so there is no cycle."""
    found = [name]
    for at in found:
        found += children.get(at, ())
    return found


def _nodes(p: Present, labels: Mapping[str, Mapping[str, str]]) -> Iterable[str]:
    for kind, how, value in p.members:
        if kind == "Node" and how == EXACT:
            yield value
        elif kind == "Node" and how == "labelMatch":
            key = TIER_LABEL_PREFIX + (p.tier_name or f"tier-{p.tier}")
            yield from (node for node, has in labels.items() if has.get(key) == p.name)


def _conditions(found: Mapping[str, Any], nodes: Sequence[str]) -> Iterable[Condition]:
    """Yield the conditions of a HyperNode. `nodes`: its nodes."""
    for c in (found.get("status") or {}).get("conditions") or ():
        if c.get("type") in HEALTHY:
            try:
                since_ns = from_rfc3339(c.get("lastTransitionTime", ""))
            except ValueError:
                since_ns = 0
            message = c.get("message", "")
            about = _stale_nodes(message, nodes) if c["type"] == "Stale" else ()
            yield Condition(
                c["type"], c.get("status", "Unknown"), c.get("reason", ""), message, since_ns, about
            )


def _stale_nodes(message: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes that the message of a Stale condition names, if it names all of them; otherwise none.

    A Kubernetes condition has no field for a list, so the message is the only source.
    """
    words = set(message.replace(",", " ").replace(";", " ").split())
    named = tuple(node for node in nodes if node in words)
    return named if message.startswith(f"evidence of {len(named)} of {len(nodes)} nodes ") else ()


def _anomalies(h: HyperNode) -> Iterable[Anomaly]:
    for c in h.conditions:
        kind = _KINDS.get(c.reason)
        if kind is not None and c.status != HEALTHY[c.type]:
            about = Endpoint(f"hypernode/{h.name}", c.message.rstrip(".") or h.name)
            yield Anomaly(kind, about, None, h.tier, (SOURCE,), 0.5, c.message, h.name, c.since_ns)
