"""Metrics of agents, findings, evidence, port counters, measurements and generations."""

from collections import Counter
from collections.abc import Iterator

from hyperscout.v1.measurement_pb2 import GetMeasuringResponse
from hyperscout_formats.text.prometheus_text import counter, gauge
from hyperscout_formats.text.reporters import is_node, is_switch
from hyperscout_runtime.units import NS

from hyperscout_collector.app.measuring.measuring import STATES as MEASURING_STATES
from hyperscout_collector.app.publication.pipeline import Pipeline
from hyperscout_collector.app.status.components import Components, Evidence, Ingest
from hyperscout_collector.app.status.status import problems
from hyperscout_collector.ingest.streams import REFUSALS
from hyperscout_collector.store.postgresql import NAME as POSTGRESQL

_MAX_PROBES = 32
_FILES = ("evidence.db", "history.db", "placements.db")
_DATABASES = (*_FILES, POSTGRESQL)
OTHER = "other"

AGENTS = gauge("hyperscout_collector_agents", "Agents connected.")
STREAMS = counter("hyperscout_collector_streams_total", "Streams that agents opened.")
STREAMS_ENDED = counter(
    "hyperscout_collector_streams_ended_total", "Streams that the collector ended or refused."
)
FINDINGS = counter("hyperscout_collector_findings_total", "Findings received.")
UNCHANGED = counter(
    "hyperscout_collector_findings_unchanged_total",
    "Findings received that did not change: agents name them, and send only their times.",
)
FINDINGS_REFUSED = counter("hyperscout_collector_findings_refused_total", "Findings refused.")
REFUSED = counter(
    "hyperscout_collector_refused_total", "Reports refused because of their sender, by reason.", "reason"
)
BATCHES = counter("hyperscout_collector_batches_total", "Batches of findings received.")
INGEST_BYTES = counter("hyperscout_collector_ingest_bytes_total", "Bytes of messages from agents.")
BULK_TEXTS = counter("hyperscout_collector_bulk_texts_total", "Texts (sweeps) received completely.")
WAITING = gauge("hyperscout_collector_waiting_bytes", "Bytes of findings that wait to be written to disk.")
WRITE_FAILURES = counter(
    "hyperscout_collector_write_failures_total", "Transactions that failed because of the disk."
)
CLOCK_STEP = gauge(
    "hyperscout_collector_clock_step_seconds",
    "By how many seconds the machine's clock was set since the collector started.",
)
DAMAGED_FILES = counter(
    "hyperscout_collector_damaged_files_total",
    "Files that were damaged and moved aside, or were empty, since the start.",
    "file",
)
DAMAGED_ROWS = counter(
    "hyperscout_collector_damaged_rows_total", "Damaged rows that were dropped since the start.", "file"
)
EVIDENCE = gauge(
    "hyperscout_collector_evidence", "Findings in the evidence, by probe and outcome.", "probe", "outcome"
)
NODES = gauge("hyperscout_collector_nodes", "Nodes with findings in the evidence.")
STALE_NODES = gauge(
    "hyperscout_collector_stale_nodes", "Nodes whose evidence is older than its limit (stale_after_s)."
)
SWITCHES = gauge(
    "hyperscout_collector_switches", "Switches with an agent that have findings in the evidence."
)
STALE_SWITCHES = gauge(
    "hyperscout_collector_stale_switches",
    "Switches with an agent whose evidence is older than its limit (stale_after_s).",
)
LEASES = gauge("hyperscout_collector_leases", "Sweep leases granted.")
LEASES_PARTIAL = gauge("hyperscout_collector_leases_partial", "Sweep leases whose last sweep was partial.")
PORTS_ERRORING = gauge(
    "hyperscout_collector_ports_erroring", "Ports over a threshold, by kind: errors, discards, flaps.", "what"
)
PORTS_COUNTING = gauge("hyperscout_collector_ports_counting", "Ports whose error counters changed recently.")

INFERENCE_FAILING = gauge(
    "hyperscout_collector_inference_failing", "1 while inference fails and the last topology stays published."
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
    "Time of the last published generation, in seconds since 1970; 0 = none since the start.",
)
HELD = gauge("hyperscout_collector_held", "1 while a generation is held until it is approved.")
HELD_REMOVES = gauge(
    "hyperscout_collector_held_removes", "HyperNodes and nodes that the held generation removes."
)
PROBLEMS = gauge(
    "hyperscout_collector_problems", "Problems of the collector itself, as `hyperscout status` lists them."
)

