"""What `get` and `describe` know: the kinds of objects in a topology, and a table of each."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import click
from hyperscout_collector.figures import digits
from hyperscout_collector.publish.texts.names import host_list
from hyperscout_collector.publish.texts.tree import HEALTHY, marks
from hyperscout_collector.topology import Endpoint, HyperNode, Topology
from hyperscout_collector.topology_json import to_json

from hyperscout_cli.tables import Row, Table, age

ALIASES = {
    "hypernodes": ("hypernode", "hn"),
    "nodes": ("node", "no"),
    "links": ("link", "ln"),
    "switches": ("switch", "sw"),
    "findings": ("finding", "fi"),
    "anomalies": ("anomaly", "an"),
}
KINDS = {alias: kind for kind, aliases in ALIASES.items() for alias in (kind, *aliases)}


def complete_kind(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Kinds that begin so, for shells."""
    return [kind for kind in ALIASES if kind.startswith(incomplete)]


def hypernode_row(hypernode: HyperNode, now_ns: int, data: dict[str, Any]) -> Row:
    """One line about a HyperNode. Its age is that of the condition that has stood longest."""
    status = {c.type: c for c in hypernode.conditions}
    wrong = marks(hypernode)
    # Degraded says which cable, so it comes before Ready where both are wrong.
    wrong.sort(key=lambda mark: not mark[0].startswith("Degraded"))
    ready, degraded = (status[t].status if t in status else "" for t in ("Ready", "Degraded"))
    since = min((c.since_ns for c in hypernode.conditions if c.since_ns), default=0)
    cells = (
        hypernode.name,
        str(hypernode.tier),
        hypernode.tier_name,
        str(len(hypernode.nodes)),
        ready,
        degraded,
        wrong[0][1] if wrong else "",
        age(since, now_ns),
    )
    others = ",".join(mark for mark, _, _ in wrong if not mark.startswith(("NotReady", "Ready", "Degraded")))
    latency = hypernode.latency_us
    more = (
        hypernode.parent or "",
        str(len(hypernode.switches)),
        hypernode.source,
        f"{digits(latency.median)}us" if latency else "",
        others,
        wrong[0][2] if wrong else "",
    )
    return Row(hypernode.name, cells, more, data)


HYPERNODE_HEADINGS = ("NAME", "TIER", "TIERNAME", "NODES", "READY", "DEGRADED", "REASON", "AGE")
HYPERNODE_MORE = ("PARENT", "SWITCHES", "SOURCE", "LATENCY", "OTHER", "MESSAGE")


def hypernodes(topology: Topology, now_ns: int) -> Table:
    """By tier, then name."""
    data = to_json(replace(topology, links=()))["hypernodes"]
    rows = [hypernode_row(h, now_ns, d) for h, d in zip(topology.hypernodes, data, strict=True)]
    rows.sort(key=lambda r: (r.data["tier"], r.name))
    return Table("hypernode", HYPERNODE_HEADINGS, HYPERNODE_MORE, tuple(rows))


def domains_of(topology: Topology) -> dict[str, list[HyperNode]]:
    """The HyperNodes of every node, from tier 1 up."""
    found: dict[str, list[HyperNode]] = {}
    for h in sorted(topology.hypernodes, key=lambda h: h.tier):
        for node in h.nodes:
            found.setdefault(node, []).append(h)
    return found


def owners(topology: Topology) -> dict[str, str]:
    """The node of every adapter id; a node's own name stands for its Ethernet side."""
    return {x.id: x.node for x in topology.adapters}


def device_names(topology: Topology) -> dict[str, str]:
    """What a person calls a device id: the switch's name, or the node and its adapter ("gpu-01 mlx5_0")."""
    adapters = {x.id: f"{x.node} {x.name}" if x.name else x.node for x in topology.adapters}
    return adapters | {s.id: s.name or s.id for s in topology.switches}


def nodes(topology: Topology, now_ns: int) -> Table:
    """Every node with its HyperNode of each tier."""
    found = domains_of(topology)
    for node in topology.nodes_without_evidence:
        found.setdefault(node, [])
    tiers = dict(sorted({h.tier: h.tier_name for h in topology.hypernodes}.items()))
    owner = owners(topology)
    links = Counter(owner.get(d) for x in topology.links for d in (x.a_device, x.b_device))
    wrong = Counter(
        e.name for x in topology.anomalies for e in {x.subject, x.peer or x.subject} if e.name in found
    )
    rows = []
    for node in sorted(found):
        by_tier = {h.tier: h.name for h in found[node]}
        data = {
            "name": node,
            "hypernodes": [h.name for h in found[node]],
            "links": links[node],
            "anomalies": wrong[node],
            "evidence": bool(found[node]),
        }
        cells = (node, *(by_tier.get(t, "") for t in tiers), str(links[node] or ""), str(wrong[node] or ""))
        rows.append(Row(node, cells, ("no evidence" if not found[node] else "",), data))
    headings = ("NAME", *((name or f"TIER{t}").upper() for t, name in tiers.items()), "LINKS", "ANOMALIES")
    return Table("node", headings, ("NOTE",), tuple(rows))


