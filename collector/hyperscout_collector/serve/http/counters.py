"""What REST did since the start of the process, for /metrics."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(slots=True)
class RestCounters:
    """Counted where it happens. `requests`: by (method, route template, status class) as in ("GET",
    "/v1/hypernodes/{name}", "2xx"); what fits no route is "other", and so is a method that no route has.
    `seconds`: by route template, until the answer's head is out."""

    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    readers: int = 0  # of the stream, now
    readers_total: int = 0
    dropped_total: int = 0  # readers of the stream that were too slow
    events_total: int = 0  # of the stream, to all readers together
