"""Reads `ibnetdiscover` text (infiniband-diags, ibnetdiscover(8)) into columns, not objects.

`ibnetdiscover_columns` turns whole stretches of lines into columns. `ibnetdiscover_line` reads each line of
an unusual shape on its own. This module joins the columns of all stretches: it identifies devices by GUID,
assigns records to their blocks, and removes and reports contradictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hyperscout_formats.infiniband.guid_index import first_mentions
from hyperscout_formats.infiniband.ibnetdiscover_columns import (
    PAD,
    Headers,
    Images,
    Records,
    Stretch,
    read_stretch,
)
from hyperscout_formats.infiniband.ibnetdiscover_fields import (
    RATE_GBPS,
    RATE_WIDTH,
    Bools,
    Ints,
    Offsets,
    Words,
)
from hyperscout_formats.infiniband.ibnetdiscover_line import (
    CA,
    ROUTER,
    SWITCH,
    UNKNOWN,
    Record,
    printable,
    read_line,
)
from hyperscout_formats.infiniband.ibnetdiscover_text import (
    initiated_from,
    is_grouped,
    may_have_devices,
    why_refused,
)
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.problems import Problems

__all__ = ["CA", "ROUTER", "SWITCH", "UNKNOWN", "Sweep", "parse"]

STRETCH_BYTES: Final = 1 << 21
"""Bytes that are read at once. Temporary arrays stay small and fit into the processor's cache."""
MAX_BYTES: Final = 1 << 30
MAX_PORT: Final = (
    254  # InfiniBand architecture specification, volume 1: a port number is 8 bits, 255 is reserved
)
ENOUGH_UNREADABLE: Final = 10_000
"""Lines. The text is not a sweep if more lines than this are unreadable, and more lines are unreadable than
readable.
"""
MAX_ALLOWANCE: Final = 2 << 20
"""Lines. Each device accounts for one line a port and `_BLOCK_LINES` more. A fabric of 65,536 hosts with one
adapter each has 700,000.
"""
MAX_UNUSUAL: Final = 1 << 20
"""Lines that are read one by one, 10 us each."""
_BLOCK_LINES = 5  # ids, the header, and a blank line
_STRETCH_LINES = STRETCH_BYTES // 8  # the average line of a fabric has 30 bytes and more
_OTHER_LINES = 10_000  # headings, comments, progress of `-s`


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """The content of one text: n devices in order of first mention, m port records in order of lines.

    A record is one port line, as one end reported it. A cable that both ends reported is two records. A
    device that has no block of its own (`declared` is False) is only mentioned as a peer.
    """

    source: str
    guid: npt.NDArray[np.uint64]  # (n,) node GUID
    kind: npt.NDArray[np.uint8]  # (n,) UNKNOWN, SWITCH, CA or ROUTER
    port_count: npt.NDArray[np.int32]  # (n,) 0 where not declared
    declared: npt.NDArray[np.bool_]  # (n,)
    system_image_guid: npt.NDArray[np.uint64]  # (n,) 0 where not given
    descriptions: Sequence[str]  # n node descriptions, "" where none
    device: npt.NDArray[np.int32]  # (m,) index of the device that reported the record
    port: npt.NDArray[np.int32]  # (m,)
    port_guid: npt.NDArray[np.uint64]  # (m,) of the local port of an adapter, 0 for a switch
    peer: npt.NDArray[np.int32]  # (m,) index of the device at the other end
    peer_port: npt.NDArray[np.int32]  # (m,)
    rate_gbps: npt.NDArray[np.float32]  # (m,) width x nominal rate of a lane as in sysfs, 0 = unknown
    width: npt.NDArray[np.uint8]  # (m,) lanes, 0 = unknown
    line: npt.NDArray[np.int32]  # (m,) from 1
    initiated_from: int = 0  # GUID of the node that ran the sweep, 0 = not given
    problems: tuple[Problem, ...] = ()


