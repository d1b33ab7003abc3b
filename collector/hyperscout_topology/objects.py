"""Builds the JSON objects of `-o json` and REST: a topology, a delta, and the lists of each kind of object.

All are plain dicts and lists with keys in a fixed order. gRPC's messages have the same names in protobuf's
JSON mapping. `topology_json` writes a topology as text in pieces, with links straight from their columns,
because most of the text is links.
"""

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hyperscout_formats.text.host_list import natural_key
from hyperscout_runtime.units import rfc3339

from hyperscout_topology.diff import Diff
from hyperscout_topology.link_changes import UNREPORTED, table_of
from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Condition,
    Endpoint,
    HyperNode,
    Link,
    Rate,
    Switch,
    Tier,
    Topology,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message

Object = dict[str, Any]

_CHUNK_ROWS = 4096


# A topology


def to_json(topology: Topology) -> Object:
    """The object of `infer -o json`.

    Empty values of these are left out: times, flaps, measured values, devices, the notes, speed and width of
    links, and the nodes, switches and details of conditions and anomalies.
    """
    return {
        "generation": topology.generation,
        "hypernodes": hypernodes(topology),
        "switches": list(map(_switch, topology.switches)),
        "adapters": list(map(_adapter, topology.adapters)),
        "links": list(map(_link, topology.links)),
        "anomalies": anomalies(topology),
        "nodesWithoutEvidence": list(topology.nodes_without_evidence),
        "foreignEndpoints": list(topology.foreign_endpoints),
        "tiers": list(map(_tier, topology.tiers)),
        **({"devices": {n: dict(d) for n, d in topology.devices.items()}} if topology.devices else {}),
    }


def delta(diff: Diff) -> Object:
    """The changes from one generation to a later one, with the field names of a topology."""
    new = diff.new
    return {
        "generation": new.generation,
        "hypernodes": [_hypernode(h) for h in sorted(diff.hypernodes.put, key=lambda h: (h.tier, h.name))],
        "removedHypernodes": [h.name for h in diff.hypernodes.removed],
        "anomalies": anomalies(new),
        "switches": [_switch(s) for s in sorted(diff.switches.put, key=lambda s: s.id)],
        "removedSwitches": [s.id for s in diff.switches.removed],
        "addedLinks": list(map(_link, diff.links.added)),
        "removedLinks": list(map(_link, diff.links.removed)),
        "nodesWithoutEvidence": list(new.nodes_without_evidence),
        "foreignEndpoints": list(new.foreign_endpoints),
        "addedAdapters": list(map(_adapter, diff.adapters.added)),
        "removedAdapters": list(map(_adapter, diff.adapters.removed)),
        "tiers": list(map(_tier, new.tiers)),
    }


def hypernodes(topology: Topology) -> list[Object]:
    """The HyperNodes in the topology's order: by tier, then name."""
    return list(map(_hypernode, topology.hypernodes))


def anomalies(topology: Topology) -> list[Object]:
    """The anomalies in the topology's order: by kind, then ends."""
    return list(map(_anomaly, topology.anomalies))


def _hypernode(h: HyperNode) -> Object:
    return {
        "name": h.name,
        "tier": h.tier,
        "tierName": h.tier_name,
        "parent": h.parent,
        "children": list(h.children),
        "nodes": list(h.nodes),
        "switches": list(h.switches),
        "conditions": list(map(_condition, h.conditions)),
        "source": h.source,
        "confidence": h.confidence,
        **_measured(h),
    }


def _condition(c: Condition) -> Object:
    return {
        "type": c.type,
        "status": c.status,
        "reason": c.reason,
        "message": c.message,
        **({"lastTransitionTime": rfc3339(c.since_ns)} if c.since_ns else {}),
        **_lists(nodes=c.nodes, switches=c.switches, details=c.details),
    }


def _anomaly(x: Anomaly) -> Object:
    return {
        "kind": x.kind,
        "subject": end(x.subject),
        "peer": end(x.peer) if x.peer is not None else None,
        "tier": x.tier,
        "sources": list(x.sources),
        "confidence": x.confidence,
        "message": x.message,
        "hypernode": x.hypernode,
        **({"since": rfc3339(x.since_ns)} if x.since_ns else {}),
        **_lists(nodes=x.nodes),
        **({"figures": [{"name": f.name, "value": f.value} for f in x.figures]} if x.figures else {}),
        **({"flaps": x.flaps} if x.flaps else {}),
        **({"changedAt": rfc3339(x.changed_ns)} if x.changed_ns else {}),
        **({"clearsAt": rfc3339(x.clears_ns)} if x.clears_ns else {}),
    }


def end(x: Endpoint) -> Object:
    """An end of an anomaly or of an event."""
    return {"device": x.device, "name": x.name, "port": x.port, "adapter": x.adapter}


def _switch(s: Switch) -> Object:
    return {"id": s.id, "name": s.name, "level": s.level}


def _adapter(x: Adapter) -> Object:
    return {"id": x.id, "node": x.node, "name": x.name}


