"""Metrics of agents, findings, evidence, port counters, measurements and generations."""

from collections import Counter
from collections.abc import Iterator

from hyperscout_formats.text.prometheus_text import counter, gauge
from hyperscout_formats.text.reporters import is_node, is_switch

from hyperscout_collector.app.measuring.measuring import STATES as MEASURING_STATES
from hyperscout_collector.app.status.parts import Parts
from hyperscout_collector.ingest.streams import REFUSALS

NS = 1_000_000_000
_MAX_PROBES = 32
OTHER = "other"

AGENTS = gauge("hyperscout_collector_agents", "Agents connected.")
STREAMS = counter("hyperscout_collector_streams_total", "Streams that agents opened.")
STREAMS_ENDED = counter(
    "hyperscout_collector_streams_ended_total", "Streams that the collector ended or turned away."
)
FINDINGS = counter("hyperscout_collector_findings_total", "Findings that came in.")
FINDINGS_REFUSED = counter("hyperscout_collector_findings_refused_total", "Findings that were not taken.")
REFUSED = counter(
    "hyperscout_collector_refused_total", "Reports refused because of who sent them, by reason.", "reason"
)
BATCHES = counter("hyperscout_collector_batches_total", "Batches of findings that came in.")
INGEST_BYTES = counter("hyperscout_collector_ingest_bytes_total", "Bytes of messages from agents.")
BULK_TEXTS = counter("hyperscout_collector_bulk_texts_total", "Texts (sweeps) that came in whole.")
WAITING = gauge("hyperscout_collector_waiting_bytes", "Bytes that wait to be written to disk.")
WRITE_FAILURES = counter(
    "hyperscout_collector_write_failures_total", "Transactions that could not be written: the disk."
)
EVIDENCE = gauge("hyperscout_collector_evidence", "Findings held, by probe and outcome.", "probe", "outcome")
NODES = gauge("hyperscout_collector_nodes", "Nodes that findings are held of.")
STALE_NODES = gauge(
    "hyperscout_collector_stale_nodes", "Nodes whose evidence is older than its limit (stale_after_s)."
)
SWITCHES = gauge("hyperscout_collector_switches", "Switches whose own agents' findings are held.")
STALE_SWITCHES = gauge(
    "hyperscout_collector_stale_switches", "Switches whose own agents' evidence is older than its limit."
)
LEASES = gauge("hyperscout_collector_leases", "Sweep leases given out.")
LEASES_PARTIAL = gauge("hyperscout_collector_leases_partial", "Those whose last sweep was partial.")
PORTS_ERRORING = gauge(
    "hyperscout_collector_ports_erroring",
    "Ports over a threshold, by what they do wrong: errors, discards, flaps.",
    "what",
)
PORTS_COUNTING = gauge("hyperscout_collector_ports_counting", "Ports whose counters moved lately.")

INFERENCE_FAILING = gauge(
    "hyperscout_collector_inference_failing",
    "1 while inference fails and the last topology stays published.",
)
INFERENCE_FAILURES = counter(
    "hyperscout_collector_inference_failures_total", "Exceptions that ended an inference."
)
SET_ASIDE = gauge(
    "hyperscout_collector_reporters_set_aside",
    "Reporters whose evidence is set aside because inference raises with it.",
)
GENERATION = gauge("hyperscout_collector_generation", "Number of the published generation.")
GENERATIONS = counter("hyperscout_collector_generations_total", "Generations published since the start.")
GENERATION_AT = gauge(
    "hyperscout_collector_generation_timestamp_seconds",
    "When the last generation was published, in seconds since 1970; 0 = none since the start.",
)
HELD = gauge("hyperscout_collector_held", "1 while a generation is held back.")
HELD_REMOVES = gauge(
    "hyperscout_collector_held_removes", "HyperNodes and nodes that the held generation removes."
)
PROBLEMS = gauge(
    "hyperscout_collector_problems", "Troubles of the collector itself, as `hyperscout status` lists them."
)

