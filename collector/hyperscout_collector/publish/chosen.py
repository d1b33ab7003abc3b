"""Which publishers the settings ask for, and what they need of a Kubernetes cluster.

To add a publisher, add a line here.
"""

import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hyperscout_collector.cluster import Cluster, KubernetesCluster, NoCluster
from hyperscout_collector.kube.client import Kube
from hyperscout_collector.kube.nodes import Nodes
from hyperscout_collector.publish.base import Publisher
from hyperscout_collector.publish.file import FilePublisher
from hyperscout_collector.publish.kubernetes import KubernetesPublisher
from hyperscout_collector.settings import CollectorSettings

Service = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Chosen:
    """`services` run beside the publishers, by name, until cancelled."""

    publishers: list[Publisher] = field(default_factory=list)
    cluster: Cluster = field(default_factory=NoCluster)
    services: dict[str, Service] = field(default_factory=dict)


def needs_kubernetes(settings: CollectorSettings) -> bool:
    """Whether anything that is asked for talks to an API server."""
    return settings.kubernetes != "off" or settings.authenticate == "kubernetes"


def chosen(
    settings: CollectorSettings,
    kube: Kube | None,
    *,
    look_around: Callable[[], None],
    clock_ns: Callable[[], int],
    timer: Callable[[], float],
    rng: Random,
) -> Chosen:
    """`kube` may write as long as this collector leads. `look_around`: something in the cluster changed."""
    found = Chosen()
    if settings.publish_file:
        found.publishers.append(FilePublisher(settings.publish_file))
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
    nodes.changed = look_around
    found.publishers.append(hypernodes)
    found.cluster = KubernetesCluster(nodes, hypernodes.hypernodes)
    found.services = {"node-watch": nodes.reflector.run, "hypernodes": hypernodes.run}
    return found


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
