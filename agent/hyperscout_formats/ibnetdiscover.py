"""Reader of `ibnetdiscover` text (infiniband-diags, ibnetdiscover(8)): columns, not objects.

Lines become columns in `ibnetdiscover_columns`, and one by one in `ibnetdiscover_line` where they are odd.
Here the columns of all stretches are put together: devices are told apart by GUID, records are given to
their blocks, and what contradicts is taken out and named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from hyperscout_formats.errors import FormatError, Problem
from hyperscout_formats.ibnetdiscover_columns import (
    HEADER,
    PAD,
    RATE_GBPS,
    RATE_WIDTH,
    RECORD,
    Bools,
    Mentions,
    Stretch,
    Words,
    read_stretch,
)
from hyperscout_formats.guid_index import first_mentions
from hyperscout_formats.ibnetdiscover_line import CA, ROUTER, SWITCH, UNKNOWN, Record, printable, read_line
from hyperscout_formats.ibnetdiscover_text import initiated_from, is_grouped, may_have_devices, why_refused
from hyperscout_formats.problems import Problems

__all__ = ["CA", "ROUTER", "SWITCH", "UNKNOWN", "Sweep", "parse"]

STRETCH_BYTES: Final = 1 << 20
MAX_BYTES: Final = 1 << 30
MAX_PORT: Final = (
    254  # InfiniBand architecture specification, volume 1: a port number is 8 bits, 255 is reserved
)
ENOUGH_UNREADABLE: Final = 10_000
"""Lines. With so many unreadable ones, and more of them than readable ones, it is not a sweep."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """What one text says. n devices in order of first mention, m port records in order of lines.

    A record is one port line as one end wrote it, so a cable that both ends saw is two records.
    A device that has no block of its own (`declared` False) was only mentioned as a peer.
    """

    source: str
    guid: npt.NDArray[np.uint64]  # (n,) node GUID
    kind: npt.NDArray[np.uint8]  # (n,) UNKNOWN, SWITCH, CA or ROUTER
    port_count: npt.NDArray[np.int32]  # (n,) 0 where not declared
    declared: npt.NDArray[np.bool_]  # (n,)
    system_image_guid: npt.NDArray[np.uint64]  # (n,) 0 where not given
    descriptions: Sequence[str]  # n node descriptions, "" where none
    device: npt.NDArray[np.int32]  # (m,) index of the device whose block holds the line
    port: npt.NDArray[np.int32]  # (m,)
    port_guid: npt.NDArray[np.uint64]  # (m,) of the local port of an adapter, 0 for a switch
    peer: npt.NDArray[np.int32]  # (m,) index of the device at the other end
    peer_port: npt.NDArray[np.int32]  # (m,)
    rate_gbps: npt.NDArray[np.float32]  # (m,) width x nominal rate of a lane as in sysfs, 0 = unknown
    width: npt.NDArray[np.uint8]  # (m,) lanes, 0 = unknown
    line: npt.NDArray[np.int32]  # (m,) from 1
    initiated_from: int = 0  # GUID of the node the sweep looked from, 0 = not said
    problems: tuple[Problem, ...] = ()


def parse(data: bytes, source: str = "ibnetdiscover") -> Sweep:
    """Read the text that `ibnetdiscover` prints by default, with `-f` or with `-g`.

    What is damaged, contradictory or given again is left out and named in `problems`, at most 100 and one that
    counts the rest. Raises FormatError where there is no device in it, or mostly something else.
    """
    if len(data) > MAX_BYTES:
        raise FormatError(source, 0, f"{len(data)} bytes, at most {MAX_BYTES} are read")
    problems = Problems(source)
    lines = _read_all(data, source, problems)
    mentions = lines.mentions
    headers = np.flatnonzero(mentions["tag"] == HEADER)
    if not len(headers):
        raise FormatError(source, 0, why_refused(data))

    device_of, guid, first = first_mentions(mentions["guid"])
    own = device_of[headers]
    block = np.full(len(guid), -1, np.int64)  # of each device, the row of its first header
    block[own[::-1]] = headers[::-1]
    declared = block >= 0
    kind = mentions["kind"][np.where(declared, block, first)]
    port_count = np.where(declared, mentions["port"][block], 0).astype(np.int32)
    image = np.zeros(len(guid), np.uint64)
    image[own[::-1]] = _system_images(lines, mentions["line"][headers])[::-1]

    _name_repeated(data, mentions, headers, block[own], problems)
    rows = mentions[mentions["tag"] == RECORD]
    peer = device_of[mentions["tag"] == RECORD]
    device = _owners(lines, mentions["line"][headers], own, rows["line"])
    keep = np.ones(len(rows), np.bool_)
    for bad, reason in (
        (device < 0, "a port line outside any device's block"),
        (
            kind[peer] != rows["kind"],
            "names the other end as of another kind than its block or the first mention does",
        ),
        (_impossible(rows["port"], port_count[device]), "a port number that the device cannot have"),
        (
            _impossible(rows["peer_port"], port_count[peer]),
            "a port number that the device at the other end cannot have",
        ),
    ):
        problems.add_all(rows["line"][keep & bad], reason)
        keep &= ~bad
    kept = _once(rows, device, peer, np.flatnonzero(keep), problems)
    rows, device, peer = rows[kept], device[kept], peer[kept]
    return Sweep(
        source=source,
        guid=guid,
        kind=kind,
        port_count=port_count,
        declared=declared,
        system_image_guid=image,
        descriptions=_descriptions(data, mentions, block, first),
        device=device.astype(np.int32),
        port=rows["port"].copy(),
        port_guid=np.where(kind[device] == SWITCH, np.uint64(0), rows["port_guid"]),
        peer=peer.astype(np.int32),
        peer_port=rows["peer_port"].copy(),
        rate_gbps=RATE_GBPS[rows["rate"]],
        width=RATE_WIDTH[rows["rate"]],
        line=rows["line"].copy(),
        initiated_from=initiated_from(data),
        problems=problems.listed(),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Lines:
    """All stretches joined. In order of lines."""

    mentions: Mentions
    breaks: npt.NDArray[np.int32]
    image_lines: npt.NDArray[np.int32]
    images: Words


def _read_all(data: bytes, source: str, problems: Problems) -> _Lines:
    if not may_have_devices(data):
        raise FormatError(source, 0, why_refused(data))
    stretches: list[Stretch] = []
    readable = unreadable = begin = 0
    line = 1
    while begin < len(data):
        end = data.rfind(b"\n", begin, begin + STRETCH_BYTES) + 1
        if not end and len(data) - begin > STRETCH_BYTES:  # one line is longer than that
            problems.add(line, f"a line of more than {STRETCH_BYTES} bytes")
            unreadable += 1
            begin, line = (data.find(b"\n", begin + STRETCH_BYTES) + 1) or len(data), line + 1
            continue
        if begin + STRETCH_BYTES >= len(data):
            end = len(data)
        cut = data[end - 1 : end] != b"\n"
        text = PAD + data[begin:end] + (b"\n" + PAD if cut else PAD)
        stretch = read_stretch(text, begin, line, cut=cut)
        stretches.append(stretch)
        for at, reason in stretch.unreadable:
            problems.add(at, reason)
        readable += len(stretch.mentions)
        unreadable += len(stretch.unreadable)
        if unreadable > max(readable, ENOUGH_UNREADABLE):
            at, reason = stretch.unreadable[-1]
            raise FormatError(
                source, at, f"most lines up to here are unreadable, this one: {reason}; {why_refused(data)}"
            )
        begin, line = end, line + stretch.line_count
    return _Lines(
        mentions=np.concatenate([stretch.mentions for stretch in stretches]),
        breaks=np.concatenate([stretch.breaks for stretch in stretches]),
        image_lines=np.concatenate([stretch.image_lines for stretch in stretches]),
        images=np.concatenate([stretch.images for stretch in stretches]),
    )


def _system_images(lines: _Lines, header_lines: npt.NDArray[np.int32]) -> Words:
    """The system image GUID between each header and the one before it; 0 where there is none."""
    before = np.concatenate([np.zeros(1, np.int32), header_lines[:-1]])
    images = np.concatenate([np.zeros(1, np.uint64), lines.images])
    image_lines = np.concatenate([np.full(1, -1, np.int32), lines.image_lines])
    latest = np.searchsorted(image_lines, header_lines) - 1
    return np.where(image_lines[latest] > before, images[latest], np.uint64(0))


def _owners(
    lines: _Lines, header_lines: npt.NDArray[np.int32], own: Indices, at: npt.NDArray[np.int32]
) -> Indices:
    """The device in whose block each of the lines `at` lies, -1 for none."""
    latest = np.searchsorted(header_lines, at) - 1
    breaks = np.concatenate([lines.breaks, np.full(1, np.iinfo(np.int32).max, np.int32)])
    block_end = breaks[np.searchsorted(breaks[:-1], header_lines)]
    return np.where((latest >= 0) & (at < block_end[latest]), own[latest], -1)


def _impossible(port: npt.NDArray[np.int32], port_count: npt.NDArray[np.int32]) -> Bools:
    return (port < 1) | (port > MAX_PORT) | ((port > port_count) & (port_count > 0))


def _name_repeated(
    data: bytes, mentions: Mentions, headers: Indices, kept: Indices, problems: Problems
) -> None:
    """Name blocks of a device that has one already. `-g` gives switches of a chassis twice, which is no problem."""
    repeated = np.flatnonzero(headers != kept)
    if not len(repeated):
        return
    again, before = mentions[headers[repeated]], mentions[kept[repeated]]
    other = (again["port"] != before["port"]) | (again["kind"] != before["kind"])
    problems.add_all(
        again["line"][other],
        "a second block of a device, of another kind or number of ports; the first counts",
    )
    if not is_grouped(data):
        problems.add_all(again["line"][~other], "a second block of a device; what it repeats is kept once")


def _once(rows: Mentions, device: Indices, peer: Indices, kept: Indices, problems: Problems) -> Indices:
    """Of `kept`, the first record of each port; others that name another cable are problems."""
    key = device[kept] * (MAX_PORT + 1) + rows["port"][kept]
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(key[order][1:] == key[order][:-1]) + 1
    if not len(again):
        return kept
    is_first = np.ones(len(order), np.bool_)
    is_first[again] = False
    first = kept[order[np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))[again]]]
    later = kept[order[again]]
    other = (peer[later] != peer[first]) | (rows["peer_port"][later] != rows["peer_port"][first])
    problems.add_all(rows["line"][later[other]], "a second cable for a port; the first counts")
    return kept[np.isin(kept, later, invert=True)]


def _descriptions(data: bytes, mentions: Mentions, block: Indices, first: Indices) -> list[str]:
    """Of each device: its own header's, else as its first mention has it."""
    declared = np.flatnonzero(block >= 0)
    headers = mentions[block[declared]]
    start = headers["offset"] + headers["start"]
    size = (headers["end"] - headers["start"]).astype(np.int64)
    # All of them at once, each with a byte for a newline: far quicker than one by one.
    place = np.cumsum(size + 1) - (size + 1)
    spread = np.repeat(start - place, size + 1) + np.arange(int(np.sum(size + 1)))
    joined = np.frombuffer(data, np.uint8)[spread]
    joined[place + size] = ord("\n")
    plain = np.count_nonzero(joined < ord(" ")) == len(size) and not np.any(joined > ord("~"))
    texts = joined.tobytes().split(b"\n")
    known = joined.tobytes().decode("ascii").split("\n") if plain else [printable(text) for text in texts]
    result = [""] * len(block)
    for index, text in zip(declared.tolist(), known, strict=False):
        result[index] = text
    for index in np.flatnonzero(block < 0).tolist():
        begin = int(mentions["offset"][first[index]])
        line = data[begin : data.find(b"\n", begin) % (len(data) + 1)].rstrip(b"\r")
        said = read_line(line)
        if isinstance(said, Record):
            result[index] = printable(line[said.start : said.end])
    return result
