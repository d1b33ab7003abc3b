"""Builds what receives generations: publishers, the placer and the gates, the saved topology, the history.

To add a publisher, add it in `build_publishers`.
"""

import importlib.metadata
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hyperscout_formats.text.reporters import cluster_of, name_in_cluster
from hyperscout_gates.control.controller import Gates
from hyperscout_gates.degradation.watch import DegradationSettings
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_kubernetes.client import Kube, Object
from hyperscout_kubernetes.event_recorder import EventRecorder, deployment_reference
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_mqtt.client import Access
from hyperscout_mqtt.topics import broker_of
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_publish.devices.nics import NodeNics
from hyperscout_publish.file.publisher import FilePublisher
from hyperscout_publish.mqtt.publisher import MqttPublisher
from hyperscout_publish.publisher.base import Publisher
from hyperscout_publish.publisher.runner import PublisherRunner
from hyperscout_publish.slurm.publisher import SlurmFilesPublisher
from hyperscout_publish.slurm.text import SlurmOptions
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.build.clusters import build_cluster, jitter, print_lines
from hyperscout_collector.app.build.context import Context, Signals
from hyperscout_collector.app.build.ingest import Storage
from hyperscout_collector.app.inference.cluster import Cluster, NoCluster, SeveralClusters
from hyperscout_collector.app.placing.placing import Placing
from hyperscout_collector.app.publication.saver import Saver
from hyperscout_collector.app.settings.configured import own_namespace
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.app.status.components import Evidence, Publishing, Service
from hyperscout_collector.history.causes import RESTART, TAKEOVER, Cause
from hyperscout_collector.history.recorder import Recorder
from hyperscout_collector.serve.fanout.hub import Hub

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Publishers:
    """The publishers and their helpers.

    `services` run beside the publishers, by name, until cancelled. `nodes`: by cluster, "" = the collector's
    own. `nics`: those of all nodes. `warn` posts an Event on the collector's Deployment; None = the settings
    name none.
    """

    publishers: tuple[Publisher, ...]
    cluster: Cluster
    services: Mapping[str, Service]
    nodes: Mapping[str, Nodes] = field(default_factory=dict)
    nics: NodeNics = field(default_factory=NodeNics)
    mqtt: MqttPublisher | None = None
    warn: Callable[[str], Awaitable[None]] | None = None

    def node(self, name: str) -> Object | None:
        """The stored form of a node of any cluster; None = it is unknown."""
        nodes = self.nodes.get(cluster_of(name))
        return None if nodes is None else nodes.get(name_in_cluster(name))


def needs_kubernetes(settings: CollectorSettings) -> bool:
    """Whether the settings need a Kubernetes API server."""
    return settings.kubernetes != "off" or settings.authenticate == "kubernetes"


