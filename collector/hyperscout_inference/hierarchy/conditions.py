"""Conditions of HyperNodes: what is wrong with a domain, in words a person can act on.

Conditions are derived, never stored facts: the anomalies that count against a domain and a few facts
about its nodes go in, four conditions per HyperNode come out. `since_ns` of a condition is left 0
here: when a status flipped is known only to who saw the generation before (`core.generations`).
Times in messages are absolute, so that a message stays the same while nothing changes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hyperscout_topology.topology import (
    Anomaly,
    Condition,
    HyperNode,
    LinkTable,
    Topology,
    is_measured,
    rfc3339,
    say,
)

NAMED = 3  # how many cables or nodes a message names before "and 3 more"
DETAIL_MAX = 200  # characters of one of them
MESSAGE_MAX = (
    1000  # characters of a whole message (metav1.Condition takes 32,768; a table and an Event do not)
)

# (kind of anomaly, CamelCase reason, what to say of a link), most severe first: that is the reason.
_DEGRADED = (
    ("MissingSwitch", "SwitchMissing", "missing"),
    ("MissingLink", "LinksDown", "down"),
    ("ErroringLink", "LinksErroring", "erroring"),
    ("SlowLink", "SlowLinks", "slow"),
)
DEGRADING = frozenset(kind for kind, _, _ in _DEGRADED)
_INCONSISTENT = (
    ("Miswired", "Miswired", "miswired"),
    ("Overlap", "Overlap", "overlaps"),
    ("SourcesDisagree", "SourcesDisagree", "sources disagree"),
    ("UnknownHost", "UnknownHost", "unknown hosts"),
    ("BlueprintDrift", "BlueprintDrift", "drifts from the blueprint"),
    ("EvidenceSetAside", "EvidenceSetAside", "evidence set aside"),
)
INFERENCE_FAILED = "InferenceFailed"  # reason of `Stale`

_UPLINK, _HOST_LINK, _NVLINK, _PATH = "uplink", "host link", "NVLink", "path"


@dataclass(frozen=True, slots=True)
class ConditionFacts:
    """What the wires do not tell. Keys are node names.

    `down_nodes`: why the node is down or unschedulable. `stale`: when its evidence was last observed
    (Unix ns), for nodes whose evidence is older than its limit. `stale_switches`: the same, by id, of
    switches that report themselves. `failing`: why this is not the newest topology; "" = it is.
    """

    down_nodes: Mapping[str, str] = field(default_factory=dict)
    stale: Mapping[str, int] = field(default_factory=dict)
    stale_switches: Mapping[str, int] = field(default_factory=dict)
    failing: str = ""


NO_FACTS = ConditionFacts()


def with_conditions(topology: Topology, facts: ConditionFacts = NO_FACTS) -> Topology:
    """The topology with Ready, Degraded, Consistent and Stale on every HyperNode, in that order.

    Anomalies count against the HyperNode they name; Degraded does not roll up. A member that no fabric
    shows any more is down. Linear in hosts and links; no link is looked at when none is accused.
    """
    by_hypernode: dict[str, list[Anomaly]] = {}
    for anomaly in topology.anomalies:
        if anomaly.hypernode is not None:
            by_hypernode.setdefault(anomaly.hypernode, []).append(anomaly)
    switches = {s.id: s.level for s in topology.switches}
    totals = _link_totals(topology, by_hypernode, switches)
    why_down = {**dict.fromkeys(topology.nodes_without_evidence, "no fabric shows it"), **facts.down_nodes}
    down = _below(topology.hypernodes, why_down)
    stale = _below(topology.hypernodes, facts.stale)
    silent = _silent_switches(topology, facts.stale_switches)

    def conditions(h: HyperNode) -> tuple[Condition, ...]:
        anomalies = by_hypernode.get(h.name, ())
        staleness = _stale(h, stale, facts.stale, silent.get(h.name, {}))
        if facts.failing:
            also = f"; {staleness.message}" if staleness.status == "True" else ""
            message = _bounded(facts.failing + also)
            staleness = replace(staleness, status="True", reason=INFERENCE_FAILED, message=message)
        return (
            _ready(h, down, why_down),
            _degraded(h, anomalies, switches, totals),
            _consistent(h, anomalies),
            staleness,
        )

    return replace(
        topology, hypernodes=tuple(replace(h, conditions=conditions(h)) for h in topology.hypernodes)
    )


@dataclass(frozen=True, slots=True)
class _Below:
    """Nodes below a HyperNode that have a property: `named` (tier 1 only); `whole` = all have it."""

    named: tuple[str, ...]
    count: int
    whole: bool


_NONE_BELOW = _Below((), 0, False)


def _below(hypernodes: Iterable[HyperNode], nodes: Collection[str]) -> dict[str, _Below]:
    """By HyperNode; those that have none are left out. Children come before parents (sorted by tier)."""
    found: dict[str, _Below] = {}
    if not nodes:
        return found
    for h in hypernodes:
        named = () if h.children else tuple(n for n in h.nodes if n in nodes)
        count = sum(found.get(c, _NONE_BELOW).count for c in h.children) if h.children else len(named)
        if count:
            found[h.name] = _Below(named, count, count >= len(h.nodes))
    return found


def _ready(h: HyperNode, down: Mapping[str, _Below], why: Mapping[str, str]) -> Condition:
    total, below = len(h.nodes), down.get(h.name, _NONE_BELOW)
    counts = f"{total - below.count} of {total} nodes ready"
    if not h.children:
        if not below.count:
            return Condition("Ready", "True", "AllNodesReady", counts)
        named = _some([f"{n} ({why[n]})" if why[n] else n for n in below.named])
        message = _bounded(f"{counts}; not ready: {named}")
        return Condition("Ready", "False", "NodesNotReady", message, nodes=below.named)
    whole = [c for c in h.children if down.get(c, _NONE_BELOW).whole]
    if not whole:
        return Condition("Ready", "True", "ChildrenReady", counts)
    message = f"{counts}; {len(whole)} of {len(h.children)} children have no ready node: {_some(whole)}"
    return Condition("Ready", "False", "ChildrenNotReady", _bounded(message))


def _silent_switches(topology: Topology, seen_ns: Mapping[str, int]) -> dict[str, dict[str, str]]:
    """Stale switches by HyperNode, the lowest that has the switch: by id, what a message says of each."""
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


def _stale(
    h: HyperNode, stale: Mapping[str, _Below], seen_ns: Mapping[str, int], switches: Mapping[str, str]
) -> Condition:
    """`switches`: stale switches of the HyperNode, as `_silent_switches` returns them."""
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
            reason="EvidenceStale",
            message=_bounded(message),
            switches=tuple(sorted(switches)),
        )
    if not h.children and below.count:
        named = _some([f"{n} last seen {rfc3339(seen_ns[n])}" if seen_ns[n] else n for n in below.named])
        message = f"evidence of {below.count} of {len(h.nodes)} nodes is older than its limit: {named}"
        return Condition("Stale", "True", "EvidenceStale", _bounded(message), nodes=below.named)
    whole = [c for c in h.children if stale.get(c, _NONE_BELOW).whole]
    if whole:
        message = (
            f"{len(whole)} of {len(h.children)} children have no node with fresh evidence: {_some(whole)}"
        )
        return Condition("Stale", "True", "EvidenceStale", _bounded(message))
    return Condition("Stale", "False", "EvidenceFresh", "evidence is within its limits")


def _degraded(
    h: HyperNode,
    anomalies: Sequence[Anomaly],
    switches: Mapping[str, int],
    totals: Mapping[tuple[str, str], int],
) -> Condition:
    parts: list[str] = []
    reasons: list[str] = []
    for kind, reason, word in _DEGRADED:
        groups: dict[str, list[str]] = {}
        for anomaly in anomalies:
            if anomaly.kind == kind:
                groups.setdefault(_link_class(anomaly, switches), []).append(_detail(anomaly))
        for link_class, details in sorted(groups.items()):
            reasons.append(reason)
            count = len(details)
            if kind == "MissingSwitch":
                head = f"{count} {'switch' if count == 1 else 'switches'} missing"
            elif total := totals.get((h.name, link_class), 0):
                head = f"{count} of {total} {link_class}s {word}"
            else:
                head = f"{count} {link_class}{'' if count == 1 else 's'} {word}"
            parts.append(f"{head}: {_some(details, '; ')}")
    if not parts:
        return Condition(
            "Degraded", "False", "LinksHealthy", "no link or switch is missing, slow or erroring"
        )
    return Condition("Degraded", "True", reasons[0], _bounded("; ".join(parts)))


def _consistent(h: HyperNode, anomalies: Sequence[Anomaly]) -> Condition:
    parts: list[str] = []
    reasons: list[str] = []
    for kind, reason, words in _INCONSISTENT:
        details = [_detail(x) for x in anomalies if x.kind == kind]
        if details:
            reasons.append(reason)
            parts.append(f"{words}: {_some(details, '; ')}")
    if not parts and h.source == "latency":
        message = f"inferred from latency alone, confidence {h.confidence:.2g}: no wiring is seen"
        return Condition("Consistent", "True", "Inferred", message)
    if not parts and h.source == "labels":
        message = "as the cloud labels its nodes: no wiring is seen"
        return Condition("Consistent", "True", "Labelled", message)
    if not parts:
        return Condition(
            "Consistent", "True", "WiringMatches", "sources agree and the wiring is as the rest implies"
        )
    return Condition("Consistent", "False", reasons[0], _bounded("; ".join(parts)))


def _detail(anomaly: Anomaly) -> str:
    """One anomaly: the cable, or its own sentence where that says more; who saw it; since when."""
    ends = say(anomaly.subject) + (f" -> {say(anomaly.peer)}" if anomaly.peer else "")
    named = anomaly.peer is not None or anomaly.subject.port is not None
    plain = (
        anomaly.kind == "MissingSwitch" or (anomaly.kind == "MissingLink" and named) or not anomaly.message
    )
    text = _bounded(ends if plain else anomaly.message.rstrip(". \n"), DETAIL_MAX)
    if anomaly.sources:
        text += f", seen by {_bounded(', '.join(anomaly.sources), DETAIL_MAX)}"
    return f"{text}, since {rfc3339(anomaly.since_ns)}" if anomaly.since_ns else text


def _some(texts: Sequence[str], separator: str = ", ") -> str:
    more = len(texts) - NAMED
    named = separator.join(_bounded(t, 2 * DETAIL_MAX) for t in texts[:NAMED])
    return f"{named} and {more} more" if more > 0 else named


def _bounded(text: str, limit: int = MESSAGE_MAX) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _link_class(anomaly: Anomaly, switches: Mapping[str, int]) -> str:
    """What to call the link. One to a device that is not known as a switch is a host's; what was measured is
    no link but a whole way."""
    if is_measured(anomaly):
        return _PATH
    if _NVLINK.lower() in anomaly.sources:
        return _NVLINK
    if anomaly.subject.device not in switches:
        return _HOST_LINK
    if anomaly.peer is None:
        return "link"
    return _UPLINK if anomaly.peer.device in switches else _HOST_LINK


def _link_totals(
    topology: Topology, accused: Mapping[str, Sequence[Anomaly]], switches: Mapping[str, int]
) -> dict[tuple[str, str], int]:
    """How many links of a class a domain has, down ones included, for domains with an accused link.

    A link between switches belongs to its lower end's domain (to both, where the levels are equal),
    a host's link to its leaf's. Where the topology names adapters, other endpoints do not count.
    """
    link_kinds = {"MissingLink", "ErroringLink", "SlowLink"}
    names = [name for name, anomalies in accused.items() if any(x.kind in link_kinds for x in anomalies)]
    if not names or not topology.links:
        return {}
    index = {name: i for i, name in enumerate(names)}
    owner_of_switch: dict[str, int] = {}
    for h in topology.hypernodes:  # by tier: a switch that is listed again higher up belongs below
        i = index.get(h.name, -1)
        for switch in h.switches:
            owner_of_switch.setdefault(switch, i)

    table = topology.links if isinstance(topology.links, LinkTable) else LinkTable.of(topology.links)
    devices = table.devices
    hosts = {x.id for x in topology.adapters}
    unknown = 1 << 30  # a switch of unknown level is nobody's lower end

    def level_of(device: str) -> int:
        """0 = a host, -1 = another endpoint."""
        if device in switches:
            return switches[device] or unknown
        return 0 if not hosts or device in hosts else -1

    level = np.fromiter((level_of(d) for d in devices), np.int64, len(devices))
    by_switch = np.fromiter((owner_of_switch.get(d, -1) for d in devices), np.int64, len(devices))

    uplinks, host_links = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    for turned, (near, far) in enumerate(((table.a, table.b), (table.b, table.a))):
        level_side = (level[near] == level[far]) & ((by_switch[near] != by_switch[far]) | (turned == 0))
        owner = by_switch[near[(level[near] > 0) & ((level[near] < level[far]) | level_side)]]
        uplinks += np.bincount(owner[owner >= 0], minlength=len(names))
        owner = by_switch[far[(level[near] == 0) & (level[far] > 0)]]
        host_links += np.bincount(owner[owner >= 0], minlength=len(names))

    totals = {(name, _UPLINK): int(uplinks[i]) for name, i in index.items()}
    totals |= {(name, _HOST_LINK): int(host_links[i]) for name, i in index.items()}
    missing = [x for name in names for x in accused[name] if x.kind == "MissingLink" and x.peer]
    present = _present(table, {d for x in missing if x.peer for d in (x.subject.device, x.peer.device)})
    for anomaly in missing:
        # A flapping cable may be back while its anomaly still stands: it is in the table then.
        if anomaly.hypernode is not None and _ends(anomaly) not in present:
            totals[anomaly.hypernode, _link_class(anomaly, switches)] += 1
    return totals


def _present(table: LinkTable, devices: Collection[str]) -> set[frozenset[tuple[str, str]]]:
    """The links among these devices, by their two ends."""
    chosen = np.fromiter((d in devices for d in table.devices), np.bool_, len(table.devices))
    rows = np.nonzero(chosen[table.a] & chosen[table.b])[0]
    columns = (
        table.a[rows].tolist(),
        table.a_port[rows].tolist(),
        table.b[rows].tolist(),
        table.b_port[rows].tolist(),
    )
    return {
        frozenset(((table.devices[a], table.ports[ap]), (table.devices[b], table.ports[bp])))
        for a, ap, b, bp in zip(*columns, strict=True)
    }


def _ends(anomaly: Anomaly) -> frozenset[tuple[str, str]]:
    peer = anomaly.peer or anomaly.subject
    return frozenset(((anomaly.subject.device, anomaly.subject.port or ""), (peer.device, peer.port or "")))
