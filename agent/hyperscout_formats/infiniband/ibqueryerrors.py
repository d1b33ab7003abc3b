"""Reads the output of `ibqueryerrors`: the error counters of an InfiniBand fabric that are not 0.

Source: ibqueryerrors(8) of infiniband-diags 44. Ports of a switch are listed under its node GUID, a port of
an adapter under the GUID of the port:

    Errors for 0x2000 "MF0;leaf2:MQM8700/U1"
       GUID 0x2000 port ALL: [PortXmitDiscards == 9]
       GUID 0x2000 port 8: [PortXmitDiscards == 9]
    ## Summary: 7 nodes checked, 1 bad nodes found

Port ALL is the sum over the ports of a switch, and is ignored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hyperscout_formats.facts.facts import PortCounters
from hyperscout_formats.infiniband.counters import LINK_DOWNED, port_counters
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.problems import Problems

SUMMARY: Final = b"## Summary:"
"""Start of the last line of the output of a run that completed."""
MAX_PORTS: Final = 1 << 20
_MAX_COUNT: Final = 2**64 - 1

_MAX_LINE_BYTES: Final = 4096  # there are about twenty counters
_PORT: Final = re.compile(rb"^[ \t]*GUID 0x([0-9a-f]{1,16}) port (ALL|\d{1,3}):")
_LINE: Final = re.compile(rb"^[ \t]*GUID 0x", re.MULTILINE)
_COUNT: Final = re.compile(rb"\[(\w{1,64}) == (\d{1,20})\b")


@dataclass(frozen=True, slots=True)
class PortErrors:
    """The counters of one port."""

    counters: PortCounters
    link_downed: int = 0


def parse(
    data: bytes, source: str = "ibqueryerrors"
) -> tuple[Mapping[tuple[int, int], PortErrors], tuple[Problem, ...]]:
    """Return the counters by GUID and port, and the lines that could not be read.

    A port that is not in the result has counted no errors. Raises FormatError if the text contains neither a
    port nor a summary line.
    """
    problems = Problems(source)
    found: dict[tuple[int, int], PortErrors] = {}
    lines = at = 0
    for begin in _LINE.finditer(data):
        lines, at = lines + data.count(b"\n", at, begin.start()), begin.start()
        end = data.find(b"\n", at)
        line = data[at : min(end if end >= 0 else len(data), at + _MAX_LINE_BYTES)]
        match = _PORT.match(line)
        if match is None:
            problems.add(lines + 1, "expected the errors of a port as ibqueryerrors prints them")
            continue
        guid, port = match.groups()
        if port == b"ALL":
            continue
        if len(found) >= MAX_PORTS:
            problems.add(lines + 1, f"more than {MAX_PORTS} ports with errors: the rest is ignored")
            break
        counted = _COUNT.findall(line, match.end())
        values = {name.decode(): min(int(count), _MAX_COUNT) for name, count in counted}
        found[int(guid, 16), int(port)] = PortErrors(port_counters(values), values.get(LINK_DOWNED, 0))
    if not found and SUMMARY not in data:
        raise FormatError(source, 0, "no summary and no port; expected the output of ibqueryerrors")
    return found, problems.listed()
