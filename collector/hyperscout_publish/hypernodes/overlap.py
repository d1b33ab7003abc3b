"""Finds HyperNodes of other owners that contain nodes of this topology or use its names. Performs no I/O.

A scheduler uses a node in two leaves twice, and this collector cannot decide which owner is right. So what
is published stays, and what is not published waits until the other HyperNode is removed. With the policy
"yield" what is published is removed too. Anomalies list the overlaps.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import re2
from hyperscout_formats.text.counts import first_few
from hyperscout_topology.topology import Anomaly, Endpoint, HyperNode

from hyperscout_publish.hypernodes.plan import EXACT, is_ours, members_of
from hyperscout_publish.hypernodes.wanted import KIND, MAX_EXACT_NAME, NOTHING_HELD, Held

SOURCE = "kubernetes"
_NAMED = 5
_MAX_PATTERN = 1000  # characters
_RE2_MEMORY = 1 << 20
_MAX_OVERLAPS = 1000  # anomalies; overlaps beyond this limit are not listed but still block


OverlapPolicy = Literal["keep", "yield"]
Published = Mapping[int, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Overlaps:
    """`anomalies`: one per pair of HyperNodes. `notices`: (name, message) per other owner's HyperNode.

    `published`: the nodes at or below this collector's HyperNodes, by tier.
    """

    held: Held = NOTHING_HELD
    anomalies: tuple[Anomaly, ...] = ()
    notices: tuple[tuple[str, str], ...] = ()
    published: Published = field(default_factory=dict)


NO_OVERLAPS = Overlaps()


def overlaps(
    hypernodes: Sequence[HyperNode],
    present: Iterable[Mapping[str, Any]],
    labels: Mapping[str, Mapping[str, str]],
    policy: OverlapPolicy = "keep",
    kept: Published = MappingProxyType({}),
) -> Overlaps:
    """Find overlaps. `present`: all HyperNodes on the server. `labels`: of the nodes, by node name. `kept`:
    what was published before a write that is not complete.

    A domain is published if a HyperNode of this collector with its name, or one of its tier with one of its
    nodes, is on the server. It stays; claimed nodes that are in no HyperNode of this collector are not added.
    """
    objects = {found["metadata"]["name"]: found for found in present}
    foreign = {name: found for name, found in sorted(objects.items()) if not is_ours(found)}
    if not foreign:
        return NO_OVERLAPS
    keeps = policy == "keep"
    ours = {name: found for name, found in objects.items() if keeps and name not in foreign}
    discovered = frozenset(node for h in hypernodes if not h.children for node in h.nodes)
    names = tuple(sorted(labels.keys() | discovered))
    within = foreign if keeps else objects
    claims = {name: _nodes(name, within, names, labels) & discovered for name in foreign}
    claimed = frozenset().union(*claims.values())
    untaken = frozenset(h.name for h in hypernodes) - foreign.keys()
    members = {
        name: untaken.intersection(_children(found) if keeps else ()) for name, found in foreign.items()
    }
    adopted = frozenset().union(*members.values())
    published = _published(ours, labels, kept if keeps else {})
    unpublished = claimed.difference(*published.values())
    held = Held(
        frozenset(_waiting(hypernodes, foreign.keys(), ours.keys(), published, unpublished)),
        unpublished,
        adopted,
    )
    found: dict[tuple[str, str], Anomaly] = {}
    for h in hypernodes:
        leaf_nodes = () if h.children else claimed.intersection(h.nodes)
        for owner in foreign if leaf_nodes or h.name in adopted else ():
            if nodes := claims[owner].intersection(leaf_nodes):
                found[h.name, owner] = _overlap(h, owner, nodes, held, keeps=keeps)
            if h.name in members[owner]:
                found[h.name, owner] = _adopted(h, owner)
        if h.name in foreign:
            found[h.name, h.name] = _name_taken(h)
    anomalies = tuple(found.values())[:_MAX_OVERLAPS]
    return Overlaps(held, anomalies, tuple(_notices(found, claims)), published)


def _published(
    ours: Mapping[str, Mapping[str, Any]], labels: Mapping[str, Mapping[str, str]], kept: Published
) -> dict[int, frozenset[str]]:
    """Return the nodes at or below this collector's HyperNodes, and those in `kept`, by tier."""
    # The HyperNodes of this collector select only these nodes by label.
    long_names = tuple(name for name in labels if len(name) > MAX_EXACT_NAME)
    below: dict[str, set[str]] = {}
    found = dict(kept)
    for name, h in sorted(ours.items(), key=lambda x: _tier(x[1])):
        nodes = nodes_named(h, long_names, labels)
        below[name] = nodes.union(*(below.get(child, ()) for child in _children(h)))
        found[_tier(h)] = found.get(_tier(h), frozenset()) | below[name]
    return found


