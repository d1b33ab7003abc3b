"""Builds inference, and what adds to its inputs: measurements, the health of links, the blueprint."""

import secrets
from collections.abc import Callable
from functools import partial
from random import Random

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.build.ingest import Storage
from hyperscout_collector.app.inference.blueprint_file import BlueprintFile
from hyperscout_collector.app.inference.cluster import Cluster
from hyperscout_collector.app.inference.inference import Inference, InferenceSettings
from hyperscout_collector.app.ingest.link_monitor import LinkMonitor
from hyperscout_collector.app.ingest.port_owners import PortOwners
from hyperscout_collector.app.ingest.sweeps import Sweeps
from hyperscout_collector.app.measuring.measuring import Measuring, MeasuringTools
from hyperscout_collector.app.measuring.nccl import NcclRuns
from hyperscout_collector.app.measuring.nccl_schedule import NcclSchedule
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.app.settings.configured import inference_inputs
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.app.status.components import Evidence, Inferring
from hyperscout_collector.decisions.fabric.link_health import HealthSettings
from hyperscout_collector.decisions.measuring.nccl_windows import parse_windows
from hyperscout_collector.decisions.measuring.pair_limits import PairSettings
from hyperscout_collector.decisions.publication.damping import DampingSettings
from hyperscout_collector.decisions.publication.generations import Generations, GenerationSettings
from hyperscout_collector.decisions.publication.takeover import Takeover
from hyperscout_collector.history.causes import BLUEPRINT, FINDINGS, RESTART, TAKEOVER, CauseLog
from hyperscout_collector.ingest.streams import Streams

_DEBOUNCE_S = 0.05  # changes within this time are inferred together
_FIRST_SETTLE_S = 2.0  # agents and sweeps arrive soon after a start
_QUIET_HOLD_DOWNS = 6  # a link that was unchanged for so many hold-downs does not flap


async def build_inference(
    context: Context,
    storage: Storage,
    streams: Streams,
    evidence: Evidence,
    cluster: Cluster,
    sweeps: Sweeps,
    *,
    topology: Callable[[], Topology],
    inferred: Callable[[float], None],
) -> Inferring:
    """Build inference, and what adds to its inputs. Raises StartError.

    `topology()`: the published topology. `inferred` receives the duration of each inference in seconds.
    """
    settings, signals, clock_ns = context.settings, context.signals, context.clock_ns
    options, node_map = inference_inputs(settings)
    measuring = _build_measuring(context, streams, evidence, topology)
    links = LinkMonitor(
        HealthSettings(
            errors_per_s=settings.link_errors_per_s,
            discards_per_s=settings.link_discards_per_s,
            flaps_per_hour=settings.link_flaps_per_hour,
        ),
        evidence.texts,
        evidence.guard,
        PortOwners(topology),
        clock_ns,
        partial(signals.inputs_changed, FINDINGS),
        storage.published,
    )
    blueprint = None
    if settings.blueprint is not None:
        blueprint = BlueprintFile(settings.blueprint, partial(signals.inputs_changed, BLUEPRINT))
        await BoundedExecutor("blueprint")(blueprint.read)
    inference = Inference(
        InferenceSettings(options, node_map, settings.cloud_labels, settings.nvlink_labels),
        evidence.texts,
        Generations(
            generation_settings(settings),
            storage.published,
            clock_ns(),
            context.event_log("generations"),
            highest=storage.highest,
        ),
        timer=context.timer,
        takeover=takeover_of(context, storage),
        measured_enough=measuring.has_measured_enough,
        add_health=links.added_to,
        add_drift=blueprint.drifted if blueprint is not None else lambda topology: topology,
        alone=lambda: sweeps.alone,
    )
    pipeline = Pipeline(
        inference,
        evidence.view,
        cluster,
        publish=signals.published,
        superseded=evidence.cleanup.remove_rows,
        held=sweeps.held,
        inferred=inferred,
        clock_ns=clock_ns,
        debounce_s=_DEBOUNCE_S,
        refresh_s=settings.refresh_s,
        causes=_causes(settings, storage, clock_ns()),
    )
    nccl = NcclRuns(
        streams,
        why_not_free=cluster.why_not_reserved,
        why_paused=measuring.why_paused,
        clock_ns=clock_ns,
        new_id=lambda: secrets.randbits(64),
    )
    schedule = NcclSchedule(
        parse_windows(settings.nccl_window), nccl, streams, evidence.state, topology, clock=context.clock
    )
    signals.connected.subscribe(measuring.connected)
    signals.disconnected.subscribe(measuring.disconnected)
    signals.disconnected.subscribe(nccl.disconnected)
    for component, follow in (
        ("the evidence for inference", pipeline.follow),
        ("the health of ports", links.follow),
        ("the measuring of latency", measuring.follow),
        ("the NCCL runs", nccl.follow),
    ):
        signals.committed.subscribe(evidence.guard.guarded(component, follow))
    signals.full_state.subscribe(evidence.guard.guarded_reporter("the takeover", pipeline.full_state))
    signals.inputs_changed.subscribe(pipeline.infer_again)
    signals.cluster_changed.subscribe(pipeline.cluster_changed)
    return Inferring(pipeline, links, blueprint, measuring, nccl, schedule)


