"""Metrics of each of several clusters, of a collector to whose API servers there is no connection."""

from pathlib import Path

from hyperscout_collector.app.build.collector import Collector
from prometheus_client.parser import text_string_to_metric_families
from support.collectors import collector_settings, playing
from support.waiting import eventually

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:PORT"}}]
"""


def figures(collector: Collector) -> dict[str, dict[str, float]]:
    """By metric and cluster."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(collector.metrics.text().decode()):
        for one in family.samples:
            if "kube_cluster" in one.labels:
                name = one.name.removeprefix("hyperscout_collector_cluster_")
                found.setdefault(name, {})[one.labels["kube_cluster"]] = one.value
    return found


async def test_clusters_that_do_not_answer(tmp_path: Path) -> None:
    clusters = []
    for port, name in enumerate(("east", "west"), 1):
        file = tmp_path / f"kubeconfig-{name}"
        file.write_text(KUBECONFIG.replace("PORT", str(port)))
        clusters.append(f"{name}={file}")
    settings = collector_settings(tmp_path, clusters=tuple(clusters))
    async with Collector(settings) as collector:
        await eventually(lambda: figures(collector)["answering"] == {"east": 0, "west": 0})
        found = figures(collector)
        assert found["published_generation"] == {"east": 0, "west": 0}
        assert found["write_errors_total"].keys() == found["failing_publishers"].keys() == {"east", "west"}


async def test_one_cluster_has_no_metrics_of_its_own(tmp_path: Path) -> None:
    async with Collector(collector_settings(tmp_path)) as collector, playing(collector.address):
        assert figures(collector) == {}
