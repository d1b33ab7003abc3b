"""Converts the responses of a UFM's REST API about its InfiniBand fabric to `ibnetdiscover` text.

The input is the arrays of `/ufmRest/resources/ports`, `/links` and `/systems` (NVIDIA UFM Enterprise REST API
guide, "Ports", "Links" and "Systems REST API"). The ports alone are enough, because each one names its peer.
The ports of a large fabric are a gigabyte of JSON. As `ibnetdiscover` text they are a tenth of that, and the
reader of sweeps can read them.

A UFM identifies the port of an adapter by the GUID of the port and by its number on the card. The result
therefore has one adapter for each such GUID. A caller that knows the node GUIDs can replace them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hyperscout_formats.infiniband.ibnetdiscover_line import CA, LANE_GBPS, ROUTER, SWITCH, WIDTHS
from hyperscout_formats.text import json_document
from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.json_array import objects
from hyperscout_formats.text.problems import Problems

MAX_PORT: Final = 254
MAX_PORTS: Final = 4_000_000
_DESCRIPTION_BYTES: Final = 64  # InfiniBand architecture specification, volume 1: a NodeDescription
_EXPECTED: Final = "expected the JSON of a UFM's /ufmRest/resources/ports, alone or with /links and /systems"

_GUID = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
_WIDTH = re.compile(r"(?:IB_)?(\d{1,2})x", re.IGNORECASE)
_PORT_NAME = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})_(\d{1,3})")
_OBJECT = re.compile(rb"\s*+\{")
_WORDS: Final = {SWITCH: ("Switch", "S"), CA: ("Ca", "H"), ROUTER: ("Rt", "R")}
# Words that occur in the description of a port or in the type of a system.
_KINDS: Final = (
    ("switch", SWITCH),
    ("computer", CA),
    ("host", CA),
    ("server", CA),
    ("gateway", ROUTER),
    ("router", ROUTER),
)

_End = tuple[int, int]  # GUID, port number


class _Port(NamedTuple):
    kind: int
    name: str
    rate: str
    peer: _End | None
    is_up: bool


@dataclass(frozen=True, slots=True)
class Fabric:
    """The converted fabric. Each cable counts once in `cables`.

    `text` is in the format of `ibnetdiscover`, in order of GUIDs, so that the text of an unchanged fabric
    does not change.
    """

    text: bytes
    switches: int
    adapters: int
    cables: int
    problems: tuple[Problem, ...]


class UfmReader:
    """Collects the objects of the three responses, in any order. `finish` combines them."""

    def __init__(self, source: str = "ufm") -> None:
        self._source = source
        self._problems = Problems(source)
        self._ports: dict[_End, _Port] = {}
        self._links: list[tuple[_End, _End]] = []
        self._systems: dict[int, int] = {}  # GUID -> kind
        self._unknown: dict[_End, int] = {}  # ports of unknown kind -> GUID of their system

    def take(self, item: Mapping[str, Any]) -> None:
        """Add one object of any of the three responses. Raises FormatError if there are too many objects."""
        if "source_guid" in item:
            self._link(item)
        elif "number" in item:
            self._port(item)
        elif "system_guid" in item or "type" in item:
            self._system(item)
        else:
            self._problems.add(
                0, f"expected a port, link or system, found an object with {str(sorted(item))[:80]}"
            )
        if len(self._ports) + len(self._links) + len(self._systems) > 3 * MAX_PORTS:
            raise FormatError(self._source, 0, f"more than {MAX_PORTS} ports")

    def finish(self) -> Fabric:
        """Return the fabric. Raises FormatError if it has no device."""
        for end, system in self._unknown.items():
            self._ports[end] = self._ports[end]._replace(kind=self._systems.get(system, 0))
        nameless = [end for end, port in self._ports.items() if not port.kind]
        for guid, number in sorted(nameless):
            self._problems.add(0, f"port {guid:016x}_{number} belongs neither to a switch nor to an adapter")
            del self._ports[guid, number]
        if not self._ports:
            raise FormatError(self._source, 0, f"no port of a switch or an adapter; {_EXPECTED}")
        peers = self._cables()
        devices = sorted({guid for guid, _ in self._ports})
        kind_of = {guid: self._ports[guid, number].kind for guid, number in sorted(self._ports, reverse=True)}
        kinds = Counter(kind_of.values())
        return Fabric(
            self._text(devices, kind_of, peers),
            kinds[SWITCH] + kinds[ROUTER],
            kinds[CA],
            len({frozenset((end, peer)) for end, peer in peers.items()}),
            self._problems.listed(),
        )

    def _port(self, item: Mapping[str, Any]) -> None:
        guid, number = _guid(item.get("guid")), _number(item.get("number"))
        if not guid or number is None:
            name = _text(item.get("name"))[:60]
            self._problems.add(0, f"a port without a GUID or a valid number: {name!a}")
            return
        end = (guid, number)
        if end in self._ports:
            self._problems.add(0, f"port {guid:016x}_{number} is listed twice; the first is used")
            return
        kind = _kind(_text(item.get("description")))
        if not kind and _text(item.get("dname")).startswith("HCA"):
            kind = CA
        if not kind:
            self._unknown[end] = _guid(item.get("systemID")) or guid
        described = _text(item.get("node_description"))
        system = _text(item.get("system_name"))
        # The description of a switch port also has the port's label ("leaf-01:1/3/1"). That of an adapter
        # does not.
        name = system or described.partition(":")[0] if kind == SWITCH else described or system
        peer = _PORT_NAME.fullmatch(_text(item.get("peer")))
        number_there = _number(peer[2]) if peer else None
        self._ports[end] = _Port(
            kind,
            name,
            _rate(_text(item.get("active_speed")), _text(item.get("active_width"))),
            (int(peer[1], 16), number_there) if peer and number_there is not None else None,
            _is_up(_text(item.get("physical_state")), _text(item.get("logical_state"))),
        )

    def _link(self, item: Mapping[str, Any]) -> None:
        one = (_guid(item.get("source_guid")), _number(item.get("source_port")))
        other = (_guid(item.get("destination_guid")), _number(item.get("destination_port")))
        if not one[0] or not other[0] or one[1] is None or other[1] is None:
            self._problems.add(0, f"a link without two ends: {_text(item.get('name'))[:80]!a}")
            return
        self._links.append(((one[0], one[1]), (other[0], other[1])))

    def _system(self, item: Mapping[str, Any]) -> None:
        kind = _kind(_text(item.get("type")))
        for key in ("guid", "system_guid", "name"):
            if kind and (guid := _guid(item.get(key))):
                self._systems.setdefault(guid, kind)

    def _cables(self) -> dict[_End, _End]:
        """Return the peer of each port: the one that the port names, else the one that a link names.

        A cable counts if neither end is down.
        """
        peers: dict[_End, _End] = {}
        for end, port in sorted(self._ports.items()):
            if port.is_up and port.peer is not None:
                peers[end] = port.peer
        for one, other in sorted(self._links):
            for end, peer in ((one, other), (other, one)):
                if end in self._ports and self._ports[end].is_up:
                    named = peers.setdefault(end, peer)
                    if named != peer:
                        self._problems.add(
                            0,
                            f"port {_name(end)} names the peer {_name(named)}, a link {_name(peer)}",
                        )
        for end, peer in sorted(peers.items()):
            there = self._ports.get(peer)
            if there is None:
                self._problems.add(
                    0, f"port {_name(end)} names the peer {_name(peer)}, which is not among the ports"
                )
            if there is None or not there.is_up:
                del peers[end]
        return peers

    def _text(self, devices: list[int], kind_of: Mapping[int, int], peers: Mapping[_End, _End]) -> bytes:
        numbers: dict[int, list[int]] = {guid: [] for guid in devices}
        for guid, number in sorted(self._ports):
            numbers[guid].append(number)
        names = {guid: self._ports[guid, numbers[guid][0]].name for guid in devices}
        lines = ["# Topology file: made from the answers of a UFM"]
        for guid in sorted(devices, key=lambda guid: (kind_of[guid] != SWITCH, guid)):
            word, letter = _WORDS[kind_of[guid]]
            tail = " base port 0 lid 0 lmc 0" if letter == "S" else ""
            lines += ["", f'{word}\t{numbers[guid][-1]} "{letter}-{guid:016x}"\t\t# "{names[guid]}"{tail}']
            for number in numbers[guid]:
                if (peer := peers.get((guid, number))) is None:
                    continue
                there, own = _WORDS[kind_of[peer[0]]][1], self._ports[guid, number]
                here = "" if letter == "S" else f"({guid:x}) "
                lid = "" if letter == "S" else "lid 0 lmc 0 "
                far = "" if there == "S" else f"({peer[0]:x}) "
                rate = own.rate or self._ports[peer].rate
                lines.append(
                    f'[{number}]{here}\t"{there}-{peer[0]:016x}"[{peer[1]}]{far}\t\t# '
                    f'{lid}"{names[peer[0]]}" lid 0 {rate or "4x???"}'
                )
        return ("\n".join(lines) + "\n").encode()


def parse(data: bytes, source: str = "ufm") -> Fabric:
    """Read a saved response: the array of the ports, or an object with "ports", "links" and "systems".

    Raises FormatError for other text.
    """
    reader = UfmReader(source)
    for item in _documents(data, source) if _OBJECT.match(data) else objects(data, source):
        if isinstance(item, Mapping):
            reader.take(item)
    return reader.finish()


def _documents(data: bytes, source: str) -> Iterable[Any]:
    document = json_document.document(data, source, len(data), _EXPECTED)
    if not isinstance(document, Mapping):
        raise FormatError(source, 0, f"neither an array nor an object; {_EXPECTED}")
    for key in ("ports", "links", "systems"):
        if isinstance(items := document.get(key), list):
            yield from items


def _text(value: Any) -> str:
    """Return a printable text in one line, without quotes, which would end a description."""
    if not isinstance(value, str):
        return ""
    text = cleaned(value[:1024]).replace('"', " ").strip()
    return text.encode(errors="replace")[:_DESCRIPTION_BYTES].decode(errors="ignore")


def _guid(value: Any) -> int:
    """Return a GUID, 0 = none."""
    found = _GUID.fullmatch(value) if isinstance(value, str) else None
    return int(found[1], 16) if found else 0


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 3:
        value = int(value)
    return value if type(value) is int and 1 <= value <= MAX_PORT else None


def _kind(words: str) -> int:
    lower = words.lower()
    return next((kind for word, kind in _KINDS if word in lower), 0)


def _rate(speed: str, width: str) -> str:
    """Return the rate as `ibnetdiscover` writes it, such as "4xNDR", "" = unknown."""
    lanes = _WIDTH.fullmatch(width)
    known = speed.isascii() and speed.upper().encode() in LANE_GBPS
    return f"{int(lanes[1])}x{speed.upper()}" if lanes and int(lanes[1]) in WIDTHS and known else ""


def _is_up(physical: str, logical: str) -> bool:
    """Return whether a port is up. A port without states counts as up, because older versions omit them."""
    return physical.lower().replace(" ", "") in ("", "n/a", "linkup", "active") and logical.lower() != "down"


def _name(end: _End) -> str:
    return f"{end[0]:016x}_{end[1]}"
