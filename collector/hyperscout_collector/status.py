"""What `hyperscout status` and a scrape of /metrics show of a running collector."""

from collections import Counter

from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.finding_pb2 import Outcome
from hyperscout_formats.reporters import is_node, is_switch

from hyperscout_collector.api.mapping import timestamp
from hyperscout_collector.evidence.state import KEPT_PROBES
from hyperscout_collector.measuring import STATES as MEASURING_STATES
from hyperscout_collector.metrics import Figures
from hyperscout_collector.parts import Parts

NS = 1_000_000_000


def status(parts: Parts) -> pb.GetStatusResponse:
    """Everything in one answer: some 50 bytes an agent."""
    held = parts.pipeline.held
    now_ns = parts.clock_ns()
    return pb.GetStatusResponse(
        version=parts.version,
        started_at=timestamp(parts.started_ns),
        generation=parts.watchers.current.topology.generation,
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


def _agents(parts: Parts) -> list[pb.AgentStatus]:
    """Agents that are connected, and those that findings are held of."""
    found = []
    for node in sorted({*parts.state.nodes, *(stream.node for stream in parts.streams)}):
        rows = list(parts.state.rows_of(node))
        stream, known = parts.streams.get(node), parts.state.agents.get(node)
        newest = max(rows, key=lambda row: row.received_ns, default=None)
        heard_ns = stream.last_heard_ns if stream else newest.received_ns if newest else 0
        offset_ns = stream.offset_ns if stream else newest.offset_ns if newest else 0
        found.append(
            pb.AgentStatus(
                node=node,
                version=stream.hello.version if stream else known.version if known else "",
                connected=stream is not None,
                last_heard=timestamp(heard_ns),
                findings=len(rows),
                failed_findings=sum(row.outcome == Outcome.OUTCOME_FAILED for row in rows),
                clock_offset_s=offset_ns / NS,
            )
        )
    return found


def figures(parts: Parts) -> Figures:
    """Everything that a scrape shows but the histogram."""
    counters, held, leases = parts.streams.counters, parts.pipeline.held, parts.sweeps.leases()
    measuring, placements = parts.measuring.report(), parts.placing.placements
    stale = parts.view.unseen_since(parts.clock_ns() - parts.stale_after_ns)
    return Figures(
        streams=len(parts.streams),
        streams_total=counters.streams,
        streams_ended_total=counters.rejected_streams,
        findings_total=counters.findings,
        refused_total=counters.refused,
        refusals_total=dict(counters.refusals),
        batches_total=counters.batches,
        ingest_bytes_total=counters.bytes,
        bulk_texts_total=counters.bulk_texts,
        waiting_bytes=parts.committer.waiting_bytes,
        write_failures_total=parts.committer.failures,
        evidence=dict(Counter(parts.state.outcomes())),
        nodes=sum(map(is_node, parts.state.nodes)),
        stale_nodes=sum(map(is_node, stale)),
        switches=sum(map(is_switch, parts.state.nodes)),
        stale_switches=sum(map(is_switch, stale)),
        topology=parts.watchers.current.topology,
        held_removes=len(held.removes_hypernodes) + len(held.removes_nodes) if held else 0,
        held=held is not None,
        leases=len(leases),
        partial_leases=sum(lease.partial for lease in leases),
        publish_errors_total={s.publisher.name: s.errors for s in parts.runner.states},
        published_generation={s.publisher.name: s.generation for s in parts.runner.states},
        watchers=len(parts.watchers),
        resnapshots_total=parts.watchers.resnapshots,
        ports_erroring=parts.links.erroring(),
        ports_counting=parts.links.watched,
        measuring={word: int(measuring.state == word) for word in MEASURING_STATES},
        probes_total=measuring.probes,
        pair_tasks=measuring.in_flight,
        pair_tasks_failed_total=measuring.failed,
        pairs=measuring.pairs,
        pairs_disagreeing=measuring.disagreeing,
        placements=dict(Counter(held.holder for held in placements)),
        placed_workers=placements.ranks,
        placement_decisions_total=dict(placements.decisions),
        placement_watchers=len(parts.placing.watchers),
    )
