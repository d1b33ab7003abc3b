"""Counts stale rows for a metric, without a look at all rows."""

from collections import Counter

from hyperscout_runtime.units import NS


class AgeCount:
    """Counts how many times are before a limit, in whole seconds. The limit usually grows.

    A query costs one lookup for each second by which the limit moved since the last query, or one for each
    second that has a time, whichever is less.
    """

    def __init__(self) -> None:
        self._by_second: Counter[int] = Counter()
        self._limit_s = 0
        self._before = 0

    def add(self, at_ns: int, by: int) -> None:
        """`by`: 1 to add a time, -1 to remove it."""
        at_s = at_ns // NS
        self._by_second[at_s] += by
        if not self._by_second[at_s]:
            del self._by_second[at_s]
        if at_s < self._limit_s:
            self._before += by

    def move(self, from_ns: int, to_ns: int) -> None:
        """Replace a time by another."""
        if from_ns // NS != to_ns // NS:
            self.add(to_ns, 1)
            self.add(from_ns, -1)

    def before(self, limit_ns: int) -> int:
        """Returns the number of times in an earlier second than `limit_ns`."""
        limit_s = limit_ns // NS
        low, high = sorted((self._limit_s, limit_s))
        if high - low <= len(self._by_second):
            between = sum(self._by_second.get(second, 0) for second in range(low, high))
        else:
            between = sum(count for second, count in self._by_second.items() if low <= second < high)
        self._before += between if limit_s == high else -between
        self._limit_s = limit_s
        return self._before
