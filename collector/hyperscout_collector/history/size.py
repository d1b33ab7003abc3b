"""The size of the history, for /metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class HistorySize:
    """Updated by the writer of the history. `oldest_ns`: Unix ns, 0 = nothing is recorded."""

    bytes: int = 0  # on disk
    generations: int = 0
    events: int = 0
    oldest_ns: int = 0
    write_failures_total: int = 0
