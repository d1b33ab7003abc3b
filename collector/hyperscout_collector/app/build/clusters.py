"""Builds what publishes in one Kubernetes cluster, and the watches that it needs."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from hyperscout_inference.labels.cloud_labels import place_of
from hyperscout_inference.labels.nvlink_labels import nvlink_key
from hyperscout_kubernetes.client import Kube, Object
from hyperscout_kubernetes.event_recorder import EventRecorder
from hyperscout_kubernetes.nodes import Nodes, why_down
from hyperscout_kubernetes.reflector import Reflector
from hyperscout_publish.clusters.publisher import ClusterPart, ClusterPublisher, Earlier
from hyperscout_publish.devices.device_taints import DeviceTaintsPublisher
from hyperscout_publish.devices.nics import NodeNics
from hyperscout_publish.devices.resource_slices import ResourceSlicesPublisher
from hyperscout_publish.devices.slices import COLLECTION as SLICES
from hyperscout_publish.devices.slices import kept as kept_slice
from hyperscout_publish.hypernodes.kubernetes import KubernetesPublisher
from hyperscout_publish.nodes.conditions import NodeConditionsPublisher
from hyperscout_publish.nodes.domain_marks import DomainMarks
from hyperscout_publish.nodes.kueue import KueuePublisher
from hyperscout_publish.nodes.label_keys import key_templates
from hyperscout_publish.nodes.node_features import NodeFeaturesPublisher
from hyperscout_publish.nodes.node_labels import NodeLabelsPublisher
from hyperscout_publish.nodes.node_writes import Mode
from hyperscout_publish.nodes.slinky import SlinkyPublisher
from hyperscout_publish.nodes.taint_policy import TaintSettings
from hyperscout_publish.nodes.taints import TaintsPublisher
from hyperscout_publish.publisher.base import Publisher
from hyperscout_publish.slurm.text import SlurmOptions
from hyperscout_runtime.event_loops import Debouncer
from hyperscout_runtime.signals import Signal
from hyperscout_runtime.units import rfc3339

from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.inference.cluster import KubernetesCluster
from hyperscout_collector.app.publication.earlier_topology import recalled
from hyperscout_collector.app.settings.configured import own_namespace
from hyperscout_collector.app.settings.settings import CollectorSettings
from hyperscout_collector.app.status.components import Service

# The collector's own label writes, for example, cause many changes of nodes.
_WAKE_AFTER_S = 0.2


@dataclass(frozen=True, slots=True)
class ClusterOutputs:
    """What publishes in a cluster. `services` run beside the publishers, by name, until cancelled."""

    publishers: tuple[Publisher, ...]
    services: Mapping[str, Service]
    nodes: Nodes
    cluster: KubernetesCluster
    events: EventRecorder


def build_cluster(context: Context, kube: Kube, nics: NodeNics, name: str = "") -> ClusterOutputs:
    """Build what publishes in a cluster; "" = the collector's own. `nics`: those of all nodes."""
    settings, clock_ns, rng = context.settings, context.clock_ns, jitter()
    cluster_changed = context.signals.cluster_changed
    dry_run = settings.kubernetes == "dry-run"
    say = _printer(name)
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
        say=say if dry_run else None,
    )
    events = EventRecorder(kube, clock_ns=clock_ns)
    node_writers = _node_writers(settings, kube, nodes, hypernodes, events, say, clock_ns)
    features = _node_features(settings, kube, nodes, hypernodes, say)
    node_writers += [] if features is None else [features]

    def wake_node_writers() -> None:
        for publisher in node_writers:
            publisher.wake()

    wake_soon = Debouncer(wake_node_writers, _WAKE_AFTER_S)
    foreign_changed.subscribe(wake_soon)
    hypernodes.appeared.subscribe(wake_soon)

    def node_changed(before: Object | None, after: Object | None) -> None:
        # The collector's own writes to nodes must not start a check of the whole cluster.
        if (
            before is None
            or after is None
            or why_down(before) != why_down(after)
            or _labels_read(settings, before) != _labels_read(settings, after)
            or hypernodes.others
        ):
            cluster_changed()
        wake_soon()

    nodes.changed.subscribe(node_changed)
    publishers: list[Publisher] = [hypernodes, *node_writers]
    if settings.kueue_topology:
        publishers.append(KueuePublisher(kube, settings.kueue_topology, say, dry_run=dry_run))
    device_writers, services = _device_writers(context, kube, nodes, nics, say, name)
    publishers += device_writers
    if context.clusters:
        recall = partial(recalled, kube, attempts=1)
        earlier = Earlier(recall, settings.removal_share, settings.hold_s, context.timer) if name else None
        part, watches = ClusterPart(name, earlier), (nodes.reflector, hypernodes.hypernodes)
        publishers = [ClusterPublisher(x, part, watches if x is hypernodes else ()) for x in publishers]
    services |= {"node-watch": nodes.reflector.run, "hypernodes": hypernodes.run, "node-events": events.run}
    if features is not None:
        services["node-features"] = features.run
    if name:
        services = {f"{name}/{service}": run for service, run in services.items()}
    cluster = KubernetesCluster(nodes, hypernodes.hypernodes, settings.overlap)
    return ClusterOutputs(tuple(publishers), services, nodes, cluster, events)


