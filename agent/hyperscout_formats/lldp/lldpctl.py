"""Reads `lldpctl -f json0` (lldpd, lldpctl(8)): the neighbours of each local port.

`json0` prints every value as an array. Plain `json` omits the array of a single value and uses names as keys.
This module reads both, because users save both.
"""

import json
import re
from typing import Any, Final

from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort
from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.json_document import listed
from hyperscout_formats.text.lldp_text import first_distinct
from hyperscout_formats.text.problems import Problems

MAX_BYTES: Final = 16 << 20
MAX_NEIGHBOURS: Final = 64
"""Neighbours of one port. More indicate a storm, not a topology."""
DEFAULT_TTL_S: Final = 120
"""The TTL that lldpd sends by default. Old versions do not print the received TTL."""
MAX_TTL_S: Final = 65_535

_EXPECTED: Final = "expected the output of `lldpctl -f json0`"
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def parse(data: bytes, source: str = "lldpctl") -> tuple[tuple[LldpPort, ...], tuple[Problem, ...]]:
    """Return ports in order of first mention, each with its neighbours, and the problems.

    A neighbour that is left out is reported as a problem. Values that lldpctl does not print keep their
    defaults (MAC, carrier and speed of the local port). A neighbour from another protocol (such as CDP)
    counts if it has a chassis and a port. Raises FormatError if the text is not lldpctl's JSON.
    """
    problems = Problems(source)
    ports: dict[str, list[LldpNeighbour]] = {}
    for name, entry in _interfaces(_document(data, source), source):
        neighbours = ports.setdefault(cleaned(name), [])
        try:
            neighbour = _neighbour(entry)
        except _UnusableError as error:
            problems.add(0, f"{cleaned(name)}: {error}")
            continue
        if neighbour is None or neighbour in neighbours:
            continue
        if len(neighbours) >= MAX_NEIGHBOURS:
            problems.add(0, f"{cleaned(name)}: more than {MAX_NEIGHBOURS} neighbours")
            continue
        neighbours.append(neighbour)
    found = tuple(LldpPort(interface=name, neighbours=tuple(heard)) for name, heard in ports.items() if heard)
    return found, problems.listed()


class _UnusableError(Exception):
    """A neighbour lacks an identifier or has an invalid value."""


def parse_own(data: bytes) -> tuple[dict[str, LldpNeighbour], tuple[Problem, ...]]:
    """Read `lldpcli -f json0 show interfaces` (lldpcli(8)): what the local host announces.

    The document has the shape of neighbours; the entry of a port contains what the device at the other end of
    the link receives. It contains only ports on which lldpd runs. Return the announced identifiers by
    interface, in order of first mention, and the problems. An interface that lacks an id is left out and
    reported. Raises FormatError if the text is not lldpcli's JSON.
    """
    ports, problems = parse(data, "lldpcli")
    return {port.interface: port.neighbours[0] for port in ports}, problems


def _document(data: bytes, source: str) -> Any:
    if len(data) > MAX_BYTES:
        raise FormatError(source, 0, f"{len(data)} bytes; expected at most {MAX_BYTES} bytes")
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise FormatError(source, error.lineno, f"not JSON: {error.msg}; {_EXPECTED}") from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # not UTF-8, a number of a million digits, or nested too deeply
        raise FormatError(source, 0, f"not JSON: {cleaned(str(error))[:200]}; {_EXPECTED}") from error


def _interfaces(document: Any, source: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (name, entry) of all neighbours, for every way in which the document can nest them."""
    if not isinstance(document, dict) or "lldp" not in document:
        raise FormatError(source, 0, f'no "lldp" key; {_EXPECTED}')
    entries: list[tuple[str, dict[str, Any]]] = []
    for part in listed(document["lldp"]):
        if not isinstance(part, dict):
            raise FormatError(source, 0, f'"lldp" contains no objects; {_EXPECTED}')
        for interface in listed(part.get("interface")):
            if not isinstance(interface, dict):
                raise FormatError(source, 0, f'"interface" contains no objects; {_EXPECTED}')
            if isinstance(interface.get("name"), str):
                entries.append((interface["name"], interface))
                continue
            for name, entry in interface.items():  # plain json: the name is the key
                if not isinstance(entry, dict):
                    raise FormatError(source, 0, f'"interface" has an entry without a name; {_EXPECTED}')
                entries.append((name, entry))
    return entries


def _neighbour(entry: dict[str, Any]) -> LldpNeighbour | None:
    chassis, port = _chassis(entry), _object(entry.get("port"))
    if not (chassis and port) and not str(entry.get("via", "LLDP")).startswith("LLDP"):
        return None
    chassis_type, chassis_id = _identifier(chassis, "chassis")
    port_type, port_id = _identifier(port, "port")
    return LldpNeighbour(
        chassis_id_subtype=chassis_type,
        chassis_id=chassis_id,
        port_id_subtype=port_type,
        port_id=port_id,
        ttl_s=_ttl(port),
        port_description=_text(port.get("descr")),
        system_name=_text(chassis.get("name")),
        system_description=_text(chassis.get("descr")),
        management_addresses=first_distinct(
            [address for item in listed(chassis.get("mgmt-ip")) if (address := _text(item))]
        ),
        capabilities=tuple(
            sorted(
                {
                    _text(item.get("type"))
                    for item in listed(chassis.get("capability"))
                    if isinstance(item, dict)
                    and item.get("enabled") in (True, "on")
                    and _text(item.get("type"))
                }
            )
        ),
    )


def _chassis(entry: dict[str, Any]) -> dict[str, Any]:
    chassis = _object(entry.get("chassis"))
    if "type" in _object(chassis.get("id")) or len(chassis) != 1:
        return chassis
    # plain json: the system's name is the key
    ((name, inner),) = chassis.items()
    return {**inner, "name": name} if isinstance(inner, dict) else chassis


def _identifier(part: dict[str, Any], what: str) -> tuple[str, str]:
    identifier = _object(part.get("id"))
    kind, value = _text(identifier.get("type")), _text(identifier.get("value"))
    if not kind or not value:
        raise _UnusableError(f"a neighbour without a {what} id")
    if kind == "mac":
        value = value.lower()
        if not _MAC.fullmatch(value):
            raise _UnusableError(
                f"a neighbour with a {what} id that is not a valid MAC address: {value[:60]!a}"
            )
    return kind, value


def _ttl(port: dict[str, Any]) -> int:
    text = _text(port.get("ttl"))
    if not text:
        return DEFAULT_TTL_S
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_TTL_S))) or int(text) > MAX_TTL_S:
        raise _UnusableError(f"a neighbour with the invalid TTL {text[:20]!a}")
    return int(text)


def _object(value: Any) -> dict[str, Any]:
    """Return the object, or the first element of an array. Any other value gives {}."""
    first = next(iter(listed(value)), None)
    return first if isinstance(first, dict) else {}


def _text(value: Any) -> str:
    """Return a text, the first element of an array, or the "value" of an object. Any other value gives ""."""
    first = next(iter(listed(value)), None)
    if isinstance(first, dict):
        first = first.get("value")
    return cleaned(first) if isinstance(first, str) else ""