def parse(data: bytes, source: str = "ibnetdiscover") -> Sweep:
    """Read the text that `ibnetdiscover` prints by default, with `-f` or with `-g`.

    Damaged, contradictory and repeated parts are left out and reported in `problems`: at most 100, and one
    more that counts the rest. Raises FormatError if the text has no device, if most of it is unreadable, if
    it has far more lines than its devices have ports, or if it is larger than `MAX_BYTES`.
    """
    if len(data) > MAX_BYTES:
        raise FormatError(source, 0, f"{len(data)} bytes; expected at most {MAX_BYTES} bytes")
    problems = Problems(source)
    lines = _read_all(data, source, problems)
    headers, records = lines.headers, lines.records
    if not len(headers.line):
        raise FormatError(source, 0, why_refused(data))
    devices = _devices(headers, records)
    own, peer, declared = devices.of_header, devices.of_record, devices.block >= 0
    n = len(devices.guid)
    kind = np.zeros(n, np.uint8)
    kind[peer[::-1]] = records.kind[::-1]
    kind[declared] = headers.kind[devices.block[declared]]
    port_count = np.zeros(n, np.int32)
    port_count[declared] = headers.port_count[devices.block[declared]]
    image = np.zeros(n, np.uint64)
    image[own[::-1]] = _system_images(lines)[::-1]

    _name_repeated(data, headers, devices, problems)
    device = _owners(lines, devices)
    keep = np.ones(len(peer), np.bool_)
    for bad, reason in (
        (device < 0, "a port line outside a device block"),
        (kind[peer] != records.kind, "the kind of the other end contradicts other lines"),
        (_impossible(records.port, port_count[device]), "the port number is not valid for the device"),
        (_impossible(records.peer_port, port_count[peer]), "the port number is not valid for the other end"),
    ):
        if bad.any():
            problems.add_all(records.line[keep & bad], reason)
            keep &= ~bad
    kept = _once(records, device, peer, np.flatnonzero(keep), problems)
    if len(kept) < len(keep):
        records, device, peer = Records._make(column[kept] for column in records), device[kept], peer[kept]
    return Sweep(
        source=source,
        guid=devices.guid,
        kind=kind,
        port_count=port_count,
        declared=declared,
        system_image_guid=image,
        descriptions=_descriptions(data, lines, devices),
        device=device.astype(np.int32),
        port=records.port,
        port_guid=np.where(kind[device] == SWITCH, np.uint64(0), records.port_guid),
        peer=peer.astype(np.int32),
        peer_port=records.peer_port,
        rate_gbps=RATE_GBPS[records.rate],
        width=RATE_WIDTH[records.rate],
        line=records.line,
        initiated_from=initiated_from(data),
        problems=problems.listed(),
    )


class _Lines(NamedTuple):
    """The columns of all stretches, joined."""

    headers: Headers
    records: Records
    images: Images
    breaks: Ints


def _read_all(data: bytes, source: str, problems: Problems) -> _Lines:
    if not may_have_devices(data):
        raise FormatError(source, 0, why_refused(data))
    stretches: list[Stretch] = []
    size = _Size(source)
    readable = unreadable = begin = 0
    line = 1
    while begin < len(data):
        limit = begin + STRETCH_BYTES
        end = len(data) if limit >= len(data) else data.rfind(b"\n", begin, limit) + 1
        if not end:  # one line is longer than a stretch
            problems.add(line, f"a line of more than {STRETCH_BYTES} bytes")
            begin, line = (data.find(b"\n", limit) + 1) or len(data), line + 1
            continue
        newlines = np.flatnonzero(np.frombuffer(data, np.uint8, end - begin, begin) == ord("\n"))
        if len(newlines) > _STRETCH_LINES:
            size.refuse(line, "its lines are too short")
        stretch = _read_padded(data, begin, end, newlines, line)
        stretches.append(stretch)
        for at, reason in stretch.unreadable:
            problems.add(at, reason)
        readable += len(stretch.headers.line) + len(stretch.records.line)
        unreadable += len(stretch.unreadable)
        if unreadable > max(readable, ENOUGH_UNREADABLE):
            at, reason = stretch.unreadable[-1]
            raise FormatError(
                source, at, f"most lines up to here cannot be read ({reason}); {why_refused(data)}"
            )
        begin, line = end, line + stretch.line_count
        size.check(stretch, line - 1)
    if not stretches:
        raise FormatError(source, 0, why_refused(data))
    return _Lines(
        Headers._make(map(np.concatenate, zip(*(stretch.headers for stretch in stretches), strict=True))),
        Records._make(map(np.concatenate, zip(*(stretch.records for stretch in stretches), strict=True))),
        Images._make(map(np.concatenate, zip(*(stretch.images for stretch in stretches), strict=True))),
        np.concatenate([stretch.breaks for stretch in stretches]),
    )


