"""How long the placer may take over one request."""

from typing import Final

MOST_WORK: Final = 2 * 10**9  # additions of table entries, a second or two


class TooBigError(Exception):
    """The tables would be larger than the limit."""


class Work:
    """What may be spent on the tables of one request."""

    def __init__(self, most: int = MOST_WORK) -> None:
        self._left = most

    def spend(self, amount: int) -> None:
        """Raises TooBigError when it is used up; it stays so."""
        self._left -= amount
        if self._left < 0:
            raise TooBigError
