"""Builds the objects of `hyperscout get KIND -o json` and REST, with one definition of their field names.

They are built from a topology, or from gRPC messages under the names of protobuf's JSON mapping. All are
plain dicts and lists with keys in a fixed order.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from hyperscout_formats.text.host_list import fold

from hyperscout_topology.json_objects import to_json
from hyperscout_topology.topology import HyperNode, Link, Switch, Topology
from hyperscout_topology.tree import count, marks

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from hyperscout.v1.topology_pb2 import GetStatusResponse, TopologyDelta

Object = dict[str, Any]

_MAX_NAMED = 10


# From a topology


def domains_of(topology: Topology) -> dict[str, list[HyperNode]]:
    """The HyperNodes of every node, from tier 1 up."""
    found: dict[str, list[HyperNode]] = {}
    for h in sorted(topology.hypernodes, key=lambda h: h.tier):
        for node in h.nodes:
            found.setdefault(node, []).append(h)
    return found


def owners(topology: Topology) -> dict[str, str]:
    """The node of every adapter id. On the Ethernet side the id is the node's own name."""
    return {x.id: x.node for x in topology.adapters}


def device_names(topology: Topology) -> dict[str, str]:
    """The display name of each device id: the switch's name, or node and adapter ("gpu-01 mlx5_0")."""
    adapters = {x.id: f"{x.node} {x.name}" if x.name else x.node for x in topology.adapters}
    return adapters | {s.id: s.name or s.id for s in topology.switches}


def hypernodes(topology: Topology) -> list[Object]:
    """The HyperNodes in the topology's order: by tier, then name."""
    found: list[Object] = to_json(replace(topology, links=(), adapters=()))["hypernodes"]
    return found


def anomalies(topology: Topology) -> list[Object]:
    """The anomalies in the topology's order: by kind, then ends."""
    found: list[Object] = to_json(replace(topology, links=(), adapters=()))["anomalies"]
    return found


def nodes(topology: Topology) -> list[Object]:
    """Every node with its HyperNodes from tier 1 up, by name."""
    found = domains_of(topology)
    for node in topology.nodes_without_evidence:
        found.setdefault(node, [])
    owner = owners(topology)
    links = Counter(owner.get(d) for x in topology.links for d in (x.a_device, x.b_device))
    wrong = Counter(
        e.name for x in topology.anomalies for e in {x.subject, x.peer or x.subject} if e.name in found
    )
    return [
        {
            "name": node,
            "hypernodes": [h.name for h in found[node]],
            "links": links[node],
            "anomalies": wrong[node],
            "evidence": bool(found[node]),
        }
        for node in sorted(found)
    ]


def switches(topology: Topology) -> list[Object]:
    """Every switch with its HyperNodes: by level, unknown level last, then by name."""
    links = Counter(d for x in topology.links for d in (x.a_device, x.b_device))
    serves: dict[str, list[str]] = {}
    for h in topology.hypernodes:
        for switch in h.switches:
            serves.setdefault(switch, []).append(h.name)

    def row(s: Switch) -> Object:
        return {
            "id": s.id,
            "name": s.name,
            "level": s.level,
            "links": links[s.id],
            "hypernodes": serves.get(s.id, []),
        }

    return [row(s) for s in sorted(topology.switches, key=lambda s: (s.level or 99, s.name, s.id))]


def links(topology: Topology) -> list[Object]:
    """Every link with the display names of its ends, sorted by these."""
    names = device_names(topology)
    owner = owners(topology)

    def end(device: str, port: str) -> Object:
        return {
            "device": device,
            "name": names.get(device, device),
            "node": owner.get(device),
            "port": port,
        }

    def row(x: Link) -> Object:
        return {
            "a": end(x.a_device, x.a_port),
            "b": end(x.b_device, x.b_port),
            "fabric": x.fabric,
            "sources": list(x.sources),
            **({"note": x.note} if x.note else {}),
        }

    found = [row(x) for x in topology.links]
    found.sort(key=lambda x: (x["a"]["name"], x["a"]["port"], x["b"]["name"], x["b"]["port"], x["fabric"]))
    return found


OF_TOPOLOGY: Mapping[str, Callable[[Topology], list[Object]]] = {
    "hypernodes": hypernodes,
    "nodes": nodes,
    "links": links,
    "switches": switches,
    "anomalies": anomalies,
}


def link_name(link: Object) -> str:
    """Both ends of a link by their ids: "0x1:3--0x2:7"."""
    return f"{link['a']['device']}:{link['a']['port']}--{link['b']['device']}:{link['b']['port']}"


def anomaly_name(anomaly: Object) -> str:
    """The kind and the subject of an anomaly: "MissingLink:0x1:3"."""
    subject = anomaly["subject"]
    return f"{anomaly['kind']}:{subject['device']}:{subject['port'] or ''}"


