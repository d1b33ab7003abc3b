"""The kinds of objects in a topology that `get` and `describe` show, and a table of each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click
from hyperscout_formats.text.counts import and_more
from hyperscout_formats.text.host_list import fold, natural_key
from hyperscout_runtime.errors import similar
from hyperscout_topology import objects
from hyperscout_topology.figures import digits
from hyperscout_topology.health import marks
from hyperscout_topology.topology import Endpoint, HyperNode, Topology

from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.options import names_in, with_prefixes
from hyperscout_cli.shared.tables import Row, Table, age

ALIASES = {
    "hypernodes": ("hypernode", "hn"),
    "nodes": ("node", "no"),
    "links": ("link", "ln"),
    "switches": ("switch", "sw"),
    "findings": ("finding", "fi"),
    "anomalies": ("anomaly", "an"),
}
_NAMES = {
    "hypernodes": "its name",
    "nodes": "its name",
    "links": "the name of a node or switch at an end, or both ends as DEVICE:PORT--DEVICE:PORT",
    "switches": "its name or id",
    "findings": "the name of its node",
    "anomalies": "its kind, HyperNode, or a node or switch at an end",
    "placements": "the name of a gang that holds nodes",
}
_MAX_NAMED, _MAX_CHARS = 10, 200
KINDS = {alias: kind for kind, aliases in ALIASES.items() for alias in (kind, *aliases)}


def check_found(kind: str, every: Table, missing: Sequence[str]) -> None:
    """Raise CliError if `select` did not find all names in the table `every`."""
    if not missing:
        return
    lists = "placements list" if kind == "placements" else f"get {kind}"
    todo = f"`hyperscout {lists}` lists all"
    first = missing[0]
    if len(missing) > 1:
        folded = fold(missing)
        if len(folded) > _MAX_CHARS:
            folded = fold(missing[:_MAX_NAMED]) + and_more(len(missing) - _MAX_NAMED)
        what = f"named {folded}"
    elif first.endswith("*"):
        raise CliError(f"no {every.kind} has a name that begins with {first[:-1]!r}: {todo}")
    else:
        known = {name for row in every.rows for name in _names_of(kind, row)}
        close = ", ".join(similar(first, known))
        what = f"named {first!r}{close and f' (similar: {close})'}"
    raise CliError(f"no {every.kind} {what}: expected {_NAMES[kind]}; {todo}")


def _names_of(kind: str, row: Row) -> set[str]:
    """The names that select a row: of a finding its node, of a placement its gang."""
    return {row.cells[0]} if kind in {"findings", "placements"} else objects.names_of(kind, row.data)


def complete_kind(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a kind."""
    return [kind for kind in ALIASES if kind.startswith(incomplete)]


def columns_of(ctx: click.Context) -> tuple[str, ...]:
    """The columns of the kind on the command line, for completion; those of nodes without the tiers."""
    # Before an option without its value, click leaves the arguments unread.
    kind = KINDS.get(str(ctx.params.get("kind") or next(iter(ctx.args), "")).lower(), "")
    if kind == "findings":
        return (*FINDING_HEADINGS, *FINDING_MORE)
    if kind not in TABLES:
        return ()
    table = TABLES[kind](Topology(0), 0)
    return tuple(dict.fromkeys((*table.headings, *table.more)))


def hypernode_row(hypernode: HyperNode, now_ns: int, data: dict[str, Any]) -> Row:
    """The row of a HyperNode. Its age is that of its oldest condition."""
    status = {c.type: c for c in hypernode.conditions}
    wrong = marks(hypernode)
    # Degraded names the cable, so it comes first if Ready is wrong too.
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
FINDING_HEADINGS = ("NODE", "PROBE", "SUBJECT", "OUTCOME", "AGE", "STALE")
FINDING_MORE = ("REASON",)
HYPERNODE_MORE = ("PARENT", "SWITCHES", "SOURCE", "LATENCY", "OTHER", "MESSAGE")


def hypernodes(topology: Topology, now_ns: int) -> Table:
    """All HyperNodes by tier and name."""
    data = objects.hypernodes(topology)
    rows = [hypernode_row(h, now_ns, d) for h, d in zip(topology.hypernodes, data, strict=True)]
    rows.sort(key=lambda r: (r.data["tier"], natural_key(r.name)))
    return Table("hypernode", HYPERNODE_HEADINGS, HYPERNODE_MORE, tuple(rows))


