"""Builds what receives generations: publishers, the placer and the gates, the saved topology, the history.

To add a publisher, add it in `build_publishers`.
"""

import importlib.metadata
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from hyperscout_gates.control.controller import Gates
from hyperscout_gates.degradation.watch import DegradationSettings
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_inference.labels.cloud_labels import place_of
from hyperscout_kubernetes.client import Fence, Kube, Object
from hyperscout_kubernetes.event_recorder import EventRecorder, deployment_reference
from hyperscout_kubernetes.nodes import Nodes, why_down
from hyperscout_mqtt.client import Access
from hyperscout_mqtt.topics import broker_of
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_publish.file.publisher import FilePublisher
from hyperscout_publish.hypernodes.kubernetes import KubernetesPublisher
from hyperscout_publish.mqtt.publisher import MqttPublisher
from hyperscout_publish.nodes.kueue import KueuePublisher
from hyperscout_publish.nodes.node_labels import NodeLabelsPublisher
from hyperscout_publish.nodes.taint_policy import TaintSettings
from hyperscout_publish.nodes.taints import TaintsPublisher
from hyperscout_publish.publisher.base import Publisher
from hyperscout_publish.publisher.runner import PublisherRunner
from hyperscout_publish.slurm.publisher import SlurmFilesPublisher
from hyperscout_runtime.event_loops import Debouncer
from hyperscout_runtime.signals import Signal
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.build.ingest import Storage
from hyperscout_collector.app.inference.cluster import Cluster, KubernetesCluster, NoCluster
from hyperscout_collector.app.placing.placing import Placing
from hyperscout_collector.app.publication.saver import Saver
from hyperscout_collector.app.settings.configured import own_namespace
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.app.status.components import Evidence, Publishing, Service
from hyperscout_collector.history.causes import RESTART, TAKEOVER, Cause
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.serve.fanout.hub import Hub

_log = logging.getLogger(__name__)

# The collector's own label writes, for example, cause many changes of nodes.
_WAKE_AFTER_S = 0.2


@dataclass(frozen=True, slots=True)
class Publishers:
    """The publishers and their helpers.

    `services` run beside the publishers, by name, until cancelled. `nodes`: the nodes of the cluster; None =
    there is no cluster. `warn` posts an Event on the collector's Deployment; None = the settings name none.
    """

    publishers: tuple[Publisher, ...]
    cluster: Cluster
    services: Mapping[str, Service]
    nodes: Nodes | None = None
    mqtt: MqttPublisher | None = None
    warn: Callable[[str], Awaitable[None]] | None = None


def needs_kubernetes(settings: CollectorSettings) -> bool:
    """Whether the settings need a Kubernetes API server."""
    return settings.kubernetes != "off" or settings.authenticate == "kubernetes"


