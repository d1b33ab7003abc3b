"""Reader of a network interface's counters of what went wrong: /sys/class/net/NAME/statistics.

Pure: it takes the files' contents. Source of names: Linux,
Documentation/ABI/testing/sysfs-class-net-statistics.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from hyperscout_formats.facts.facts import PortCounters

COUNTERS: Final = tuple(field.name for field in fields(PortCounters))
"""Names of the files. Traffic is not among them: it changes at every look and says nothing of a cable."""
MAX_FILE_BYTES: Final = 64

_COUNT: Final = re.compile(rb"\d{1,20}")
_MOST: Final = 2**64 - 1


def parse(files: Mapping[str, bytes]) -> PortCounters:
    """`files`: name -> content. What is missing (a driver need not count everything) or is no number is 0."""
    return PortCounters(**{name: _number(files.get(name, b"")) for name in COUNTERS})


def _number(content: bytes) -> int:
    text = content.strip()
    return min(int(text), _MOST) if _COUNT.fullmatch(text) else 0
