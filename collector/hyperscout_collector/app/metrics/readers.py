"""Metrics of clients and of the history: gRPC watchers, REST, the live stream, stored generations."""

from collections.abc import Iterator

from hyperscout_formats.text.prometheus_text import counter, gauge

from hyperscout_collector.app.status.parts import Parts
from hyperscout_collector.history.size import HistorySize
from hyperscout_collector.serve.http.counters import RestCounters

NS = 1_000_000_000
STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")

WATCHERS = gauge("hyperscout_collector_watchers", "Readers that follow the topology by gRPC.")
RESNAPSHOTS = counter(
    "hyperscout_collector_resnapshots_total", "Times that one of them was too slow and began anew."
)
PLACEMENT_WATCHERS = gauge(
    "hyperscout_collector_placement_watchers", "Readers that follow placements by gRPC."
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
    "Time in seconds until the heads of their answers were out, by route.",
    "route",
)
STREAM_READERS = gauge("hyperscout_collector_rest_stream_readers", "Readers of the live stream of REST.")
STREAMS_OPENED = counter(
    "hyperscout_collector_rest_streams_total", "Times that somebody began to read the live stream."
)
STREAM_DROPPED = counter(
    "hyperscout_collector_rest_stream_dropped_total", "Readers that were too slow and were sent away."
)
STREAM_EVENTS = counter(
    "hyperscout_collector_rest_stream_events_total", "Events written to the live stream, to all readers."
)

HISTORY_BYTES = gauge("hyperscout_collector_history_bytes", "Bytes that the history takes on disk.")
HISTORY_GENERATIONS = gauge("hyperscout_collector_history_generations", "Generations that it keeps.")
HISTORY_EVENTS = gauge("hyperscout_collector_history_events", "Changes that it keeps.")
HISTORY_OLDEST = gauge(
    "hyperscout_collector_history_oldest_timestamp_seconds",
    "When the oldest that it keeps was published, in seconds since 1970; 0 = it is empty.",
)
HISTORY_FAILURES = counter(
    "hyperscout_collector_history_write_failures_total", "Times that the history could not be written."
)


def readers(parts: Parts) -> Iterator[str]:
    yield WATCHERS.of(len(parts.watchers))
    yield RESNAPSHOTS.of(parts.watchers.resnapshots)
    yield PLACEMENT_WATCHERS.of(len(parts.placing.watchers))
    if parts.rest is not None:
        yield from _rest(parts.rest)
    if parts.history is not None:
        yield from _history(parts.history)


def _rest(counters: RestCounters) -> Iterator[str]:
    # All classes of every route in use: `increase()` does not count the first sample of a new series.
    asked = sorted({(method, route) for method, route, _ in counters.requests})
    keys = [(*route, status) for route in asked for status in STATUS_CLASSES]
    yield REQUESTS.by({key: counters.requests[key] for key in keys})
    yield REQUEST_SECONDS.by(dict(sorted(counters.seconds.items())))
    yield STREAM_READERS.of(counters.readers)
    yield STREAMS_OPENED.of(counters.readers_total)
    yield STREAM_DROPPED.of(counters.dropped_total)
    yield STREAM_EVENTS.of(counters.events_total)


def _history(size: HistorySize) -> Iterator[str]:
    yield HISTORY_BYTES.of(size.bytes)
    yield HISTORY_GENERATIONS.of(size.generations)
    yield HISTORY_EVENTS.of(size.events)
    yield HISTORY_OLDEST.of(size.oldest_ns / NS)
    yield HISTORY_FAILURES.of(size.write_failures_total)
