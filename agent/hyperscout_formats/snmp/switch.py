"""Interprets the rows of a switch: its identity, its ports and its LLDP neighbours.

Sources: LLDP-MIB (IEEE 802.1AB-2005, clause 12), IF-MIB (RFC 2863), system group (RFC 3418), EtherLike-MIB
(RFC 3635).

Vendors omit different values and write values in different ways. The reader does not drop a port or neighbour
because of an uncertain value: it reports a doubt with the port. The result contains each listed neighbour
once.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hyperscout_formats.facts.facts import LldpNeighbour, PortCounters, SwitchPort, SwitchTable
from hyperscout_formats.lldp.lldpctl import DEFAULT_TTL_S
from hyperscout_formats.snmp import interfaces as snmp_interfaces
from hyperscout_formats.snmp import values
from hyperscout_formats.snmp.interfaces import Interfaces
from hyperscout_formats.snmp.rows import Row
from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.lldp_text import first_distinct

MAX_NEIGHBOURS: Final = 20_000
"""Neighbours of one switch."""
MAX_PORTS: Final = 4096
MAX_PROBLEMS: Final = 16

Oid = tuple[int, ...]

_LLDP: Final = (1, 0, 8802, 1, 1, 2, 1)
_LOCAL: Final = (*_LLDP, 3)
_CHASSIS_SUBTYPE, _CHASSIS_ID, _LOCAL_NAME = ((*_LOCAL, scalar) for scalar in (1, 2, 3))
_PORT_SUBTYPE, _PORT_ID, _PORT_DESCRIPTION = ((*_LOCAL, 7, 1, column) for column in (2, 3, 4))
_LOCAL_ADDRESSES: Final = (*_LOCAL, 8, 1)
_REMOTE: Final = (*_LLDP, 4, 1, 1)
_REMOTE_CHASSIS_SUBTYPE, _REMOTE_CHASSIS, _REMOTE_PORT_SUBTYPE, _REMOTE_PORT = (
    (*_REMOTE, column) for column in (4, 5, 6, 7)
)
_REMOTE_DESCRIPTION, _REMOTE_NAME, _REMOTE_SYSTEM, _REMOTE_CAN, _REMOTE_DOES = (
    (*_REMOTE, column) for column in (8, 9, 10, 11, 12)
)
_REMOTE_ADDRESS: Final = (*_LLDP, 4, 2, 1, 3)
_SYSTEM_NAME: Final = (1, 3, 6, 1, 2, 1, 1, 5)

_REMOTES: Final = (
    _REMOTE_CHASSIS_SUBTYPE,
    _REMOTE_CHASSIS,
    _REMOTE_PORT_SUBTYPE,
    _REMOTE_PORT,
    _REMOTE_DESCRIPTION,
    _REMOTE_NAME,
    _REMOTE_DOES,
)
_READ: Final = (
    _CHASSIS_SUBTYPE,
    _CHASSIS_ID,
    _LOCAL_NAME,
    _PORT_SUBTYPE,
    _PORT_ID,
    _PORT_DESCRIPTION,
    _LOCAL_ADDRESSES,
    _SYSTEM_NAME,
    *_REMOTES,
    _REMOTE_SYSTEM,
    _REMOTE_CAN,
    _REMOTE_ADDRESS,
    *snmp_interfaces.COLUMNS,
)
_SIZES: Final = sorted({len(prefix) for prefix in _READ}, reverse=True)


def wanted_subtrees() -> tuple[Oid, ...]:
    """Return the OIDs that must be walked for `read`, in the best order of the queries.

    The identity of the switch comes first, then its neighbours, then the state of its ports.
    """
    columns = (column for column in snmp_interfaces.COLUMNS if column != snmp_interfaces.SPEED)
    return (_LOCAL, _SYSTEM_NAME, *_REMOTES, _REMOTE_ADDRESS, *columns)


def subtrees_to_walk_again(rows: Iterable[Row]) -> tuple[Oid, ...]:
    """Return the OIDs of the neighbours' ids if the walk shows neighbours, and no chassis id or no port id.

    Either the switch omits the id, or it heard all its neighbours after the walk had passed the ids. Only a
    second walk can tell. If some rows have the id, `read` ignores those that lack it.
    """
    filled = {row.oid[: len(_REMOTE_CHASSIS)] for row in rows}
    if filled.isdisjoint(_REMOTES) or {_REMOTE_CHASSIS, _REMOTE_PORT} <= filled:
        return ()
    return _REMOTE_CHASSIS_SUBTYPE, _REMOTE_CHASSIS, _REMOTE_PORT_SUBTYPE, _REMOTE_PORT


def read(
    rows: Iterable[Row], source: str, address: str = "", *, neighbours_per_port: int = MAX_NEIGHBOURS
) -> SwitchTable:
    """Return the table of the switch that these rows belong to. The rows may be in any order.

    Never raises. Irregularities are reported in `problems` of the table and `doubt` of its ports.

    The switch always has an identity. If it reports no chassis id, the subtype is "", and the identity is its
    name and address, else `source`. If a neighbour has no chassis id, its subtype is "" and its chassis id is
    made from its management address. Without such an address, its chassis id is "".

    `source` names the input: the stem of a file name, or the address that was queried. `address` is the
    address that was queried, "" = unknown. If a port has more than `neighbours_per_port` neighbours, the rest
    are left out and counted.
    """
    columns: dict[Oid, dict[Oid, Row]] = {prefix: {} for prefix in _READ}
    for row in rows:
        for size in _SIZES:
            column = columns.get(row.oid[:size])
            if column is not None:
                column[row.oid[size:]] = row
                break
    return _Reading(columns, neighbours_per_port).table(source, address)


@dataclass(slots=True)
class _Heard:
    """The neighbours of one port, and what is uncertain about them."""

    neighbours: list[LldpNeighbour] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Own:
    """The identifiers that a port of the switch announces."""

    number: int
    word: str
    text: str  # "" = no port id
    description: str


class _Reading:
    """Reads one switch. The rows of each column are keyed by their index."""

    def __init__(self, columns: Mapping[Oid, Mapping[Oid, Row]], neighbours_per_port: int) -> None:
        self._columns = columns
        self._most = neighbours_per_port
        self._problems: list[str] = []

    def table(self, source: str, address: str) -> SwitchTable:
        columns = self._columns
        name = values.text(_scalar(columns[_LOCAL_NAME])) or values.text(_scalar(columns[_SYSTEM_NAME]))
        addresses = first_distinct(
            [
                *([address] if address else []),
                *_sorted_addresses(index[1:] for index in columns[_LOCAL_ADDRESSES] if len(index) > 2),
            ]
        )
        word, chassis = self._chassis(name, addresses, source)
        heard_at = self._heard_at()
        own = self._own_ports(heard_at)
        if not own:
            self._problems.append(
                "no LLDP-MIB (1.0.8802.1.1.2): LLDP is off on the switch, or the SNMP view excludes it"
            )
        interfaces = Interfaces(columns)
        if not len(interfaces) and own:
            self._problems.append("no IF-MIB: the state, speed and errors of its ports are unknown")
        addresses_of = self._addresses_of_neighbours()
        calls = Counter(port.text for port in own)
        taken = set(calls)
        ports: list[SwitchPort] = []
        left = MAX_NEIGHBOURS
        for port in own:
            interface, doubt = interfaces.of_port(port.number, port.word, port.text, port.description)
            called = (interface.name if interface else "") or port.text or f"port {port.number}"
            port_id, doubts = _port_id(port, called, doubt, calls, taken)
            taken.add(port_id)
            heard = self._heard(heard_at.get(port.number, ()), addresses_of, called, min(left, self._most))
            left -= len(heard.neighbours)
            up = interface is None or interface.up
            if not up and heard.neighbours:
                doubts.append("is down, but its neighbour has not expired yet")
            ports.append(
                SwitchPort(
                    interface=called,
                    chassis_id_subtype=word,
                    chassis_id=chassis,
                    neighbours=tuple(heard.neighbours),
                    system_name=name,
                    port_id_subtype=port.word,
                    port_id=port_id,
                    port_description=port.description,
                    mac=interface.mac if interface else "",
                    carrier=up,
                    speed_mbps=interface.speed_mbps if interface else 0,
                    counters=interface.counters if interface else PortCounters(),
                    doubt="; ".join([*doubts, *heard.doubts]),
                )
            )
        ports.sort(key=lambda port: (port.interface, port.port_id))
        return SwitchTable(tuple(ports), addresses, tuple(self._problems[:MAX_PROBLEMS]))

    def _chassis(self, name: str, addresses: Sequence[str], source: str) -> tuple[str, str]:
        """Return lldpctl's word and the identity of the switch. The word is "" without a chassis id."""
        word = text = ""
        if row := _scalar(self._columns[_CHASSIS_ID]):
            word, text, odd = values.chassis_id(_scalar(self._columns[_CHASSIS_SUBTYPE]), row)
            if odd:
                self._problems.append(f"its chassis id {odd}: {text}")
        if not text:
            word, text = "", f"{name}@{addresses[0]}" if name and addresses else cleaned(source)
            self._problems.append(
                f"no chassis id of its own ({_dotted(_CHASSIS_ID)}): its identity is {text}; its neighbours "
                "may report another one"
            )
        return word, text

    def _own_ports(self, heard_at: Mapping[int, Sequence[Oid]]) -> list[_Own]:
        columns = self._columns
        numbers = {index[0] for index in columns[_PORT_ID] if len(index) == 1} | set(heard_at)
        if len(numbers) > MAX_PORTS:
            self._problems.append(
                f"{len(numbers)} ports: only {MAX_PORTS} are kept, ports with neighbours first"
            )
            hearing_first = sorted(numbers, key=lambda number: (number not in heard_at, number))
            numbers = set(hearing_first[:MAX_PORTS])
        own = []
        for number in sorted(numbers):
            word = text = ""
            if row := columns[_PORT_ID].get((number,)):
                word, text, _ = values.port_id(columns[_PORT_SUBTYPE].get((number,)), row)
            own.append(_Own(number, word, text, values.text(columns[_PORT_DESCRIPTION].get((number,)))))
        return own

    def _heard_at(self) -> dict[int, list[Oid]]:
        """Return the indexes of lldpRemTable by local port, the newest last.

        An index is (time mark, local port, number).
        """
        columns = [column for name in _REMOTES if (column := self._columns[name])]
        found: dict[int, list[Oid]] = defaultdict(list)
        odd = torn = 0
        for index in sorted(set().union(*columns)):
            if len(index) != 3:
                odd += 1
            elif self._is_torn([index in column for column in columns], index):
                torn += 1
            else:
                found[index[1]].append(index)
        if torn:
            self._problems.append(
                f"{torn} rows of lldpRemTable were added or removed during the walk and are ignored"
            )
        if odd:
            self._problems.append(f"{odd} rows of lldpRemTable have no index of three parts and are ignored")
        return found

    def _is_torn(self, present: list[bool], index: Oid) -> bool:
        """Whether a row was added or removed during the walk and lacks an id that other rows have.

        Columns are walked one after the other. Such a row is only in the first or only in the last of them.
        `present`: for each column that has rows, in the order of the walk, whether it has this one.
        """
        lacks_id = any(
            (column := self._columns[name]) and index not in column
            for name in (_REMOTE_CHASSIS, _REMOTE_PORT)
        )
        return lacks_id and present in (sorted(present), sorted(present, reverse=True))

    def _addresses_of_neighbours(self) -> dict[Oid, list[str]]:
        """Return addresses by local port and number. The time mark may differ from that in lldpRemTable."""
        indexes: dict[Oid, set[Oid]] = defaultdict(set)
        for index in self._columns[_REMOTE_ADDRESS]:
            if len(index) > 4:
                indexes[index[1:3]].add(index[3:])
        return {at: _sorted_addresses(mine) for at, mine in indexes.items()}

    def _heard(
        self,
        indexes: Sequence[Oid],
        addresses_of: Mapping[Oid, Sequence[str]],
        called: str,
        most: int,
    ) -> _Heard:
        """Return each (chassis, port) once.

        A neighbour that returned may also be listed under its old time mark.
        """
        columns = self._columns
        distinct: dict[tuple[object, object], list[Oid]] = defaultdict(list)
        for index in indexes:
            chassis, port = (columns[column].get(index) for column in (_REMOTE_CHASSIS, _REMOTE_PORT))
            distinct[chassis and chassis.value, port and port.value].append(index)
        heard = _Heard()
        doubts: dict[str, None] = {}
        for same in list(distinct.values())[:most]:
            neighbour, odd = self._neighbour(same[-1], addresses_of, called)
            heard.neighbours.append(neighbour)
            doubts |= dict.fromkeys(odd)
            kinds = {
                tuple(
                    values.number(columns[column].get(index))
                    for column in (_REMOTE_CHASSIS_SUBTYPE, _REMOTE_PORT_SUBTYPE)
                )
                for index in same
            }
            if len(kinds) > 1:
                doubts[f"has a neighbour that is listed with {len(kinds)} kinds of id"] = None
        if len(distinct) > most:
            excess = f"has {len(distinct)} neighbours, of which {most} are kept"
            self._problems.append(f"{called} {excess}")
            doubts[excess] = None
        heard.neighbours.sort(
            key=lambda n: (n.chassis_id, n.port_id, n.chassis_id_subtype, n.port_id_subtype)
        )
        heard.doubts = list(doubts)
        return heard

    def _neighbour(
        self, index: Oid, addresses_of: Mapping[Oid, Sequence[str]], called: str
    ) -> tuple[LldpNeighbour, list[str]]:
        columns = self._columns

        def at(column: Oid) -> Row | None:
            return columns[column].get(index)

        doubts: list[str] = []
        addresses = tuple(addresses_of.get(index[1:], ()))
        name = values.text(at(_REMOTE_NAME))
        chassis_word = chassis = port_word = port = ""
        if row := at(_REMOTE_CHASSIS):
            chassis_word, chassis, odd = values.chassis_id(at(_REMOTE_CHASSIS_SUBTYPE), row)
            if odd:
                doubts.append(f"has a neighbour with a chassis id that {odd}")
        if row := at(_REMOTE_PORT):
            port_word, port, odd = values.port_id(at(_REMOTE_PORT_SUBTYPE), row)
            if odd:
                doubts.append(f"has a neighbour with a port id that {odd}")
        if not chassis:
            chassis_word = ""
            if addresses:
                chassis = f"{name}@{addresses[0]}" if name else addresses[0]
                doubts.append("has a neighbour without a chassis id, identified by its management address")
            else:
                doubts.append("has a neighbour without a chassis id")
        if not port:
            port_word, port = values.port_word(at(_REMOTE_PORT_SUBTYPE)), f"unknown at {called}"
            doubts.append("has a neighbour without a port id")
        neighbour = LldpNeighbour(
            chassis_id_subtype=chassis_word,
            chassis_id=chassis,
            port_id_subtype=port_word,
            port_id=port,
            ttl_s=DEFAULT_TTL_S,
            port_description=values.text(at(_REMOTE_DESCRIPTION)),
            system_name=name,
            system_description=values.text(at(_REMOTE_SYSTEM)),
            management_addresses=addresses,
            capabilities=values.capabilities(at(_REMOTE_DOES) or at(_REMOTE_CAN)),
        )
        return neighbour, doubts


