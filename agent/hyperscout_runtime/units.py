"""Units of time."""

from typing import Final

NS: Final = 1_000_000_000  # nanoseconds in a second