def build_publishers(context: Context, published: Callable[[], Topology] = lambda: Topology(0)) -> Publishers:
    """Build the publishers that the settings enable, and the watches that they need.

    `published()`: the published topology.
    """
    settings, kube = context.settings, context.kube
    publishers: list[Publisher] = []
    services: dict[str, Service] = {}
    mqtt = None
    if settings.publish_file:
        publishers.append(FilePublisher(settings.publish_file))
    if files := _slurm_files(settings):
        publishers.append(
            SlurmFilesPublisher(
                files,
                settings.slurm_hook,
                SlurmOptions(
                    block_sizes=settings.slurm_block_sizes,
                    single_hosts=settings.single_hosts,
                ),
                live=settings.slurm_live,
                interval_s=settings.slurm_hook_interval_s,
            )
        )
    if settings.mqtt_broker:
        mqtt = _mqtt(context)
        publishers.append(mqtt)
        services["mqtt"] = mqtt.run
    if settings.kubernetes == "dry-run" and settings.gates == "on":
        _log.warning(
            "gates: kubernetes is dry-run: all gates stay closed, and only the placements are printed; "
            "set kubernetes: publish to open gates"
        )
    if settings.node_label_keys and settings.node_labels == "off":
        _log.warning(
            "node_label_keys: node_labels is off: no such label is set, and those set before are removed; "
            "set node_labels: on"
        )
    nics = NodeNics()
    outputs = {name: build_cluster(context, one, nics, name) for name, one in context.clusters.items()}
    cluster: Cluster = NoCluster()
    warn = None
    if kube is not None and settings.kubernetes != "off":
        outputs = {"": (own := build_cluster(context, kube, nics)), **outputs}
        cluster = own.cluster
        if settings.deployment and settings.kubernetes != "dry-run":
            warn = _deployment_events(settings, kube, own.events)
    for one in outputs.values():
        publishers += one.publishers
        services |= one.services
    if context.clusters:
        others = {name: outputs[name].cluster for name in context.clusters}
        cluster = SeveralClusters(cluster, others, published, context.timer)
    nodes = {name: one.nodes for name, one in outputs.items()}
    return Publishers(tuple(publishers), cluster, services, nodes, nics, mqtt, warn)


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
    nodes = publishers.nodes[""] if settings.gates != "off" else None
    placing = Placing(
        storage.reservations,
        evidence.state,
        publishers.cluster,
        decided=decided,
        clock_ns=clock_ns,
        timer=context.timer,
        seen_ns=evidence.view.seen_ns,
        pods_are_watched=nodes is not None,
        single_hosts=settings.single_hosts,
    )
    unknown = "the collector reads no nodes of Kubernetes: set `kubernetes`"
    masks = NodeMasks(publishers.node if publishers.nodes else None, unknown)
    for of_cluster in publishers.nodes.values():
        of_cluster.changed.subscribe(masks.node_changed)
    gates, services = None, dict(publishers.services)
    if nodes is not None and context.kube is not None:
        gates = _gates(context, context.kube, nodes, placing.placements, masks)
        nodes.changed.subscribe(gates.node_changed)
        services |= gates.services
    evidence.guard.load("the free resources of nodes", placing.touch)
    if settings.dra != "off" or settings.dra_taints != "off":
        _follow_nics(publishers.nics, evidence, signals)
    runner = PublisherRunner([watchers, *more, *publishers.publishers], rng=jitter())
    saver = Saver(storage.store, storage.writer, lacks_evidence)
    recorder = Recorder(storage.history, clock_ns, storage.writer) if settings.history_max_days else None
    shown = signals.published
    if recorder is not None and settings.store:
        signals.published.subscribe(recorder.record_first)
        shown = recorder.recorded
    elif recorder is not None:
        signals.published.subscribe(recorder.offer)
    signals.published.subscribe(partial(_without_cause, saver.offer))
    for offer in (runner.offer, placing.published):
        shown.subscribe(partial(_without_cause, offer))
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


def _follow_nics(nics: NodeNics, evidence: Evidence, signals: Signals) -> None:
    guard, what = evidence.guard, "the NICs of nodes"

    def load(nodes: Collection[str]) -> None:
        for node in nodes:
            nics.load(node, evidence.state.rows_of_node(node))

    guard.load(what, load)
    signals.committed.subscribe(guard.guarded(what, nics.follow))
    signals.full_state.subscribe(guard.guarded_reporter(what, nics.complete))


def _without_cause(offer: Callable[[Topology], None], topology: Topology, cause: Cause) -> None:
    offer(topology)


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
        fence=context.fence,
        clock_ns=context.clock_ns,
        timer=context.timer,
        rng=jitter(),
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
            pod_labels=settings.gates_pod_labels,
        ),
        print_lines,
        placements,
        masks,
        context.event_log("gang"),
        clock_ns=context.clock_ns,
        rng=jitter(),
    )


def _deployment_events(
    settings: CollectorSettings, kube: Kube, events: EventRecorder
) -> Callable[[str], Awaitable[None]]:
    namespace = own_namespace(settings, "deployment")

    async def warn(message: str) -> None:
        about = await deployment_reference(kube, namespace, settings.deployment)
        events.record(about, "Warning", "NoHyperNodes", message)

    return warn


def _slurm_files(settings: CollectorSettings) -> dict[str, Path]:
    files = {
        "tree": settings.slurm_tree_file,
        "block": settings.slurm_block_file,
        "yaml": settings.slurm_yaml_file,
    }
    return {kind: path for kind, path in files.items() if path is not None}
