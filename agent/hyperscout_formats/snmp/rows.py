"""Reads saved SNMP walks: `snmpwalk -On` text (snmpwalk(1), snmpcmd(1)) and snmpsim's `.snmprec` recordings.

A row is one variable. This module gives rows the same form for every source, and the module `switch`
interprets them. It accepts the output of all options of snmpwalk that omit types (-OQ, -Oq) or labels of
numbers (-Oe), print all strings as hexadecimal (-Ox), or print text beside hexadecimal (-OT). Long strings
may span several lines.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.problems import Problems

Value = bytes | int | tuple[int, ...]


class Row(NamedTuple):
    """One variable. `value` is int for numbers, bytes for strings and addresses, a tuple for an OID."""

    oid: tuple[int, ...]
    kind: str  # one of `KINDS`
    value: Value


# Types of RFC 2578, section 7.1. "text" is a string of which only the displayed form is known, not its bytes.
INTEGER, STRING, OID, ADDRESS, COUNTER, GAUGE, TICKS, OPAQUE, COUNTER64, TEXT = KINDS = (
    "integer",
    "string",
    "oid",
    "address",
    "counter",
    "gauge",
    "ticks",
    "opaque",
    "counter64",
    "text",
)
MAX_BYTES: Final = 32 << 20
MAX_OID_PARTS: Final = 128  # RFC 2578, section 3.5
MAX_STRING: Final = 65_535
"""Bytes: RFC 2578, section 7.1.2."""

_MAX_BESIDE: Final = 64  # bytes in a line of a hexadecimal string: 16 by default
_MAX_PART: Final = 2**32 - 1
_MAX_NUMBER: Final = 2**64 - 1
_EXPECTED: Final = "expected the output of `snmpwalk -On`, or a .snmprec recording"

# A line starts with an OID. Its first part has several forms.
_WALKED: Final = re.compile(
    rb"(?:\.(?=[0-2]\.)|iso(?=\.)|(?=1\.[0-3]\.))(\d*(?:\.\d+)+)(?: = ?| |$)(.*)", re.DOTALL
)
_RECORDED: Final = re.compile(rb"\.?(\d+(?:\.\d+)+)\|([^|]*)\|(.*)", re.DOTALL)
_NAMED: Final = re.compile(rb"[A-Za-z][\w-]*::[a-z]")
_TYPED: Final = re.compile(rb"([A-Z][A-Za-z0-9-]*(?: Address)?): ?(.*)", re.DOTALL)
_ABSENT: Final = re.compile(
    rb"No Such (?:Object|Instance)|No more variables left|NULL\s*$|noSuch(?:Object|Instance)|endOfMibView"
)
# Messages of snmpwalk and of a shell between the rows. They are never part of a string.
_SAID: Final = re.compile(
    rb"[#$]|Timeout|Error|Reason:|Failed object:|Last Object:|End of MIB|snmp\w*:|Cannot find module"
)
_NUMBER: Final = re.compile(rb"-?\d{1,20}")
_LABELLED: Final = re.compile(rb"[A-Za-z][\w-]*\((-?\d{1,20})\)")
_TICKS: Final = re.compile(rb"\((\d{1,20})\)")
_HEX: Final = re.compile(rb"(?:[0-9A-Fa-f]{2}\s+)*[0-9A-Fa-f]{2}\s*")
# Bytes as -Oq prints them. The blank after the last pair distinguishes them from words and MAC addresses.
_QUOTED_HEX: Final = re.compile(rb"(?:[0-9A-F]{2} \n?)+")
_ESCAPED: Final = re.compile(rb'\\([\\"])')
_ADDRESS: Final = re.compile(rb"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})")


class _UnusableError(Exception):
    """The value of a variable does not fit its type."""


def parse(data: bytes, source: str = "snmpwalk") -> tuple[tuple[Row, ...], tuple[Problem, ...]]:
    """Return rows in the order of the file, and the lines that could not be read.

    Raises FormatError if the text is neither a walk with numeric OIDs nor a recording, or is larger than
    `MAX_BYTES`.
    """
    if len(data) > MAX_BYTES:
        raise FormatError(
            source, 0, f"{len(data)} bytes; expected at most {MAX_BYTES} bytes: walk only LLDP-MIB and IF-MIB"
        )
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if all(line.endswith(b"\r") for line in lines if line):  # otherwise a carriage return belongs to a string
        lines = [line[:-1] for line in lines]
    problems = Problems(source)
    first = next((line for line in lines if _RECORDED.match(line) or _WALKED.match(line)), b"")
    rows = _recording(lines, problems) if _RECORDED.match(first) else _walk(lines, problems)
    if not rows:
        if any(_NAMED.match(line) for line in lines):
            reason = "names instead of numeric OIDs: walk with `snmpwalk -On`"
        else:
            begin = next((line for line in lines if line.strip()), b"")[:100].decode("utf-8", "replace")
            reason = f"no row; {_EXPECTED}" + (
                f"; it begins with {cleaned(begin.strip())!a}" if begin else ""
            )
        raise FormatError(source, 0, reason)
    return tuple(rows), problems.listed()


def _recording(lines: list[bytes], problems: Problems) -> list[Row]:
    """Read a recording. Source of the format: snmpsim's documentation, "Simulation data file format"."""
    rows: list[Row] = []
    for number, ended in enumerate(lines, 1):
        line = ended.removesuffix(b"\r")
        if not line.strip() or line.startswith(b"#"):
            continue
        match = _RECORDED.fullmatch(line)
        if match is None:
            problems.add(number, "expected OID|TYPE|VALUE")
            continue
        oid, tag, text = match.groups()
        if tag in _ABSENT_TAGS:
            continue
        try:
            rows.append(Row(_oid(oid), *_recorded(tag, text)))
        except _UnusableError as error:
            problems.add(number, str(error))
    return rows


