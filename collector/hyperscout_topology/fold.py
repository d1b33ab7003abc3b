"""Applies the deltas of a watch stream to its snapshot. The inverse of `delta`."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from hyperscout.v1 import topology_pb2 as pb

from hyperscout_topology.proto import topology_from_proto
from hyperscout_topology.topology import Topology

_Key = TypeVar("_Key")
_Thing = TypeVar("_Thing")


def folded(snapshot: pb.Topology, deltas: Sequence[pb.TopologyDelta]) -> Topology:
    """The newest generation. Takes some seconds with a million links, so call it in a thread."""
    if not deltas:
        return topology_from_proto(snapshot)
    hypernodes = {h.name: h for h in snapshot.hypernodes}
    switches = {s.id: s for s in snapshot.switches}
    adapters = {(x.id, x.node, x.name): x for x in snapshot.adapters}
    links = {_key(x): x for x in snapshot.links}
    for delta in deltas:
        _take(hypernodes, delta.removed_hypernodes, ((h.name, h) for h in delta.hypernodes))
        _take(switches, delta.removed_switches, ((s.id, s) for s in delta.switches))
        gone = ((x.id, x.node, x.name) for x in delta.removed_adapters)
        _take(adapters, gone, (((x.id, x.node, x.name), x) for x in delta.added_adapters))
        _take(links, map(_key, delta.removed_links), ((_key(x), x) for x in delta.added_links))
    newest = deltas[-1]
    return topology_from_proto(
        pb.Topology(
            generation=newest.generation,
            hypernodes=sorted(hypernodes.values(), key=lambda h: (h.tier, h.name)),
            switches=[switches[ident] for ident in sorted(switches)],
            adapters=[adapters[key] for key in sorted(adapters)],
            links=[links[key] for key in sorted(links)],
            anomalies=newest.anomalies,
            nodes_without_evidence=newest.nodes_without_evidence,
            foreign_endpoints=newest.foreign_endpoints,
            tiers=newest.tiers,
        )
    )


def _key(x: pb.Link) -> tuple[str, str, str, str, str, tuple[str, ...]]:
    return x.a.device, x.a.port, x.b.device, x.b.port, x.fabric, tuple(x.sources)


def _take(things: dict[_Key, _Thing], removed: Iterable[_Key], added: Iterable[tuple[_Key, _Thing]]) -> None:
    for key in removed:
        things.pop(key, None)
    things.update(added)
