"""Metrics of publishers, writes to the Kubernetes API, MQTT and placements."""

from collections import Counter
from collections.abc import Iterator

from hyperscout_formats.text.prometheus_text import counter, gauge
from hyperscout_kubernetes.client import KubeCounters
from hyperscout_kubernetes.errors import WORDS
from hyperscout_mqtt.counters import INBOUND_OUTCOMES, MqttCounters
from hyperscout_placer.book.placements import OUTCOMES

from hyperscout_collector.app.status.parts import Parts

OUTCOMES_OF_WRITES = ("written", *WORDS)

PUBLISHED = gauge(
    "hyperscout_collector_published_generation", "Last generation that a publisher got out.", "publisher"
)
PUBLISHER_FAILING = gauge(
    "hyperscout_collector_publisher_failing", "1 while a publisher cannot get the newest out.", "publisher"
)
PUBLISH_ERRORS = counter(
    "hyperscout_collector_publish_errors_total", "Times that a publisher failed.", "publisher"
)
PUBLISH_RETRIES = counter(
    "hyperscout_collector_publish_retries_total", "Times that it tried again after a failure.", "publisher"
)

KUBERNETES_WRITES = counter(
    "hyperscout_collector_kubernetes_writes_total",
    "Writes to the Kubernetes API, by method and outcome.",
    "method",
    "outcome",
)
KUBERNETES_SECONDS = counter(
    "hyperscout_collector_kubernetes_write_seconds_total",
    "Time that those took in seconds, waiting for their turn left out.",
    "method",
)

MQTT_CONNECTED = gauge("hyperscout_collector_mqtt_connected", "1 while the MQTT broker is connected.")
MQTT_CONNECTS = counter("hyperscout_collector_mqtt_connects_total", "Times that it was connected.")
MQTT_PUBLISHED = counter(
    "hyperscout_collector_mqtt_messages_published_total", "Messages that the broker has taken."
)
MQTT_DROPPED = counter(
    "hyperscout_collector_mqtt_messages_dropped_total", "Messages that never went out: no room was left."
)
MQTT_WAITING = gauge("hyperscout_collector_mqtt_messages_waiting", "Messages that wait for the broker.")
MQTT_REPORTS = counter(
    "hyperscout_collector_mqtt_reports_total", "Reports of devices that came by MQTT, by outcome.", "outcome"
)

PLACEMENTS = gauge("hyperscout_collector_placements", "Gangs that hold nodes, by holder.", "holder")
PLACED_WORKERS = gauge("hyperscout_collector_placed_workers", "Workers of those gangs.")
DECISIONS = counter(
    "hyperscout_collector_placement_decisions_total",
    "Answers to where a gang goes, by outcome: reserved, fits (a dry run), refused.",
    "outcome",
)


def outputs(parts: Parts) -> Iterator[str]:
    yield from _publishers(parts)
    if parts.kube is not None:
        yield from _kubernetes(parts.kube.counters)
    if parts.mqtt is not None:
        yield from _mqtt(parts.mqtt)
    yield from _placements(parts)


def _publishers(parts: Parts) -> Iterator[str]:
    states = {state.publisher.name: state for state in parts.runner.states}
    yield PUBLISHED.by({name: state.generation for name, state in states.items()})
    yield PUBLISHER_FAILING.by({name: state.problem is not None for name, state in states.items()})
    yield PUBLISH_ERRORS.by({name: state.errors for name, state in states.items()})
    yield PUBLISH_RETRIES.by({name: state.retries for name, state in states.items()})


def _kubernetes(counters: KubeCounters) -> Iterator[str]:
    # All outcomes of every method in use: `increase()` does not count the first sample of a new series.
    used = sorted({method for method, _ in counters.writes})
    yield KUBERNETES_WRITES.by(
        {(m, outcome): counters.writes[m, outcome] for m in used for outcome in OUTCOMES_OF_WRITES}
    )
    yield KUBERNETES_SECONDS.by(dict(sorted(counters.write_seconds.items())))


def _mqtt(counters: MqttCounters) -> Iterator[str]:
    yield MQTT_CONNECTED.of(counters.connected)
    yield MQTT_CONNECTS.of(counters.connects_total)
    yield MQTT_PUBLISHED.of(counters.published_total)
    yield MQTT_DROPPED.of(counters.dropped_total)
    yield MQTT_WAITING.of(counters.waiting)
    yield MQTT_REPORTS.by({outcome: counters.inbound[outcome] for outcome in INBOUND_OUTCOMES})


def _placements(parts: Parts) -> Iterator[str]:
    placements = parts.placing.placements
    held = Counter(gang.holder for gang in placements)
    yield PLACEMENTS.by({"api": 0, **dict(sorted(held.items()))})
    yield PLACED_WORKERS.of(placements.ranks)
    yield DECISIONS.by({outcome: placements.decisions[outcome] for outcome in OUTCOMES})
