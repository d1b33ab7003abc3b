"""`hyperscout describe`: shows all details of objects."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from hyperscout_formats.text.host_list import fold, natural_key, quoted
from hyperscout_topology import objects
from hyperscout_topology.figures import measured_texts
from hyperscout_topology.names import visible
from hyperscout_topology.objects import domains_of

from hyperscout_cli.remote.live_names import names as live_names
from hyperscout_cli.remote.source import load
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.kinds import (
    FINDING_HEADINGS,
    FINDING_MORE,
    KINDS,
    TABLES,
    check_found,
    complete_kind,
    end_text,
    links,
    select,
)
from hyperscout_cli.shared.options import Endpoint, output_option, topology_options
from hyperscout_cli.shared.output import emit, emit_data
from hyperscout_cli.shared.tables import Row, Table, age, facts, lines
from hyperscout_cli.shared.times import at_option

if TYPE_CHECKING:
    from hyperscout_topology.topology import Anomaly, Topology

DESCRIBED = ("hypernodes", "nodes", "switches", "links", "anomalies")


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout describe hypernode leaf-03-1f2e
  hyperscout describe node gpu-01
  hyperscout describe nodes 'gpu-[01-04]' -o yaml
  hyperscout describe switch leaf-03 --topology saved.json
  hyperscout describe node gpu-01 --at 2h
  hyperscout describe anomaly MissingLink""",
)
@click.argument("kind", metavar="KIND", shell_complete=complete_kind)
@click.argument("names", metavar="NAME...", nargs=-1, shell_complete=live_names())
@at_option
@output_option("name")
@topology_options
def describe(
    *,
    kind: str,
    names: Sequence[str],
    at_ns: int | None,
    output: str,
    topology: str | None,
    collector: Endpoint,
) -> None:
    """Show a hypernode, node, switch, link or anomaly with its conditions, cables and anomalies.

    `-o json` and `-o yaml` always print a list: the objects of `get`, with `links`, `anomalies` and
    `findings` as lists.
    """
    found = KINDS.get(kind.lower(), "")
    if found not in DESCRIBED:
        raise click.UsageError(
            f"cannot describe {kind!r}: expected KIND NAME with one of the kinds {', '.join(DESCRIBED)}; "
            "`hyperscout get KIND` lists the names"
        )
    if not names:
        raise click.UsageError(f"expected a name after {kind!r}: `hyperscout get {found}` lists all")
    now_ns = time.time_ns()
    loaded = load(topology=topology, collector=collector, at_ns=at_ns)
    every = TABLES[found](loaded, now_ns)
    table, missing = select(found, every, names)
    seen: dict[str, list[Row]] | None = None
    if found == "nodes" and topology is None and at_ns is None and table.rows:
        seen = _findings([row.name for row in table.rows], collector, now_ns)
    if output == "name":
        emit(f"{table.kind}/{row.name}\n" for row in table.rows)
    elif output != "table":
        emit_data([_object(found, row, loaded, seen) for row in table.rows], output)
    else:
        for i, row in enumerate(table.rows):
            emit(["\n"] * bool(i))
            emit(_describe(found, row, table, loaded, now_ns))
            if seen is not None:
                emit(_devices(seen.get(row.name, [])))
                emit(_found(seen.get(row.name, [])))
    check_found(found, every, missing)


def _findings(nodes: list[str], collector: Endpoint, now_ns: int) -> dict[str, list[Row]]:
    from hyperscout_cli.show.findings import findings

    table, _ = findings(collector, [quoted(node) for node in nodes], now_ns)
    found: dict[str, list[Row]] = {}
    for row in table.rows:
        found.setdefault(row.cells[0], []).append(row)
    return found


def _devices(rows: list[Row]) -> Iterator[str]:
    """The devices that the kubelet reports, by resource and NUMA zone; nothing where it reports none."""
    resources = (row.data["finding"].get("deviceResource") for row in rows)
    total: Counter[tuple[str, str]] = Counter()
    used: Counter[tuple[str, str]] = Counter()
    for resource in filter(None, resources):
        for device in resource.get("devices", []):
            key = resource["name"], ",".join(map(str, device.get("numaNodes", []))) or "-"
            total[key] += 1
            used[key] += bool(device.get("inUse"))
    cells = [(*key, str(total[key] - used[key]), str(total[key])) for key in sorted(total)]
    table = Table(
        "device", ("RESOURCE", "NUMA", "FREE", "TOTAL"), (), tuple(Row(one[0], one) for one in cells)
    )
    if cells:
        yield from _section("Devices", list(lines(table)))


def _found(rows: list[Row]) -> Iterator[str]:
    table = Table("finding", FINDING_HEADINGS, FINDING_MORE, tuple(rows))
    yield from _section("Findings", list(lines(table, wide=True)) if rows else [])


