"""Derives two conditions of each node, from the facts that HyperNode conditions and taints use. Uses no I/O.

| state of the node | FabricReady | FabricDegraded |
|---|---|---|
| all links are healthy | True | False |
| some links are slow or erroring, or a leaf switch above it is missing | True | True |
| some links are down | False | True |
| all links are down, slow or erroring | False | False |
| no link is accused, and its evidence is stale, or no fabric shows it | Unknown | Unknown |

An anomaly below the confidence `SURE` changes nothing. An accused node stays accused when its agent is
silent. Messages name links and no times or counters, so that they change only when the links do.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain

from hyperscout_formats.text.counts import count, first_few
from hyperscout_formats.text.host_list import natural_key
from hyperscout_inference.hierarchy.conditions import DEGRADED_REASONS, EVIDENCE_STALE, NAMED
from hyperscout_topology.health import SURE, accused, lowest_domains
from hyperscout_topology.link_changes import links_at
from hyperscout_topology.memo import nodes_of_adapters
from hyperscout_topology.topology import Anomaly, Topology, say

NO_EVIDENCE = "NoEvidence"

_End = tuple[str, str | None]  # device and port


@dataclass(frozen=True, slots=True)
class FabricState:
    """`ready`, `degraded`: "True", "False" or "Unknown". Reason and message are those of both conditions."""

    ready: str
    degraded: str
    reason: str
    message: str

    @property
    def is_bad(self) -> bool:
        return self.ready == "False" or self.degraded == "True"


HEALTHY = FabricState("True", "False", "LinksHealthy", "no link of the node is down, slow or erroring")
STALE = FabricState("Unknown", "Unknown", EVIDENCE_STALE, "evidence of the node is older than its limit")
UNSEEN = FabricState("Unknown", "Unknown", NO_EVIDENCE, "no fabric shows the node")


def fabric_states(topology: Topology) -> dict[str, FabricState]:
    """Return the state of each node in a domain, and of each node without evidence."""
    found = {n: HEALTHY for h in topology.hypernodes if not h.children for n in h.nodes}
    found |= dict.fromkeys(topology.nodes_without_evidence, UNSEEN)
    stale = {n for h in topology.hypernodes for c in h.conditions if c.type == "Stale" for n in c.nodes}
    found |= dict.fromkeys(stale, STALE)
    charges: dict[str, list[Anomaly]] = {}
    for node, x in chain(accused(topology), _lost_leaves(topology)):
        charges.setdefault(node, []).append(x)
    owner, present = _ends(topology, charges)
    isolated = set(topology.nodes_without_evidence)
    for node, mine in charges.items():
        by_kind: dict[str, dict[_End, str]] = {}
        for x in mine:
            by_kind.setdefault(x.kind, {})[_own_end(node, x, owner)] = _cable(x)
        found[node] = _state(by_kind, present[node], is_isolated=node in isolated)
    return found


def _lost_leaves(topology: Topology) -> Iterator[tuple[str, Anomaly]]:
    """Yield the nodes of the domain that a missing leaf switch counts against, with the anomaly."""
    lost = [x for x in topology.anomalies if x.kind == "MissingSwitch" and x.confidence > SURE]
    if not lost:
        return
    # The part of a topology that is of one cluster may lack its leaves.
    high = {s.id for s in topology.switches if s.level > 1}
    nodes_of = {h.name: h.nodes for h in lowest_domains(topology) if high.isdisjoint(h.switches)}
    for x in lost:
        for node in nodes_of.get(x.hypernode or "", ()):
            yield node, x


def _ends(topology: Topology, nodes: Iterable[str]) -> tuple[Mapping[str, str], Mapping[str, set[_End]]]:
    """Return the node of each device of these nodes, and each node's ends of links that are present."""
    present: dict[str, set[_End]] = {node: set() for node in nodes}
    if not present:
        return {}, present
    owner = {device: node for device, node in nodes_of_adapters(topology.adapters).items() if node in present}
    owner |= {node: node for node in present}
    for link in links_at(topology.links, set(owner)):
        for device, port in ((link.a_device, link.a_port), (link.b_device, link.b_port)):
            if device in owner:
                present[owner[device]].add((device, port))
    return owner, present


def _state(
    by_kind: Mapping[str, Mapping[_End, str]], present: Set[_End], *, is_isolated: bool
) -> FabricState:
    """`by_kind`: by kind of anomaly, the node's ends of links with their texts. `present`: see `_ends`."""
    bad = {end for ends in by_kind.values() for end in ends}
    is_down = "MissingLink" in by_kind
    is_lost = is_down or "MissingSwitch" in by_kind  # so that links may be bad that are not present
    is_whole = is_isolated or (present <= bad and (is_lost or bool(present)))
    known = {*present, *by_kind.get("MissingLink", ()), *by_kind.get("MissingSwitch", ())}
    reasons, parts = [], []
    for kind, reason, word in DEGRADED_REASONS:
        if ends := by_kind.get(kind):
            what = count(len(ends), "switch" if kind == "MissingSwitch" else "link")
            if kind != "MissingSwitch" and ends.keys() <= known:
                what = f"{len(ends)} of {count(len(known), 'link')}"
            reasons.append(reason)
            parts.append(f"{what} {word}: {first_few(sorted(ends.values(), key=natural_key), NAMED)}")
    return FabricState(
        "False" if is_down or is_whole else "True",
        "False" if is_whole else "True",
        reasons[0],
        "; ".join(parts),
    )


def _own_end(node: str, anomaly: Anomaly, owner: Mapping[str, str]) -> _End:
    """Return the node's end of a link; for a missing switch, the switch."""
    ends = [anomaly.subject, *([anomaly.peer] if anomaly.peer else [])]
    mine = (e for e in ends if owner.get(e.device) == node or e.name == node)
    end = next(mine, anomaly.subject) if anomaly.kind != "MissingSwitch" else anomaly.subject
    return end.device or end.name, end.port


def _cable(anomaly: Anomaly) -> str:
    peer = f" -> {say(anomaly.peer)}" if anomaly.peer and anomaly.kind != "MissingSwitch" else ""
    return say(anomaly.subject) + peer