MEASURING = gauge(
    "hyperscout_collector_measuring", "1 for the present state of measuring between agents, else 0.", "state"
)
PROBES = counter(
    "hyperscout_collector_probes_total", "Bursts of pings to a peer that the collector assigned to agents."
)
PAIR_TASKS = gauge("hyperscout_collector_pair_tasks", "Pairs of nodes and rails that are being measured.")
PAIR_TASKS_FAILED = counter("hyperscout_collector_pair_tasks_failed_total", "Pair tasks that failed.")
PAIRS = gauge("hyperscout_collector_pairs", "Measured pairs of nodes and rails whose ends agree.")
PAIRS_DISAGREEING = gauge(
    "hyperscout_collector_pairs_disagreeing", "Measured pairs that were dropped because their ends disagree."
)


def ingest(components: Components) -> Iterator[str]:
    evidence, inference = components.evidence, components.inference
    yield from _streams(components.ingest, evidence)
    yield CLOCK_STEP.of(round(components.clock.step_ns() / NS, 3))
    yield DAMAGED_FILES.by({file: components.damage.files[file] for file in _FILES})
    yield DAMAGED_ROWS.by({file: components.damage.rows[file] for file in _DATABASES})
    yield from _evidence(components.ingest, evidence, components.clock_ns() - components.stale_after_ns)
    yield PORTS_ERRORING.by(inference.links.erroring())
    yield PORTS_COUNTING.of(inference.links.watched)
    yield GENERATION.of(components.publishing.watchers.current.topology.generation)
    yield from _generations(inference.pipeline)
    yield PROBLEMS.of(len(problems(components)))
    yield from _measuring(inference.measuring.report())


def _streams(ingest: Ingest, evidence: Evidence) -> Iterator[str]:
    counters = ingest.streams.counters
    yield AGENTS.of(len(ingest.streams))
    yield STREAMS.of(counters.streams)
    yield STREAMS_ENDED.of(counters.rejected_streams)
    yield FINDINGS.of(counters.findings)
    yield UNCHANGED.of(counters.unchanged)
    yield FINDINGS_REFUSED.of(counters.refused)
    yield REFUSED.by({reason: counters.refusals[reason] for reason in REFUSALS})
    yield BATCHES.of(counters.batches)
    yield INGEST_BYTES.of(counters.bytes)
    yield BULK_TEXTS.of(counters.bulk_texts)
    yield WAITING.of(evidence.committer.waiting_bytes)
    yield WRITE_FAILURES.of(evidence.committer.queue.failures)


def _evidence(ingest: Ingest, evidence: Evidence, stale_before_ns: int) -> Iterator[str]:
    reporters, leases = list(evidence.state.nodes), ingest.sweeps.leases()
    stale = evidence.view.unseen_since(stale_before_ns)
    yield EVIDENCE.by(dict(sorted(bounded(dict(evidence.state.outcomes())).items())))
    yield NODES.of(sum(map(is_node, reporters)))
    yield STALE_NODES.of(sum(map(is_node, stale)))
    yield SWITCHES.of(sum(map(is_switch, reporters)))
    yield STALE_SWITCHES.of(sum(map(is_switch, stale)))
    yield LEASES.of(len(leases))
    yield LEASES_PARTIAL.of(sum(lease.partial for lease in leases))


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


def _generations(pipeline: Pipeline) -> Iterator[str]:
    held, failures = pipeline.held, pipeline.failures
    yield INFERENCE_FAILING.of(failures.present is not None)
    yield INFERENCE_FAILURES.of(failures.exceptions)
    yield SET_ASIDE.of(len(failures.quarantine))
    yield GENERATIONS.of(pipeline.generations)
    yield GENERATION_AT.of(pipeline.published_ns / NS)
    yield HELD.of(held is not None)
    yield HELD_REMOVES.of(len(held.removes_hypernodes) + len(held.removes_nodes) if held else 0)


def _measuring(report: GetMeasuringResponse) -> Iterator[str]:
    yield MEASURING.by({state: report.state == state for state in MEASURING_STATES})
    yield PROBES.of(report.probes)
    yield PAIR_TASKS.of(report.in_flight)
    yield PAIR_TASKS_FAILED.of(report.failed)
    yield PAIRS.of(report.pairs)
    yield PAIRS_DISAGREEING.of(report.disagreeing)
