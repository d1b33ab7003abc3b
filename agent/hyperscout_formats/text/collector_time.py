"""The collector's clock, as it tells it to whoever opens a stream: in the metadata that come before all else.

So a host learns how far its own clock is off before anybody asked who it is, and without disturbing the
stream of the agent that runs there.
"""

from collections.abc import Iterable

KEY = "hyperscout-time-ns"
_MAX_DIGITS = 19  # until the year 2286


def stamp(now_ns: int) -> tuple[tuple[str, str], ...]:
    """Metadata that say it is `now_ns` (Unix time)."""
    return ((KEY, str(now_ns)),)


def time_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> int | None:
    """Unix time in ns; None where none, or none of use, is told."""
    for key, value in metadata or ():
        if key == KEY and isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_DIGITS:
            return int(value)
    return None
