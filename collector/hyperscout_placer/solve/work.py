"""Limits the computation that the placer spends on one request."""

from typing import Final

MAX_WORK: Final = 2 * 10**9  # additions of table entries; about one or two seconds


class TooBigError(Exception):
    """The tables or the work for them would exceed the limit."""


class Work:
    """The remaining work for the tables of one request. `looks`: unit trials of greedy searches so far."""

    def __init__(self, most: int = MAX_WORK) -> None:
        self.looks = 0
        self._left = most

    def spend(self, amount: int) -> None:
        """Raises TooBigError when the limit is exceeded, and in every later call."""
        self._left -= amount
        if self._left < 0:
            raise TooBigError