_ABSENT_TAGS: Final = frozenset({b"5", b"128", b"129", b"130"})
_TAGS: Final = {
    b"2": INTEGER,
    b"4": STRING,
    b"6": OID,
    b"64": ADDRESS,
    b"65": COUNTER,
    b"66": GAUGE,
    b"67": TICKS,
    b"68": OPAQUE,
    b"70": COUNTER64,
}


def _recorded(tag: bytes, text: bytes) -> tuple[str, Value]:
    kind = _TAGS.get(tag.removesuffix(b"x"))
    if kind is None:
        raise _UnusableError(f"a variable of the unknown type {_shown(tag)}")
    if kind == OID:
        return kind, _oid(text.removeprefix(b"."))
    if tag.endswith(b"x"):
        digits = text.strip().removeprefix(b"0x")
        if not re.fullmatch(rb"(?:[0-9A-Fa-f]{2})*", digits):
            return TEXT, _bounded(text)  # a recording that was edited
        return kind, _bounded(bytes.fromhex(digits.decode("ascii")))
    if kind in {STRING, OPAQUE}:
        return kind, _bounded(text)
    return (kind, _address(text)) if kind == ADDRESS else (kind, _integer(text))


class _Lines:
    """The lines of a walk. Each line is taken once. `number` is the number of lines taken so far."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self.number = 0

    def take(self) -> bytes | None:
        """Take the next line, None = end."""
        self.number += 1
        return self._lines[self.number - 1] if self.number <= len(self._lines) else None

    def within(self) -> bytes | None:
        """Return the next line without taking it, None = end, or a row begins there."""
        if self.number >= len(self._lines) or _WALKED.match(self._lines[self.number]):
            return None
        return self._lines[self.number]


def _walk(given: list[bytes], problems: Problems) -> list[Row]:
    rows: list[Row] = []
    lines = _Lines(given)
    while (line := lines.take()) is not None:
        number = lines.number
        match = _WALKED.fullmatch(line)
        if match is None:
            if line.strip() and not line.startswith(b"#"):
                problems.add(number, f"not a row: {_shown(line)}")
            continue
        oid, text = match.groups()
        try:
            if (value := _walked(text, lines)) is not None:
                rows.append(Row(_oid(b"1" + oid if oid.startswith(b".") else oid), *value))
        except _UnusableError as error:
            problems.add(number, str(error))
    return rows


def _walked(text: bytes, lines: _Lines) -> tuple[str, Value] | None:
    """Read a value, with its continuation lines. None means that the variable does not exist."""
    if text.startswith(b"Wrong Type (should be "):
        text = text.partition(b"): ")[2]
    typed = _TYPED.fullmatch(text)
    read = _TYPES.get(typed[1]) if typed else None
    if typed is None or read is None:
        return None if _ABSENT.match(text) else _untyped(_whole(text, lines))
    if read is _hex:
        return _hex(_digits(typed[2], lines))
    return read(_whole(typed[2], lines) if read is _string else typed[2])


def _whole(text: bytes, lines: _Lines) -> bytes:
    """Read a string, which may continue in the next lines."""
    quoted = text.startswith(b'"')
    if _closed(text) if quoted else _NUMBER.fullmatch(text):
        return text
    more = [text]
    while (following := lines.within()) is not None and (quoted or not _SAID.match(following)):
        more.append(following)
        lines.take()
        if quoted and _closed(b'"' + following):
            break
    return b"\n".join(more).rstrip(b"\n")


def _digits(line: bytes, lines: _Lines) -> bytes:
    """Read hexadecimal digits over several lines.

    -OT prints the text of the digits beside them, in brackets. That text may contain line breaks.
    """
    found = []
    while True:
        digits, bracket, beside = line.partition(b"[")
        found.append(digits)
        size = len(digits.split()) + len(b"]")
        while bracket and len(beside) < size <= _MAX_BESIDE and (following := lines.within()) is not None:
            beside += b"\n" + following
            lines.take()
        next_one = lines.within()
        if next_one is None or not _HEX.fullmatch(next_one.partition(b"[")[0]):
            return b" ".join(found)
        line = next_one
        lines.take()


def _closed(quoted: bytes) -> bool:
    """Return whether the last character is the closing quote, and not an escaped quote of the text."""
    if len(quoted) < 2 or not quoted.endswith(b'"'):
        return False
    before = quoted[1:-1]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 0


def _untyped(text: bytes) -> tuple[str, Value]:
    """Read a value without a type, as -OQ and -Oq print it.

    A number may have been a string. An address always becomes a string.
    """
    if _NUMBER.fullmatch(text):
        return INTEGER, _integer(text)
    if text.startswith(b".") and re.fullmatch(rb"(?:\.\d+)+", text):
        return OID, _oid(text[1:])
    return _string(text)


def _string(text: bytes) -> tuple[str, Value]:
    if not text.startswith(b'"'):
        return TEXT, _bounded(text)  # in the form of a display hint
    quoted = text[1:-1] if _closed(text) else text[1:]
    if _QUOTED_HEX.fullmatch(quoted):
        return STRING, bytes.fromhex(quoted.decode("ascii"))
    return STRING, _bounded(_ESCAPED.sub(rb"\1", quoted))


def _hex(text: bytes) -> tuple[str, Value]:
    if not _HEX.fullmatch(text):
        raise _UnusableError(f"not a hexadecimal string: {_shown(text)}")
    return STRING, _bounded(bytes.fromhex(text.decode("ascii")))


def _bits(text: bytes) -> tuple[str, Value]:
    """Read `28 00 bridge(2) router(4)`: the bytes, and then their meaning, which is ignored."""
    pairs = re.match(rb"(?:[0-9A-Fa-f]{2}(?:\s+|$))*", text)
    return STRING, bytes.fromhex(pairs[0].decode("ascii")) if pairs else b""


def _labelled(kind: str) -> Callable[[bytes], tuple[str, Value]]:
    def read(text: bytes) -> tuple[str, Value]:
        label = _LABELLED.fullmatch(text) or (_TICKS.match(text) if kind == TICKS else None)
        return kind, _integer(label[1] if label else text.partition(b" ")[0])  # units may follow

    return read


_TYPES: Final[dict[bytes, Callable[[bytes], tuple[str, Value]]]] = {
    b"STRING": _string,
    b"Hex-STRING": _hex,
    b"BITS": _bits,
    b"INTEGER": _labelled(INTEGER),
    b"Integer32": _labelled(INTEGER),
    b"Unsigned32": _labelled(GAUGE),
    b"UInteger32": _labelled(GAUGE),
    b"Gauge32": _labelled(GAUGE),
    b"Counter32": _labelled(COUNTER),
    b"Counter64": _labelled(COUNTER64),
    b"Timeticks": _labelled(TICKS),
    b"OID": lambda text: (OID, _oid(text.removeprefix(b".").replace(b"iso", b"1"))),
    b"IpAddress": lambda text: (ADDRESS, _address(text)),
    b"Network Address": lambda text: (ADDRESS, _hex(text.replace(b":", b" "))[1]),
    b"Opaque": lambda text: (OPAQUE, _bounded(text)),
}


def _oid(text: bytes) -> tuple[int, ...]:
    if text.count(b".") >= MAX_OID_PARTS or len(text) > 11 * MAX_OID_PARTS:
        raise _UnusableError(f"an OID of more than {MAX_OID_PARTS} parts")
    try:
        oid = tuple(map(int, text.split(b".")))
    except ValueError:
        raise _UnusableError(f"not an OID: {_shown(text)}") from None
    if max(oid) > _MAX_PART:
        raise _UnusableError(f"an OID with a part over {_MAX_PART}")
    return oid


def _integer(text: bytes) -> int:
    if not _NUMBER.fullmatch(text) or abs(int(text)) > _MAX_NUMBER:
        raise _UnusableError(f"not a number: {_shown(text)}")
    return int(text)


def _address(text: bytes) -> bytes:
    match = _ADDRESS.fullmatch(text)
    if match is None or max(parts := [int(part) for part in match.groups()]) > 255:
        raise _UnusableError(f"not an IPv4 address: {_shown(text)}")
    return bytes(parts)


def _bounded(string: bytes) -> bytes:
    if len(string) > MAX_STRING:
        raise _UnusableError(f"a string of {len(string)} bytes")
    return string


def _shown(text: bytes) -> str:
    return ascii(cleaned(text[:60].decode("utf-8", "replace")))
