"""Builds the agent's page /metrics: probes, stored findings and uplink.

Each request reads the counters of the parts. Probes declare and yield their own metrics.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hyperscout_formats.text.prometheus_text import Family, counter, gauge
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest

from hyperscout_agent.findings.scheduler import ProbeStats
from hyperscout_agent.findings.store import FindingStore
from hyperscout_agent.uplink.session import UplinkStats

BUILD = gauge("hyperscout_agent_build_info", "Always 1; the label is the version of the agent.", "version")

PROBE_SUCCESS = gauge("hyperscout_agent_probe_success", "1 when the last run of a probe succeeded.", "probe")
PROBE_DURATION = gauge(
    "hyperscout_agent_probe_duration_seconds", "Duration of a probe's last run in seconds.", "probe"
)
PROBE_SECONDS = counter(
    "hyperscout_agent_probe_seconds_total", "Duration of all runs of a probe in seconds.", "probe"
)
PROBE_SUCCEEDED_AT = gauge(
    "hyperscout_agent_probe_last_success_timestamp_seconds",
    "When a run last succeeded, in seconds since 1970.",
    "probe",
)
PROBE_LEFT_BEHIND = gauge(
    "hyperscout_agent_probe_left_behind", "1 while a run hangs past its time-out.", "probe"
)
PROBE_RUNS = counter(
    "hyperscout_agent_probe_runs_total",
    "Runs that ended, by outcome: data, nothing (there), failed.",
    "probe",
    "outcome",
)

FINDINGS = gauge("hyperscout_agent_findings", "Findings in the agent's store.")
DIRTY = gauge(
    "hyperscout_agent_findings_dirty", "Findings that the collector has not acked yet: the uplink's queue."
)
BULK = gauge("hyperscout_agent_bulk_bytes", "Bytes of compressed texts in the agent's store.")
CONNECTED = gauge("hyperscout_agent_uplink_connected", "1 while the agent has a stream to a collector.")
UPLINK: Mapping[str, Family] = {  # by field of UplinkStats
    "sessions": counter(
        "hyperscout_agent_uplink_sessions_total",
        "Streams that a collector accepted; all but the first are reconnects.",
    ),
    "failures": counter(
        "hyperscout_agent_uplink_failures_total", "Streams that ended or could not be opened."
    ),
    "batches_sent": counter("hyperscout_agent_uplink_batches_sent_total", "Batches of findings sent."),
    "batches_acked": counter(
        "hyperscout_agent_uplink_batches_acked_total", "Batches that the collector has stored."
    ),
    "findings_sent": counter(
        "hyperscout_agent_uplink_findings_sent_total", "Findings sent, repeats included."
    ),
    "findings_acked": counter(
        "hyperscout_agent_uplink_findings_acked_total", "Findings that the collector has stored or refused."
    ),
    "refusals": counter("hyperscout_agent_uplink_refusals_total", "Findings that the collector refused."),
    "bulk_bytes_sent": counter(
        "hyperscout_agent_uplink_bulk_bytes_sent_total", "Bytes of compressed texts sent."
    ),
}


class AgentMetrics:
    """Renders the agent's metrics.

    `probes`: the probe statistics by name. `of_probes`: each returns the metrics of one probe as text.
    """

    def __init__(
        self,
        store: FindingStore,
        uplink: UplinkStats,
        probes: Mapping[str, ProbeStats],
        *,
        version: str,
        of_probes: Sequence[Callable[[], Iterable[str]]] = (),
    ) -> None:
        self._store = store
        self._uplink = uplink
        self._probes = probes
        self._version = version
        self._of_probes = of_probes
        self._process = CollectorRegistry()  # the standard process_* and python_* metrics
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def text(self) -> bytes:
        """Return all metrics in Prometheus text format 0.0.4."""
        return "".join(self._texts()).encode() + generate_latest(self._process)

    def _texts(self) -> Iterator[str]:
        yield BUILD.by({self._version: 1})
        yield from _of_all_probes(self._probes)
        yield FINDINGS.of(len(self._store))
        yield DIRTY.of(self._store.dirty)
        yield BULK.of(self._store.bulk_bytes)
        yield CONNECTED.of(self._uplink.connected)
        for name, family in UPLINK.items():
            yield family.of(getattr(self._uplink, name))
        for metrics in self._of_probes:
            yield from metrics()


def _of_all_probes(probes: Mapping[str, ProbeStats]) -> Iterator[str]:
    """Yield the metrics of all probes. Values that do not exist before a probe's first run are omitted."""
    yield PROBE_SUCCESS.by({name: s.success for name, s in probes.items() if s.success is not None})
    yield PROBE_DURATION.by({name: s.duration_s for name, s in probes.items() if s.runs})
    yield PROBE_SECONDS.by({name: s.all_s for name, s in probes.items()})
    succeeded = {name: s.last_success_s for name, s in probes.items()}
    yield PROBE_SUCCEEDED_AT.by({name: at_s for name, at_s in succeeded.items() if not math.isnan(at_s)})
    yield PROBE_LEFT_BEHIND.by({name: s.left_behind for name, s in probes.items()})
    yield PROBE_RUNS.by(
        {(name, outcome): count for name, s in probes.items() for outcome, count in _outcomes(s).items()}
    )


def _outcomes(stats: ProbeStats) -> dict[str, int]:
    return {
        "data": stats.runs - stats.empty - stats.failures,
        "nothing": stats.empty,
        "failed": stats.failures,
    }