def build_publishers(context: Context) -> Publishers:
    """Build the publishers that the settings enable, and the watches that they need."""
    settings, kube, clock_ns, rng = context.settings, context.kube, context.clock_ns, _jitter()
    cluster_changed = context.signals.cluster_changed
    publishers: list[Publisher] = []
    services: dict[str, Service] = {}
    mqtt = None
    if settings.publish_file:
        publishers.append(FilePublisher(settings.publish_file))
    if files := _slurm_files(settings):
        publishers.append(SlurmFilesPublisher(files, settings.slurm_hook))
    if settings.mqtt_broker:
        mqtt = _mqtt(context)
        publishers.append(mqtt)
        services["mqtt"] = mqtt.run
    if kube is None or settings.kubernetes == "off":
        return Publishers(tuple(publishers), NoCluster(), services, mqtt=mqtt)
    dry_run = settings.kubernetes == "dry-run"
    if dry_run and settings.gates == "on":
        _log.warning(
            "gates: kubernetes is dry-run: all gates stay closed, and only the placements are printed; "
            "set kubernetes: publish to open gates"
        )
    nodes = Nodes(kube, settings.node_selector, rng=rng)
    foreign_changed = Signal[[]]()
    foreign_changed.subscribe(cluster_changed)
    hypernodes = KubernetesPublisher(
        kube,
        nodes,
        overlap=settings.overlap,
        foreign=foreign_changed,
        clock_ns=clock_ns,
        timer=context.timer,
        rng=rng,
        say=_print if dry_run else None,
    )
    events = EventRecorder(kube, clock_ns=clock_ns)
    node_writers = _node_writers(settings, kube, nodes, hypernodes, events, clock_ns)

    def wake_node_writers() -> None:
        for publisher in node_writers:
            publisher.wake()

    wake_soon = Debouncer(wake_node_writers, _WAKE_AFTER_S)
    foreign_changed.subscribe(wake_soon)

    def node_changed(before: Object | None, after: Object | None) -> None:
        # The collector's own writes to nodes must not start a check of the whole cluster.
        if (
            before is None
            or after is None
            or why_down(before) != why_down(after)
            or place_of(before["metadata"]["labels"], settings.cloud_labels)
            != place_of(after["metadata"]["labels"], settings.cloud_labels)
            or hypernodes.others
        ):
            cluster_changed()
        wake_soon()

    nodes.changed.subscribe(node_changed)
    publishers += [hypernodes, *node_writers]
    if settings.kueue_topology:
        publishers.append(KueuePublisher(kube, settings.kueue_topology, _print, dry_run=dry_run))
    services |= {"node-watch": nodes.reflector.run, "hypernodes": hypernodes.run, "node-events": events.run}
    cluster = KubernetesCluster(nodes, hypernodes.hypernodes, settings.overlap)
    warn = _deployment_events(settings, kube, events) if settings.deployment and not dry_run else None
    return Publishers(tuple(publishers), cluster, services, nodes, mqtt, warn)


def build_publishing(
    context: Context,
    storage: Storage,
    evidence: Evidence,
    watchers: Hub,
    publishers: Publishers,
    *,
    more: Sequence[Publisher],
    decided: Callable[[float], None],
    lacks_evidence: Callable[[], bool],
) -> Publishing:
    """Build what receives generations, and offer it the topology that was published before.

    `more`: publishers in addition to those of the settings. `decided` receives the duration of each decision
    of the placer in seconds. `lacks_evidence`: as in `Saver`.
    """
    settings, signals, clock_ns = context.settings, context.signals, context.clock_ns
    nodes = publishers.nodes if settings.gates != "off" else None
    placing = Placing(
        storage.reservations,
        evidence.state,
        publishers.cluster,
        decided=decided,
        clock_ns=clock_ns,
        timer=context.timer,
        seen_ns=evidence.view.seen_ns,
        pods_are_watched=nodes is not None,
    )
    unknown = "the collector reads no nodes of Kubernetes: set `kubernetes`"
    masks = NodeMasks(None if publishers.nodes is None else publishers.nodes.get, unknown)
    if publishers.nodes is not None:
        publishers.nodes.changed.subscribe(masks.node_changed)
    gates, services = None, dict(publishers.services)
    if nodes is not None and context.kube is not None:
        gates = _gates(context, context.kube, nodes, placing.placements, masks)
        nodes.changed.subscribe(gates.node_changed)
        services |= gates.services
    evidence.guard.load("the free resources of nodes", placing.touch)
    runner = PublisherRunner([watchers, *more, *publishers.publishers], rng=_jitter())
    saver = Saver(storage.store, storage.writer, lacks_evidence)
    recorder = None
    if settings.history_max_days:
        path = settings.data_dir / "history.db"
        recorder = Recorder(path, settings, clock_ns, storage.writer, context.damage)
        signals.published.subscribe(recorder.offer)
    for offer in (runner.offer, saver.offer, placing.published):
        signals.published.subscribe(partial(_without_cause, offer))
    signals.cluster_changed.subscribe(placing.cluster_changed)
    signals.committed.subscribe(evidence.guard.guarded("the free resources of nodes", placing.follow))
    if (published := storage.published) is not None:
        runner.offer(published)  # restores published files that were deleted in the meantime
        saver.offer(published)
        placing.published(published)
        # HyperNodes read from a cluster contain no links. The history must not record them as removed.
        if recorder is not None and (published.links or not published.hypernodes):
            recorder.resume(published, Cause(TAKEOVER if storage.is_takeover else RESTART))
    return Publishing(
        publishers.cluster,
        watchers,
        runner,
        services,
        saver,
        placing,
        masks,
        gates,
        publishers.mqtt,
        recorder,
    )


