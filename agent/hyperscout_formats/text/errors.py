"""What a reader says about bad input.

A reader either returns facts (and a list of `Problem` for the parts it passed over) or raises
`FormatError`, never anything else.
"""

from dataclasses import dataclass


class FormatError(ValueError):
    """The input as a whole is not what it should be. Says which input, where, and what to do.

    `line` counts from 1; 0 means that no line is to blame.
    """

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__(f"{source}:{line}: {reason}" if line else f"{source}: {reason}")
        self.source = source
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of the input that was passed over; the rest was read. `line` counts from 1, 0 = unknown."""

    source: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.reason}" if self.line else f"{self.source}: {self.reason}"
