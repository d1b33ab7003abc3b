"""Reads the error and discard counters of a network interface: /sys/class/net/NAME/statistics.

The reader is pure: it takes the contents of the files. Source of the names: Linux,
Documentation/ABI/testing/sysfs-class-net-statistics.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from hyperscout_formats.facts.facts import PortCounters

COUNTERS: Final = tuple(field.name for field in fields(PortCounters))
"""Names of the files. Traffic counters are not read: they change at every reading and contain no evidence
about a link.
"""

_COUNT: Final = re.compile(rb"\d{1,20}")
_MAX_COUNT: Final = 2**64 - 1


def parse(files: Mapping[str, bytes]) -> PortCounters:
    """Return the counters. `files` maps the name of each file to its content.

    A counter is 0 where its file is missing (a driver need not count everything) or does not contain a
    number. Values are capped at 2^64 - 1.
    """
    return PortCounters(**{name: _number(files.get(name, b"")) for name in COUNTERS})


def _number(content: bytes) -> int:
    text = content.strip()
    return min(int(text), _MAX_COUNT) if _COUNT.fullmatch(text) else 0
