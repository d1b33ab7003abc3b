"""What changed from one generation to the next, and how a reader takes it in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout.v1 import topology_pb2 as pb

from hyperscout_collector.api.mapping import (
    adapters_to_proto,
    anomaly_to_proto,
    hypernode_to_proto,
    links_to_proto,
    switch_to_proto,
)
from hyperscout_collector.topology import Adapter, Link, LinkTable, Topology

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads neighbouring hashes (Knuth, TAOCP 6.4)


def delta(old: Topology, new: Topology, *, omit_links: bool = False) -> pb.TopologyDelta:
    """Everything in `new` that a reader who holds `old` lacks. Some 0.2 s with a million links."""
    hypernodes = {h.name: h for h in old.hypernodes}
    switches = {s.id: s for s in old.switches}
    names, ids = {h.name for h in new.hypernodes}, {s.id for s in new.switches}
    before: set[Adapter] = set()
    after: set[Adapter] = set()
    if not omit_links and old.adapters is not new.adapters:
        before, after = set(old.adapters), set(new.adapters)
    added, removed = ([], []) if omit_links else link_changes(old.links, new.links)
    return pb.TopologyDelta(
        generation=new.generation,
        hypernodes=[hypernode_to_proto(h) for h in new.hypernodes if hypernodes.get(h.name) != h],
        removed_hypernodes=[name for name in hypernodes if name not in names],
        anomalies=[anomaly_to_proto(a) for a in new.anomalies],
        switches=[switch_to_proto(s) for s in new.switches if switches.get(s.id) != s],
        removed_switches=[ident for ident in switches if ident not in ids],
        added_links=links_to_proto(added),
        removed_links=links_to_proto(removed),
        added_adapters=adapters_to_proto(sorted(after - before)),
        removed_adapters=adapters_to_proto(sorted(before - after)),
        nodes_without_evidence=new.nodes_without_evidence,
        foreign_endpoints=new.foreign_endpoints,
    )


def link_changes(old: Sequence[Link], new: Sequence[Link]) -> tuple[list[Link], list[Link]]:
    """Links added and removed. Rows are told apart by 64-bit hashes; only what differs becomes objects."""
    if old is new:
        return [], []
    before, after = _columns(old), _columns(new)
    gone = np.flatnonzero(~np.isin(before.hashes, after.hashes))
    come = np.flatnonzero(~np.isin(after.hashes, before.hashes))
    return [after.table[i] for i in come.tolist()], [before.table[i] for i in gone.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class _Hashed:
    table: LinkTable
    hashes: npt.NDArray[np.uint64]


def _columns(links: Sequence[Link]) -> _Hashed:
    table = links if isinstance(links, LinkTable) else LinkTable.of(links)
    hashes = np.zeros(len(table), np.uint64)
    for values, column in (
        (table.devices, table.a),
        (table.ports, table.a_port),
        (table.devices, table.b),
        (table.ports, table.b_port),
        (table.fabrics, table.fabric),
        (table.source_sets, table.sources),
    ):
        of_value = np.fromiter((hash(value) & 0xFFFFFFFFFFFFFFFF for value in values), np.uint64, len(values))
        if len(column):
            hashes = (hashes ^ of_value[column]) * _MIX
            hashes ^= hashes >> np.uint64(29)
    return _Hashed(table, hashes)
