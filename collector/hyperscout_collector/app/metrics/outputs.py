"""Metrics of publishers, writes to the Kubernetes API, MQTT, placements, clients and the history."""

from collections import Counter
from collections.abc import Iterator, Sequence

from hyperscout_formats.text.prometheus_text import counter, gauge
from hyperscout_gates.control.queue import Queue
from hyperscout_kubernetes.client import KubeCounters
from hyperscout_kubernetes.errors import WORDS
from hyperscout_mqtt.counters import INBOUND_OUTCOMES, MqttCounters
from hyperscout_placer.book.placements import OUTCOMES, Placements
from hyperscout_publish.publisher.runner import PublisherRunner
from hyperscout_runtime.units import NS

from hyperscout_collector.app.status.components import Components
from hyperscout_collector.history.store import HistorySize
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.http.counters import RestCounters

STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")
OUTCOMES_OF_WRITES = ("written", *WORDS)

PUBLISHED = gauge(
    "hyperscout_collector_published_generation", "Last generation that a publisher published.", "publisher"
)
PUBLISHER_FAILING = gauge(
    "hyperscout_collector_publisher_failing",
    "1 while a publisher cannot publish the newest generation.",
    "publisher",
)
PUBLISH_ERRORS = counter("hyperscout_collector_publish_errors_total", "Failures of a publisher.", "publisher")
PUBLISH_RETRIES = counter(
    "hyperscout_collector_publish_retries_total", "Attempts of a publisher after a failure.", "publisher"
)

KUBERNETES_WRITES = counter(
    "hyperscout_collector_kubernetes_writes_total",
    "Writes to the Kubernetes API, by method and outcome.",
    "method",
    "outcome",
)
KUBERNETES_SECONDS = counter(
    "hyperscout_collector_kubernetes_write_seconds_total",
    "Duration of writes to the Kubernetes API in seconds, without the wait for the rate limit.",
    "method",
)

MQTT_CONNECTED = gauge("hyperscout_collector_mqtt_connected", "1 while the MQTT broker is connected.")
MQTT_CONNECTS = counter("hyperscout_collector_mqtt_connects_total", "Connections to the MQTT broker.")
MQTT_PUBLISHED = counter(
    "hyperscout_collector_mqtt_messages_published_total", "Messages that the broker accepted."
)
MQTT_DROPPED = counter(
    "hyperscout_collector_mqtt_messages_dropped_total",
    "Messages that were dropped because the queue was full.",
)
MQTT_WAITING = gauge("hyperscout_collector_mqtt_messages_waiting", "Messages that wait for the broker.")
MQTT_REPORTS = counter(
    "hyperscout_collector_mqtt_reports_total", "Reports of devices received by MQTT, by outcome.", "outcome"
)

PLACEMENTS = gauge("hyperscout_collector_placements", "Gangs with reserved nodes, by holder.", "holder")
PLACED_WORKERS = gauge("hyperscout_collector_placed_workers", "Workers of the gangs with reserved nodes.")
DECISIONS = counter(
    "hyperscout_collector_placement_decisions_total",
    "Decisions of the placer, by outcome: reserved, fits (a dry run), refused.",
    "outcome",
)
WAITING_GANGS = gauge("hyperscout_collector_waiting_gangs", "Gangs of pods that wait for nodes.")
LONGEST_WAIT = gauge(
    "hyperscout_collector_longest_wait_seconds",
    "Time in seconds since the first pod of the gang that has waited longest was created; 0 = no gang waits.",
)
KEPT_NODES = gauge("hyperscout_collector_kept_nodes", "Nodes that are kept for a waiting gang.")
DRAINS = counter("hyperscout_collector_drains_total", "Waiting gangs for which nodes were kept.")
PLANS = counter(
    "hyperscout_collector_defragment_plans_total",
    "Plans of the schedule to defragment, by outcome: found, none.",
    "outcome",
)
PLANNED_MOVES = gauge(
    "hyperscout_collector_defragment_moves", "Workers to move in the newest plan; 0 = there is none."
)

WATCHERS = gauge("hyperscout_collector_watchers", "Clients that watch the topology by gRPC.")
RESNAPSHOTS = counter(
    "hyperscout_collector_resnapshots_total", "New snapshots sent to gRPC watchers that were too slow."
)
PLACEMENT_WATCHERS = gauge(
    "hyperscout_collector_placement_watchers", "Clients that watch placements by gRPC."
)

REQUESTS = counter(
    "hyperscout_collector_rest_requests_total",
    "Requests to the REST API, by method, route and class of status (2xx).",
    "method",
    "route",
    "status",
)
REQUEST_SECONDS = counter(
    "hyperscout_collector_rest_request_seconds_total",
    "Time in seconds until the response headers were sent, by route.",
    "route",
)
STREAM_READERS = gauge("hyperscout_collector_rest_stream_readers", "Readers of the live stream of REST.")
STREAMS_OPENED = counter("hyperscout_collector_rest_streams_total", "Live streams opened.")
STREAM_DROPPED = counter(
    "hyperscout_collector_rest_stream_dropped_total",
    "Readers of the live stream that were disconnected because they were too slow.",
)
STREAM_EVENTS = counter(
    "hyperscout_collector_rest_stream_events_total", "Events written to the live stream, to all readers."
)

