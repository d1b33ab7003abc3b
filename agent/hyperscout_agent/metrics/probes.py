"""Builds the metrics of single probes: latency bursts and SNMP crawls over switches."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hyperscout_formats.text.prometheus_text import counter, gauge

from hyperscout_agent.probes.latency import LatencyProbe

if TYPE_CHECKING:
    from hyperscout_agent.probes.snmp import SnmpProbe

LATENCY_TASKS = gauge(
    "hyperscout_agent_latency_tasks", "Pair tasks that are alive; 0 when nothing is measured."
)
PINGS_SENT = counter("hyperscout_agent_latency_pings_sent_total", "Pings sent.")
ANSWERS_RECEIVED = counter(
    "hyperscout_agent_latency_answers_received_total", "Packets that came back to pings."
)
PINGS_RECEIVED = counter(
    "hyperscout_agent_latency_pings_received_total", "Packets received where pings are answered."
)
ANSWERS_SENT = counter("hyperscout_agent_latency_answers_sent_total", "Pings answered.")
SENT_BYTES = counter(
    "hyperscout_agent_latency_sent_bytes_total",
    "Bytes sent to measure, headers included: what latency.max_kbps limits.",
)
UNSTAMPED = counter(
    "hyperscout_agent_latency_unstamped_bursts_total", "Bursts without time stamps of the kernel."
)
BURSTS = counter(
    "hyperscout_agent_latency_bursts_total", "Bursts by how they ended: measured, failed.", "outcome"
)
TASKS_REFUSED = counter(
    "hyperscout_agent_latency_tasks_refused_total", "Pair tasks that could not be done, by reason.", "reason"
)
PINGS_DROPPED = counter(
    "hyperscout_agent_latency_pings_dropped_total",
    "Packets that were not answered, by reason; forged and replayed are somebody's attempts.",
    "reason",
)
ANSWERS_DROPPED = counter(
    "hyperscout_agent_latency_answers_dropped_total", "Answers and samples not believed, by reason.", "reason"
)

SNMP_SWITCHES = gauge(
    "hyperscout_agent_snmp_switches",
    "Switches of the last crawl, by what came of it: answered, failed, without_address (heard, but it "
    "announces none), too_deep (snmp.max_depth), left_out (snmp.max_switches).",
    "outcome",
)
SNMP_OUTSIDE = gauge(
    "hyperscout_agent_snmp_addresses_outside",
    "Addresses heard in the last crawl that no range of snmp.access holds.",
)
SNMP_REQUESTS = counter(
    "hyperscout_agent_snmp_requests_total", "Questions asked of switches, repeats left out."
)
SNMP_SILENCES = counter("hyperscout_agent_snmp_silences_total", "Questions that got no answer.")
SNMP_ROWS = counter("hyperscout_agent_snmp_rows_total", "Variables that switches answered with.")
SNMP_GARBAGE = counter("hyperscout_agent_snmp_garbage_total", "Datagrams that could not be read.")


def of_latency(probe: LatencyProbe) -> Iterator[str]:
    tasks, responder = probe.tasks, probe.responder
    yield LATENCY_TASKS.of(len(tasks))
    yield PINGS_SENT.of(tasks.sent)
    yield ANSWERS_RECEIVED.of(tasks.received)
    yield PINGS_RECEIVED.of(responder.received)
    yield ANSWERS_SENT.of(responder.sent)
    yield SENT_BYTES.of(probe.bucket.sent_bytes)
    yield UNSTAMPED.of(tasks.unstamped)
    yield BURSTS.by({"measured": 0, "failed": 0} | dict(tasks.bursts))
    yield TASKS_REFUSED.by(dict(sorted(tasks.refused.items())))
    yield PINGS_DROPPED.by(dict(sorted(probe.keyring.dropped.items())))
    yield ANSWERS_DROPPED.by(dict(sorted(tasks.dropped.items())))


def of_crawl(probe: "SnmpProbe") -> Iterator[str]:
    stats, counts = probe.client_stats, probe.counts
    yield SNMP_SWITCHES.by(
        {
            "answered": probe.answered,
            "failed": probe.silent,
            "too_deep": counts.too_deep,
            "left_out": counts.left_out,
            "without_address": counts.without_address,
        }
    )
    yield SNMP_OUTSIDE.of(len(counts.outside))
    yield SNMP_REQUESTS.of(stats.requests)
    yield SNMP_SILENCES.of(stats.silences)
    yield SNMP_ROWS.of(stats.rows)
    yield SNMP_GARBAGE.of(stats.garbage)
