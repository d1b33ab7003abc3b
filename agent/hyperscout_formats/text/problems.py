"""Collects the problems of a reader, with bounded memory."""

from collections.abc import Collection
from itertools import islice
from typing import Final

from hyperscout_formats.text.counts import count
from hyperscout_formats.text.errors import Problem

MAX_PROBLEMS: Final = 100


class Problems:
    """Keeps at most `MAX_PROBLEMS` single problems and as many of each `add_all`, and counts the rest."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._kept: list[tuple[int, str]] = []
        self._single = 0
        self._total = 0

    def add(self, line: int, reason: str) -> None:
        """Add one problem. `line` counts from 1, 0 = unknown."""
        self._total += 1
        self._single += 1
        if self._single <= MAX_PROBLEMS:
            self._kept.append((line, reason))

    def add_all(self, lines: Collection[int], reason: str) -> None:
        """Add the same problem for several lines, which must be in ascending order."""
        self._total += len(lines)
        self._kept += [(int(line), reason) for line in islice(lines, MAX_PROBLEMS)]

    def listed(self) -> tuple[Problem, ...]:
        """Return at most `MAX_PROBLEMS` problems in order of lines, and one more that counts the rest."""
        shown = sorted(self._kept)[:MAX_PROBLEMS]
        listed = [Problem(self._source, line, reason) for line, reason in shown]
        if self._total > len(shown):
            listed.append(
                Problem(self._source, 0, f"{count(self._total - len(shown), 'more problem')} not shown")
            )
        return tuple(listed)