def _link(x: Link) -> Object:
    return {
        "a": {"device": x.a_device, "port": x.a_port},
        "b": {"device": x.b_device, "port": x.b_port},
        "fabric": x.fabric,
        "sources": list(x.sources),
        **({"note": x.note} if x.note else {}),
        **_rate(x),
    }


def _rate(of: Link | Rate) -> Object:
    found = {"speedGbps": of.speed_gbps, "width": of.width}
    return {key: value for key, value in found.items() if value}


def _tier(t: Tier) -> Object:
    return {"tier": t.tier, "tierName": t.tier_name, **_measured(t)}


def _lists(**lists: tuple[str, ...]) -> Object:
    """The lists that are not empty."""
    return {name: list(values) for name, values in lists.items() if values}


def _measured(of: HyperNode | Tier) -> Object:
    found = {}
    for key, m in (("latencyUs", of.latency_us), ("bandwidthGbps", of.bandwidth_gbps)):
        if m is not None:
            row = {"median": m.median, "p99": m.p99, "samples": m.samples}
            found[key] = row | {"measuredAt": rfc3339(m.at_ns)} if m.at_ns else row
    return found


# The same as text


def topology_json(topology: Topology) -> Iterator[str]:
    """The JSON text of a topology in pieces, with one HyperNode, switch, link or anomaly per line.

    It ends with a newline and is ASCII only.
    """
    start = "{"
    for key, value in to_json(replace(topology, links=())).items():
        yield f"{start}{json.dumps(key)}: "
        start = ",\n"
        if key == "links":
            yield from _rows(_link_rows(topology.links))
        elif isinstance(value, list):
            yield from _rows(map(json.dumps, value))
        else:
            yield json.dumps(value)
    yield "}\n"


def _rows(rows: Iterable[str]) -> Iterator[str]:
    chunk: list[str] = []
    start = "[\n"
    for row in rows:
        chunk.append(row)
        if len(chunk) == _CHUNK_ROWS:
            yield start + ",\n".join(chunk)
            start = ",\n"
            chunk.clear()
    if chunk:
        yield start + ",\n".join(chunk)
        start = "\n"
    yield "[]" if start == "[\n" else "\n]"


def _link_rows(links: Sequence[Link]) -> Iterator[str]:
    table = table_of(links)
    devices, ports, fabrics, sources = (
        [json.dumps(x) for x in column]
        for column in (table.devices, table.ports, table.fabrics, table.source_sets)
    )
    rates = [f", {json.dumps(_rate(x))[1:-1]}" if any(x) else "" for x in table.rates]
    columns = (table.a, table.a_port, table.b, table.b_port, table.fabric, table.sources, table.rate)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for row, (a, ap, b, bp, f, s, r) in enumerate(rows):
        note = f', "note": {json.dumps(table.notes[row])}' if row in table.notes else ""
        yield (
            f'{{"a": {{"device": {devices[a]}, "port": {ports[ap]}}}, '
            f'"b": {{"device": {devices[b]}, "port": {ports[bp]}}}, '
            f'"fabric": {fabrics[f]}, "sources": {sources[s]}{note}{rates[r]}}}'
        )


# The lists of `hyperscout get` and REST


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


def nodes(topology: Topology) -> list[Object]:
    """Every node with its HyperNodes from tier 1 up, by name: n2 before n10."""
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
        for node in sorted(found, key=natural_key)
    ]


def switches(topology: Topology) -> list[Object]:
    """Every switch with its HyperNodes: by level, unknown level last, then by name."""
    links = Counter(d for x in topology.links for d in (x.a_device, x.b_device))
    serves: dict[str, list[str]] = {}
    for h in sorted(topology.hypernodes, key=lambda h: (h.tier, natural_key(h.name))):
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

    found = sorted(topology.switches, key=lambda s: (s.level or 99, natural_key(s.name), s.id))
    return list(map(row, found))


def links(topology: Topology) -> list[Object]:
    """Every link with the display names of its ends, sorted by these."""
    names = device_names(topology)
    owner = owners(topology)
    down = {x.ends for x in topology.anomalies if x.kind == "MissingLink" and not x.is_over}

    def end(device: str, port: str) -> Object:
        return {
            "device": device,
            "name": names.get(device, device),
            "node": owner.get(device),
            "port": port,
        }

    def row(x: Link) -> Object:
        is_down = bool(down) and frozenset([(x.a_device, x.a_port), (x.b_device, x.b_port)]) in down
        return {
            "a": end(x.a_device, x.a_port),
            "b": end(x.b_device, x.b_port),
            "fabric": x.fabric,
            "sources": list(x.sources),
            **({"note": x.note} if x.note else {}),
            **_rate(x),
            **({"state": "down" if is_down else "up"} if x.note != UNREPORTED else {}),
        }

    found = [row(x) for x in topology.links]
    natural = functools.cache(natural_key)  # there are fewer names and ports than links
    found.sort(key=lambda x: (*(natural(x[e][k]) for e in "ab" for k in ("name", "port")), x["fabric"]))
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


# Messages


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
