"""Compares the links and devices of two generations, and keeps those that a pending anomaly names."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from hyperscout_topology.diff import Diff
from hyperscout_topology.link_changes import extended, table_of
from hyperscout_topology.topology import Anomaly, HyperNode, Link, LinkTable, Topology


def same_details(a: Topology, b: Topology) -> bool:
    """Whether switches (also those of each HyperNode), adapters, foreign endpoints and links are the same.

    The order does not matter: a replica that followed a leader has links in another order than inference.
    """
    diff = Diff(a, b)
    return (
        not diff.switches
        and {h.name: h.switches for h in a.hypernodes} == {h.name: h.switches for h in b.hypernodes}
        and len(a.adapters) == len(b.adapters)
        and not diff.adapters
        and a.foreign_endpoints == b.foreign_endpoints
        and len(a.links) == len(b.links)
        and not diff.links
    )


def sharing(new: Topology, before: Topology) -> Topology:
    """`new` with the switches, adapters and links of `before`, where they are the same.

    Thus memory contains them once, and each later comparison of the two ends at their identity.
    """
    same_links = len(new.links) == len(before.links) and not Diff(before, new).links
    return replace(
        new,
        switches=before.switches if new.switches == before.switches else new.switches,
        adapters=before.adapters if new.adapters == before.adapters else new.adapters,
        links=before.links if same_links else new.links,
    )


def has_new_fabric(offered: Topology, published: Topology) -> bool:
    """Whether a fabric has links in `offered` and none in `published`, as after a start from HyperNodes."""
    return not _fabrics(table_of(offered.links)) <= _fabrics(table_of(published.links))


@lru_cache(maxsize=2)  # of what is offered and of what is published: tables are compared by identity
def _fabrics(table: LinkTable) -> frozenset[str]:
    return frozenset(table.fabrics[i] for i in np.flatnonzero(np.bincount(table.fabric)).tolist())


def with_waiting(
    offered: Topology, published: Topology, tree: Topology, waiting: Collection[Anomaly]
) -> Topology:
    """`offered` with the HyperNodes of `tree` (one of the two), each with its present switches.

    Switches, adapters and links of `published` stay while the anomaly of their loss is in `waiting`.
    Inference remembers only what is published. A link that is removed before its anomaly is published would
    be forgotten, and its anomaly too. A switch that a HyperNode names stays as well.
    """
    missing = {x.subject.device for x in waiting if x.kind == "MissingSwitch"}
    offered = replace(offered, hypernodes=_with_switches(tree.hypernodes, offered, published, missing))
    if offered.switches is not published.switches:
        named = missing.union(*(h.switches for h in offered.hypernodes))
        present = {s.id for s in offered.switches}
        if kept := [s for s in published.switches if s.id in named and s.id not in present]:
            offered = replace(offered, switches=tuple(sorted((*offered.switches, *kept), key=lambda s: s.id)))
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
