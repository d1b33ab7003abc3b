"""What Prometheus may ask of an agent: the parts' own counters, read when asked."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hyperscout_agent.findings import FindingStore
from hyperscout_agent.probes.latency import LatencyProbe
from hyperscout_agent.scheduler import ProbeStats
from hyperscout_agent.session import UplinkStats

if TYPE_CHECKING:
    from hyperscout_agent.probes.snmp import SnmpProbe

_PREFIX = "hyperscout_agent_"


class AgentMetrics:
    """A collector in the sense of prometheus_client. `wall_s`: seconds since 1970."""

    def __init__(
        self,
        store: FindingStore,
        uplink: UplinkStats,
        probes: Callable[[], Mapping[str, ProbeStats]],
        *,
        version: str,
        wall_s: Callable[[], float] = time.time,
        latency: LatencyProbe | None = None,
        crawl: "SnmpProbe | None" = None,
    ) -> None:
        self._store = store
        self._uplink = uplink
        self._probes = probes
        self._version = version
        self._wall_s = wall_s
        self._latency = latency
        self._crawl = crawl
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """In Prometheus' text format 0.0.4."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        yield _one(GaugeMetricFamily, "info", "Always 1.", 1, version=self._version)
        yield from self._of_probes()
        store, uplink = self._store, self._uplink
        yield _one(GaugeMetricFamily, "findings", "Findings held.", len(store))
        yield _one(
            GaugeMetricFamily, "findings_dirty", "Findings that the collector has not acked.", store.dirty
        )
        yield _one(GaugeMetricFamily, "bulk_bytes", "Bytes of compressed texts held.", store.bulk_bytes)
        yield _one(GaugeMetricFamily, "uplink_connected", "1 while a collector listens.", uplink.connected)
        for name, help_text, value in (
            (
                "uplink_sessions",
                "Streams that a collector greeted; all but the first are reconnects.",
                uplink.sessions,
            ),
            ("uplink_failures", "Streams that ended or could not be opened.", uplink.failures),
            ("uplink_batches_acked", "Batches that the collector has stored.", uplink.batches_acked),
            ("uplink_findings_sent", "Findings sent, repeats included.", uplink.findings_sent),
            ("uplink_refusals", "Findings that the collector refused.", uplink.refusals),
            ("uplink_bulk_bytes_sent", "Bytes of compressed texts sent.", uplink.bulk_bytes_sent),
        ):
            yield _one(CounterMetricFamily, name, help_text, value)
        if self._latency is not None:
            yield from _of_latency(self._latency)
        if self._crawl is not None:
            yield from _of_crawl(self._crawl)

    def _of_probes(self) -> Iterable[Metric]:
        now_s = self._wall_s()
        for name, help_text, kind, value_of in (
            ("success", "1 when the last look succeeded.", GaugeMetricFamily, lambda s: _flag(s.success)),
            ("duration_seconds", "Duration of the last look.", GaugeMetricFamily, lambda s: s.duration_s),
            (
                "last_success_timestamp_seconds",
                "When a look last succeeded, since 1970.",
                GaugeMetricFamily,
                lambda s: s.last_success_s,
            ),
            (
                "age_seconds",
                "Seconds since a look last succeeded.",
                GaugeMetricFamily,
                lambda s: max(0.0, now_s - s.last_success_s),
            ),
            (
                "left_behind",
                "1 while a look hangs past its time-out.",
                GaugeMetricFamily,
                lambda s: s.left_behind,
            ),
            ("runs", "Looks that ended.", CounterMetricFamily, lambda s: s.runs),
            ("failures", "Looks that did not succeed.", CounterMetricFamily, lambda s: s.failures),
        ):
            family = kind(f"{_PREFIX}probe_{name}", help_text, labels=["probe"])
            for probe, stats in self._probes().items():
                value = float(value_of(stats))
                if not math.isnan(value):
                    family.add_metric([probe], value)
            yield family


def _of_latency(probe: LatencyProbe) -> Iterable[Metric]:
    tasks, responder = probe.tasks, probe.responder
    yield _one(GaugeMetricFamily, "latency_tasks", "Pair tasks that are alive.", len(tasks))
    for name, help_text, value in (
        ("latency_pings_sent", "Pings sent.", tasks.sent),
        ("latency_answers_received", "Packets received by pings.", tasks.received),
        ("latency_pings_received", "Packets received where pings are answered.", responder.received),
        ("latency_answers_sent", "Pings answered.", responder.sent),
        ("latency_sent_bytes", "Bytes sent to measure, headers included.", probe.bucket.sent_bytes),
        ("latency_unstamped_bursts", "Bursts without time stamps of the kernel.", tasks.unstamped),
    ):
        yield _one(CounterMetricFamily, name, help_text, value)
    for name, help_text, label, counts in (
        ("latency_bursts", "Bursts by how they ended.", "outcome", tasks.bursts),
        ("latency_tasks_refused", "Pair tasks that could not be done.", "reason", tasks.refused),
        ("latency_pings_dropped", "Packets that were not answered.", "reason", probe.keyring.dropped),
        ("latency_answers_dropped", "Answers and samples not believed.", "reason", tasks.dropped),
    ):
        family = CounterMetricFamily(_PREFIX + name, help_text, labels=[label])
        for reason, count in sorted(counts.items()):
            family.add_metric([reason], float(count))
        yield family


def _of_crawl(probe: "SnmpProbe") -> Iterable[Metric]:
    stats, counts = probe.client_stats, probe.counts
    switches = GaugeMetricFamily(
        _PREFIX + "snmp_switches", "Switches of the last crawl by what came of it.", labels=["outcome"]
    )
    for outcome, count in (
        ("answered", probe.answered),
        ("failed", probe.silent),
        ("too_deep", counts.too_deep),
        ("left_out", counts.left_out),
        ("without_address", counts.without_address),
    ):
        switches.add_metric([outcome], float(count))
    yield switches
    yield _one(
        GaugeMetricFamily,
        "snmp_addresses_outside",
        "Addresses heard in the last crawl that are in no range of snmp.access.",
        len(counts.outside),
    )
    for name, help_text, value in (
        ("snmp_requests", "Questions asked of switches, repeats left out.", stats.requests),
        ("snmp_silences", "Questions that got no answer.", stats.silences),
        ("snmp_rows", "Variables that switches answered with.", stats.rows),
        ("snmp_garbage", "Datagrams that could not be read.", stats.garbage),
    ):
        yield _one(CounterMetricFamily, name, help_text, value)


def _flag(success: bool | None) -> float:
    return math.nan if success is None else float(success)


def _one(kind: Any, name: str, help_text: str, value: float, **labels: str) -> Metric:
    family: Metric = kind(_PREFIX + name, help_text, labels=list(labels))
    family.add_metric(list(labels.values()), float(value))  # type: ignore[attr-defined]
    return family
