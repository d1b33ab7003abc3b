"""Expand patterns of names, such as "gpu-u{u}-{n:02}/mlx5_{i-1}" for every u, n and i.

Braces contain integers, variables, + - * // % and parentheses. A colon and a number of digits may follow: the
number is padded with zeros to that width. Nothing else is evaluated, because a blueprint is data.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Value = int | str
_Term = Callable[[Mapping[str, Value]], int]

MAX_VALUES = 100_000  # of one variable
_MAX_EXPRESSION = 80  # characters
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_TOKEN = re.compile(r"\s*(//|[-+*%()]|[0-9]{1,9}(?![0-9A-Za-z_])|[A-Za-z_][A-Za-z0-9_]{0,31})")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_PIECE = re.compile(r"\{([^{}]*)\}")
_WIDTH = re.compile(r"0?([1-9])")


class PatternError(ValueError):
    """A pattern that is invalid. The message gives the reason."""


def is_variable(name: str) -> bool:
    """Return whether a text is a valid name for a variable."""
    return _VARIABLE.fullmatch(name) is not None


def values_of(text: str) -> list[Value]:
    """Return the numbers of "1-8" or "1,3,8-12"; a word is its own value. Raises PatternError."""
    found: list[Value] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            if "," in text or not part.strip():
                raise PatternError(f"{text!a}: expected numbers such as 1-8 or 1,3,8-12")
            return [part.strip()]
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise PatternError(f"{text!a}: {last} is less than {first}")
        if last - first >= MAX_VALUES:
            raise PatternError(f"{text!a}: more than {MAX_VALUES} values")
        found += range(first, last + 1)
    return found


@dataclass(frozen=True, slots=True)
class Template:
    """A text with expressions in braces."""

    text: str
    pieces: tuple[str | tuple[Callable[[Mapping[str, Value]], Value], int], ...]

    def filled(self, values: Mapping[str, Value]) -> str:
        """Return the text for these values. Raises PatternError."""
        parts = []
        for piece in self.pieces:
            if isinstance(piece, str):
                parts.append(piece)
                continue
            value = piece[0](values)
            if isinstance(value, int) and value < 0:
                raise PatternError(f"{self.text!a}: {value} is below 0 for {_listed(values)}")
            parts.append(str(value).zfill(piece[1]) if piece[1] else str(value))
        return "".join(parts)


def template(text: str, variables: Sequence[str]) -> Template:
    """Parse a text with expressions in braces. Raises PatternError."""
    pieces: list[str | tuple[Callable[[Mapping[str, Value]], Value], int]] = []
    at = 0
    for match in _PIECE.finditer(text):
        pieces.append(text[at : match.start()])
        at = match.end()
        expression, colon, width = match[1].partition(":")
        digits = _WIDTH.fullmatch(width) if colon else None
        if colon and digits is None:
            raise PatternError(f"{{{match[1]}}}: expected a width such as 02 after the colon")
        pieces.append((_compiled(expression, variables), int(digits[1]) if digits else 0))
    pieces.append(text[at:])
    if any(isinstance(piece, str) and ("{" in piece or "}" in piece) for piece in pieces):
        raise PatternError(f"{text!a}: unbalanced braces: expected {{...}} around each expression")
    return Template(text, tuple(piece for piece in pieces if piece != ""))


@dataclass(frozen=True, slots=True)
class Loop:
    """Variables with the values of each. Iterates over all combinations."""

    values: Mapping[str, tuple[Value, ...]]

    @property
    def size(self) -> int:
        return math.prod(map(len, self.values.values()))

    def __iter__(self) -> Iterator[Mapping[str, Value]]:
        for row in itertools.product(*self.values.values()):
            yield dict(zip(self.values, row, strict=True))


def _compiled(text: str, variables: Sequence[str]) -> Callable[[Mapping[str, Value]], Value]:
    stripped = text.strip()
    if is_variable(stripped):
        _known(stripped, text, variables)
        return lambda values: values[stripped]
    return _Expression(text, variables).whole()


def _known(name: str, text: str, variables: Sequence[str]) -> None:
    if name not in variables:
        raise PatternError(f"{{{text}}}: no variable {name!a} in `for`, which has: {', '.join(variables)}")


class _Expression:
    """A parser of sums of products, from left to right, with one token of lookahead."""

    def __init__(self, text: str, variables: Sequence[str]) -> None:
        if len(text) > _MAX_EXPRESSION:
            raise PatternError(f"{{{text[:20]}...}}: at most {_MAX_EXPRESSION} characters")
        self._text = text
        self._variables = variables
        self._tokens: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._wrong()
            self._tokens.append(match[1])
            at = match.end()
        self._tokens.reverse()

    def whole(self) -> _Term:
        term = self._sum()
        if self._tokens:
            raise self._wrong()
        return term

    def _wrong(self) -> PatternError:
        return PatternError(f"{{{self._text}}}: expected numbers, variables and + - * // %")

    def _peek(self, *wanted: str) -> str | None:
        return self._tokens.pop() if self._tokens and self._tokens[-1] in wanted else None

    def _sum(self) -> _Term:
        left = self._product()
        while sign := self._peek("+", "-"):
            left = self._joined(left, sign, self._product())
        return left

    def _product(self) -> _Term:
        left = self._atom()
        while sign := self._peek("*", "//", "%"):
            left = self._joined(left, sign, self._atom())
        return left

    def _joined(self, a: _Term, sign: str, b: _Term) -> _Term:
        if sign == "+":
            return lambda values: a(values) + b(values)
        if sign == "-":
            return lambda values: a(values) - b(values)
        if sign == "*":
            return lambda values: a(values) * b(values)
        divide = int.__floordiv__ if sign == "//" else int.__mod__
        text = self._text

        def divided(values: Mapping[str, Value]) -> int:
            by = b(values)
            if by == 0:
                raise PatternError(f"{{{text}}}: divided by 0 for {_listed(values)}")
            return divide(a(values), by)

        return divided

    def _atom(self) -> _Term:
        if self._peek("("):
            term = self._sum()
            if not self._peek(")"):
                raise self._wrong()
            return term
        if not self._tokens:
            raise self._wrong()
        token = self._tokens.pop()
        if token.isdecimal():
            number = int(token)
            return lambda _: number
        if not is_variable(token):
            raise self._wrong()
        _known(token, self._text, self._variables)
        text = self._text

        def value(values: Mapping[str, Value]) -> int:
            found = values[token]
            if not isinstance(found, int):
                raise PatternError(f"{{{text}}}: expected a number for {token}, found {found!a}")
            return found

        return value


def _listed(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
