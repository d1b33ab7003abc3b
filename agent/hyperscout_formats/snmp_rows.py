"""Readers of what a walk over SNMP left behind: `snmpwalk -On` text (snmpwalk(1), snmpcmd(1)) and snmpsim's
`.snmprec` recordings.

A row is one variable. What it means is for `snmp_switch`; here it is only made equal, however it was written.
"""

from typing import Final, NamedTuple

from hyperscout_formats.errors import Problem


class Row(NamedTuple):
    """One variable. `value`: int for numbers, bytes for strings and addresses, a tuple for an OID."""

    oid: tuple[int, ...]
    kind: str  # one of `KINDS`
    value: bytes | int | tuple[int, ...]


# RFC 2578, section 7.1.
INTEGER, STRING, OID, ADDRESS, COUNTER, GAUGE, TICKS, OPAQUE, COUNTER64 = KINDS = (
    "integer",
    "string",
    "oid",
    "address",
    "counter",
    "gauge",
    "ticks",
    "opaque",
    "counter64",
)
MAX_BYTES: Final = 64 << 20


def parse(data: bytes, source: str = "snmpwalk") -> tuple[tuple[Row, ...], tuple[Problem, ...]]:
    """Rows in the order of the file, and lines that were passed over.

    Raises FormatError where it is neither a walk with numeric OIDs nor a recording.
    """
    raise NotImplementedError
