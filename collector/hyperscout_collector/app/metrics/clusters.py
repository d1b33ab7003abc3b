"""Metrics of each of several clusters. Without the setting `clusters` there are none.

The label `kube_cluster` is "" for the collector's own cluster. `cluster` is often a label of the target.
"""

from collections.abc import Iterator

from hyperscout_formats.text.prometheus_text import counter, gauge
from hyperscout_kubernetes.client import KubeCounters
from hyperscout_publish.clusters.publisher import ClusterPublisher
from hyperscout_publish.publisher.runner import PublisherState

from hyperscout_collector.app.inference.cluster import SeveralClusters
from hyperscout_collector.app.status.components import Components

ANSWERING = gauge(
    "hyperscout_collector_cluster_answering",
    "1 while the API server of a cluster answers the watch of its nodes.",
    "kube_cluster",
)
FAILING = gauge(
    "hyperscout_collector_cluster_failing_publishers",
    "Publishers of a cluster that cannot publish the newest generation.",
    "kube_cluster",
)
PUBLISHED = gauge(
    "hyperscout_collector_cluster_published_generation",
    "Last generation that all publishers of a cluster published.",
    "kube_cluster",
)
WRITE_ERRORS = counter(
    "hyperscout_collector_cluster_write_errors_total",
    "Writes to the API server of a cluster that failed or were not permitted by the Leases.",
    "kube_cluster",
)


def clusters(components: Components) -> Iterator[str]:
    cluster = components.publishing.cluster
    if not isinstance(cluster, SeveralClusters):
        return
    states: dict[str, list[PublisherState]] = {}
    for state in components.publishing.runner.states:
        if isinstance(state.publisher, ClusterPublisher):
            states.setdefault(state.publisher.cluster, []).append(state)
    yield ANSWERING.by(cluster.answering())
    yield FAILING.by({name: sum(x.problem is not None for x in found) for name, found in states.items()})
    yield PUBLISHED.by({name: min(x.generation for x in found) for name, found in states.items()})
    kubes = components.callers.kubes.items()
    yield WRITE_ERRORS.by({name: _errors(kube.counters) for name, kube in kubes})


def _errors(counters: KubeCounters) -> int:
    return sum(count for (_, outcome), count in counters.writes.items() if outcome != "written")
