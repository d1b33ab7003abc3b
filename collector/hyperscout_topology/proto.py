"""Converts `Topology` and `Diff` to proto, and applies deltas. Nothing is lost except `Topology.devices`.

0 and "" mean "unset" where the proto defines it.
"""

from collections.abc import Iterable, Sequence

from google.protobuf.timestamp_pb2 import Timestamp
from hyperscout.v1 import topology_pb2 as pb

from hyperscout_topology.diff import Changes, Diff
from hyperscout_topology.events import Event
from hyperscout_topology.link_changes import replaced
from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Condition,
    Endpoint,
    Figure,
    HyperNode,
    Link,
    LinkTable,
    Measured,
    Switch,
    Tier,
    Topology,
)


def topology_to_proto(topology: Topology, *, omit_links: bool = False) -> pb.Topology:
    """The whole topology. Without links and adapters it is a tenth of the size."""
    return pb.Topology(
        generation=topology.generation,
        hypernodes=map(hypernode_to_proto, topology.hypernodes),
        switches=map(switch_to_proto, topology.switches),
        adapters=() if omit_links else adapters_to_proto(topology.adapters),
        links=() if omit_links else links_to_proto(topology.links),
        anomalies=map(anomaly_to_proto, topology.anomalies),
        nodes_without_evidence=topology.nodes_without_evidence,
        foreign_endpoints=topology.foreign_endpoints,
        tiers=tiers_to_proto(topology.tiers),
    )


def topology_from_proto(message: pb.Topology) -> Topology:
    """The topology in a message; the inverse of `topology_to_proto`."""
    return Topology(
        message.generation,
        tuple(map(_hypernode, message.hypernodes)),
        tuple(map(_switch, message.switches)),
        tuple(map(_adapter, message.adapters)),
        LinkTable.of(list(map(_link, message.links))),
        tuple(map(_anomaly, message.anomalies)),
        tuple(message.nodes_without_evidence),
        tuple(message.foreign_endpoints),
        tuple(map(_tier, message.tiers)),
    )


def delta_to_proto(diff: Diff, *, omit_links: bool = False) -> pb.TopologyDelta:
    """The changes that a reader of the old topology needs to get the new one."""
    new = diff.new
    links: Changes[Link] = Changes() if omit_links else diff.links
    adapters: Changes[Adapter] = Changes() if omit_links else diff.adapters
    return pb.TopologyDelta(
        generation=new.generation,
        hypernodes=map(hypernode_to_proto, sorted(diff.hypernodes.put, key=_by_tier)),
        removed_hypernodes=[h.name for h in diff.hypernodes.removed],
        anomalies=map(anomaly_to_proto, new.anomalies),
        switches=map(switch_to_proto, sorted(diff.switches.put, key=_by_id)),
        removed_switches=[s.id for s in diff.switches.removed],
        added_links=links_to_proto(links.added),
        removed_links=links_to_proto(links.removed),
        added_adapters=adapters_to_proto(adapters.added),
        removed_adapters=adapters_to_proto(adapters.removed),
        nodes_without_evidence=new.nodes_without_evidence,
        foreign_endpoints=new.foreign_endpoints,
        tiers=tiers_to_proto(new.tiers),
    )


