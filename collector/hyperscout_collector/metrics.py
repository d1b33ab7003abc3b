"""/metrics of the collector: what it holds, what comes in, what goes out (Prometheus text format).

Counts live where they are counted and are read at a scrape. No label takes a value from an agent without
a bound: of probe names the first so many are told apart.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hyperscout_collector.ingest.streams import REFUSALS
from hyperscout_collector.placements import OUTCOMES
from hyperscout_collector.topology import ANOMALY_KINDS, Topology

_PREFIX = "hyperscout_collector_"
_MAX_PROBES = 32
_OTHER = "other"


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything a scrape shows but the histogram, read at one instant."""

    streams: int
    streams_total: int
    streams_ended_total: int  # by the collector
    findings_total: int
    refused_total: int
    refusals_total: dict[str, int]  # because of who sent it, by reason
    batches_total: int
    ingest_bytes_total: int
    bulk_texts_total: int
    waiting_bytes: int
    write_failures_total: int
    evidence: dict[tuple[str, str], int]  # (probe, outcome)
    nodes: int
    stale_nodes: int
    switches: int  # that report
    stale_switches: int
    topology: Topology
    held_removes: int  # HyperNodes and nodes that a held generation would remove
    held: bool
    leases: int
    partial_leases: int
    publish_errors_total: dict[str, int]  # by publisher
    published_generation: dict[str, int]
    watchers: int
    resnapshots_total: int
    ports_erroring: dict[str, int]  # by what they do wrong
    ports_counting: int
    measuring: dict[str, int]  # 1 for the state that it is in
    probes_total: int
    pair_tasks: int
    pair_tasks_failed_total: int
    pairs: int
    pairs_disagreeing: int
    placements: dict[str, int]  # gangs by holder
    placed_workers: int
    placement_decisions_total: dict[str, int]  # by outcome
    placement_watchers: int


