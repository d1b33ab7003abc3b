"""Builds the /metrics page of the collector.

Each component keeps its own counters, and a scrape reads them. Labels with values from outside are bounded:
node and HyperNode names come only from the published topology. Only the probes with the most findings and the
fabrics with the most links have their own label value; the rest is "other".
"""

import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from hyperscout_formats.text.prometheus_text import CONTENT_TYPE, Histogram, counter, gauge, histogram
from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from hyperscout_collector.app.metrics.clusters import clusters
from hyperscout_collector.app.metrics.ingest import ingest
from hyperscout_collector.app.metrics.outputs import outputs, readers
from hyperscout_collector.app.metrics.topology import TopologyMetrics
from hyperscout_collector.app.status.components import Components
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.http.counters import RestCounters

BUILD = gauge("hyperscout_collector_build_info", "Always 1; the label is the version.", "version")
LEADER = gauge("hyperscout_collector_leader", "1 while this replica leads.")
TRANSITIONS = counter(
    "hyperscout_collector_leader_transitions_total",
    "Times that the Lease moved to another replica; 0 without leader_election.",
)
INFERENCE_SECONDS = histogram(
    "hyperscout_collector_inference_seconds",
    "Duration of one inference in seconds: sweeps, hierarchy, generations.",
)
PLACEMENT_SECONDS = histogram(
    "hyperscout_collector_placement_seconds", "Duration of a decision of the placer in seconds."
)

__all__ = ["CONTENT_TYPE", "Metrics", "Timings", "standby_text"]

_INFERENCE_BUCKETS_S = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
_PLACEMENT_BUCKETS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations in seconds, as the components measure them."""

    inference: Histogram = field(default_factory=partial(Histogram, INFERENCE_SECONDS, _INFERENCE_BUCKETS_S))
    placement: Histogram = field(default_factory=partial(Histogram, PLACEMENT_SECONDS, _PLACEMENT_BUCKETS_S))


class Metrics:
    """The page of the leader. `transitions()`: how often the Lease moved to another replica."""

    def __init__(self, components: Components, timings: Timings, transitions: Callable[[], int]) -> None:
        self._components = components
        self._timings = timings
        self._transitions = transitions
        self._topology = TopologyMetrics()
        self._process = _Process()

    def text(self) -> bytes:
        texts = (
            *_leading(1, self._transitions()),
            self._timings.inference.text(),
            self._timings.placement.text(),
            *ingest(self._components),
            *outputs(self._components),
            *clusters(self._components),
        )
        topology = self._topology.text(self._components.publishing.watchers.current.topology)
        return b"".join(("".join(texts).encode(), topology, self._process.text()))


class _Process:
    """The standard metrics of a Python process: process_* and python_*."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def text(self) -> bytes:
        return generate_latest(self._registry)


def _leading(leads: int, transitions: int) -> Iterator[str]:
    yield BUILD.by({importlib.metadata.version("hyperscout"): 1})
    yield LEADER.of(leads)
    yield TRANSITIONS.of(transitions)


def standby_text(transitions: int, watchers: Hub | None = None, rest: RestCounters | None = None) -> bytes:
    """The page of a standby. It contains no topology and no evidence: the leader reports those.

    It contains no requests to REST either: that a standby refuses some is no error. `watchers`, `rest`:
    None = the standby serves no reads, or no REST.
    """
    texts = (*_leading(0, transitions), *(readers(watchers, rest) if watchers is not None else ()))
    return "".join(texts).encode() + _Process().text()
