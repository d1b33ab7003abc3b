"""A walk over parts of a switch's MIB by GETBULK, without the asking: what to ask next, and when it is done.

Switches answer with everything but what RFC 3416 says: rows out of order, the same rows for ever, errors in
the middle of a table, nothing at all when an answer gets long. A walk takes what it can get, ends, and says
what was odd.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from hyperscout_formats.snmp.rows import Row

Oid = tuple[int, ...]

REPETITIONS: Final = 32
"""Rows asked for at once: an answer of about 1,400 bytes."""
MAX_ROWS: Final = 120_000
"""Of one switch: 13,000 neighbours. A switch of 64 ports has 1,500."""
_MAX_VALUE_BYTES = 1024
_MAX_PROBLEMS = 20
_SLOWER = 8


class WalkError(Exception):
    """The walk cannot go on; says why."""


class Walk:
    """Ask for `next`, tell what came of it, until `next` is None.

    `wanted`: what to walk. In order of OIDs, so that an answer that goes past one part begins the next.
    """

    def __init__(self, wanted: Iterable[Oid], *, max_rows: int = MAX_ROWS) -> None:
        self._wanted = sorted(wanted)
        self._max_rows = max_rows
        self._at = 0
        self._from: Oid = self._wanted[0] if self._wanted else ()
        self._repetitions = REPETITIONS
        self._rows: dict[Oid, Row] = {}
        self._answers = 0
        self.problems: list[str] = []

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> Iterable[Row]:
        return self._rows.values()

    @property
    def next(self) -> tuple[Oid, int] | None:
        """From where, and how many rows at once; None = done."""
        return (self._from, self._repetitions) if self._at < len(self._wanted) else None

    def row(self, oid: Oid) -> Row | None:
        """One that has come already."""
        return self._rows.get(oid)

    def answered(self, rows: Sequence[Row]) -> None:
        """Rows came, in the switch's order; none = it has no more. Raises WalkError."""
        self._answers += 1
        before, new, again = self._at, 0, False
        for row in rows:
            again |= row.oid in self._rows
            if row.oid not in self._rows and self._take(row):
                new += 1
        if len(self._rows) > self._max_rows:
            raise WalkError(f"more than {self._max_rows} rows: no switch has so much to say")
        if new and not again:
            return
        if again:
            self._odd(before, "repeats itself")
        if before == self._at:
            self._skip()

    def refused(self, error: str) -> None:
        """An error came in place of rows. `error`: its name in RFC 3416."""
        self._answers += 1
        if error == "tooBig" and self._repetitions > 1:
            self._repetitions //= 2
            return
        self._odd(self._at, f"answers {error}")
        self._skip()

    def silent(self) -> bool:
        """Nothing came. True: ask again, for less: what cuts up and loses long answers is common."""
        if not self._answers or self._repetitions == 1:
            return False
        self._repetitions = max(1, self._repetitions // _SLOWER)
        return True

    def _take(self, row: Row) -> bool:
        """Keep a row of the part that we are in or of one behind it."""
        place = bisect_right(self._wanted, row.oid) - 1
        inside = place >= 0 and row.oid[: len(self._wanted[place])] == self._wanted[place]
        if place < self._at or not inside:
            if place >= self._at:  # in a gap behind the part that we are in: that one is done
                self._at = place + 1
                self._from = self._wanted[self._at] if self._at < len(self._wanted) else ()
            return False
        value = row.value[:_MAX_VALUE_BYTES] if isinstance(row.value, bytes) else row.value
        self._rows[row.oid] = row._replace(value=value)
        self._at, self._from = place, row.oid
        return True

    def _skip(self) -> None:
        self._at += 1
        self._from = self._wanted[self._at] if self._at < len(self._wanted) else ()

    def _odd(self, place: int, what: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            oid = ".".join(map(str, self._wanted[place]))
            self.problems.append(f"{oid}: {what}: what comes after that is not known")
