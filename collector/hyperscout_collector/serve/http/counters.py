"""Counts REST requests and live stream events since the start of the process, for /metrics."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class RestCounters:
    """Counters of REST; the code that handles a request increments them.

    `requests`: by (method, route template, status class), for example ("GET", "/v1/hypernodes/{name}",
    "2xx"). A path without a route and a method that no route has count as "other". `seconds`: by route
    template, the time until the head of the response is sent.
    """

    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    readers: int = 0  # present readers of the live stream
    readers_total: int = 0
    dropped_total: int = 0  # readers that were disconnected because they were too slow
    events_total: int = 0  # events sent, summed over all readers
