"""What `hyperscout status` shows of a running collector."""

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_formats.reporters import is_switch

from hyperscout_collector.api.mapping import timestamp
from hyperscout_collector.api.objects import what_is_wrong
from hyperscout_collector.evidence.state import KEPT_PROBES
from hyperscout_collector.parts import Parts

NS = 1_000_000_000


def status(parts: Parts) -> pb.GetStatusResponse:
    """Everything in one answer: some 50 bytes an agent."""
    held = parts.pipeline.held
    now_ns = parts.clock_ns()
    topology = parts.watchers.current.topology
    found = pb.GetStatusResponse(
        version=parts.version,
        started_at=timestamp(parts.started_ns),
        generation=topology.generation,
        published_at=timestamp(parts.published_ns),
        agents=_agents(parts),
        leases=parts.sweeps.leases(),
        held=None
        if held is None
        else pb.HeldGeneration(
            generation=held.generation,
            reason=held.reason,
            since=timestamp(held.since_ns),
            applies_at=timestamp(held.applies_at_ns),
            removes_hypernodes=held.removes_hypernodes,
            removes_nodes=held.removes_nodes,
        ),
        findings=len(parts.state),
        stale_findings=sum(
            row.seen_ns < now_ns - parts.stale_after_ns and row.key.probe not in KEPT_PROBES
            for row in parts.state.rows()
        ),
        problems=parts.problems,
        placements=len(parts.placing.placements),
        placed_workers=parts.placing.placements.ranks,
    )
    found.wrong.extend(what_is_wrong(found, topology))
    return found


def _agents(parts: Parts) -> list[pb.AgentStatus]:
    """Agents that are connected, and those that findings are held of."""
    found = []
    for node in sorted({*parts.state.nodes, *(stream.node for stream in parts.streams)}):
        rows = list(parts.state.rows_of(node))
        stream, known = parts.streams.get(node), parts.state.agents.get(node)
        newest = max(rows, key=lambda row: row.received_ns, default=None)
        device = None
        if parts.devices is not None and stream is None and (known is None or is_switch(node)):
            device = parts.devices.heard(node)  # of a node with an agent, the agent is what counts
        heard_ns = newest.received_ns if newest else 0
        offset_ns = newest.offset_ns if newest else 0
        version = known.version if known else ""
        if stream is not None:
            heard_ns, offset_ns, version = stream.last_heard_ns, stream.offset_ns, stream.hello.version
        elif device is not None:
            heard_ns, offset_ns, version = device.heard_ns, device.offset_ns, "mqtt"
        found.append(
            pb.AgentStatus(
                node=node,
                version=version,
                connected=stream is not None or device is not None,
                last_heard=timestamp(heard_ns),
                findings=len(rows),
                failed_findings=sum(row.outcome == Outcome.OUTCOME_FAILED for row in rows),
                clock_offset_s=offset_ns / NS,
            )
        )
    return found
