"""How much the history holds, for /metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class HistorySize:
    """Kept up to date by who writes the history. `oldest_ns`: Unix ns, 0 = nothing is kept."""

    bytes: int = 0  # on disk
    generations: int = 0
    events: int = 0
    oldest_ns: int = 0
    write_failures_total: int = 0
