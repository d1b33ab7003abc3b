"""Times on the command line: relative (2h, 1d12h ago) or absolute (RFC 3339)."""

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
from hyperscout_runtime.units import NS

_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_AGO = re.compile(r"(?:\d+(?:\.\d+)?[wdhms])+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([wdhms])", re.ASCII)
_EXPECTED = "expected an age (90s, 15m, 2h, 1d12h, 1w) or a time (2026-01-31T14:03:07Z)"


def parse(text: str, now_ns: int) -> int:
    """Unix nanoseconds. Raises ValueError."""
    if (ago_s := seconds_of(text)) is not None:
        if (at_ns := now_ns - int(ago_s * NS)) < 0:
            raise ValueError(f"{text!r}: before 1970: {_EXPECTED}")
        return at_ns
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: {_EXPECTED}") from error
    if when.tzinfo is None:
        raise ValueError(f"{text!r}: no time zone: end it with Z, or with an offset such as +02:00")
    if (whole_s := when.timestamp()) < 0:
        raise ValueError(f"{text!r}: before 1970: {_EXPECTED}")
    return int(whole_s) * NS + when.microsecond * 1000


def seconds_of(text: str) -> float | None:
    """Seconds of a duration such as 90s, 1d12h or 5m12s; None if it is not one."""
    if not _AGO.fullmatch(text):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))


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
