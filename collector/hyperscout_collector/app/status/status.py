"""Builds the answer that `hyperscout status` shows."""

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_runtime.units import NS
from hyperscout_topology.problems import all_problems
from hyperscout_topology.proto import timestamp

from hyperscout_collector.app.status.components import Components

_STEP_S = 60.0  # a smaller step of the machine's clock is no problem


def status(components: Components, *, omit_agents: bool = False) -> bytes:
    """An encoded GetStatusResponse, about 50 bytes per agent.

    It runs on the event loop, so it only joins figures that the components keep.
    """
    evidence, ingest = components.evidence, components.ingest
    pipeline, publishing = components.inference.pipeline, components.publishing
    held = pipeline.held
    now_ns = components.clock_ns()
    current = publishing.watchers.current
    found = pb.GetStatusResponse(
        version=components.version,
        started_at=timestamp(components.started_ns),
        generation=current.topology.generation,
        published_at=timestamp(pipeline.published_ns),
        leases=ingest.sweeps.leases(),
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
        findings=len(evidence.state),
        stale_findings=evidence.state.stale_count(now_ns - components.stale_after_ns),
        problems=problems(components),
        tree_gaps=current.tree_gaps,
        placements=len(publishing.placing.placements),
        placed_workers=publishing.placing.placements.ranks,
    )
    ingest.agents.refresh(now_ns)
    found.wrong.extend(
        all_problems(found, current.topology, ingest.agents.away, ingest.agents.blind, current.wrong)
    )
    encoded = found.SerializeToString()
    return encoded if omit_agents else encoded + ingest.agents.encoded()


def problems(components: Components) -> list[str]:
    """Problems of the collector itself, as `hyperscout status` lists them."""
    inference, publishing = components.inference, components.publishing
    found = list(components.load_problems)
    single = (
        components.evidence.writer,
        components.evidence.committer.queue,
        publishing.saver.queue,
        publishing.recorder,
        inference.blueprint,
        inference.measuring,
        components.no_hypernodes,
        components.others,
    )
    found += [one.problem for one in single if one is not None and one.problem is not None]
    reviews = components.callers.reviews.items()
    return [
        *found,
        *(_in_cluster(name, one.problem) for name, one in reviews if one.problem is not None),
        *components.evidence.committer.problems,
        *components.evidence.guard.problems,
        *inference.pipeline.problems,
        *publishing.placing.problems,
        *(publishing.gates.problems if publishing.gates is not None else ()),
        *publishing.runner.problems,
        *components.ingest.sweeps.problems,
        *_clock_problem(components.clock.step_ns() / NS),
    ]


def _in_cluster(name: str, problem: str) -> str:
    return f"cluster {name}: {problem}" if name else problem


def _clock_problem(step_s: float) -> list[str]:
    if abs(step_s) < _STEP_S:
        return []
    text = f"the clock of this machine was set by {step_s:+.0f} s since the collector started"
    return [f"{text}; the collector keeps its earlier time: restart it if the new time is right"]
