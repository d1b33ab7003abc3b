"""Reads latency tables: round trips between nodes, as `node_a,node_b,rtt_us[,samples]`.

A table may have any subset of pairs in any order. A pair may be repeated, in either direction. Any ping tool
can produce a table: `sockperf`, `qperf`, `ib_send_lat` and a shell loop are enough.
"""

import io
import math
import re
from typing import Final, NamedTuple

from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.problems import Problems

MAX_BYTES: Final = 64 << 20
"""Enough for all pairs of 1,500 nodes, or for the pairs that 16,384 nodes need."""

MAX_NAME: Final = 253  # RFC 1123: the longest host name, and the longest name of a Kubernetes node
MAX_RTT_US: Final = 1e7
MAX_SAMPLES: Final = 2**31 - 1

_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{0,12})?(?:[eE][-+]?\d{1,2})?|\.\d{1,12}", re.ASCII)
_WHOLE: Final = re.compile(r"\d{1,10}", re.ASCII)
_HEADER: Final = ("node_a", "node_b", "rtt_us")


class LatencyRow(NamedTuple):
    """One round trip. `rtt_us` is in microseconds, above 0. `samples` counts attempts, 0 = unknown."""

    node_a: str
    node_b: str
    rtt_us: float
    samples: int = 0


def parse(data: bytes, source: str = "latency table") -> tuple[list[LatencyRow], tuple[Problem, ...]]:
    """Return rows in order, and the lines that could not be read.

    `#` begins a comment. The first line may be a header. Raises FormatError if no line can be read and at
    least one line has content, or if the input is larger than `MAX_BYTES`.
    """
    if len(data) > MAX_BYTES:
        raise FormatError(source, 0, f"{len(data)} bytes; expected at most {MAX_BYTES} bytes")
    problems = Problems(source)
    rows: list[LatencyRow] = []
    names: dict[str, str] = {}  # one shared object for each name
    unreadable = 0
    first = True
    for number, line in enumerate(io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")), 1):
        content = line.split(b"#", 1)[0].strip()
        if not content:
            continue
        row = _row(content, names)
        if isinstance(row, LatencyRow):
            rows.append(row)
        elif not (first and _is_header(content)):
            unreadable += 1
            problems.add(number, row)
        first = False
    if unreadable and not rows:
        found = problems.listed()[0]
        raise FormatError(source, found.line, f"no valid line of a latency table: {found.reason}")
    return rows, problems.listed()


def _is_header(content: bytes) -> bool:
    cells = [cell.strip().strip(b'"').lower() for cell in content[:200].split(b",")]
    return len(cells) in (3, 4) and tuple(cell.decode("ascii", "replace") for cell in cells[:3]) == _HEADER


def _row(content: bytes, names: dict[str, str]) -> LatencyRow | str:
    """Return the row, or the reason why the line has none."""
    cells = content.split(b",", 5)
    if len(cells) not in (3, 4):
        return f"expected `node_a,node_b,rtt_us[,samples]`, found {content[:60].decode('utf-8', 'replace')!a}"
    try:
        node_a, node_b, rtt, *more = (cell.strip().strip(b'"').strip().decode("utf-8") for cell in cells)
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason}"
    for name in (node_a, node_b):
        if not 0 < len(name) <= MAX_NAME or not name.isprintable() or any(map(str.isspace, name)):
            return f"expected the name of a node, found {name[:60]!a}"
    if node_a == node_b:
        return f"{node_a[:60]!a} is paired with itself; expected two different nodes"
    rtt_us = float(rtt) if _NUMBER.fullmatch(rtt) else math.nan
    if not 0 < rtt_us <= MAX_RTT_US:
        return (
            f"expected a round trip in microseconds, over 0 and at most {MAX_RTT_US:.0f}, found {rtt[:60]!a}"
        )
    samples = 0
    if more and more[0]:
        if not _WHOLE.fullmatch(more[0]):
            return f"expected a number of samples, found {more[0][:60]!a}"
        samples = min(int(more[0]), MAX_SAMPLES)
    return LatencyRow(names.setdefault(node_a, node_a), names.setdefault(node_b, node_b), rtt_us, samples)
