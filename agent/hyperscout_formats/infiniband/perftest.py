"""Reads the output of `ib_send_lat` and `ib_send_bw` of perftest.

Sources: ib_send_lat(1), ib_send_bw(1), and outputs of versions 4.5 to 6.06. The output is a table for one
message size: a line of column names that begins with "#bytes", and then the line of numbers. Columns are
found by name, because versions add some. Latencies are one way, half a round trip.
"""

import re
from dataclasses import dataclass

from hyperscout_formats.text.errors import FormatError

_MAX_BYTES = 1024 * 1024
_COLUMN = re.compile(r"#?[^\s\[\]]+(?: (?:peak|average|percentile))?(?:\[[^\]\s]*\])?")
_MAX_US = 1e9
_MAX_GBPS = 1e6
_MIB_BITS = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class OneWay:
    """One-way latency, in microseconds. 0 = not in the output."""

    iterations: int
    min_us: float
    typical_us: float  # the median
    deviation_us: float


def parse_latency(text: bytes, source: str = "ib_send_lat") -> OneWay:
    """Return the latency. Raises FormatError if the output has no such table or a number is impossible."""
    row, line = _row(text, source)
    found = OneWay(
        int(_number(row, "#iterations", source, line, 1e9)),
        _number(row, "t_min", source, line, _MAX_US),
        _number(row, "t_typical", source, line, _MAX_US),
        _number(row, "t_stdev", source, line, _MAX_US, default=0.0),
    )
    if not 0 < found.min_us <= found.typical_us:
        raise FormatError(source, line, f"a minimum of {found.min_us} us, a median of {found.typical_us} us")
    return found


def parse_bandwidth(text: bytes, source: str = "ib_send_bw") -> float:
    """Return the average in Gbit/s; the tool may print Gbit or MiB. Raises FormatError."""
    row, line = _row(text, source)
    average = _number(row, "BW average", source, line, 1e12)
    unit = next((name for name in row if name.startswith("BW average")), "").lower()
    gbps = average if "gb" in unit else average * _MIB_BITS / 1e9
    if not 0 < gbps <= _MAX_GBPS:
        raise FormatError(source, line, f"a bandwidth of {gbps} Gbit/s")
    return gbps


def _row(text: bytes, source: str) -> tuple[dict[str, str], int]:
    """Return the texts of the numbers by column, and the line of the numbers."""
    names: list[str] = []
    for number, raw in enumerate(text[:_MAX_BYTES].splitlines(), 1):
        line = raw[:1024].decode("ascii", "replace").strip()
        if line.startswith("#bytes"):
            names = _COLUMN.findall(line)
        elif names and line[:1].isdigit():
            values = line.split()
            if len(values) != len(names):
                raise FormatError(source, number, f"{len(values)} values for {len(names)} columns")
            return dict(zip(names, values, strict=True)), number
    raise FormatError(source, 0, "no table of results in the output")


def _number(
    row: dict[str, str], column: str, source: str, line: int, most: float, default: float | None = None
) -> float:
    text = next((value for name, value in row.items() if name.split("[")[0] == column), None)
    if text is None:
        if default is not None:
            return default
        raise FormatError(source, line, f"no column {column}")
    if not re.fullmatch(r"\d{1,18}(\.\d{1,18})?", text):
        raise FormatError(source, line, f"{column}: expected a number, found {text[:40]!r}")
    value = float(text)
    if value > most:
        raise FormatError(source, line, f"{column}: expected at most {most:g}, found {text[:40]}")
    return value
