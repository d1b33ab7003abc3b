"""Encodes and decodes the collector's clock in the initial metadata of a stream.

A host can thus measure the offset of its own clock before it identifies itself, and without disturbing the
stream of the agent that runs on it.
"""

from collections.abc import Iterable

KEY = "hyperscout-time-ns"
_MAX_DIGITS = 19  # enough until the year 2286


def stamp(now_ns: int) -> tuple[tuple[str, str], ...]:
    """Return metadata with the time `now_ns` (Unix time in ns)."""
    return ((KEY, str(now_ns)),)


def time_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> int | None:
    """Return the Unix time in ns, None = the metadata has no valid time."""
    for key, value in metadata or ():
        if key == KEY and isinstance(value, str) and value.isdecimal() and len(value) <= _MAX_DIGITS:
            return int(value)
    return None