def _port_id(
    port: _Own, called: str, doubt: str, calls: Mapping[str, int], taken: Collection[str]
) -> tuple[str, list[str]]:
    """Return a port id that is unique on the switch, and what is uncertain about the port.

    This is the announced id if no other port announces it. `doubt` is what is uncertain about the interface
    name `called`. `calls` counts the ports that announce each text.
    """
    doubts = [doubt] if doubt else []
    if port.text and calls[port.text] == 1:
        return port.text, doubts
    if port.text:
        port_id = f"{port.text} ({called})"
        doubts.append(f"is one of {calls[port.text]} ports that are announced as {port.text}")
    else:
        port_id = called
        doubts.insert(0, "reports no port id of its own")
    while port_id in taken:
        port_id += f" number {port.number}"
    return port_id, doubts


def _scalar(column: Mapping[Oid, Row]) -> Row | None:
    """Return the row of a scalar. Its index is 0 by the standard, but some SNMP agents use another one."""
    return column[min(column)] if column else None


def _dotted(oid: Oid) -> str:
    return ".".join(map(str, oid))


def _sorted_addresses(indexes: Iterable[Oid]) -> list[str]:
    """Return the addresses, IPv4 first."""
    found = {address: index for index in indexes if (address := values.address(index))}
    return list(first_distinct(sorted(found, key=lambda address: found[address])))