class Metrics:
    """A registry of its own, so that several collectors can live in one process (tests, the demo)."""

    def __init__(self, figures: Callable[[], Figures]) -> None:
        self._registry = CollectorRegistry()
        self.inference_seconds = Histogram(
            f"{_PREFIX}inference_seconds",
            "Time of one inference: sweeps, hierarchy, generations",
            buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30),
            registry=self._registry,
        )
        self.placement_seconds = Histogram(
            f"{_PREFIX}placement_seconds",
            "Time to decide where a gang goes, or that it has no place",
            buckets=(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=self._registry,
        )
        self._registry.register(_Scrape(figures))

    def text(self) -> bytes:
        return generate_latest(self._registry)

    content_type = CONTENT_TYPE_LATEST


class _Scrape(Collector):
    def __init__(self, figures: Callable[[], Figures]) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        return ()  # nothing is asked of the collector before it has started

    def collect(self) -> Iterator[Metric]:
        f = self._figures()
        yield _gauge("leader", "1 while this replica leads", 1)  # a standby has a page of its own
        yield _gauge("agents", "Agents connected", f.streams)
        yield _counter("streams", "Streams that agents opened", f.streams_total)
        yield _counter(
            "streams_ended", "Streams that the collector ended or turned away", f.streams_ended_total
        )
        yield _counter("findings", "Findings that came in", f.findings_total)
        yield _counter("findings_refused", "Findings that were not taken", f.refused_total)
        refusals = CounterMetricFamily(
            f"{_PREFIX}refused", "Reports refused because of who sent them, by reason", labels=("reason",)
        )
        for reason in REFUSALS:
            refusals.add_metric((reason,), f.refusals_total.get(reason, 0))
        yield refusals
        yield _counter("batches", "Batches that came in", f.batches_total)
        yield _counter("ingest_bytes", "Bytes of messages from agents", f.ingest_bytes_total)
        yield _counter("bulk_texts", "Texts (sweeps) that came in whole", f.bulk_texts_total)
        yield _gauge("waiting_bytes", "Bytes that wait to be written", f.waiting_bytes)
        yield _counter("write_failures", "Transactions that could not be written", f.write_failures_total)
        evidence = GaugeMetricFamily(
            f"{_PREFIX}evidence", "Findings held, by probe and outcome", labels=("probe", "outcome")
        )
        for (probe, outcome), count in sorted(bounded(f.evidence).items()):
            evidence.add_metric((probe, outcome), count)
        yield evidence
        yield _gauge("nodes", "Nodes that findings are held of", f.nodes)
        yield _gauge("stale_nodes", "Nodes whose evidence is older than its limit", f.stale_nodes)
        yield _gauge("switches", "Switches whose agents' findings are held", f.switches)
        yield _gauge(
            "stale_switches", "Switches whose agents' evidence is older than its limit", f.stale_switches
        )
        yield from _topology(f.topology)
        yield _gauge("held", "1 while a generation is held back", int(f.held))
        yield _gauge("held_removes", "HyperNodes and nodes that the held generation removes", f.held_removes)
        yield _gauge("leases", "Sweep leases given out", f.leases)
        yield _gauge("leases_partial", "Those whose last sweep was partial", f.partial_leases)
        errors = CounterMetricFamily(
            f"{_PREFIX}publish_errors", "Failures of a publisher", labels=("publisher",)
        )
        out = GaugeMetricFamily(
            f"{_PREFIX}published_generation",
            "Last generation that a publisher got out",
            labels=("publisher",),
        )
        for name, count in f.publish_errors_total.items():
            errors.add_metric((name,), count)
            out.add_metric((name,), f.published_generation[name])
        yield errors
        yield out
        yield _gauge("watchers", "Readers that follow the topology", f.watchers)
        yield _counter("resnapshots", "Times that a watcher was too slow and began anew", f.resnapshots_total)
        erroring = GaugeMetricFamily(
            f"{_PREFIX}ports_erroring", "Ports over a threshold, by what they do wrong", labels=("what",)
        )
        for what, count in f.ports_erroring.items():
            erroring.add_metric((what,), count)
        yield erroring
        yield _gauge("ports_counting", "Ports whose counters moved lately", f.ports_counting)
        yield from _measuring(f)
        yield from _placing(f)


def _topology(topology: Topology) -> Iterator[Metric]:
    yield _gauge("generation", "Published generation", topology.generation)
    hypernodes = GaugeMetricFamily(f"{_PREFIX}hypernodes", "Published HyperNodes, by tier", labels=("tier",))
    for tier, count in sorted(Tally(h.tier for h in topology.hypernodes).items()):
        hypernodes.add_metric((str(tier),), count)
    yield hypernodes
    anomalies = GaugeMetricFamily(f"{_PREFIX}anomalies", "Published anomalies, by kind", labels=("kind",))
    kinds = Tally(a.kind for a in topology.anomalies)
    for kind in ANOMALY_KINDS:
        anomalies.add_metric((kind,), kinds[kind])
    yield anomalies
    yield _gauge("links", "Published links", len(topology.links))
    yield _gauge(
        "nodes_without_evidence",
        "Expected nodes that no fabric knows",
        len(topology.nodes_without_evidence),
    )


def _measuring(f: Figures) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        f"{_PREFIX}measuring", "1 for how measuring between agents goes", labels=("state",)
    )
    for state, is_on in f.measuring.items():
        states.add_metric((state,), is_on)
    yield states
    yield _counter("probes", "Bursts of pings that agents were told to send to a peer", f.probes_total)
    yield _gauge("pair_tasks", "Pairs of nodes and rails that are being measured", f.pair_tasks)
    yield _counter("pair_tasks_failed", "Those that came to nothing", f.pair_tasks_failed_total)
    yield _gauge("pairs", "Pairs of nodes and rails whose ends agree", f.pairs)
    yield _gauge("pairs_disagreeing", "Those that were dropped because they do not", f.pairs_disagreeing)


def _placing(f: Figures) -> Iterator[Metric]:
    held = GaugeMetricFamily(f"{_PREFIX}placements", "Gangs that hold nodes, by holder", labels=("holder",))
    for holder, count in sorted(f.placements.items()):
        held.add_metric((holder,), count)
    yield held
    yield _gauge("placed_workers", "Workers of those gangs", f.placed_workers)
    decisions = CounterMetricFamily(
        f"{_PREFIX}placement_decisions", "Answers to where a gang goes, by outcome", labels=("outcome",)
    )
    for outcome in OUTCOMES:
        decisions.add_metric((outcome,), f.placement_decisions_total.get(outcome, 0))
    yield decisions
    yield _gauge("placement_watchers", "Readers that follow placements", f.placement_watchers)


def bounded(evidence: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """The same with at most so many probe names: those that are held most; the rest is "other"."""
    by_probe: Tally[str] = Tally()
    for (probe, _), count in evidence.items():
        by_probe[probe] += count
    kept = {probe for probe, _ in by_probe.most_common(_MAX_PROBES)}
    found: Tally[tuple[str, str]] = Tally()
    for (probe, outcome), count in evidence.items():
        found[probe if probe in kept else _OTHER, outcome] += count
    return found


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, what, value=value)


def _counter(name: str, what: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, what, value=value)