def _build_measuring(
    context: Context, streams: Streams, evidence: Evidence, topology: Callable[[], Topology]
) -> Measuring:
    settings = context.settings
    return Measuring(
        PairSettings(
            probes_per_s=settings.measure_probes_per_s,
            node_kbps=settings.measure_node_kbps,
            reverify_s=settings.measure_reverify_s,
        ),
        streams,
        evidence.state,
        evidence.view,
        topology,
        MeasuringTools(
            context.clock_ns,
            context.timer,
            secrets.token_bytes,
            Random(),  # noqa: S311 - spreads the choice of pairs; keys come from `secrets`
        ),
        enabled=settings.measure,
        learned=partial(context.signals.inputs_changed, FINDINGS),
    )


def generation_settings(settings: CollectorSettings) -> GenerationSettings:
    """When changes are published, by the collector's settings."""
    return GenerationSettings(
        DampingSettings(quiet_s=_QUIET_HOLD_DOWNS * settings.hold_down_s, hold_down_s=settings.hold_down_s),
        first_settle_s=min(settings.settle_s, _FIRST_SETTLE_S),
        settle_s=settings.settle_s,
        removal_share=settings.removal_share,
        hold_s=settings.hold_s,
    )


def takeover_of(context: Context, storage: Storage) -> Takeover | None:
    """The takeover to complete before the first inference; None = there is none.

    With leader election each start on a published tree is a takeover: even a replica that led before has
    missed evidence in between, unless all replicas store it in PostgreSQL. So is a start from a snapshot
    (`hyperscout snapshot load`), and one after a takeover that did not end: the stored evidence is not that
    of the tree.
    """
    settings, published = context.settings, storage.published
    own_evidence = settings.leader_election and not settings.store
    if not (own_evidence or storage.is_takeover or storage.loaded.lacks_evidence):
        return None
    if published is None or not published.hypernodes:
        return None
    log = context.event_log("takeover")
    return Takeover(
        published,
        settings.takeover_limit_s,
        context.clock_ns(),
        log,
        agents={agent.node: agent.last_heard.ToNanoseconds() for agent in storage.agents},
        stale_after_s=settings.stale_after_s,
    )


def _causes(settings: CollectorSettings, storage: Storage, now_ns: int) -> CauseLog:
    if storage.published is None:
        return CauseLog()
    limit_s = settings.takeover_limit_s if storage.is_takeover else settings.restart_grace_s
    return CauseLog(TAKEOVER if storage.is_takeover else RESTART, now_ns + int(limit_s * NS))
