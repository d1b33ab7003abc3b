"""Plans a GETBULK walk over parts of a switch's MIB: the next request, and the end. No I/O.

Many switches violate RFC 3416: rows out of order, the same rows repeated without end, errors in the middle of
a table, no answer when it would be long. A walk keeps all rows that it receives, always ends, and records
the violations.
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
    """The walk cannot continue. The message gives the reason."""


class Walk:
    """A walk. The caller sends the request in `next` and reports its result, until `next` is None.

    `wanted`: the subtrees to walk. They are walked in OID order, so that an answer beyond one subtree can
    begin the next one.
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
        """The start OID and number of rows of the next request. None: the walk is done."""
        return (self._from, self._repetitions) if self._at < len(self._wanted) else None

    def row(self, oid: Oid) -> Row | None:
        """Return a row that was already received, or None."""
        return self._rows.get(oid)

    def add(self, newer: "Walk") -> None:
        """Add the rows and problems of a newer walk of the same switch."""
        self._rows |= newer._rows
        self.problems += newer.problems

    def answered(self, rows: Sequence[Row]) -> None:
        """Record the rows of an answer, in the switch's order. An empty answer ends the subtree.

        Raises WalkError when there are more than `max_rows` rows.
        """
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
        """Record an error answer. `error`: its name in RFC 3416."""
        self._answers += 1
        if error == "tooBig" and self._repetitions > 1:
            self._repetitions //= 2
            return
        self._odd(self._at, f"answers {error}")
        self._skip()

    def silent(self) -> bool:
        """Record a missing answer. Returns True when the caller should repeat the request with fewer rows.

        Networks often fragment and lose long answers.
        """
        if not self._answers or self._repetitions == 1:
            return False
        self._repetitions = max(1, self._repetitions // _SLOWER)
        return True

    def _take(self, row: Row) -> bool:
        """Keep a row of the current subtree or of a later one. Returns whether it was kept."""
        place = bisect_right(self._wanted, row.oid) - 1
        inside = place >= 0 and row.oid[: len(self._wanted[place])] == self._wanted[place]
        if place < self._at or not inside:
            if place >= self._at:  # in a gap after the current subtree, which is therefore done
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
            self.problems.append(f"{oid}: {what}: the rest of the table is unknown")
