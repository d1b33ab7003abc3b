"""Builds the publishers that the settings enable, and the Kubernetes watches that they need.

To add a publisher, add it in `chosen`.
"""

import asyncio
import importlib.metadata
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hyperscout_gates.control.controller import Gates
from hyperscout_gates.state.machine import GateSettings
from hyperscout_inference.labels.cloud_labels import place_of
from hyperscout_kubernetes.client import Fence, Kube, Object
from hyperscout_kubernetes.nodes import Nodes, why_down
from hyperscout_mqtt.client import Access
from hyperscout_mqtt.topics import broker_of
from hyperscout_publish.hypernodes.file import FilePublisher
from hyperscout_publish.hypernodes.kubernetes import KubernetesPublisher
from hyperscout_publish.hypernodes.kubernetes_events import Events
from hyperscout_publish.mqtt.publisher import MqttPublisher
from hyperscout_publish.nodes.kueue import KueuePublisher
from hyperscout_publish.nodes.node_labels import NodeLabelsPublisher
from hyperscout_publish.nodes.taint_policy import TaintSettings
from hyperscout_publish.nodes.taints import TaintsPublisher
from hyperscout_publish.publisher.base import Publisher
from hyperscout_publish.slurm.files import SlurmFilesPublisher

from hyperscout_collector.app.fabric.cluster import Cluster, KubernetesCluster, NoCluster
from hyperscout_collector.app.settings.settings import CollectorSettings

Service = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Chosen:
    """The publishers and their helpers.

    `services` run beside the publishers, by name, until cancelled. `gates` need `Placements` (`Gates.book`)
    before they run.
    """

    publishers: list[Publisher] = field(default_factory=list)
    cluster: Cluster = field(default_factory=NoCluster)
    services: dict[str, Service] = field(default_factory=dict)
    gates: Gates | None = None
    mqtt: MqttPublisher | None = None


def needs_kubernetes(settings: CollectorSettings) -> bool:
    """Whether the settings need a Kubernetes API server."""
    return settings.kubernetes != "off" or settings.authenticate == "kubernetes"


def chosen(
    settings: CollectorSettings,
    kube: Kube | None,
    *,
    look_around: Callable[[], None],
    clock_ns: Callable[[], int],
    timer: Callable[[], float],
    rng: Random,
    namespace: str = "",
) -> Chosen:
    """Build the publishers that the settings enable.

    `kube` writes only while this collector leads. `look_around` is called when the cluster changes.
    `namespace`: the collector's own namespace, where the plans of gangs are stored.
    """
    found = Chosen()
    if settings.publish_file:
        found.publishers.append(FilePublisher(settings.publish_file))
    if files := _slurm_files(settings):
        found.publishers.append(SlurmFilesPublisher(files, settings.slurm_hook))
    if settings.mqtt_broker:
        fence = kube.fence if kube is not None else Fence()
        found.mqtt = _mqtt(settings, fence, clock_ns, timer, rng)
        found.publishers.append(found.mqtt)
        found.services["mqtt"] = found.mqtt.run
    if kube is None or settings.kubernetes == "off":
        return found
    nodes = Nodes(kube, settings.node_selector, rng=rng)
    hypernodes = KubernetesPublisher(
        kube,
        nodes,
        foreign=look_around,
        clock_ns=clock_ns,
        timer=timer,
        rng=rng,
        say=_print if settings.kubernetes == "dry-run" else None,
    )
    events = Events(kube, clock_ns=clock_ns, of=("v1", "Node"))
    of_nodes = _about_nodes(settings, kube, nodes, events, clock_ns)

    def wake_all() -> None:
        for publisher in of_nodes:
            publisher.wake()

    soon = Soon(wake_all)
    gates = found.gates = _gates(settings, kube, nodes, namespace, clock_ns, rng)

    def changed(before: Object | None, after: Object | None) -> None:
        # The collector's own writes to nodes must not start a check of the whole cluster.
        if (
            before is None
            or after is None
            or why_down(before) != why_down(after)
            or place_of(before["metadata"]["labels"], settings.cloud_labels)
            != place_of(after["metadata"]["labels"], settings.cloud_labels)
            or hypernodes.others
        ):
            look_around()
        if gates is not None:
            gates.node_changed(before, after)
        soon.call()

    nodes.changed = changed
    found.publishers += [hypernodes, *of_nodes]
    if settings.kueue_topology:
        dry_run = settings.kubernetes == "dry-run"
        found.publishers.append(KueuePublisher(kube, settings.kueue_topology, _print, dry_run=dry_run))
    found.cluster = KubernetesCluster(nodes, hypernodes.hypernodes)
    found.services |= {
        "node-watch": nodes.reflector.run,
        "hypernodes": hypernodes.run,
        "node-events": events.run,
        **(gates.services if gates is not None else {}),
    }
    return found


def _mqtt(
    settings: CollectorSettings,
    fence: Fence,
    clock_ns: Callable[[], int],
    timer: Callable[[], float],
    rng: Random,
) -> MqttPublisher:
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
        fence=fence,
        clock_ns=clock_ns,
        timer=timer,
        rng=rng,
    )


def _gates(
    settings: CollectorSettings,
    kube: Kube,
    nodes: Nodes,
    namespace: str,
    clock_ns: Callable[[], int],
    rng: Random,
) -> Gates | None:
    if settings.gates == "off":
        return None
    mode = "dry-run" if settings.kubernetes == "dry-run" else settings.gates
    times = GateSettings(settings.gates_replace_after_s, settings.gates_hot_swap)
    return Gates(kube, nodes, namespace, mode, times, _print, clock_ns=clock_ns, rng=rng)


class Soon:
    """Calls `act` once, `after_s` seconds after the first of many calls.

    The collector's own label writes, for example, cause many calls.
    """

    def __init__(self, act: Callable[[], None], after_s: float = 0.2) -> None:
        self._act = act
        self._after_s = after_s
        self._due: asyncio.TimerHandle | None = None

    def call(self) -> None:
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(self._after_s, self._now)

    def _now(self) -> None:
        self._due = None
        self._act()


def _about_nodes(
    settings: CollectorSettings, kube: Kube, nodes: Nodes, events: Events, clock_ns: Callable[[], int]
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
    found: list[Publisher] = [NodeLabelsPublisher(kube, nodes, settings.node_labels, _print, dry_run=dry_run)]
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
    sys.stdout.write(text)
    sys.stdout.flush()
