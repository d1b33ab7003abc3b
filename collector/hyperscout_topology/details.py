"""Compares the links and devices of two generations, and keeps those that a pending anomaly names."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from hyperscout_topology.link_changes import link_changes, table_of
from hyperscout_topology.topology import Adapter, Anomaly, HyperNode, Link, LinkTable, Topology

V = TypeVar("V", bound=Hashable)


def same_details(a: Topology, b: Topology) -> bool:
    """Whether switches (also those of each HyperNode), adapters, foreign endpoints and links are the same."""
    return (
        a.switches == b.switches
        and {h.name: h.switches for h in a.hypernodes} == {h.name: h.switches for h in b.hypernodes}
        and _same_adapters(a.adapters, b.adapters)
        and a.foreign_endpoints == b.foreign_endpoints
        and _same_links(table_of(a.links), table_of(b.links))
    )


def _same_adapters(a: Sequence[Adapter], b: Sequence[Adapter]) -> bool:
    return a is b or (len(a) == len(b) and (tuple(a) == tuple(b) or set(a) == set(b)))


def _same_links(a: LinkTable, b: LinkTable) -> bool:
    """Compare in any order: a replica that followed a leader has links in another order than inference."""
    if a is b:
        return True
    if len(a) != len(b):
        return False
    return _same_rows(a, b) or link_changes(a, b) == ([], [])


def _same_rows(a: LinkTable, b: LinkTable) -> bool:
    """Compare row by row. The value tables may be in another order (one was read from a file)."""
    return (
        _same_column(a.devices, a.a, b.devices, b.a)
        and _same_column(a.devices, a.b, b.devices, b.b)
        and _same_column(a.ports, a.a_port, b.ports, b.a_port)
        and _same_column(a.ports, a.b_port, b.ports, b.b_port)
        and _same_column(a.fabrics, a.fabric, b.fabrics, b.fabric)
        and _same_column(a.source_sets, a.sources, b.source_sets, b.sources)
        and a.notes == b.notes
    )


def _same_column(
    values_a: Sequence[object],
    column_a: npt.NDArray[np.int32],
    values_b: Sequence[object],
    column_b: npt.NDArray[np.int32],
) -> bool:
    if values_a is values_b or (len(values_a) == len(values_b) and list(values_a) == list(values_b)):
        return bool(np.array_equal(column_a, column_b))
    position = {value: i for i, value in enumerate(values_a)}
    renumber = np.fromiter((position.get(value, -1) for value in values_b), np.int32, len(values_b))
    return bool(np.array_equal(column_a, renumber[column_b]))


def with_waiting(
    offered: Topology, published: Topology, tree: Topology, waiting: Collection[Anomaly]
) -> Topology:
    """`offered` with the HyperNodes of `tree` (one of the two), each with its present switches.

    Switches, adapters and links of `published` stay while the anomaly of their loss is in `waiting`.
    Inference remembers only what is published. A link that is removed before its anomaly is published would
    be forgotten, and its anomaly too. A switch that a HyperNode names stays as well.
    """
    missing = {x.subject.device for x in waiting if x.kind == "MissingSwitch"}
    hypernodes = _with_switches(tree.hypernodes, offered, published, missing)
    named = missing.union(*(h.switches for h in hypernodes))
    present = {s.id for s in offered.switches}
    kept = [s for s in published.switches if s.id in named and s.id not in present]
    switches = tuple(sorted((*offered.switches, *kept), key=lambda s: s.id)) if kept else offered.switches
    offered = replace(offered, hypernodes=hypernodes, switches=switches)
    former = _rows_of(table_of(published.links), waiting)
    if not former:
        return offered
    table = table_of(offered.links)
    present_links = {_cable(x) for x in _rows_of(table, waiting)}
    links = [x for x in former if _cable(x) not in present_links]
    devices = {end for x in links for end in (x.a_device, x.b_device)}
    devices -= {x.id for x in offered.adapters}
    adapters = [x for x in published.adapters if x.id in devices]
    return replace(offered, links=extended(table, links), adapters=(*offered.adapters, *adapters))


def _with_switches(
    hypernodes: Sequence[HyperNode], offered: Topology, published: Topology, missing: Collection[str]
) -> tuple[HyperNode, ...]:
    now = {h.name: h.switches for h in offered.hypernodes}
    before = {h.name: h.switches for h in published.hypernodes} if missing else {}
    result = []
    for h in hypernodes:
        switches = now.get(h.name, h.switches)
        kept = [s for s in before.get(h.name, ()) if s in missing and s not in switches]
        switches = tuple(sorted((*switches, *kept))) if kept else switches
        result.append(h if switches == h.switches else replace(h, switches=switches))
    return tuple(result)


def _cable(link: Link) -> tuple[str, str, str, str]:
    return (link.a_device, link.a_port, link.b_device, link.b_port)


def _rows_of(table: LinkTable, anomalies: Collection[Anomaly]) -> list[Link]:
    """The links that a missing link or a missing switch among the anomalies is about."""
    gone = {x.subject.device for x in anomalies if x.kind == "MissingSwitch"}
    cut = {
        frozenset((x.subject.device, x.peer.device))
        for x in anomalies
        if x.kind == "MissingLink" and x.peer is not None
    }
    devices = gone.union(*cut)
    if not devices:
        return []
    chosen = np.fromiter((d in devices for d in table.devices), np.bool_, len(table.devices))
    rows: list[Link] = [table[i] for i in np.flatnonzero(chosen[table.a] | chosen[table.b]).tolist()]
    return [
        x
        for x in rows
        if x.a_device in gone or x.b_device in gone or frozenset((x.a_device, x.b_device)) in cut
    ]


def extended(table: LinkTable, links: Sequence[Link]) -> LinkTable:
    """The table with these links appended."""
    if not links:
        return table
    more = LinkTable.of(links)

    def joined(
        values: Sequence[V],
        more_values: Sequence[V],
        *columns: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]],
    ) -> tuple[list[V], list[npt.NDArray[np.int32]]]:
        position = {value: i for i, value in enumerate(values)}
        renumber = np.array([position.setdefault(v, len(position)) for v in more_values], np.int32)
        return list(position), [np.concatenate([old, renumber[new]]) for old, new in columns]

    devices, (a, b) = joined(table.devices, more.devices, (table.a, more.a), (table.b, more.b))
    ports, (a_port, b_port) = joined(
        table.ports, more.ports, (table.a_port, more.a_port), (table.b_port, more.b_port)
    )
    fabrics, (fabric,) = joined(table.fabrics, more.fabrics, (table.fabric, more.fabric))
    source_sets, (sources,) = joined(table.source_sets, more.source_sets, (table.sources, more.sources))
    return replace(
        table,
        devices=devices,
        ports=ports,
        fabrics=fabrics,
        source_sets=source_sets,
        a=a,
        a_port=a_port,
        b=b,
        b_port=b_port,
        fabric=fabric,
        sources=sources,
        notes={**table.notes, **{len(table) + row: note for row, note in more.notes.items()}},
    )