def apply(old: Topology, deltas: Sequence[pb.TopologyDelta]) -> Topology:
    """The topology after all deltas. Takes some seconds if many links change: call it in a thread."""
    if not deltas:
        return old
    hypernodes: dict[str, HyperNode | pb.HyperNode] = {h.name: h for h in old.hypernodes}
    switches = {s.id: s for s in old.switches}
    removed_links, added_links = set[Link](), dict[Link, None]()
    removed_adapters, added_adapters = set[Adapter](), dict[Adapter, None]()
    for delta in deltas:
        for name in delta.removed_hypernodes:
            hypernodes.pop(name, None)
        hypernodes.update((h.name, h) for h in delta.hypernodes)
        for ident in delta.removed_switches:
            switches.pop(ident, None)
        switches.update((s.id, _switch(s)) for s in delta.switches)
        for link in map(_link, delta.removed_links):
            added_links.pop(link, None)
            removed_links.add(link)
        added_links.update(dict.fromkeys(map(_link, delta.added_links)))
        for adapter in map(_adapter, delta.removed_adapters):
            added_adapters.pop(adapter, None)
            removed_adapters.add(adapter)
        added_adapters.update(dict.fromkeys(map(_adapter, delta.added_adapters)))
    adapters = old.adapters
    if removed_adapters or added_adapters:
        adapters = tuple(sorted((*(x for x in adapters if x not in removed_adapters), *added_adapters)))
    newest = deltas[-1]
    return Topology(
        newest.generation,
        tuple(
            sorted(
                (h if isinstance(h, HyperNode) else _hypernode(h) for h in hypernodes.values()), key=_by_tier
            )
        ),
        tuple(sorted(switches.values(), key=_by_id)),
        adapters,
        replaced(old.links, removed_links, list(added_links)),
        tuple(map(_anomaly, newest.anomalies)),
        tuple(newest.nodes_without_evidence),
        tuple(newest.foreign_endpoints),
        tuple(map(_tier, newest.tiers)),
    )


def after_event(old: Topology, event: pb.WatchTopologyResponse) -> Topology:
    """The topology after an event of a watch stream. `old`: the one before; a snapshot replaces it."""
    if event.HasField("snapshot"):
        return topology_from_proto(event.snapshot)
    return apply(old, [event.delta])


def _by_tier(h: HyperNode) -> tuple[int, str]:
    return h.tier, h.name


def _by_id(s: Switch) -> str:
    return s.id


def timestamp(ns: int) -> Timestamp | None:
    """Unix ns as a Timestamp; None (unset) for 0."""
    if not ns:
        return None
    stamp = Timestamp()
    stamp.FromNanoseconds(ns)
    return stamp


def hypernode_to_proto(h: HyperNode) -> pb.HyperNode:
    return pb.HyperNode(
        name=h.name,
        tier=h.tier,
        tier_name=h.tier_name,
        parent=h.parent,
        children=h.children,
        nodes=h.nodes,
        switches=h.switches,
        conditions=[
            pb.Condition(
                type=c.type,
                status=c.status,
                reason=c.reason,
                message=c.message,
                last_transition_time=timestamp(c.since_ns),
                nodes=c.nodes,
                switches=c.switches,
                details=c.details,
            )
            for c in h.conditions
        ],
        source=h.source,
        confidence=h.confidence,
        latency_us=_measured_to_proto(h.latency_us),
        bandwidth_gbps=_measured_to_proto(h.bandwidth_gbps),
    )


def tiers_to_proto(tiers: Iterable[Tier]) -> list[pb.Tier]:
    return [
        pb.Tier(
            tier=t.tier,
            tier_name=t.tier_name,
            latency_us=_measured_to_proto(t.latency_us),
            bandwidth_gbps=_measured_to_proto(t.bandwidth_gbps),
        )
        for t in tiers
    ]


def _measured_to_proto(m: Measured | None) -> pb.Measured | None:
    if m is None:
        return None
    return pb.Measured(median=m.median, p99=m.p99, samples=m.samples, measured_at=timestamp(m.at_ns))


def switch_to_proto(s: Switch) -> pb.Switch:
    return pb.Switch(id=s.id, name=s.name, level=s.level)


def adapters_to_proto(adapters: Iterable[Adapter]) -> list[pb.Adapter]:
    return [pb.Adapter(id=x.id, node=x.node, name=x.name) for x in adapters]


def links_to_proto(links: Iterable[Link]) -> list[pb.Link]:
    end, link = pb.LinkEnd, pb.Link
    return [
        link(
            a=end(device=x.a_device, port=x.a_port),
            b=end(device=x.b_device, port=x.b_port),
            fabric=x.fabric,
            sources=x.sources,
            note=x.note,
            speed_gbps=x.speed_gbps,
            width=x.width,
        )
        for x in links
    ]


