"""Reads node maps, which assign InfiniBand adapters to hosts.

Lines are `[H-]<guid> <host>`. The node name map of the InfiniBand tools (ibnetdiscover(8), "node name map
file format": `0x0008f104003f125c "IB1 (Rack 11 slot 1)"`) is accepted as well, so that one file serves both.
"""

import io
import re
from typing import Final

from hyperscout_formats.infiniband.ibnetdiscover_line import printable
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.problems import Problems

MAX_BYTES: Final = 16 << 20
"""Enough for a quarter of a million adapters with names of 40 characters."""

_LINE: Final = re.compile(
    rb'\s*(?:[HSR]-|0x)?([0-9a-fA-F]{1,16})\s+(?:"([^"]{1,253})"|([^\s"#]{1,253}))\s*(?:#.*)?'
)


def parse(data: bytes, source: str = "node map") -> tuple[dict[int, str], tuple[Problem, ...]]:
    """Return the host by node GUID, and the lines that could not be read.

    If a GUID is repeated with another host, the first host counts and the line is reported. Raises
    FormatError if no line can be read and at least one line is not blank or a comment, or if the input is
    larger than `MAX_BYTES`.
    """
    if len(data) > MAX_BYTES:
        raise FormatError(source, 0, f"{len(data)} bytes; expected at most {MAX_BYTES} bytes")
    problems = Problems(source)
    hosts: dict[int, str] = {}
    unreadable = 0
    for number, line in enumerate(io.BytesIO(data), 1):
        text = line.strip()
        if not text or text.startswith(b"#"):
            continue
        found = _LINE.fullmatch(text)
        if found is None or not int(found[1], 16):
            unreadable += 1
            problems.add(number, f"expected `<guid> <host>`, found {text[:60].decode('utf-8', 'replace')!a}")
            continue
        guid, host = int(found[1], 16), printable(found[2] or found[3]).strip()
        if hosts.setdefault(guid, host) != host:
            problems.add(
                number,
                f"GUID {guid:016x} is listed twice, for {hosts[guid]!r} and {host!r}; the first is used",
            )
    if unreadable and not hosts:
        first = problems.listed()[0]
        raise FormatError(source, first.line, f"no valid line of a node map: {first.reason}")
    return hosts, problems.listed()