def _tier(found: Mapping[str, Any]) -> int:
    return (found.get("spec") or {}).get("tier") or 0


def _children(found: Mapping[str, Any]) -> Iterator[str]:
    for kind, how, value in members_of((found.get("spec") or {}).get("members") or ()):
        if kind == KIND and how == EXACT:  # the consumer accepts no other selector
            yield value


def _waiting(
    hypernodes: Sequence[HyperNode],
    taken: Collection[str],
    ours: Collection[str],
    published: Mapping[int, Collection[str]],
    unpublished: frozenset[str],
) -> Iterator[str]:
    """Yield the HyperNodes that may not be published now: such leaves, and what contains them.

    `taken`: names of other owners' HyperNodes. `ours`: names of this collector's HyperNodes on the server.
    """
    by_name = {h.name: h for h in hypernodes}

    def stays(h: HyperNode) -> bool:
        return h.name in ours or any(node in published.get(h.tier, ()) for node in h.nodes)

    seen: set[str] = set()
    for h in hypernodes:
        if h.name not in taken and (h.children or unpublished.isdisjoint(h.nodes) or stays(h)):
            continue
        yield h.name
        above = by_name.get(h.parent or "")
        while above is not None and above.name not in seen:
            seen.add(above.name)
            if not stays(above):
                yield above.name
            above = by_name.get(above.parent or "")


def _notices(
    pairs: Iterable[tuple[str, str]], claims: Mapping[str, frozenset[str]]
) -> Iterator[tuple[str, str]]:
    ours: dict[str, list[str]] = {}
    for name, owner in pairs:
        if name != owner:
            ours.setdefault(owner, []).append(name)
    for owner, names in ours.items():
        text = f"domains of hyperscout ({first_few(names, _NAMED)})"
        if nodes := sorted(claims[owner]):
            text = f"{len(nodes)} of its nodes ({first_few(nodes, _NAMED)}) belong to {text}"
        else:
            text = f"it has members that are {text}"
        yield owner, f"{text}: delete this HyperNode, or remove these members from it"


def _overlap(h: HyperNode, owner: str, claimed: Collection[str], held: Held, *, keeps: bool) -> Anomaly:
    nodes, new = sorted(claimed), sorted(held.nodes.intersection(claimed))
    if not keeps:
        effect = f"no HyperNode that contains them is published; delete {owner} to publish this HyperNode"
    elif h.name in held.hypernodes:
        effect = f"this HyperNode is not published; delete {owner} to publish it"
    elif new:
        effect = f"this HyperNode is published without {first_few(new, _NAMED)} until {owner} is deleted"
    else:
        effect = f"this HyperNode stays published, and a scheduler uses these nodes twice; delete {owner}"
    message = (
        f"HyperNode {owner}, which hyperscout does not manage, contains {len(nodes)} of its nodes "
        f"({first_few(nodes, _NAMED)}): {effect}"
    )
    return replace(_anomaly(h, owner, message), nodes=tuple(nodes))


def _adopted(h: HyperNode, owner: str) -> Anomaly:
    message = (
        f"HyperNode {owner}, which hyperscout does not manage, has it as a member: it is in no HyperNode of "
        f"hyperscout, because two parents stop all topology jobs; remove it from {owner}"
    )
    return _anomaly(h, owner, message)


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
    """Return all nodes at or below a HyperNode, as far as its descendants are in `objects`."""
    found: set[str] = set()
    seen: set[str] = set()
    stack = [name]
    while stack:
        here = stack.pop()
        if here in seen or here not in objects:
            continue
        seen.add(here)
        found |= nodes_named(objects[here], names, labels)
        stack += _children(objects[here])
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
