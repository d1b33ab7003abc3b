"""Finds HyperNodes of other owners that contain nodes of this topology or use its names. Performs no I/O.

A scheduler uses a node in two leaves twice, and this collector cannot decide which owner is right. So no
HyperNode that contains such a node is published until the others are removed. Anomalies list them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import re2
from hyperscout_formats.text.counts import first_few
from hyperscout_topology.topology import Anomaly, Endpoint, HyperNode

from hyperscout_publish.hypernodes.plan import EXACT, is_ours, members_of
from hyperscout_publish.hypernodes.wanted import KIND

SOURCE = "kubernetes"
_NAMED = 5
_MAX_PATTERN = 1000  # characters
_RE2_MEMORY = 1 << 20
_MAX_OVERLAPS = 1000  # anomalies; overlaps beyond this limit are not listed but still block


@dataclass(frozen=True, slots=True)
class Overlaps:
    """`blocked`: HyperNodes that may not be published now. `anomalies`: the reasons, one per pair."""

    blocked: frozenset[str] = frozenset()
    anomalies: tuple[Anomaly, ...] = ()


NO_OVERLAPS = Overlaps()


def overlaps(
    hypernodes: Sequence[HyperNode],
    present: Iterable[Mapping[str, Any]],
    labels: Mapping[str, Mapping[str, str]],
) -> Overlaps:
    """Find overlaps. `present`: all HyperNodes on the server. `labels`: of the nodes, by node name."""
    objects = {found["metadata"]["name"]: found for found in present}
    foreign = {name: found for name, found in objects.items() if not is_ours(found)}
    if not foreign:
        return NO_OVERLAPS
    ours = frozenset(node for h in hypernodes if not h.children for node in h.nodes)
    names = tuple(sorted(labels.keys() | ours))
    claims = {name: _nodes(name, objects, names, labels) & ours for name in foreign}
    claimed = frozenset().union(*claims.values())
    taken = {h.name for h in hypernodes if h.name in foreign}
    blocked = {h.name for h in hypernodes if not claimed.isdisjoint(h.nodes)} | taken
    parent = {h.name: h.parent for h in hypernodes}
    for name in taken:
        above = parent.get(name)
        while above is not None and above not in blocked:
            blocked.add(above)
            above = parent.get(above)
    found = [
        _overlap(h, owner, sorted(claims[owner].intersection(h.nodes)))
        for h in hypernodes
        if not h.children and h.name in blocked
        for owner in sorted(foreign)
        if not claims[owner].isdisjoint(h.nodes)
    ]
    found += [_name_taken(h) for h in hypernodes if h.name in taken]
    return Overlaps(frozenset(blocked), tuple(found[:_MAX_OVERLAPS]))


def _overlap(h: HyperNode, owner: str, nodes: Sequence[str]) -> Anomaly:
    message = (
        f"HyperNode {owner}, which hyperscout does not manage, contains {len(nodes)} of its nodes "
        f"({first_few(nodes, _NAMED)}): no HyperNode that contains them is published; "
        f"delete {owner} to publish this HyperNode"
    )
    return replace(_anomaly(h, owner, message), nodes=tuple(nodes))


def _name_taken(h: HyperNode) -> Anomaly:
    return _anomaly(
        h,
        h.name,
        f"hyperscout does not manage the existing HyperNode {h.name}; delete it to publish this HyperNode",
    )


def _anomaly(h: HyperNode, owner: str, message: str) -> Anomaly:
    subject, peer = Endpoint(h.name, h.name), Endpoint(f"hypernode/{owner}", owner)
    return Anomaly("Overlap", subject, peer, h.tier, (SOURCE,), 1.0, message, h.name)


def _nodes(
    name: str,
    objects: Mapping[str, Mapping[str, Any]],
    names: Sequence[str],
    labels: Mapping[str, Mapping[str, str]],
) -> frozenset[str]:
    """Return all nodes at or below a HyperNode, of any owner."""
    found: set[str] = set()
    seen: set[str] = set()
    stack = [name]
    while stack:
        here = stack.pop()
        if here in seen or here not in objects:
            continue
        seen.add(here)
        found |= nodes_named(objects[here], names, labels)
        for kind, how, value in members_of((objects[here].get("spec") or {}).get("members") or ()):
            if kind == KIND and how == EXACT:  # the consumer accepts no other selector
                stack.append(value)
    return frozenset(found)


def nodes_named(
    found: Mapping[str, Any], names: Sequence[str], labels: Mapping[str, Mapping[str, str]]
) -> set[str]:
    """Return the nodes that a HyperNode selects itself, with any selector. `names`: of all nodes."""
    nodes: set[str] = set()
    for member in (found.get("spec") or {}).get("members") or ():
        selector = member.get("selector") or {}
        if member.get("type") == KIND:
            continue
        if name := (selector.get(EXACT) or {}).get("name"):
            nodes.add(name)
        elif pattern := (selector.get("regexMatch") or {}).get("pattern"):
            nodes.update(_matching(pattern, tuple(names)))
        elif (chosen := selector.get("labelMatch")) is not None:
            nodes.update(node for node in names if _selects(chosen, labels.get(node, {})))
    return nodes


@lru_cache(_MAX_OVERLAPS)  # a search of 10,000 names takes 20 ms, and neither pattern nor names change often
def _matching(pattern: str, names: tuple[str, ...]) -> list[str]:
    """Return matching names, as Go's regexp package of the consumer does: RE2, unanchored, linear time."""
    if len(pattern) > _MAX_PATTERN:
        return []
    options = re2.Options()
    options.max_mem, options.log_errors = _RE2_MEMORY, False
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error:
        return []  # the consumer selects nothing with an invalid pattern either
    return [name for name in names if compiled.search(name)]


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Evaluate a metav1.LabelSelector: all labels and expressions must match; an empty one matches all."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(x, labels) for x in selector.get("matchExpressions") or ())


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression.get("key", "")), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