HISTORY_BYTES = gauge("hyperscout_collector_history_bytes", "Size of the history on disk in bytes.")
HISTORY_GENERATIONS = gauge("hyperscout_collector_history_generations", "Generations in the history.")
HISTORY_EVENTS = gauge("hyperscout_collector_history_events", "Changes in the history.")
HISTORY_OLDEST = gauge(
    "hyperscout_collector_history_oldest_timestamp_seconds",
    "Time of the oldest generation in the history, in seconds since 1970; 0 = the history is empty.",
)
HISTORY_FAILURES = counter(
    "hyperscout_collector_history_write_failures_total", "Failed writes of the history."
)


def outputs(components: Components) -> Iterator[str]:
    publishing, callers = components.publishing, components.callers
    yield from _publishers(publishing.runner)
    if callers.kubes:
        yield from _kubernetes([kube.counters for kube in callers.kubes.values()])
    if publishing.mqtt is not None:
        yield from _mqtt(publishing.mqtt.counters)
    yield from _placements(publishing.placing.placements)
    if publishing.gates is not None:
        yield from _queue(publishing.gates.queue, components.clock_ns())
    yield PLACEMENT_WATCHERS.of(len(publishing.placing.watchers))
    if callers.rest is not None:
        yield from _requests(callers.rest)
    yield from readers(publishing.watchers, callers.rest)
    if publishing.recorder is not None:
        yield from _history(publishing.recorder.size)


def readers(watchers: Hub, rest: RestCounters | None) -> Iterator[str]:
    """The metrics of clients that follow the topology. `rest`: None = REST is off."""
    yield WATCHERS.of(len(watchers))
    yield RESNAPSHOTS.of(watchers.resnapshots)
    if rest is not None:
        yield STREAM_READERS.of(rest.readers)
        yield STREAMS_OPENED.of(rest.readers_total)
        yield STREAM_DROPPED.of(rest.dropped_total)
        yield STREAM_EVENTS.of(rest.events_total)


def _publishers(runner: PublisherRunner) -> Iterator[str]:
    states = {state.publisher.name: state for state in runner.states}
    yield PUBLISHED.by({name: state.generation for name, state in states.items()})
    yield PUBLISHER_FAILING.by({name: state.problem is not None for name, state in states.items()})
    yield PUBLISH_ERRORS.by({name: state.errors for name, state in states.items()})
    yield PUBLISH_RETRIES.by({name: state.retries for name, state in states.items()})


def _kubernetes(of_clusters: Sequence[KubeCounters]) -> Iterator[str]:
    writes: Counter[tuple[str, str]] = Counter()
    seconds: dict[str, float] = {}
    for counters in of_clusters:
        writes.update(counters.writes)
        for method, took_s in counters.write_seconds.items():
            seconds[method] = seconds.get(method, 0.0) + took_s
    # All outcomes of every method in use: `increase()` does not count the first sample of a new series.
    used = sorted({method for method, _ in writes})
    yield KUBERNETES_WRITES.by(
        {(m, outcome): writes[m, outcome] for m in used for outcome in OUTCOMES_OF_WRITES}
    )
    yield KUBERNETES_SECONDS.by(dict(sorted(seconds.items())))


def _mqtt(counters: MqttCounters) -> Iterator[str]:
    yield MQTT_CONNECTED.of(counters.connected)
    yield MQTT_CONNECTS.of(counters.connects_total)
    yield MQTT_PUBLISHED.of(counters.published_total)
    yield MQTT_DROPPED.of(counters.dropped_total)
    yield MQTT_WAITING.of(counters.waiting)
    yield MQTT_REPORTS.by({outcome: counters.inbound[outcome] for outcome in INBOUND_OUTCOMES})


def _placements(placements: Placements) -> Iterator[str]:
    held = Counter(gang.holder for gang in placements)
    yield PLACEMENTS.by({"api": 0, **dict(sorted(held.items()))})
    yield PLACED_WORKERS.of(placements.ranks)
    yield DECISIONS.by({outcome: placements.decisions[outcome] for outcome in OUTCOMES})


def _queue(queue: Queue, now_ns: int) -> Iterator[str]:
    waiting, plans = queue.turns.waiting(), queue.plans
    yield WAITING_GANGS.of(len(waiting))
    since_ns = min((gang.waits_since.ToNanoseconds() for gang in waiting), default=now_ns)
    yield LONGEST_WAIT.of(max(now_ns - since_ns, 0) / NS)
    yield KEPT_NODES.of(sum(gang.kept.nodes for gang in waiting))
    yield DRAINS.of(queue.draining.begun)
    yield PLANS.by({"found": plans.plans, "none": plans.refusals})
    yield PLANNED_MOVES.of(plans.last.moved if plans.last is not None else 0)


def _requests(counters: RestCounters) -> Iterator[str]:
    # All classes of every route in use: `increase()` does not count the first sample of a new series.
    asked = sorted({(method, route) for method, route, _ in counters.requests})
    keys = [(*route, status) for route in asked for status in STATUS_CLASSES]
    yield REQUESTS.by({key: counters.requests[key] for key in keys})
    yield REQUEST_SECONDS.by(dict(sorted(counters.seconds.items())))


def _history(size: HistorySize) -> Iterator[str]:
    yield HISTORY_BYTES.of(size.bytes)
    yield HISTORY_GENERATIONS.of(size.generations)
    yield HISTORY_EVENTS.of(size.events)
    yield HISTORY_OLDEST.of(size.oldest_ns / NS)
    yield HISTORY_FAILURES.of(size.write_failures_total)
