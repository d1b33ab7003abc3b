"""Computes what changed from one generation to the next."""

from hyperscout.v1 import topology_pb2 as pb

from hyperscout_topology.link_changes import link_changes
from hyperscout_topology.proto import (
    adapters_to_proto,
    anomaly_to_proto,
    hypernode_to_proto,
    links_to_proto,
    switch_to_proto,
    tiers_to_proto,
)
from hyperscout_topology.topology import Adapter, Topology


def delta(old: Topology, new: Topology, *, omit_links: bool = False) -> pb.TopologyDelta:
    """The changes that a reader of `old` needs to get `new`. Takes about 0.2 s with a million links."""
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
        tiers=tiers_to_proto(new.tiers),
    )