MEASURING = gauge(
    "hyperscout_collector_measuring", "1 for how measuring between agents goes, by state.", "state"
)
PROBES = counter(
    "hyperscout_collector_probes_total", "Bursts of pings that agents were told to send to a peer."
)
PAIR_TASKS = gauge("hyperscout_collector_pair_tasks", "Pairs of nodes and rails that are being measured.")
PAIR_TASKS_FAILED = counter("hyperscout_collector_pair_tasks_failed_total", "Those that came to nothing.")
PAIRS = gauge("hyperscout_collector_pairs", "Measured pairs of nodes and rails whose ends agree.")
PAIRS_DISAGREEING = gauge(
    "hyperscout_collector_pairs_disagreeing", "Those that were dropped because their ends disagree."
)


def ingest(parts: Parts) -> Iterator[str]:
    yield from _streams(parts)
    yield from _evidence(parts)
    yield from _generations(parts)
    yield from _measuring(parts)


def _streams(parts: Parts) -> Iterator[str]:
    counters = parts.streams.counters
    yield AGENTS.of(len(parts.streams))
    yield STREAMS.of(counters.streams)
    yield STREAMS_ENDED.of(counters.rejected_streams)
    yield FINDINGS.of(counters.findings)
    yield FINDINGS_REFUSED.of(counters.refused)
    yield REFUSED.by({reason: counters.refusals[reason] for reason in REFUSALS})
    yield BATCHES.of(counters.batches)
    yield INGEST_BYTES.of(counters.bytes)
    yield BULK_TEXTS.of(counters.bulk_texts)
    yield WAITING.of(parts.committer.waiting_bytes)
    yield WRITE_FAILURES.of(parts.committer.failures)


def _evidence(parts: Parts) -> Iterator[str]:
    held, leases = list(parts.state.nodes), parts.sweeps.leases()
    stale = parts.view.unseen_since(parts.clock_ns() - parts.stale_after_ns)
    yield EVIDENCE.by(dict(sorted(bounded(dict(parts.state.outcomes())).items())))
    yield NODES.of(sum(map(is_node, held)))
    yield STALE_NODES.of(sum(map(is_node, stale)))
    yield SWITCHES.of(sum(map(is_switch, held)))
    yield STALE_SWITCHES.of(sum(map(is_switch, stale)))
    yield LEASES.of(len(leases))
    yield LEASES_PARTIAL.of(sum(lease.partial for lease in leases))
    yield PORTS_ERRORING.by(parts.links.erroring())
    yield PORTS_COUNTING.of(parts.links.watched)


def bounded(evidence: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """The counts of the `_MAX_PROBES` probes with the most findings; the rest is summed up as "other"."""
    by_probe: Counter[str] = Counter()
    for (probe, _), count in evidence.items():
        by_probe[probe] += count
    kept = {probe for probe, _ in by_probe.most_common(_MAX_PROBES)}
    found: Counter[tuple[str, str]] = Counter()
    for (probe, outcome), count in evidence.items():
        found[probe if probe in kept else OTHER, outcome] += count
    return found


def _generations(parts: Parts) -> Iterator[str]:
    held = parts.pipeline.held
    yield INFERENCE_FAILING.of(parts.pipeline.failure is not None)
    yield INFERENCE_FAILURES.of(parts.pipeline.failures)
    yield SET_ASIDE.of(len(parts.pipeline.quarantine))
    yield GENERATION.of(parts.watchers.current.topology.generation)
    yield GENERATIONS.of(parts.generations)
    yield GENERATION_AT.of(parts.published_ns / NS)
    yield HELD.of(held is not None)
    yield HELD_REMOVES.of(len(held.removes_hypernodes) + len(held.removes_nodes) if held else 0)
    yield PROBLEMS.of(len(parts.problems))


def _measuring(parts: Parts) -> Iterator[str]:
    report = parts.measuring.report()
    yield MEASURING.by({state: report.state == state for state in MEASURING_STATES})
    yield PROBES.of(report.probes)
    yield PAIR_TASKS.of(report.in_flight)
    yield PAIR_TASKS_FAILED.of(report.failed)
    yield PAIRS.of(report.pairs)
    yield PAIRS_DISAGREEING.of(report.disagreeing)
