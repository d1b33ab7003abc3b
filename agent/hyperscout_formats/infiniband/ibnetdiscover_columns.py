"""Turns a stretch of `ibnetdiscover` text into columns, all lines at once.

A Python call for each line is too slow, because a large fabric has a million lines. This module uses NumPy:
it finds where lines begin, identifies the kind of each line by its first eight bytes, and reads every field
at its offset. It reads only lines of exactly the shape that the tool prints. `ibnetdiscover_line`, which is
slow and tolerant, reads all other lines.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hyperscout_formats.infiniband.ibnetdiscover_fields import (
    KIND_OF_LETTER,
    NO_KIND,
    Bytes,
    Ints,
    Offsets,
    Words,
    begin_with,
    decimal,
    hexadecimal,
    rate_code,
    rates,
    word,
    words_at,
)
from hyperscout_formats.infiniband.ibnetdiscover_line import (
    CA,
    ROUTER,
    SWITCH,
    Header,
    Identity,
    Record,
    SystemImage,
    Unreadable,
    read_line,
)

PAD: Final = 64
"""Readable bytes before and after a stretch, so that no fixed offset from a line leaves the buffer."""


class Headers(NamedTuple):
    """Header lines of devices, in order."""

    line: Ints  # from 1
    guid: Words
    kind: Bytes
    port_count: Ints
    start: Offsets  # start of the description, as an offset in the whole text
    end: Offsets


class Records(NamedTuple):
    """Port lines, in order."""

    line: Ints
    guid: Words  # GUID of the device at the other end
    kind: Bytes  # kind of that device
    port: Ints
    peer_port: Ints
    port_guid: Words  # GUID of the own port, 0 where the line has none
    rate: Bytes  # code of the rate, see `ibnetdiscover_fields`
    offset: Ints  # offset of the line in the whole text


class Images(NamedTuple):
    """`sysimgguid` lines, in order."""

    line: Ints
    guid: Words


class Stretch(NamedTuple):
    """The content of a stretch of lines."""

    headers: Headers
    records: Records
    images: Images
    breaks: Ints  # lines that end a block, in order
    unreadable: list[tuple[int, str]]  # line and reason
    unusual: int  # number of lines that were read one by one
    line_count: int


def read_stretch(
    data: bytes, begin: int, ends: Offsets, *, first_line: int, shift: int, cut: bool
) -> Stretch:
    """Read the lines from `begin` on. `ends`: the offset of the newline of each line.

    The caller provides `PAD` bytes of any content on both sides. `first_line` is the number of the first
    line. `shift` is added to all offsets. `cut` means that the last line had no newline of its own.
    """
    buffer = np.frombuffer(data, np.uint8)
    starts = np.empty_like(ends)
    starts[0] = begin
    np.add(ends[:-1], 1, out=starts[1:])
    line_count = len(starts)
    if data.find(b"\r", begin, int(ends[-1])) >= 0:
        ends = ends - ((buffer[ends - 1] == ord("\r")) & (ends > starts))
    firsts = words_at(data, starts)[0]
    initials = firsts.view(np.uint8)[::8]

    breaks = begin_with(firsts, b"switchgu", b"caguid=0", b"rtguid=0")
    done = breaks | begin_with(firsts, b"vendid=0", b"devid=0x") | (starts == ends) | (initials == ord("#"))
    whole = line_count - 1 if cut else line_count  # a cut line can seem complete: `read_line` checks it
    done[whole:] = starts[whole:] == ends[whole:]
    rows = np.flatnonzero(~done[:whole])
    lines = _Rows(data, buffer, rows, starts[rows], ends[rows], firsts[rows], initials[rows], shift)
    records = _records(lines)
    headers = _headers(lines)
    images = _images(lines)
    for found in (records.line, headers.line, images.line):
        done[found] = True

    breaks_at = np.flatnonzero(breaks)
    careful = _Careful(shift)
    left = np.flatnonzero(~done)
    if len(left):
        for row in left.tolist():
            careful.read(row, int(starts[row]), data[starts[row] : ends[row]], cut=row >= whole)
        records = Records._make(_in_order((records, careful.records())))
        headers = Headers._make(_in_order((headers, careful.headers())))
        images = Images._make(_in_order((images, careful.images())))
        breaks_at = np.sort(np.concatenate([breaks_at, np.array(careful.break_rows, np.int64)]))
    return Stretch(
        headers=headers._replace(line=headers.line + np.int32(first_line)),
        records=records._replace(line=records.line + np.int32(first_line)),
        images=images._replace(line=images.line + np.int32(first_line)),
        breaks=(breaks_at + first_line).astype(np.int32),
        unreadable=[(row + first_line, reason) for row, reason in careful.unreadable],
        unusual=len(left),
        line_count=line_count,
    )


class _Rows(NamedTuple):
    """Lines that may contain data. Until a stretch is complete, "line" is the row in the stretch."""

    data: bytes
    buffer: Bytes
    rows: Offsets
    starts: Offsets
    ends: Offsets
    firsts: Words
    initials: Bytes
    shift: int


def _records(lines: _Rows) -> Records:
    data, buffer = lines.data, lines.buffer
    mine = np.flatnonzero(lines.initials == ord("["))
    start, end = lines.starts[mine], lines.ends[mine]
    port, digits = decimal(lines.firsts[mine] >> np.uint64(8), b"]")
    after = start + digits + 2
    ok = port >= 0
    # `[4]<tab>"H-...`, or with the GUID of the own port: `[1](...) <tab>"S-...`
    name = after + 1
    port_guid: Words = np.zeros(len(mine), np.uint64)
    separator = buffer[after]
    own = np.flatnonzero(separator == ord("("))
    if len(own):
        opens = name[own]
        closing = _find(buffer, opens, 17, b")")
        closes = opens + closing
        port_guid[own], own_ok = hexadecimal(words_at(data, closes - 16, 2), closing)
        ok[own] &= own_ok & (closing > 0)
        ok[own] &= (words_at(data, closes)[0] & np.uint64(0xFFFFFF)) == word(b") \t")
        name[own] = closes + 3
        separator[own] = ord("\t")
    ok &= (separator == ord("\t")) & (name + 26 <= end)

    name_ok, kind, guid, tail = _named(data, name)
    peer_port, _ = decimal(tail >> np.uint64(16), b"]")
    ok &= name_ok & (peer_port >= 0) & ((tail & np.uint64(0xFFFF)) == word(b'"['))
    rate = rates(data, end)
    ok &= rate != 0
    columns = (
        lines.rows[mine].astype(np.int32),
        guid,
        kind,
        port,
        peer_port,
        port_guid,
        rate,
        (start + lines.shift).astype(np.int32),
    )
    return Records._make(columns if ok.all() else [column[ok] for column in columns])


def _headers(lines: _Rows) -> Headers:
    data, buffer = lines.data, lines.buffer
    is_switch = (lines.firsts & np.uint64(0xFFFFFFFFFFFFFF)) == word(b"Switch\t")
    short = lines.firsts & np.uint64(0xFFFFFF)
    is_ca = short == word(b"Ca\t")
    mine = np.flatnonzero(is_switch | is_ca | (short == word(b"Rt\t")))
    start, end = lines.starts[mine], lines.ends[mine]
    own_kind = np.where(is_switch[mine], SWITCH, np.where(is_ca[mine], CA, ROUTER)).astype(np.uint8)
    number = start + np.where(is_switch[mine], len(b"Switch\t"), len(b"Ca\t"))
    ports, digits = decimal(words_at(data, number)[0], b" ")
    name = number + digits + 1
    name_ok, kind, guid, tail = _named(data, name)
    ok = name_ok & (ports >= 0) & (kind == own_kind)
    ok &= (tail & np.uint64(0xFFFFFFFFFFFF)) == word(b'"\t\t# "')
    opens, closes = name + 25, end - 1
    # The line of an adapter ends with the closing quote, the line of a switch continues after it. A
    # description may contain quotes.
    for i in np.flatnonzero(buffer[closes] != ord('"')).tolist():
        closes[i] = data.rfind(b'"', opens[i], end[i])
    ok &= closes >= opens
    columns = (
        lines.rows[mine].astype(np.int32),
        guid,
        own_kind,
        ports,
        opens + lines.shift,
        closes + lines.shift,
    )
    return Headers._make(column[ok] for column in columns)


def _images(lines: _Rows) -> Images:
    mine = np.flatnonzero(lines.firsts == word(b"sysimggu"))
    digits = lines.ends[mine] - lines.starts[mine] - len(b"sysimgguid=0x")
    mine, digits = mine[(digits >= 1) & (digits <= 16)], digits[(digits >= 1) & (digits <= 16)]
    guid, ok = hexadecimal(words_at(lines.data, lines.ends[mine] - 16, 2), digits)
    return Images(lines.rows[mine[ok]].astype(np.int32), guid[ok])


def _named(data: bytes, at: Offsets) -> tuple[npt.NDArray[np.bool_], Bytes, Words, Words]:
    """Read `"S-0123456789abcdef` at each offset.

    Return whether the text has that form, the kind, the GUID, and the next word.
    """
    a, b, c, d = words_at(data, np.minimum(at, len(data) - 32), 4)
    low, high = np.uint64(24), np.uint64(40)
    guid, ok = hexadecimal(np.stack([(a >> low) | (b << high), (b >> low) | (c << high)]))
    kind = KIND_OF_LETTER[(a >> np.uint64(8)) & np.uint64(0xFF)]
    ok &= (a & np.uint64(0xFF00FF)) == word(b'"\0-')
    ok &= (guid != 0) & (kind != NO_KIND)
    return ok, kind, guid, (c >> np.uint64(24)) | (d << np.uint64(40))


def _find(buffer: Bytes, at: Offsets, within: int, what: bytes) -> Offsets:
    """Return the distance from each offset to the next `what`, 0 = not within `within` bytes."""
    view = np.lib.stride_tricks.as_strided(
        buffer, (len(buffer) - within + 1, within), (1, 1), writeable=False
    )
    found: Offsets = (view[at] == what[0]).argmax(axis=1)
    return found


class _Careful:
    """Reads lines one by one, and collects them until they join the columns."""

    def __init__(self, shift: int) -> None:
        self._shift = shift
        self._headers: list[tuple[int, ...]] = []
        self._records: list[tuple[int, ...]] = []
        self._images: list[tuple[int, ...]] = []
        self.break_rows: list[int] = []
        self.unreadable: list[tuple[int, str]] = []

    def read(self, row: int, at: int, line: bytes, *, cut: bool) -> None:
        offset = at + self._shift
        found = read_line(line, cut=cut)
        match found:
            case Header(kind, guid, port_count, start, end):
                self._headers.append((row, guid, kind, port_count, offset + start, offset + end))
            case Record():
                rate = rate_code(found.width, found.rate_gbps)
                ports = (found.port, found.peer_port)
                self._records.append((row, found.guid, found.kind, *ports, found.port_guid, rate, offset))
            case SystemImage(guid):
                self._images.append((row, guid))
            case Identity():
                self.break_rows.append(row)
            case Unreadable(reason):
                self.unreadable.append((row, reason))
                if not line.lstrip().startswith(
                    b"["
                ):  # perhaps a header: the lines after it do not belong to the previous block
                    self.break_rows.append(row)

    def headers(self) -> Headers:
        types = (np.int32, np.uint64, np.uint8, np.int32, np.int64, np.int64)
        return Headers._make(_columns(self._headers, types))

    def records(self) -> Records:
        types = (np.int32, np.uint64, np.uint8, np.int32, np.int32, np.uint64, np.uint8, np.int32)
        return Records._make(_columns(self._records, types))

    def images(self) -> Images:
        return Images._make(_columns(self._images, (np.int32, np.uint64)))


AnyColumns = Iterable[npt.NDArray[np.generic]]


def _columns(
    rows: list[tuple[int, ...]], types: tuple[type[np.generic], ...]
) -> list[npt.NDArray[np.generic]]:
    return [np.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]


def _in_order(parts: tuple[AnyColumns, AnyColumns]) -> list[npt.NDArray[np.generic]]:
    """Return the columns of both parts, sorted by the first column."""
    joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return [column[order] for column in joined]