def anomaly_to_proto(a: Anomaly) -> pb.Anomaly:
    return pb.Anomaly(
        kind=a.kind,
        subject=end_to_proto(a.subject),
        peer=end_to_proto(a.peer) if a.peer else None,
        tier=a.tier or 0,
        sources=a.sources,
        confidence=a.confidence,
        message=a.message,
        since=timestamp(a.since_ns),
        hypernode=a.hypernode,
        nodes=a.nodes,
        figures=[pb.Figure(name=x.name, value=x.value) for x in a.figures],
        flaps=a.flaps,
        changed_at=timestamp(a.changed_ns),
        clears_at=timestamp(a.clears_ns),
    )


def event_to_proto(event: Event) -> pb.HistoryEvent:
    """Returns the message without id, time, generation and cause. These belong to the generation."""
    return pb.HistoryEvent(
        kind=event.kind,
        hypernode=event.hypernode,
        node=event.node,
        subject=end_to_proto(event.subject) if event.subject else None,
        peer=end_to_proto(event.peer) if event.peer else None,
        what=event.what,
        before=event.before,
        after=event.after,
        reason=event.reason,
        message=event.message,
    )


def end_to_proto(end: Endpoint) -> pb.Endpoint:
    return pb.Endpoint(device=end.device, name=end.name, port=end.port, adapter=end.adapter)


def _end(message: pb.Endpoint) -> Endpoint:
    port = message.port if message.HasField("port") else None
    return Endpoint(message.device, message.name, port, message.adapter)


def _switch(s: pb.Switch) -> Switch:
    return Switch(s.id, s.name, s.level)


def _adapter(x: pb.Adapter) -> Adapter:
    return Adapter(x.id, x.node, x.name)


def _tier(t: pb.Tier) -> Tier:
    return Tier(t.tier, t.tier_name, *_numbers(t))


def _link(x: pb.Link) -> Link:
    ends = x.a.device, x.a.port, x.b.device, x.b.port
    return Link(*ends, x.fabric, tuple(x.sources), x.note, x.speed_gbps, x.width)


def _anomaly(a: pb.Anomaly) -> Anomaly:
    return Anomaly(
        a.kind,
        _end(a.subject),
        _end(a.peer) if a.HasField("peer") else None,
        a.tier or None,
        tuple(a.sources),
        a.confidence,
        a.message,
        a.hypernode if a.HasField("hypernode") else None,
        a.since.ToNanoseconds() if a.HasField("since") else 0,
        tuple(a.nodes),
        tuple(Figure(x.name, x.value) for x in a.figures),
        a.flaps,
        a.changed_at.ToNanoseconds() if a.HasField("changed_at") else 0,
        a.clears_at.ToNanoseconds() if a.HasField("clears_at") else 0,
    )


def _hypernode(h: pb.HyperNode) -> HyperNode:
    return HyperNode(
        h.name,
        h.tier,
        h.tier_name,
        h.parent if h.HasField("parent") else None,
        tuple(h.children),
        tuple(h.nodes),
        tuple(h.switches),
        tuple(
            Condition(
                c.type,
                c.status,
                c.reason,
                c.message,
                c.last_transition_time.ToNanoseconds() if c.HasField("last_transition_time") else 0,
                tuple(c.nodes),
                tuple(c.switches),
                tuple(c.details),
            )
            for c in h.conditions
        ),
        h.source or "wires",
        h.confidence if h.source else 1.0,
        *_numbers(h),
    )


def _numbers(of: pb.HyperNode | pb.Tier) -> tuple[Measured | None, Measured | None]:
    return (
        _measured(of.latency_us) if of.HasField("latency_us") else None,
        _measured(of.bandwidth_gbps) if of.HasField("bandwidth_gbps") else None,
    )


def _measured(m: pb.Measured) -> Measured:
    at_ns = m.measured_at.ToNanoseconds() if m.HasField("measured_at") else 0
    return Measured(m.median, m.p99, m.samples, at_ns)
