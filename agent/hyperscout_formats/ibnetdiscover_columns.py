"""Turns a stretch of `ibnetdiscover` text into columns, all lines at once.

A line a time costs a Python call a line, and a big fabric has a million lines. Here a stretch of about
a mebibyte is taken apart by NumPy: where lines begin, what kind each is by its first eight bytes, and
from there every field at its offset. Only lines of exactly the shape that the tool prints are taken;
every other line goes to `ibnetdiscover_line`, which is slow and tolerant. Stretches of that size keep
the temporaries in the processor's cache and the memory small.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from hyperscout_formats.ibnetdiscover_line import (
    CA,
    LANE_GBPS,
    ROUTER,
    SWITCH,
    UNKNOWN,
    WIDTHS,
    Header,
    Identity,
    Record,
    SystemImage,
    Unreadable,
    read_line,
)

PAD: Final = b"\0" * 48
"""Around each stretch, so that no look at a fixed offset from a line leaves the buffer."""

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Rate codes: rows of these tables. The last bytes of a line, with the space before, tell the code.
RATE_TEXTS: Final = [(width, speed) for speed in [b"HDR", b"NDR", b"EDR", b"XDR", b"FDR", b"QDR", b"DDR", b"SDR",
                                                   b"FDR10", b"???"] for width in WIDTHS]  # fmt: skip
RATE_GBPS: Final = np.array([0.0] + [w * LANE_GBPS.get(s, 0.0) for w, s in RATE_TEXTS], np.float32)
RATE_WIDTH: Final = np.array([0] + [w for w, _ in RATE_TEXTS], np.uint8)
_CODES: Final = {
    (w, float(RATE_GBPS[code])): code for code, (w, _) in reversed(list(enumerate(RATE_TEXTS, 1)))
}


def _word(text: bytes) -> int:
    return int.from_bytes(text, "little")


# (mask, value, code): the word that ends a line is `value` under `mask`. Texts over 8 bytes go the slow way.
_RATE_ENDINGS: Final = [
    (
        np.uint64(_word(b"\0" * (8 - len(text)) + b"\xff" * len(text))),
        np.uint64(_word(text.rjust(8, b"\0"))),
        code,
    )
    for code, (width, speed) in enumerate(RATE_TEXTS, 1)
    if len(text := b" %dx%s" % (width, speed)) <= 8
]

_HEX: Final = np.full(256, 0xFF, np.uint8)
for _value, _digit in enumerate(b"0123456789abcdef"):
    _HEX[_digit] = _value
_KIND: Final = np.full(256, 0xFF, np.uint8)
for _prefix, _kind in ((b"S", SWITCH), (b"H", CA), (b"R", ROUTER), (b"?", UNKNOWN)):
    _KIND[_prefix[0]] = _kind
# Of 16 bytes that end with n hexadecimal digits, as two words, keep the last n.
_KEEP_HIGH: Final = np.array([_word((b"\xff" * n).rjust(16, b"\0")[:8]) for n in range(17)], np.uint64)
_KEEP_LOW: Final = np.array([_word((b"\xff" * n).rjust(16, b"\0")[8:]) for n in range(17)], np.uint64)
_NOT_NIBBLES: Final = np.uint64(0xF0F0F0F0F0F0F0F0)

HEADER, RECORD = 1, 2
MENTION: Final = np.dtype(
    [
        ("tag", np.uint8),  # HEADER or RECORD
        ("kind", np.uint8),  # of the device that the line names: a header's own, a record's peer
        ("rate", np.uint8),  # a code; records only, as are peer_port and port_guid
        ("line", np.int32),  # from 1
        ("port", np.int32),  # a record's port, a header's number of ports
        ("peer_port", np.int32),
        ("guid", np.uint64),
        ("port_guid", np.uint64),
        ("offset", np.int64),  # of the line in the whole text
        ("start", np.int32),  # of the description in the line, where it was looked up (headers)
        ("end", np.int32),
    ]
)
Mentions = npt.NDArray[np.void]


@dataclass(slots=True)
class Stretch:
    """What a stretch of lines says, in order of lines."""

    mentions: Mentions  # dtype MENTION
    breaks: npt.NDArray[np.int32]  # lines that end a block
    image_lines: npt.NDArray[np.int32]  # system image GUIDs, and their lines
    images: Words
    unreadable: list[tuple[int, str]]  # line and reason
    line_count: int


def read_stretch(text: bytes, offset: int, first_line: int, *, cut: bool) -> Stretch:
    """Read `text`, which is whole lines between two `PAD`.

    `offset` and `first_line` say where it lies in the whole. `cut`: the last line had no newline of its own.
    """
    buffer = np.frombuffer(text, np.uint8)
    ends: Offsets = np.flatnonzero(buffer[len(PAD) : -len(PAD)] == ord("\n")) + len(PAD)
    starts: Offsets = np.empty_like(ends)
    starts[0] = len(PAD)
    np.add(ends[:-1], 1, out=starts[1:])
    if b"\r" in text:
        ends = ends - ((buffer[ends - 1] == ord("\r")) & (ends > starts))
    words: Words = np.ndarray((len(text) - 7,), np.dtype("<u8"), text, strides=(1,))
    firsts = words[starts]

    breaks = _begin_with(firsts, b"switchgu", b"caguid=0", b"rtguid=0")
    done = (
        breaks
        | _begin_with(firsts, b"vendid=0", b"devid=0x")
        | (starts == ends)
        | (buffer[starts] == ord("#"))
    )
    records = _records(buffer, words, starts, ends)
    headers = _headers(text, buffer, firsts, starts, ends)
    image_rows, images = _system_images(buffer, firsts, starts, ends)
    if cut:  # a damaged line can look whole, so the last one is for the careful reader
        last = len(starts) - 1
        records, headers = records[records["line"] != last], headers[headers["line"] != last]
        images, image_rows = images[image_rows != last], image_rows[image_rows != last]
        done[last] = starts[last] == ends[last]
    done[records["line"]] = True
    done[headers["line"]] = True
    done[image_rows] = True

    careful = _Careful()
    for row in np.flatnonzero(~done).tolist():
        careful.read(row, text[starts[row] : ends[row]], cut=cut and row == len(starts) - 1)
    mentions = np.concatenate([records, headers, careful.mention_columns()])
    mentions = mentions[np.argsort(mentions["line"], kind="stable")]
    mentions["offset"] = starts[mentions["line"]] + (offset - len(PAD))
    mentions["line"] += first_line
    image_rows = np.concatenate([image_rows, np.array(careful.image_rows, np.int64)])
    images = np.concatenate([images, np.array(careful.images, np.uint64)])
    order = np.argsort(image_rows, kind="stable")
    break_rows = np.concatenate([np.flatnonzero(breaks), np.array(careful.breaks, np.int64)])
    return Stretch(
        mentions=mentions,
        breaks=(np.sort(break_rows, kind="stable") + first_line).astype(np.int32),
        image_lines=(image_rows[order] + first_line).astype(np.int32),
        images=images[order],
        unreadable=[(row + first_line, reason) for row, reason in careful.unreadable],
        line_count=len(starts),
    )


class _Careful:
    """Lines that are read one by one, gathered until they join the columns. Rows count in the stretch."""

    def __init__(self) -> None:
        self.mentions: list[tuple[int, ...]] = []
        self.breaks: list[int] = []
        self.image_rows: list[int] = []
        self.images: list[int] = []
        self.unreadable: list[tuple[int, str]] = []

    def read(self, row: int, line: bytes, *, cut: bool) -> None:
        found = read_line(line, cut=cut)
        if isinstance(found, Header):
            span = (found.start, found.end)
            self.mentions.append((HEADER, found.kind, 0, row, found.port_count, 0, found.guid, 0, 0, *span))
        elif isinstance(found, Record):
            rate = _CODES.get((found.width, found.rate_gbps), 0)
            ports = (found.port, found.peer_port)
            self.mentions.append(
                (RECORD, found.kind, rate, row, *ports, found.guid, found.port_guid, 0, 0, 0)
            )
        elif isinstance(found, SystemImage):
            self.image_rows.append(row)
            self.images.append(found.guid)
        elif isinstance(found, Identity):
            self.breaks.append(row)
        elif isinstance(found, Unreadable):
            self.unreadable.append((row, found.reason))
            if not line.lstrip().startswith(
                b"["
            ):  # it may have been a header: what follows is not the last block's
                self.breaks.append(row)

    def mention_columns(self) -> Mentions:
        return np.array(self.mentions, MENTION)


def _begin_with(firsts: Words, *beginnings: bytes) -> Bools:
    found: Bools = np.zeros(len(firsts), np.bool_)
    for beginning in beginnings:
        found |= firsts == np.uint64(_word(beginning))
    return found


def _windows(buffer: Bytes, at: Offsets, size: int) -> Bytes:
    """(len(at), size) bytes from each offset on."""
    view = np.lib.stride_tricks.as_strided(buffer, (len(buffer) - size + 1, size), (1, 1), writeable=False)
    return view[at]


def _number(window: Bytes, closing: bytes) -> tuple[npt.NDArray[np.int32], Offsets, Bools]:
    """Decimal numbers of one to three digits at the start of each row, up to `closing`: value, digits, ok."""
    digits = window[:, :3] - np.uint8(ord("0"))
    is_digit = digits < 10
    closes = window[:, 1:4] == ord(closing)
    one = is_digit[:, 0] & closes[:, 0]
    two = is_digit[:, 0] & is_digit[:, 1] & closes[:, 1]
    three = is_digit[:, 0] & is_digit[:, 1] & is_digit[:, 2] & closes[:, 2]
    a, b, c = (digits[:, i].astype(np.int32) for i in range(3))
    value = np.where(one, a, np.where(two, a * 10 + b, a * 100 + b * 10 + c))
    count = one + two * np.int64(2) + three * np.int64(3)
    return value, count, one | two | three


def _hexadecimal(window: Bytes, digits: Offsets | None = None) -> tuple[Words, Bools]:
    """Values of rows of 16 hexadecimal digits, or of the last `digits` of each; and whether they are that."""
    nibbles = _HEX[window].view("<u8")
    high, low = nibbles[:, 0], nibbles[:, 1]
    if digits is not None:
        high, low = high & _KEEP_HIGH[digits], low & _KEEP_LOW[digits]
    ok = ((high | low) & _NOT_NIBBLES) == 0
    return (_packed(high) << np.uint64(32)) | _packed(low), ok


def _packed(nibbles: Words) -> Words:
    """Eight nibbles, one a byte and the first in the lowest byte, as a 32-bit number."""
    value = ((nibbles << np.uint64(4)) | (nibbles >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    value = ((value << np.uint64(8)) | (value >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return ((value << np.uint64(16)) | (value >> np.uint64(32))) & np.uint64(0xFFFFFFFF)


def _system_images(buffer: Bytes, firsts: Words, starts: Offsets, ends: Offsets) -> tuple[Offsets, Words]:
    """Rows of `sysimgguid=0x...` lines and the GUIDs."""
    rows = np.flatnonzero(firsts == np.uint64(_word(b"sysimggu")))
    digits = ends[rows] - starts[rows] - len(b"sysimgguid=0x")
    rows, digits = rows[(digits >= 1) & (digits <= 16)], digits[(digits >= 1) & (digits <= 16)]
    guid, ok = _hexadecimal(_windows(buffer, ends[rows] - 16, 16), digits)
    return rows[ok], guid[ok]


def _records(buffer: Bytes, words: Words, starts: Offsets, ends: Offsets) -> Mentions:
    """Port lines. Their "line" is the row."""
    rows = np.flatnonzero(buffer[starts] == ord("["))
    start = starts[rows]
    port, digits, ok = _number(_windows(buffer, start + 1, 4), b"]")
    after = start + digits + 2
    # `[4]<tab>"H-...`, or with the own port's GUID `[1](...) <tab>"S-...`
    name = after + 1
    port_guid: Words = np.zeros(len(rows), np.uint64)
    own = np.flatnonzero(buffer[after] == ord("("))
    closing = (_windows(buffer, after[own] + 1, 17) == ord(")")).argmax(axis=1)
    closed = after[own] + 1 + closing
    port_guid[own], own_ok = _hexadecimal(_windows(buffer, closed - 16, 16), closing)
    ok[own] &= own_ok & (closing >= 1) & ((words[closed] & np.uint64(0xFFFFFF)) == np.uint64(_word(b") \t")))
    ok &= (buffer[after] == ord("\t")) | (buffer[after] == ord("("))
    name[own] = closed + 3

    last = np.minimum(name, len(buffer) - 32)  # a line may end early; then the check of its shape fails
    window = _windows(buffer, last, 32)
    guid, guid_ok = _hexadecimal(window[:, 3:19])
    kind = _KIND[window[:, 1]]
    peer_port, _, peer_ok = _number(window[:, 21:25], b"]")
    ok &= guid_ok & (guid != 0) & (kind != 0xFF) & peer_ok
    ok &= (window[:, 0] == ord('"')) & (window[:, 2] == ord("-"))
    ok &= (window[:, 19] == ord('"')) & (window[:, 20] == ord("["))
    rate = _rates(words, buffer, ends[rows])
    ok &= (rate != 0) & (name + 24 < ends[rows])

    found = np.zeros(int(np.count_nonzero(ok)), MENTION)
    found["tag"] = RECORD
    columns = (("line", rows), ("kind", kind), ("rate", rate), ("port", port), ("peer_port", peer_port))
    for field, column in (*columns, ("guid", guid), ("port_guid", port_guid)):
        found[field] = column[ok]
    return found


def _rates(words: Words, buffer: Bytes, ends: Offsets) -> Bytes:
    """Codes of the rates that lines end with, 0 where there is none that is known."""
    for size in (12, 13, 14):  # what `-f` adds: ` s=1 w=2 v=4`, with a second digit in w, in v or in both
        full = (words[ends - size] & np.uint64(0xFF00FFFFFF)) == np.uint64(_word(b" s=\0 "))
        ends = ends - size * (full & (buffer[ends - size + 5] == ord("w")))
    last = words[ends - 8]
    codes: Bytes = np.zeros(len(ends), np.uint8)
    missing = len(ends)
    for mask, value, code in _RATE_ENDINGS:
        if not missing:
            break
        same = (last & mask) == value
        codes[same] = code
        missing -= int(np.count_nonzero(same))
    return codes


def _headers(text: bytes, buffer: Bytes, firsts: Words, starts: Offsets, ends: Offsets) -> Mentions:
    """Devices' own lines. Their "line" is the row."""
    three, seven = np.uint64(0xFFFFFF), np.uint64(0xFFFFFFFFFFFFFF)
    is_switch = (firsts & seven) == np.uint64(_word(b"Switch\t"))
    is_ca = (firsts & three) == np.uint64(_word(b"Ca\t"))
    rows = np.flatnonzero(is_switch | is_ca | ((firsts & three) == np.uint64(_word(b"Rt\t"))))
    own_kind = np.where(is_switch[rows], SWITCH, np.where(is_ca[rows], CA, ROUTER)).astype(np.uint8)
    number_at = starts[rows] + np.where(is_switch[rows], 7, 3)
    ports, digits, ok = _number(_windows(buffer, number_at, 4), b" ")
    name = number_at + digits + 1
    window = _windows(buffer, np.minimum(name, len(buffer) - 32), 32)
    guid, guid_ok = _hexadecimal(window[:, 3:19])
    ok &= guid_ok & (guid != 0) & (_KIND[window[:, 1]] == own_kind)
    ok &= (window[:, 0] == ord('"')) & (window[:, 2] == ord("-"))
    for place, letter in enumerate(b'"\t\t# "', 19):
        ok &= window[:, place] == letter
    rows, own_kind, ports, guid, name = rows[ok], own_kind[ok], ports[ok], guid[ok], name[ok]

    opens, end = name + 25, ends[rows]
    closes = end - 1
    # An adapter's line ends with the closing quote, a switch's goes on; and a description may hold quotes.
    for i in np.flatnonzero(buffer[closes] != ord('"')).tolist():
        closes[i] = text.rfind(b'"', opens[i], end[i])
    ok = closes >= opens
    found = np.zeros(int(np.count_nonzero(ok)), MENTION)
    found["tag"] = HEADER
    offset = starts[rows]
    spans = (("start", opens - offset), ("end", closes - offset))
    for field, column in (("line", rows), ("kind", own_kind), ("port", ports), ("guid", guid), *spans):
        found[field] = column[ok]
    return found
