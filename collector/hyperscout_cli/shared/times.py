"""Times on the command line: relative (2h, 1d12h ago) or absolute (RFC 3339); and durations (10s, 5m, 2h)."""

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
from hyperscout_runtime.units import NS

from hyperscout_cli.shared.output import note

_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_LONGEST = 24  # characters of a duration
_SHOWN = 100  # characters of a text in an error
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[wdhms])+", re.ASCII)
_BARE = re.compile(r"(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([wdhms])", re.ASCII)
_EXPECTED = "expected an age (90s, 15m, 2h, 1d12h, 1w) or a time (2026-01-31T14:03:07Z)"


def parse(text: str, now_ns: int) -> int:
    """Unix nanoseconds. Raises ValueError."""
    shown = repr(text[:_SHOWN])
    if (ago_s := seconds_of(text)) is not None:
        if (at_ns := now_ns - int(ago_s * NS)) < 0:
            raise ValueError(f"{shown}: before 1970: {_EXPECTED}")
        return at_ns
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{shown}: {_EXPECTED}") from error
    if when.tzinfo is None:
        raise ValueError(f"{shown}: no time zone: end it with Z, or with an offset such as +02:00")
    if (whole_s := when.timestamp()) < 0:
        raise ValueError(f"{shown}: before 1970: {_EXPECTED}")
    return int(whole_s) * NS + when.microsecond * 1000


def seconds_of(text: str) -> float | None:
    """Seconds of a duration such as 90s, 1d12h or 5m12s; None if it is not one."""
    if len(text) > _LONGEST or not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))


def _with_unit(seconds: float) -> str:
    """A limit in a message: 3600 is 1h."""
    unit = next((x for x in "dhm" if seconds >= _UNITS_S[x] and not seconds % _UNITS_S[x]), "s")
    return f"{seconds / _UNITS_S[unit]:g}{unit}"


class Duration(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.2
    """A duration on the command line, from `least_s` to `most_s`, as seconds. A bare number is in seconds."""

    name = "DURATION"

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value)
        bare = _BARE.fullmatch(text) is not None
        found_s = float(text) if bare else seconds_of(text)
        if found_s is None or not self._least_s <= found_s <= self._most_s:
            limits = f"{_with_unit(self._least_s)} to {_with_unit(self._most_s)}"
            self.fail(f"{text[:_SHOWN]!r}: expected a duration such as 10s, 5m or 2h ({limits})", param, ctx)
        if bare and found_s:
            flag = param.opts[-1] if param is not None else self.name
            note(f"warning: {flag} {text}: a number without a unit means seconds: write {found_s:g}s")
        return found_s


class When(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.2
    """A time on the command line, as Unix nanoseconds."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse(str(value), time.time_ns())
        except ValueError as error:
            self.fail(str(error), param, ctx)


def time_option(flag: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--since TIME and the like; the command gets Unix nanoseconds, or None."""
    return click.option(
        flag, flag[2:] + "_ns", metavar="TIME", type=When(), help=f"{text} (2h, 1d12h, 2026-01-31T14:03:07Z)."
    )


at_option = time_option("--at", "Show the topology that was published at this time")