def names_of(kind: str, found: Object) -> set[str]:
    """The names that select an object: for a link its devices, for an anomaly kind, ends and HyperNode."""
    if kind == "links":
        ends = (found["a"], found["b"])
        return {link_name(found), *(e[k] for e in ends for k in ("device", "name", "node") if e[k])}
    if kind == "anomalies":
        ends = tuple(found[e] for e in ("subject", "peer") if found[e])
        own = {anomaly_name(found), found["kind"], found["hypernode"] or found["kind"]}
        return own | {e[k] for e in ends for k in ("device", "name")}
    if kind == "switches":
        return {found["name"] or found["id"], found["id"]}
    return {found["name"]}


# From messages


def delta(message: "TopologyDelta") -> Object:
    """The changes from one generation to a later one, with the field names of a topology."""
    from hyperscout.v1 import topology_pb2 as pb

    from hyperscout_topology.proto import brought_by, topology_from_proto

    came = to_json(brought_by(message))
    went = to_json(
        topology_from_proto(pb.Topology(links=message.removed_links, adapters=message.removed_adapters))
    )
    return {
        "generation": came["generation"],
        "hypernodes": came["hypernodes"],
        "removedHypernodes": list(message.removed_hypernodes),
        "anomalies": came["anomalies"],
        "switches": came["switches"],
        "removedSwitches": list(message.removed_switches),
        "addedLinks": came["links"],
        "removedLinks": went["links"],
        "nodesWithoutEvidence": list(message.nodes_without_evidence),
        "foreignEndpoints": list(message.foreign_endpoints),
        "addedAdapters": came["adapters"],
        "removedAdapters": went["adapters"],
        "tiers": came["tiers"],
    }


def plain(message: "Message") -> Object:
    """A message in protobuf's JSON mapping, with every field that has no presence of its own.

    Counts are numbers, as in a topology. 64-bit identities (fixed64) stay strings, because a JavaScript
    number has only 53 bits.
    """
    from google.protobuf.json_format import MessageToDict

    found = MessageToDict(message, always_print_fields_with_no_presence=True)
    _number(found, message.DESCRIPTOR)
    return found


def _number(found: Object, descriptor: Any) -> None:
    for field in descriptor.fields:
        value = found.get(field.json_name)
        if value is None:
            continue
        if field.type in (field.TYPE_UINT64, field.TYPE_INT64):
            found[field.json_name] = [int(x) for x in value] if isinstance(value, list) else int(value)
        elif field.message_type is not None:
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, dict):
                    _number(one, field.message_type)


def what_is_wrong(current: "GetStatusResponse", topology: Topology) -> list[str]:
    """Every problem of the collector and the topology, one line each."""
    from hyperscout_formats.text.reporters import is_fabric

    away = {agent.node for agent in current.agents if not agent.connected}
    blind = {
        agent.node
        for agent in current.agents
        if is_fabric(agent.node) and agent.findings and agent.findings == agent.failed_findings
    }
    return all_wrong(current, topology, away, blind, wrong_in(topology))


def all_wrong(
    current: "GetStatusResponse",
    topology: Topology,
    away: Collection[str],
    blind: Collection[str],
    in_topology: Sequence[str],
) -> list[str]:
    """Like `what_is_wrong`, for a caller that knows the parts. `agents` of `current` are not read.

    `away`: agents that are not connected. `blind`: agents of role fabric with failed findings only.
    `in_topology`: the result of `wrong_in`.
    """
    wrong = [f"collector: {problem}" for problem in current.problems]
    if not topology.hypernodes:
        wrong.append("no HyperNodes yet")
    if current.HasField("held"):
        held = current.held
        wrong.append(
            f"generation {held.generation} is held: {held.reason} (`hyperscout diff`, `hyperscout approve`)"
        )
    if away:
        wrong.append(f"{count(len(away), 'agent')} not connected: {_some(away)}")
    # A single switch that does not answer is reported by its own finding; large fabrics always have one.
    wrong += [
        f"{node} learns nothing: `hyperscout get findings {node} -o wide` says why" for node in sorted(blind)
    ]
    for lease in current.leases:
        if lease.partial:
            reason = lease.partial_reason or "partial sweep"
            wrong.append(f"sweep from {lease.node} {lease.device}/{lease.port}: {reason}")
    return [*wrong, *in_topology]


def wrong_in(topology: Topology) -> list[str]:
    """The part of `what_is_wrong` that follows from the topology alone."""
    wrong = []
    missing = topology.nodes_without_evidence
    if missing:
        wrong.append(f"{count(len(missing), 'node')} without evidence: {_some(missing)}")
    for h in topology.hypernodes:
        wrong += [f"{h.name}: {mark} ({reason}): {message}" for mark, reason, message in marks(h)]
    return wrong


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return fold(nsmallest(_MAX_NAMED, names)) + more