def nodes(topology: Topology, now_ns: int) -> Table:
    """All nodes, each with its HyperNode of each tier."""
    tier_of = {h.name: h.tier for h in topology.hypernodes}
    tiers = dict(sorted({h.tier: h.tier_name for h in topology.hypernodes}.items()))
    rows = []
    for data in objects.nodes(topology):
        by_tier = {tier_of[name]: name for name in data["hypernodes"]}
        counts = (str(data["links"] or ""), str(data["anomalies"] or ""))
        cells = (data["name"], *(by_tier.get(t, "") for t in tiers), *counts)
        rows.append(Row(data["name"], cells, ("" if data["evidence"] else "no evidence",), data))
    headings = ("NAME", *((name or f"TIER{t}").upper() for t, name in tiers.items()), "LINKS", "ANOMALIES")
    return Table("node", headings, ("NOTE",), tuple(rows))


def switches(topology: Topology, now_ns: int) -> Table:
    """All switches with their levels (1 = leaf)."""
    rows = []
    for data in objects.switches(topology):
        name = data["name"] or data["id"]
        counts = (str(data["level"] or "?"), str(data["links"] or ""))
        rows.append(Row(name, (name, data["id"], *counts, fold(data["hypernodes"])), (), data))
    return Table("switch", ("NAME", "ID", "LEVEL", "LINKS", "HYPERNODES"), (), tuple(rows))


def links(topology: Topology, now_ns: int) -> Table:
    """All links."""
    rows = []
    for data in objects.links(topology):
        a, b = data["a"], data["b"]
        name = objects.link_name(data)
        cells = (a["name"], a["port"], b["name"], b["port"], data["fabric"], ",".join(data["sources"]))
        speed = f"{data['speedGbps']:g}Gb/s" if "speedGbps" in data else ""
        width = f"{data['width']}x" if "width" in data else ""
        more = (speed, width, data.get("state", ""), data.get("note", ""), a["device"], b["device"])
        rows.append(Row(name, cells, more, data))
    headings = ("A", "PORT", "B", "PORT", "FABRIC", "SOURCES")
    return Table("link", headings, ("SPEED", "WIDTH", "STATE", "NOTE", "A-ID", "B-ID"), tuple(rows))


def end_text(end: Endpoint | None) -> str:
    """Display name of one end of a link: leaf-03/p17."""
    if end is None:
        return ""
    return (end.name or end.device) + (f"/{end.port}" if end.port else "")


def anomalies(topology: Topology, now_ns: int) -> Table:
    """All anomalies by kind and ends.

    The last cell says in what time one clears if nothing happens, where that is known.
    """
    data = objects.anomalies(topology)
    rows = []
    for x, d in zip(topology.anomalies, data, strict=True):
        cells = (
            x.kind,
            end_text(x.subject),
            end_text(x.peer),
            x.hypernode or "",
            f"{x.confidence:.2g}",
            age(x.since_ns, now_ns),
            f"in {age(now_ns, x.clears_ns)}" if x.clears_ns else "",
        )
        rows.append(Row(objects.anomaly_name(d), cells, (",".join(x.sources), x.message), d))
    rows.sort(key=lambda r: tuple(map(natural_key, r.cells[:3])))
    headings = ("KIND", "SUBJECT", "PEER", "HYPERNODE", "CONFIDENCE", "AGE", "CLEARS")
    return Table("anomaly", headings, ("SOURCES", "MESSAGE"), tuple(rows))


TABLES: dict[str, Callable[[Topology, int], Table]] = {
    "hypernodes": hypernodes,
    "nodes": nodes,
    "links": links,
    "switches": switches,
    "anomalies": anomalies,
}


def select(kind: str, table: Table, names: Sequence[str]) -> tuple[Table, list[str]]:
    """The rows that match one of the names, and the names without a match.

    The names of a link are those of its devices, the names of an anomaly its kind, devices and HyperNode. A
    name may be a host list, or the start of names with `*` after it. Raises UsageError.
    """
    if not names:
        return table, []
    answering = [(row, _names_of(kind, row)) for row in table.rows]
    every = {name for _, own in answering for name in own}
    names = with_prefixes(names_in(names, every), every)
    wanted = set(names)
    rows = tuple(row for row, own in answering if not wanted.isdisjoint(own))
    known = {name for _, own in answering if not wanted.isdisjoint(own) for name in own}
    return replace(table, rows=rows), [name for name in names if name not in known]
