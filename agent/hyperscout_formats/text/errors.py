"""Defines how readers report bad input.

A reader returns facts, with a list of `Problem` for the parts that it left out, or raises `FormatError`. It
raises no other exception.
"""

from dataclasses import dataclass


class FormatError(ValueError):
    """The whole input is unusable. The text contains the name of the input, the line and the reason.

    `line` counts from 1, 0 = no particular line.
    """

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__(f"{source}:{line}: {reason}" if line else f"{source}: {reason}")
        self.source = source
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of the input that was left out. The rest was read. `line` counts from 1, 0 = unknown."""

    source: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line}: {self.reason}" if self.line else f"{self.source}: {self.reason}"