def switches(topology: Topology, now_ns: int) -> Table:
    """Every switch with its level (1 = leaf)."""
    links = Counter(d for x in topology.links for d in (x.a_device, x.b_device))
    serves: dict[str, list[str]] = {}
    for h in topology.hypernodes:
        for switch in h.switches:
            serves.setdefault(switch, []).append(h.name)
    rows = []
    for s in sorted(topology.switches, key=lambda s: (s.level or 99, s.name, s.id)):
        data = {
            "id": s.id,
            "name": s.name,
            "level": s.level,
            "links": links[s.id],
            "hypernodes": serves.get(s.id, []),
        }
        cells = (
            s.name or s.id,
            s.id,
            str(s.level or "?"),
            str(links[s.id] or ""),
            host_list(serves.get(s.id, ())),
        )
        rows.append(Row(s.name or s.id, cells, (), data))
    return Table("switch", ("NAME", "ID", "LEVEL", "LINKS", "HYPERNODES"), (), tuple(rows))


def links(topology: Topology, now_ns: int) -> Table:
    """Every cable, by its ends."""
    names = device_names(topology)
    owner = owners(topology)
    rows = []
    for x in topology.links:
        a, b = (names.get(d, d) for d in (x.a_device, x.b_device))
        data = {
            "a": {"device": x.a_device, "name": a, "node": owner.get(x.a_device), "port": x.a_port},
            "b": {"device": x.b_device, "name": b, "node": owner.get(x.b_device), "port": x.b_port},
            "fabric": x.fabric,
            "sources": list(x.sources),
            **({"note": x.note} if x.note else {}),
        }
        cells = (a, x.a_port, b, x.b_port, x.fabric, ",".join(x.sources))
        rows.append(
            Row(
                f"{x.a_device}:{x.a_port}--{x.b_device}:{x.b_port}",
                cells,
                (x.note, x.a_device, x.b_device),
                data,
            )
        )
    rows.sort(key=lambda r: r.cells)
    return Table(
        "link", ("A", "PORT", "B", "PORT", "FABRIC", "SOURCES"), ("NOTE", "A-ID", "B-ID"), tuple(rows)
    )


def end_text(end: Endpoint | None) -> str:
    """An end of a cable as a person names it: leaf-03/p17."""
    if end is None:
        return ""
    return (end.name or end.device) + (f"/{end.port}" if end.port else "")


def anomalies(topology: Topology, now_ns: int) -> Table:
    """Everything that does not fit."""
    data = to_json(replace(topology, links=()))["anomalies"]
    rows = []
    for x, d in zip(topology.anomalies, data, strict=True):
        cells = (
            x.kind,
            end_text(x.subject),
            end_text(x.peer),
            x.hypernode or "",
            f"{x.confidence:.2g}",
            age(x.since_ns, now_ns),
        )
        name = f"{x.kind}:{x.subject.device}:{x.subject.port or ''}"
        rows.append(Row(name, cells, (",".join(x.sources), x.message), d))
    headings = ("KIND", "SUBJECT", "PEER", "HYPERNODE", "CONFIDENCE", "AGE")
    return Table("anomaly", headings, ("SOURCES", "MESSAGE"), tuple(rows))


TABLES: dict[str, Callable[[Topology, int], Table]] = {
    "hypernodes": hypernodes,
    "nodes": nodes,
    "links": links,
    "switches": switches,
    "anomalies": anomalies,
}


def _named(kind: str, row: Row) -> Iterable[str]:
    """What a row answers to."""
    if kind == "links":
        ends = [row.data[e] for e in ("a", "b")]
        return (row.name, *(e[k] for e in ends for k in ("device", "name", "node") if e[k]))
    if kind == "anomalies":
        ends = [row.data[e] for e in ("subject", "peer") if row.data[e]]
        return (row.name, row.cells[0], row.cells[3], *(e[k] for e in ends for k in ("device", "name")))
    if kind == "switches":
        return (row.name, str(row.data["id"]))
    return (row.name,)


def select(kind: str, table: Table, names: Sequence[str]) -> tuple[Table, list[str]]:
    """The rows that answer to one of the names, and the names that nothing answers to.

    A link answers to its devices, an anomaly to its kind, devices and HyperNode.
    """
    if not names:
        return table, []
    wanted = set(names)
    rows = tuple(row for row in table.rows if not wanted.isdisjoint(_named(kind, row)))
    known = {name for row in rows for name in _named(kind, row)}
    return replace(table, rows=rows), [name for name in names if name not in known]


def healthy(topology: Topology) -> bool:
    """Whether every condition is as it should be."""
    return all(c.status == HEALTHY.get(c.type, c.status) for h in topology.hypernodes for c in h.conditions)