def _without_cause(offer: Callable[[Topology], None], topology: Topology, cause: Cause) -> None:
    offer(topology)


def _jitter() -> Random:
    return Random()  # noqa: S311 - jitter, not secrets


def _mqtt(context: Context) -> MqttPublisher:
    settings = context.settings
    access = Access(
        broker_of(settings.mqtt_broker),
        settings.mqtt_client_id or f"hyperscout-{settings.identity}",
        settings.mqtt_qos,
        settings.mqtt_user,
        settings.mqtt_password_file,
        settings.mqtt_tls_ca,
        settings.mqtt_tls_cert,
        settings.mqtt_tls_key,
    )
    return MqttPublisher(
        access,
        settings.mqtt_topic_prefix,
        identity=settings.identity,
        version=importlib.metadata.version("hyperscout"),
        fence=context.kube.fence if context.kube is not None else Fence(),
        clock_ns=context.clock_ns,
        timer=context.timer,
        rng=_jitter(),
        reads_findings=bool(settings.mqtt_devices),
    )


def _gates(context: Context, kube: Kube, nodes: Nodes, placements: Placements, masks: NodeMasks) -> Gates:
    settings = context.settings
    return Gates(
        kube,
        nodes,
        settings.gates_namespace or own_namespace(settings, "gates"),
        "dry-run" if "dry-run" in (settings.kubernetes, settings.gates) else "on",
        GateSettings(
            settings.gates_replace_after_s,
            settings.gates_hot_swap,
            degradation=DegradationSettings(
                settings.gates_on_degradation,
                settings.gates_degraded_wait_s,
                settings.gates_moves_per_hour,
                settings.gates_hook_timeout_s,
            ),
            drain_after_s=settings.gates_drain_after_s,
            defragment_every_s=settings.gates_defragment_every_s,
            defragment_most_moves=settings.gates_defragment_most_moves,
        ),
        _print,
        placements,
        masks,
        context.event_log("gang"),
        clock_ns=context.clock_ns,
        rng=_jitter(),
    )


def _deployment_events(
    settings: CollectorSettings, kube: Kube, events: EventRecorder
) -> Callable[[str], Awaitable[None]]:
    namespace = own_namespace(settings, "deployment")

    async def warn(message: str) -> None:
        about = await deployment_reference(kube, namespace, settings.deployment)
        events.record(about, "Warning", "NoHyperNodes", message)

    return warn


def _node_writers(
    settings: CollectorSettings,
    kube: Kube,
    nodes: Nodes,
    hypernodes: KubernetesPublisher,
    events: EventRecorder,
    clock_ns: Callable[[], int],
) -> list[Publisher]:
    """The publishers that write to nodes.

    When they are switched off, they still write the labels that HyperNodes need, and remove the rest.
    """
    dry_run = settings.kubernetes == "dry-run"
    policy = TaintSettings(
        settings.taint_share,
        settings.taint_after_s,
        settings.taint_clear_after_s,
        settings.taint_uplink_share,
    )
    found: list[Publisher] = [
        NodeLabelsPublisher(
            kube,
            nodes,
            settings.node_labels,
            _print,
            held=hypernodes.held,
            overlap=settings.overlap,
            dry_run=dry_run,
        )
    ]
    taints = "dry-run" if dry_run and settings.taints == "on" else settings.taints
    if taints != "off" or not dry_run:
        found.append(TaintsPublisher(kube, nodes, taints, policy, _print, events=events, clock_ns=clock_ns))
    return found


def _slurm_files(settings: CollectorSettings) -> dict[str, Path]:
    files = {
        "tree": settings.slurm_tree_file,
        "block": settings.slurm_block_file,
        "yaml": settings.slurm_yaml_file,
    }
    return {kind: path for kind, path in files.items() if path is not None}


def _print(text: str) -> None:
    """Print what a dry run would do, each line with the time."""
    now = rfc3339(time.time_ns())
    sys.stdout.write("".join(f"{now} {line}\n" for line in text.splitlines()))
    sys.stdout.flush()