def _object(kind: str, row: Row, topology: "Topology", seen: dict[str, list[Row]] | None) -> dict[str, Any]:
    """The object of `get` with its anomalies and findings, and with its links in place of their number."""
    if kind in {"links", "anomalies"}:
        return row.data
    own = {row.data["id"]} if kind == "switches" else {row.name}
    found = dict(row.data)
    if kind != "hypernodes":
        found["links"] = [x for x in objects.links(topology) if own & objects.names_of("links", x)]
    found["anomalies"] = [x for x in objects.anomalies(topology) if own & objects.names_of("anomalies", x)]
    if seen is not None:
        found["findings"] = [x.data for x in seen.get(row.name, [])]
    return found


def _describe(kind: str, row: Row, table: Table, topology: "Topology", now_ns: int) -> Iterator[str]:
    if kind == "hypernodes":
        yield from _hypernode(row, topology, now_ns)
    elif kind == "nodes":
        yield f"Name:     {visible(row.name)}\n"
        yield from _section(
            "HyperNodes",
            [f"tier {h.tier} {h.tier_name}  {h.name}\n" for h in domains_of(topology).get(row.name, ())],
        )
        yield from _cables([row.name], topology, now_ns)
        yield from _anomalies(x for x in topology.anomalies if row.name in _ends(x))
    elif kind == "switches":
        yield f"Name:     {visible(row.name)}\n"
        yield f"Id:       {visible(row.data['id'])}\n"
        yield f"Level:    {row.data['level'] or '?'}\n"
        yield from _section("HyperNodes", [f"{name}\n" for name in row.data["hypernodes"]])
        yield from _cables([row.data["id"]], topology, now_ns)
        yield from _anomalies(x for x in topology.anomalies if row.data["id"] in _ends(x))
    else:
        headings = (*table.headings, *table.more)
        for heading, cell in zip(headings, (*row.cells, *row.more), strict=True):
            yield f"{heading.capitalize() + ':':<12}{visible(cell) or '-'}\n"
        yield "\n"


def _hypernode(row: Row, topology: "Topology", now_ns: int) -> Iterator[str]:
    (h,) = (h for h in topology.hypernodes if h.name == row.name)
    names = {s.id: s.name or s.id for s in topology.switches}
    values = {
        "Name": h.name,
        "Tier": f"{h.tier} {h.tier_name}",
        "Parent": h.parent or "none: it is a root",
        "Nodes": f"{len(h.nodes)}: {fold(h.nodes)}",
        "Switches": ", ".join(sorted((names.get(s, s) for s in h.switches), key=natural_key)) or "none",
    }
    if h.children:
        values["Children"] = ", ".join(sorted(h.children, key=natural_key))
    if h.source != "wires":
        values["Source"] = f"{h.source}, confidence {h.confidence:.2g}"
    values |= {
        what.capitalize(): text for what, text in measured_texts(h, lambda ns: f"{age(ns, now_ns)} ago")
    }
    width = max(10, *(len(key) + 2 for key in values))
    yield from facts(values, width)
    rows = tuple(
        Row(c.type, (c.type, c.status, c.reason, age(c.since_ns, now_ns), c.message)) for c in h.conditions
    )
    table = Table("condition", ("TYPE", "STATUS", "REASON", "AGE", "MESSAGE"), (), rows)
    yield from _section("Conditions", list(lines(table)) if rows else [])
    yield from _anomalies(x for x in topology.anomalies if x.hypernode == h.name)


def _cables(devices: list[str], topology: "Topology", now_ns: int) -> Iterator[str]:
    mine, _ = select("links", links(topology, now_ns), devices)
    noted = any("note" in row.data for row in mine.rows)
    yield from _section("Links", list(lines(mine, wide=noted)) if mine.rows else [])


def _ends(anomaly: "Anomaly") -> set[str]:
    ends = [e for e in (anomaly.subject, anomaly.peer) if e is not None]
    return {text for e in ends for text in (e.device, e.name)}


def _anomalies(found: "Iterable[Anomaly]") -> Iterator[str]:
    texts = []
    for x in found:
        between = " -> ".join(filter(None, (end_text(x.subject), end_text(x.peer))))
        seen = f"confidence {x.confidence:.2g}, seen by {', '.join(x.sources) or 'no source'}"
        texts.append(f"{x.kind}  {between}: {x.message} ({seen})\n")
    yield from _section("Anomalies", texts)


def _section(title: str, texts: list[str]) -> Iterator[str]:
    if not texts:
        yield f"{title}: none\n"
        return
    yield f"{title}:\n"
    for text in texts:
        yield "  " + visible(text.removesuffix("\n")) + "\n"