def _labels_read(settings: CollectorSettings, node: Object) -> object:
    """What the labels of a node tell inference."""
    labels = node["metadata"]["labels"]
    return place_of(labels, settings.cloud_labels), nvlink_key(labels, settings.nvlink_labels)


def _node_writers(
    settings: CollectorSettings,
    kube: Kube,
    nodes: Nodes,
    hypernodes: KubernetesPublisher,
    events: EventRecorder,
    say: Callable[[str], None],
    clock_ns: Callable[[], int],
) -> list[Publisher]:
    """The publishers that write to nodes.

    When they are switched off, they still write the labels that HyperNodes need, and remove the rest.
    """
    dry_run = settings.kubernetes == "dry-run"
    found: list[Publisher] = [
        NodeLabelsPublisher(
            kube,
            nodes,
            "off" if settings.node_labels == "nfd" else settings.node_labels,
            say,
            templates=key_templates(settings.node_label_keys),
            held=hypernodes.held,
            overlap=settings.overlap,
            single_hosts=settings.single_hosts,
            dry_run=dry_run,
        )
    ]

    if (taints := _mode(settings, settings.taints)) != "off" or not dry_run:
        policy = _taint_settings(settings)
        found.append(TaintsPublisher(kube, nodes, taints, policy, say, events=events, clock_ns=clock_ns))
    if (conditions := _mode(settings, settings.node_conditions)) != "off" or not dry_run:
        marks = DomainMarks(kube, hypernodes.hypernodes, events, say)
        share = settings.node_conditions_domain_share
        found.append(
            NodeConditionsPublisher(
                kube, nodes, conditions, say, marks, domain_share=share, clock_ns=clock_ns
            )
        )
    if settings.slinky_config_map or not dry_run:
        keeps = settings.single_hosts
        options = SlurmOptions(block_sizes=settings.slurm_block_sizes, single_hosts=keeps)
        found.append(SlinkyPublisher(kube, nodes, settings.slinky_config_map, say, options, dry_run=dry_run))
    return found


def _node_features(
    settings: CollectorSettings,
    kube: Kube,
    nodes: Nodes,
    hypernodes: KubernetesPublisher,
    say: Callable[[str], None],
) -> NodeFeaturesPublisher | None:
    if settings.node_labels != "nfd":
        return None
    return NodeFeaturesPublisher(
        kube,
        nodes,
        own_namespace(settings, "node_labels: nfd"),
        say,
        templates=key_templates(settings.node_label_keys),
        held=hypernodes.held,
        overlap=settings.overlap,
        single_hosts=settings.single_hosts,
        dry_run=settings.kubernetes == "dry-run",
        rng=jitter(),
    )


def _device_writers(
    context: Context, kube: Kube, nodes: Nodes, nics: NodeNics, say: Callable[[str], None], cluster: str
) -> tuple[list[Publisher], dict[str, Service]]:
    """The publishers of devices, and the watch that they share, which runs only if one of them is on.

    When they are switched off, they remove what they wrote.
    """
    settings = context.settings
    dra, taints = _mode(settings, settings.dra), _mode(settings, settings.dra_taints)
    slices = Reflector(
        kube, SLICES, keep=kept_slice, changed=lambda name, before, after: wake_soon(), rng=jitter()
    )
    policy = _taint_settings(settings)
    found: list[Publisher] = []
    if dra != "off" or settings.kubernetes != "dry-run":
        found.append(ResourceSlicesPublisher(kube, nodes, dra, say, nics, slices, cluster=cluster))
    if taints != "off" or settings.kubernetes != "dry-run":
        clock_ns = context.clock_ns
        found.append(
            DeviceTaintsPublisher(kube, taints, policy, say, nics, slices, cluster=cluster, clock_ns=clock_ns)
        )

    def wake() -> None:
        for publisher in found:
            publisher.wake()

    def node_changed(before: Object | None, after: Object | None) -> None:
        if before is None or after is None:
            wake_soon()

    wake_soon = Debouncer(wake, _WAKE_AFTER_S)
    if dra == taints == "off":
        return found, {}
    nics.changed.subscribe(wake_soon)
    nodes.changed.subscribe(node_changed)
    return found, {"resource-slices": slices.run}


def _mode(settings: CollectorSettings, wanted: Mode) -> Mode:
    """The mode of a publisher: all are on dry-run if HyperNodes are."""
    return "dry-run" if settings.kubernetes == "dry-run" and wanted == "on" else wanted


def _taint_settings(settings: CollectorSettings) -> TaintSettings:
    return TaintSettings(
        settings.taint_share,
        settings.taint_after_s,
        settings.taint_clear_after_s,
        settings.taint_uplink_share,
    )


def jitter() -> Random:
    return Random()  # noqa: S311 - jitter, not secrets


def _printer(cluster: str) -> Callable[[str], None]:
    if not cluster:
        return print_lines
    return lambda text: print_lines(f"# cluster {cluster}\n{text}")


def print_lines(text: str) -> None:
    """Print what a dry run would do, each line with the time."""
    now = rfc3339(time.time_ns())
    sys.stdout.write("".join(f"{now} {line}\n" for line in text.splitlines()))
    sys.stdout.flush()