class _Size:
    """Compares the number of lines with what the devices account for: no text costs more than a fabric.

    `-g` prints blocks twice, so there may be twice as many lines.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._guids: set[int] = set()
        self._allowance = self._unusual = 0

    def check(self, stretch: Stretch, lines: int) -> None:
        """Add a stretch. `lines`: in the text so far. Raises FormatError."""
        ports = np.minimum(stretch.headers.port_count, MAX_PORT)
        guids = stretch.headers.guid.tolist()
        fresh = set(guids)
        if len(fresh) == len(guids) and fresh.isdisjoint(self._guids):  # the common case
            self._guids |= fresh
            self._allowance += int(ports.sum()) + len(guids) * _BLOCK_LINES
            guids = []
        for guid, count in zip(guids, ports.tolist(), strict=False):
            if guid not in self._guids:
                self._guids.add(guid)
                self._allowance += count + _BLOCK_LINES
        self._unusual += stretch.unusual
        if self._allowance > MAX_ALLOWANCE:
            self.refuse(lines, "its devices have more ports than a fabric")
        if self._unusual > MAX_UNUSUAL:
            self.refuse(lines, f"more than {MAX_UNUSUAL} lines are not as ibnetdiscover prints them")
        if lines > _OTHER_LINES + 2 * self._allowance:
            self.refuse(lines, f"more lines than its {len(self._guids)} devices have ports")

    def refuse(self, line: int, why: str) -> None:
        raise FormatError(self._source, line, f"not the text of a fabric: up to here {why}")


def _read_padded(data: bytes, begin: int, end: int, newlines: Offsets, line: int) -> Stretch:
    """Read a stretch with `PAD` bytes on both sides. `newlines`: the offsets of its newlines from `begin`.

    At the start and end of the text, the bytes come from a padded copy.
    """
    if begin >= PAD and end + PAD <= len(data):
        return read_stretch(data, begin, newlines + begin, first_line=line, shift=0, cut=False)
    room = bytes(PAD)
    cut = data[end - 1 : end] != b"\n"
    text = b"".join((room, memoryview(data)[begin:end], b"\n" if cut else b"", room))
    ends = np.append(newlines, end - begin) if cut else newlines
    return read_stretch(text, PAD, ends + PAD, first_line=line, shift=begin - PAD, cut=cut)


class _Devices(NamedTuple):
    """n devices in order of first mention."""

    guid: Words  # (n,)
    block: Offsets  # (n,) number of the first header, -1 for none
    of_header: Offsets  # device of each header
    of_record: Offsets  # device at the other end of each record
    header_before: Offsets  # number of the latest header before each record, -1 = none


def _devices(headers: Headers, records: Records) -> _Devices:
    records_before = np.searchsorted(records.line, headers.line)
    of_each = np.diff(records_before, prepend=0, append=len(records.line))
    header_before = np.repeat(np.arange(-1, len(headers.line)), of_each)
    # All mentions, in order of lines. The position of a header follows all records before it.
    at_header = np.arange(len(headers.line)) + records_before
    at_record = np.arange(len(records.line)) + header_before + 1
    mentions = np.empty(len(at_header) + len(at_record), np.uint64)
    mentions[at_header] = headers.guid
    mentions[at_record] = records.guid
    number, guid = first_mentions(mentions)
    of_header, of_record = number[at_header], number[at_record]
    block = np.full(len(guid), -1, np.int64)
    block[of_header[::-1]] = np.arange(len(of_header))[::-1]
    return _Devices(guid, block, of_header, of_record, header_before)


def _system_images(lines: _Lines) -> Words:
    """Return, for each header, the system image GUID between it and the previous header, 0 = none."""
    header_lines = lines.headers.line
    before = np.concatenate([np.zeros(1, np.int32), header_lines[:-1]])
    image_lines = np.concatenate([np.full(1, -1, np.int32), lines.images.line])
    images = np.concatenate([np.zeros(1, np.uint64), lines.images.guid])
    latest = np.searchsorted(image_lines, header_lines) - 1
    return np.where(image_lines[latest] > before, images[latest], np.uint64(0))


def _owners(lines: _Lines, devices: _Devices) -> Offsets:
    """Return the device of the block that contains each record, -1 = none."""
    breaks = np.concatenate([lines.breaks, np.full(1, np.iinfo(np.int32).max, np.int32)])
    block_end = breaks[np.searchsorted(lines.breaks, lines.headers.line)]
    latest = devices.header_before
    return np.where((latest >= 0) & (lines.records.line < block_end[latest]), devices.of_header[latest], -1)


def _impossible(port: Ints, port_count: Ints) -> Bools:
    most = np.where(port_count > 0, np.minimum(port_count, MAX_PORT), MAX_PORT)
    return (port < 1) | (port > most)


def _name_repeated(data: bytes, headers: Headers, devices: _Devices, problems: Problems) -> None:
    """Report second blocks of a device.

    `-g` prints the switches of a chassis twice, which is not a problem.
    """
    first = devices.block[devices.of_header]
    again = np.flatnonzero(first != np.arange(len(first)))
    if not len(again):
        return
    first = first[again]
    other = headers.port_count[again] != headers.port_count[first]
    other |= headers.kind[again] != headers.kind[first]
    problems.add_all(
        headers.line[again[other]], "a second block of a device contradicts the first; the first is used"
    )
    if not is_grouped(data):
        problems.add_all(
            headers.line[again[~other]], "a second block of a device; repeated lines are used once"
        )


def _once(records: Records, device: Offsets, peer: Offsets, kept: Offsets, problems: Problems) -> Offsets:
    """Return, of `kept`, the first record of each port. Later records with another cable are reported."""
    key = device[kept] * (MAX_PORT + 1) + records.port[kept]
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(key[order][1:] == key[order][:-1]) + 1
    if not len(again):
        return kept
    is_first = np.ones(len(order), np.bool_)
    is_first[again] = False
    first = kept[order[np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))[again]]]
    later = kept[order[again]]
    other = (peer[later] != peer[first]) | (records.peer_port[later] != records.peer_port[first])
    problems.add_all(np.sort(records.line[later[other]]), "a second cable for a port; the first is used")
    return kept[np.isin(kept, later, invert=True)]


def _descriptions(data: bytes, lines: _Lines, devices: _Devices) -> list[str]:
    """Return the description of each device: from its own header, else from its first mention as a peer."""
    declared = np.flatnonzero(devices.block >= 0)
    headers = devices.block[declared]
    texts = _texts(data, lines.headers.start[headers], lines.headers.end[headers])
    if len(texts) == len(devices.block):  # the common case
        return texts
    result = [""] * len(devices.block)
    for index, text in zip(declared.tolist(), texts, strict=True):
        result[index] = text
    mentioned = np.zeros(len(result), np.int64)
    mentioned[devices.of_record[::-1]] = lines.records.offset[::-1]
    for index in np.flatnonzero(devices.block < 0).tolist():
        begin = int(mentioned[index])
        end = data.find(b"\n", begin)
        line = data[begin : end if end >= 0 else len(data)].rstrip(b"\r")
        parsed = read_line(line)
        if isinstance(parsed, Record):
            result[index] = printable(line[parsed.start : parsed.end])
    return result


def _texts(data: bytes, start: Offsets, end: Offsets) -> list[str]:
    """Return `data[start:end]` for each pair.

    One copy and one decode of all texts are much faster than one for each text.
    """
    size = end - start + 1  # one byte more for a newline
    place = np.cumsum(size) - size
    joined = np.frombuffer(data, np.uint8)[np.repeat(start - place, size) + np.arange(int(size.sum()))]
    joined[place + size - 1] = ord("\n")
    text = joined.tobytes()
    if np.count_nonzero(joined < ord(" ")) == len(size) and not np.any(joined > ord("~")):
        return text.decode("ascii").split("\n")[:-1]
    return [printable(part) for part in text.split(b"\n")[:-1]]
