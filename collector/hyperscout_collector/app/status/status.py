"""Builds the answer that `hyperscout status` shows."""

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_topology.objects import all_wrong
from hyperscout_topology.proto import timestamp

from hyperscout_collector.app.status.parts import Parts


def status(parts: Parts, *, omit_agents: bool = False) -> bytes:
    """An encoded GetStatusResponse, about 50 bytes per agent.

    It runs on the event loop, so it only joins figures that other parts keep.
    """
    held = parts.pipeline.held
    now_ns = parts.clock_ns()
    current = parts.watchers.current
    found = pb.GetStatusResponse(
        version=parts.version,
        started_at=timestamp(parts.started_ns),
        generation=current.topology.generation,
        published_at=timestamp(parts.published_ns),
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
        stale_findings=parts.state.stale_count(now_ns - parts.stale_after_ns),
        problems=parts.problems,
        placements=len(parts.placing.placements),
        placed_workers=parts.placing.placements.ranks,
    )
    parts.agents.refresh(now_ns)
    found.wrong.extend(
        all_wrong(found, current.topology, parts.agents.away, parts.agents.blind, current.wrong)
    )
    encoded = found.SerializeToString()
    return encoded if omit_agents else encoded + parts.agents.encoded()
