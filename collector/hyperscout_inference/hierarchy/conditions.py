"""Derive four conditions of each HyperNode from the anomalies of a topology and facts about its nodes.

`since_ns` of a condition is 0 here; the collector sets it, because it knows the previous generation. Times in
messages are absolute, so that a message stays the same while nothing changes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.text.counts import and_more, count
from hyperscout_formats.text.host_list import natural_key
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.health import SURE
from hyperscout_topology.link_changes import mask_of
from hyperscout_topology.memo import MemoByNode
from hyperscout_topology.topology import (
    Anomaly,
    Condition,
    HyperNode,
    LinkTable,
    Topology,
    is_measured,
    say,
    state_of,
)

from hyperscout_inference.hierarchy.link_ends import levels_of, links_between, lowest_domains

NAMED = 3  # cables or nodes that a message names before "and 3 more"
DETAIL_MAX = 200  # characters of one of them
MESSAGE_MAX = 1000  # characters of a message (metav1.Condition allows 32,768, an Event 1,024)

# (kind of anomaly, reason, text for a link), most severe first: the first kind gives the reason.
# The kinds are those of `hyperscout_topology.health.DEGRADING`.
DEGRADED_REASONS = (
    ("MissingSwitch", "SwitchMissing", "missing"),
    ("MissingLink", "LinksDown", "down"),
    ("ErroringLink", "LinksErroring", "erroring"),
    ("SlowLink", "SlowLinks", "slow"),
)
_INCONSISTENT = (
    ("Miswired", "Miswired", "miswired"),
    ("Overlap", "Overlap", "overlaps"),
    ("SourcesDisagree", "SourcesDisagree", "sources disagree"),
    ("UnknownHost", "UnknownHost", "unknown hosts"),
    ("BlueprintDrift", "BlueprintDrift", "drifts from the blueprint"),
    ("EvidenceSetAside", "EvidenceSetAside", "evidence set aside"),
)
# Reasons of `Stale`.
EVIDENCE_STALE = "EvidenceStale"
INFERENCE_FAILED = "InferenceFailed"

_ID_OF = attrgetter("id")
UNTIMED = attrgetter(*(x.name for x in fields(Condition) if x.name != "since_ns"))
_UPLINK, _HOST_LINK, _PATH = "uplink", "host link", "path"


@dataclass(frozen=True, slots=True)
class ConditionFacts:
    """Facts about nodes that are not in a topology. Keys are node names.

    `down_nodes`: why the node is down or unschedulable. `stale`: when the newest evidence of a stale node was
    observed, Unix ns. `stale_switches`: the same for switches with agents, by id. `failing`: why this is not
    the newest topology; "" = it is.
    """

    down_nodes: Mapping[str, str] = field(default_factory=dict)
    stale: Mapping[str, int] = field(default_factory=dict)
    stale_switches: Mapping[str, int] = field(default_factory=dict)
    failing: str = ""


NO_FACTS = ConditionFacts()
_HEALTHY = Condition("Degraded", "False", "LinksHealthy", "no link or switch is missing, slow or erroring")
_CONSISTENT = Condition(
    "Consistent", "True", "WiringMatches", "sources agree and no cable contradicts its peers"
)
_FRESH = Condition("Stale", "False", "EvidenceFresh", "evidence is within its limits")
_IS_READY = {False: "AllNodesReady", True: "ChildrenReady"}  # by whether there are children
NO_EVIDENCE = "no fabric shows it"  # of a node that is not ready
_NO_LINKS: Mapping[str, int] = {}


def with_conditions(
    topology: Topology, facts: ConditionFacts = NO_FACTS, kept: "KeptConditions | None" = None
) -> Topology:
    """Return the topology with Ready, Degraded, Consistent and Stale on every HyperNode, in that order.

    Anomalies count only against the HyperNode that they name, not against its parents; those below a
    confidence of `SURE` count against none. A node without evidence is down. Linear in hosts and links; links
    are read only if one has an anomaly. A HyperNode that has these conditions already, since any time, stays
    as it is. `kept`: of the last topology, and afterwards of this one.
    """
    by_hypernode: dict[str, list[Anomaly]] = {}
    for anomaly in topology.anomalies:
        if anomaly.hypernode is not None and anomaly.confidence >= SURE:
            by_hypernode.setdefault(anomaly.hypernode, []).append(anomaly)
    switches = {s.id: s.level for s in topology.switches}
    totals = _link_totals(topology, by_hypernode, switches)
    why_down = {**dict.fromkeys(topology.nodes_without_evidence, NO_EVIDENCE), **facts.down_nodes}
    down = _below(topology.hypernodes, why_down)
    stale = _below(topology.hypernodes, facts.stale)
    stale_switches = _stale_switches(topology, facts.stale_switches)
    concerned = down.keys() | stale.keys() | stale_switches.keys()

    def cabling(h: HyperNode) -> _Cabling:
        anomalies = by_hypernode.get(h.name, ())
        classes = tuple([_link_class(x, switches) for x in anomalies])
        adapters = tuple([end.adapter for x in anomalies for end in (x.subject, x.peer) if end is not None])
        return _Cabling(h, tuple(anomalies), classes, adapters, totals.get(h.name, _NO_LINKS))

    cablings = {h.name: cabling(h) for h in topology.hypernodes}

    def conditions(h: HyperNode) -> tuple[Condition, ...]:
        staleness = _stale(h, stale, facts.stale, stale_switches.get(h.name, {}))
        if staleness.nodes or staleness.switches:
            seen_ns = [facts.stale[n] for n in staleness.nodes]
            seen_ns += [facts.stale_switches[s] for s in staleness.switches]
            times = (rfc3339(at_ns) if at_ns else "" for at_ns in seen_ns)
            staleness = replace(staleness, details=_details(times))
        if facts.failing:
            also = f"; {staleness.message}" if staleness.status == "True" else ""
            message = _bounded(facts.failing + also)
            staleness = replace(staleness, status="True", reason=INFERENCE_FAILED, message=message)
        return _ready(h, down, why_down), *_of_cabling(cablings[h.name]), staleness

    if facts.failing:
        found = [_with(h, conditions(h)) for h in topology.hypernodes]
    else:
        others = {name: x for name, x in cablings.items() if name not in concerned}
        quiet = (kept or kept_conditions())(others)
        found = [quiet.get(h.name) or _with(h, conditions(h)) for h in topology.hypernodes]
    return replace(topology, hypernodes=tuple(found))


class _Cabling(NamedTuple):
    """What evidence of cables says about a HyperNode. `classes`: of the links of the anomalies. `adapters`:
    the names of adapters at their ends, because two ends are equal without them. `totals`: links by class."""

    hypernode: HyperNode
    anomalies: tuple[Anomaly, ...]
    classes: tuple[str, ...]
    adapters: tuple[str, ...]
    totals: Mapping[str, int]


def _with(h: HyperNode, conditions: tuple[Condition, ...]) -> HyperNode:
    same = tuple(map(UNTIMED, conditions)) == tuple(map(UNTIMED, h.conditions))
    return h if same else replace(h, conditions=conditions)


def _of_cabling(mine: _Cabling) -> tuple[Condition, Condition]:
    h = mine.hypernode
    return _degraded(mine), _consistent(h.source, h.confidence, mine.anomalies)


KeptConditions = MemoByNode[_Cabling, HyperNode]  # by HyperNode, of those that are not down or stale


def kept_conditions() -> KeptConditions:
    return KeptConditions(_with_quiet_conditions)


def _with_quiet_conditions(name: str, mine: _Cabling) -> HyperNode:
    """Return a HyperNode of which nothing is down or stale, with its conditions."""
    h, nodes = mine.hypernode, len(mine.hypernode.nodes)
    ready = Condition("Ready", "True", _IS_READY[bool(h.children)], _ready_nodes(nodes, nodes))
    return _with(h, (ready, *_of_cabling(mine), _FRESH))


@dataclass(frozen=True, slots=True)
class _Below:
    """Nodes of a HyperNode with a property. `named`: at tier 1 only. `whole`: all nodes have it."""

    named: tuple[str, ...]
    count: int
    whole: bool


_NONE_BELOW = _Below((), 0, False)


def _below(hypernodes: Iterable[HyperNode], nodes: Collection[str]) -> dict[str, _Below]:
    """Return a `_Below` for each HyperNode with such nodes. `hypernodes`: children before parents."""
    found: dict[str, _Below] = {}
    if not nodes:
        return found
    for h in hypernodes:
        named = () if h.children else tuple(n for n in h.nodes if n in nodes)
        count = sum(found.get(c, _NONE_BELOW).count for c in h.children) if h.children else len(named)
        if count:
            found[h.name] = _Below(named, count, count >= len(h.nodes))
    return found


def _ready_nodes(ready: int, total: int) -> str:
    return f"{ready} of {total} nodes ready"


def _ready(h: HyperNode, down: Mapping[str, _Below], why: Mapping[str, str]) -> Condition:
    total, below = len(h.nodes), down.get(h.name, _NONE_BELOW)
    counts = _ready_nodes(total - below.count, total)
    if not h.children:
        if not below.count:
            return Condition("Ready", "True", _IS_READY[False], counts)
        named = _some([f"{n} ({why[n]})" if why[n] else n for n in below.named])
        message = _bounded(f"{counts}; not ready: {named}")
        details = _details(why[n] for n in below.named)
        return Condition("Ready", "False", "NodesNotReady", message, nodes=below.named, details=details)
    whole = [c for c in h.children if down.get(c, _NONE_BELOW).whole]
    if not whole:
        return Condition("Ready", "True", _IS_READY[True], counts)
    message = f"{counts}; {len(whole)} of {len(h.children)} children have no ready node: {_some(whole)}"
    return Condition("Ready", "False", "ChildrenNotReady", _bounded(message))


def _stale_switches(topology: Topology, seen_ns: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """Return texts for messages by HyperNode (the lowest with the switch) and id of the stale switch."""
    found: dict[str, dict[str, str]] = {}
    if not seen_ns:
        return found
    name_of = {s.id: s.name for s in topology.switches}
    left = set(seen_ns)
    for h in topology.hypernodes:  # by tier
        for switch in h.switches:
            if switch in left:
                left.discard(switch)
                name, at_ns = name_of.get(switch, switch), seen_ns[switch]
                text = f"{name} last seen {rfc3339(at_ns)}" if at_ns else name
                found.setdefault(h.name, {})[switch] = text
    return found


def _details(texts: Iterable[str]) -> tuple[str, ...]:
    found = tuple(_bounded(text, 2 * DETAIL_MAX) for text in texts)
    return found if any(found) else ()


def _stale(
    h: HyperNode, stale: Mapping[str, _Below], seen_ns: Mapping[str, int], switches: Mapping[str, str]
) -> Condition:
    """`switches`: stale switches of the HyperNode, as `_stale_switches` returns them."""
    below = stale.get(h.name, _NONE_BELOW)
    if switches:
        message = (
            f"evidence of {len(switches)} of {len(h.switches)} switches is older than its limit: "
            f"{_some(list(switches.values()))}"
        )
        nodes = _stale(h, stale, seen_ns, {})
        if nodes.status == "True":
            message = f"{nodes.message}; {message}"
        return replace(
            nodes,
            status="True",
            reason=EVIDENCE_STALE,
            message=_bounded(message),
            switches=tuple(sorted(switches)),
        )
    if not h.children and below.count:
        named = _some([f"{n} last seen {rfc3339(seen_ns[n])}" if seen_ns[n] else n for n in below.named])
        message = f"evidence of {below.count} of {len(h.nodes)} nodes is older than its limit: {named}"
        return Condition("Stale", "True", EVIDENCE_STALE, _bounded(message), nodes=below.named)
    whole = [c for c in h.children if stale.get(c, _NONE_BELOW).whole]
    if whole:
        message = (
            f"{len(whole)} of {len(h.children)} children have no node with fresh evidence: {_some(whole)}"
        )
        return Condition("Stale", "True", EVIDENCE_STALE, _bounded(message))
    return _FRESH


def _degraded(mine: _Cabling) -> Condition:
    parts: list[str] = []
    reasons: list[str] = []
    for kind, reason, word in DEGRADED_REASONS if mine.anomalies else ():
        groups: dict[str, list[str]] = {}
        for anomaly, link_class in zip(mine.anomalies, mine.classes, strict=True):
            if anomaly.kind == kind:
                groups.setdefault(link_class, []).append(_detail(anomaly))
        for link_class, details in sorted(groups.items()):
            reasons.append(reason)
            if kind == "MissingSwitch":
                head = f"{count(len(details), 'switch')} missing"
            elif total := mine.totals.get(link_class, 0):
                head = f"{len(details)} of {total} {link_class}s {word}"
            else:
                head = f"{count(len(details), link_class)} {word}"
            parts.append(f"{head}: {_some(sorted(details, key=natural_key), '; ')}")
    if not parts:
        return _HEALTHY
    return Condition("Degraded", "True", reasons[0], _bounded("; ".join(parts)))


def _consistent(source: str, confidence: float, anomalies: Sequence[Anomaly]) -> Condition:
    """`source`, `confidence`: of the HyperNode."""
    parts: list[str] = []
    reasons: list[str] = []
    for kind, reason, words in _INCONSISTENT if anomalies else ():
        details = [_detail(x) for x in anomalies if x.kind == kind]
        if details:
            reasons.append(reason)
            parts.append(f"{words}: {_some(sorted(details, key=natural_key), '; ')}")
    if not parts and source == "latency":
        message = f"inferred from latency alone, confidence {confidence:.2g}: no wiring evidence"
        return Condition("Consistent", "True", "Inferred", message)
    if not parts and source == "labels":
        message = "inferred from cloud labels of its nodes: no wiring evidence"
        return Condition("Consistent", "True", "Labelled", message)
    if not parts:
        return _CONSISTENT
    return Condition("Consistent", "False", reasons[0], _bounded("; ".join(parts)))


def _detail(anomaly: Anomaly) -> str:
    """Return a text for one anomaly: its cable or its message, its sources, and since when it exists."""
    ends = say(anomaly.subject) + (f" -> {say(anomaly.peer)}" if anomaly.peer else "")
    named = anomaly.peer is not None or anomaly.subject.port is not None
    is_gone = anomaly.kind == "MissingSwitch" or (anomaly.kind == "MissingLink" and named)
    text = ends if is_gone or not anomaly.message else anomaly.message.rstrip(". \n")
    if is_gone and anomaly.is_over:
        text = f"{ends}: {state_of(anomaly)}"
    text = _bounded(text, DETAIL_MAX)
    if anomaly.sources:
        text += f", seen by {_bounded(', '.join(anomaly.sources), DETAIL_MAX)}"
    return f"{text}, since {rfc3339(anomaly.since_ns)}" if anomaly.since_ns else text


def _some(texts: Sequence[str], separator: str = ", ") -> str:
    named = separator.join(_bounded(t, 2 * DETAIL_MAX) for t in texts[:NAMED])
    return named + and_more(len(texts) - NAMED)


def _bounded(text: str, limit: int = MESSAGE_MAX) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _link_class(anomaly: Anomaly, switches: Mapping[str, int]) -> str:
    """Return the name of the class of a link. A link to a device that is no known switch is a host's. An
    anomaly from measurements concerns a path."""
    if is_measured(anomaly):
        return _PATH
    if kinds := KINDS.keys() & anomaly.sources:
        return KINDS[min(kinds)].link
    if anomaly.subject.device not in switches:
        return _HOST_LINK
    if anomaly.peer is None:
        return "link"
    return _UPLINK if anomaly.peer.device in switches else _HOST_LINK


def _link_totals(
    topology: Topology, by_hypernode: Mapping[str, Sequence[Anomaly]], switches: Mapping[str, int]
) -> dict[str, dict[str, int]]:
    """Return the number of links by domain and class, links that are down included, for domains with a link
    anomaly. `by_hypernode`: anomalies by HyperNode.

    A link between switches belongs to the domain of its lower end (to both domains if the levels are equal),
    a host's link to the domain of its leaf. If the topology has adapters, other endpoints do not count.
    """
    link_kinds = {"MissingLink", "ErroringLink", "SlowLink"}
    names = [name for name, anomalies in by_hypernode.items() if any(x.kind in link_kinds for x in anomalies)]
    if not names or not topology.links:
        return {}
    index = {name: i for i, name in enumerate(names)}
    table = topology.links if isinstance(topology.links, LinkTable) else LinkTable.of(topology.links)
    level = levels_of(table.devices, topology.adapters, switches)
    number = np.array([*(index.get(h.name, -1) for h in topology.hypernodes), -1], np.int64)
    home = lowest_domains(table.devices, *[h.switches for h in topology.hypernodes])
    by_switch = np.where(level > 0, number.take(home), -1)
    missing = [x for name in names for x in by_hypernode[name] if x.kind == "MissingLink" and x.peer]
    devices = {d for x in missing if x.peer for d in (x.subject.device, x.peer.device)}
    concerned = (by_switch >= 0) | mask_of(table, devices)
    mine = np.flatnonzero(concerned.take(table.a) | concerned.take(table.b))
    a, b = table.a[mine], table.b[mine]
    uplinks, host_links = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    for turned, (near, far) in enumerate(((a, b), (b, a))):
        level_side = (level[near] == level[far]) & ((by_switch[near] != by_switch[far]) | (turned == 0))
        owner = by_switch[near[(level[near] > 0) & ((level[near] < level[far]) | level_side)]]
        uplinks += np.bincount(owner[owner >= 0], minlength=len(names))
        owner = by_switch[far[(level[near] == 0) & (level[far] > 0)]]
        host_links += np.bincount(owner[owner >= 0], minlength=len(names))

    of_each = zip(names, uplinks.tolist(), host_links.tolist(), strict=True)
    totals = {name: {_UPLINK: up, _HOST_LINK: down} for name, up, down in of_each}
    present = links_between(table, mine, devices)
    for anomaly in missing:
        # A flapping cable may be in the table while its anomaly is still held.
        if anomaly.hypernode is not None and _ends(anomaly) not in present:
            totals[anomaly.hypernode][_link_class(anomaly, switches)] += 1
    return totals


def _ends(anomaly: Anomaly) -> frozenset[tuple[str, str]]:
    peer = anomaly.peer or anomaly.subject
    return frozenset(((anomaly.subject.device, anomaly.subject.port or ""), (peer.device, peer.port or "")))
