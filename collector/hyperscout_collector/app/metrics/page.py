"""Builds the /metrics page of the collector.

Each part keeps its own counters, and a scrape reads them. Labels with values from outside are bounded: node
and HyperNode names come only from the published topology. Only the probes with the most findings and the
fabrics with the most links have their own label value; the rest is "other".
"""

import importlib.metadata
from collections.abc import Callable, Iterator

from hyperscout_formats.text.prometheus_text import (
    CONTENT_TYPE,
    Histogram,
    counter,
    gauge,
    histogram,
)
from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from hyperscout_collector.app.metrics.ingest import ingest
from hyperscout_collector.app.metrics.outputs import outputs
from hyperscout_collector.app.metrics.picture import Picture
from hyperscout_collector.app.metrics.readers import readers
from hyperscout_collector.app.status.parts import Parts

BUILD = gauge("hyperscout_collector_build_info", "Always 1; which version runs.", "version")
LEADER = gauge("hyperscout_collector_leader", "1 while this replica leads.")
TRANSITIONS = counter(
    "hyperscout_collector_leader_transitions_total",
    "Times that the Lease went to another replica, as it counts itself; 0 without leader_election.",
)
INFERENCE_SECONDS = histogram(
    "hyperscout_collector_inference_seconds",
    "Time of one inference, in seconds: sweeps, hierarchy, generations.",
)
PLACEMENT_SECONDS = histogram(
    "hyperscout_collector_placement_seconds",
    "Time to decide where a gang goes, or that it has no place, in seconds.",
)

__all__ = ["CONTENT_TYPE", "Metrics", "standby_text"]


class Metrics:
    """The page of the leader. `transitions`: the number of times that the Lease moved to another replica."""

    content_type = CONTENT_TYPE

    def __init__(self, parts: Callable[[], Parts], transitions: Callable[[], int] = lambda: 0) -> None:
        self.inference_seconds = Histogram(
            INFERENCE_SECONDS, (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)
        )
        self.placement_seconds = Histogram(
            PLACEMENT_SECONDS, (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
        )
        self._parts = parts
        self._transitions = transitions
        self._picture = Picture()
        self._process = _Process()

    def text(self) -> bytes:
        parts = self._parts()
        texts = (
            *_leading(1, self._transitions()),
            self.inference_seconds.text(),
            self.placement_seconds.text(),
            *ingest(parts),
            *outputs(parts),
            *readers(parts),
        )
        picture = self._picture.text(parts.watchers.current.topology)
        return b"".join(("".join(texts).encode(), picture, self._process.text()))


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


def standby_text(transitions: int) -> bytes:
    """The page of a standby. It contains no topology and no evidence: the leader reports those."""
    return "".join(_leading(0, transitions)).encode() + _Process().text()
