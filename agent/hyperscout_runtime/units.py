"""Units, limits and texts of time."""

from datetime import UTC, datetime, timedelta
from typing import Final

NS: Final = 1_000_000_000  # nanoseconds in a second

# Offset of a machine's clock from the collector's, in seconds. The clock decides whether tokens and
# certificates are valid; a token lasts an hour.
CLOCK_WARNING_S: Final = 2.0
CLOCK_FAILED_S: Final = 300.0


def rfc3339(ns: int, *, timespec: str = "seconds") -> str:
    """Unix nanoseconds as an absolute UTC time: 2026-01-31T14:03:07Z.

    `timespec`: the last unit of the text, as in `datetime.isoformat`; the rest is cut off. Raises ValueError
    or OverflowError for a time outside the years 1 to 9999.
    """
    when = datetime.fromtimestamp(ns // NS, UTC) + timedelta(microseconds=ns % NS // 1000)
    return f"{when.replace(tzinfo=None).isoformat(timespec=timespec)}Z"


def from_rfc3339(text: str) -> int:
    """Unix nanoseconds of such a time, in whole seconds; without a time zone it is UTC. Raises ValueError."""
    when = datetime.fromisoformat(text)
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()) * NS
