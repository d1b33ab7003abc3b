"""Converts `Topology` to proto and back, without loss except for `devices`.

0 and "" mean "unset" where the proto defines it.
"""

from collections.abc import Iterable

from google.protobuf.timestamp_pb2 import Timestamp
from hyperscout.v1 import topology_pb2 as pb

from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Condition,
    Endpoint,
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
        hypernodes=[hypernode_to_proto(h) for h in topology.hypernodes],
        switches=[switch_to_proto(s) for s in topology.switches],
        adapters=() if omit_links else adapters_to_proto(topology.adapters),
        links=() if omit_links else links_to_proto(topology.links),
        anomalies=[anomaly_to_proto(a) for a in topology.anomalies],
        nodes_without_evidence=topology.nodes_without_evidence,
        foreign_endpoints=topology.foreign_endpoints,
        tiers=tiers_to_proto(topology.tiers),
    )


def topology_from_proto(message: pb.Topology) -> Topology:
    """The topology in a message; the inverse of `topology_to_proto`."""
    return Topology(
        message.generation,
        tuple(map(_hypernode, message.hypernodes)),
        tuple(Switch(s.id, s.name, s.level) for s in message.switches),
        tuple(Adapter(x.id, x.node, x.name) for x in message.adapters),
        LinkTable.of([link_from_proto(x) for x in message.links]),
        tuple(map(_anomaly, message.anomalies)),
        tuple(message.nodes_without_evidence),
        tuple(message.foreign_endpoints),
        tuple(Tier(t.tier, t.tier_name, *_numbers(t)) for t in message.tiers),
    )


def brought_by(step: pb.TopologyDelta) -> Topology:
    """The new and changed parts of a delta. Removals are only in the delta itself."""
    return topology_from_proto(
        pb.Topology(
            generation=step.generation,
            hypernodes=step.hypernodes,
            switches=step.switches,
            links=step.added_links,
            adapters=step.added_adapters,
            anomalies=step.anomalies,
            nodes_without_evidence=step.nodes_without_evidence,
            foreign_endpoints=step.foreign_endpoints,
            tiers=step.tiers,
        )
    )


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
    )


def end_to_proto(end: Endpoint) -> pb.Endpoint:
    return pb.Endpoint(device=end.device, name=end.name, port=end.port)


def _end(message: pb.Endpoint) -> Endpoint:
    return Endpoint(message.device, message.name, message.port if message.HasField("port") else None)


def link_from_proto(x: pb.Link) -> Link:
    return Link(x.a.device, x.a.port, x.b.device, x.b.port, x.fabric, tuple(x.sources), x.note)


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
