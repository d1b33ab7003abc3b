"""Reads the interfaces of a switch from IF-MIB (RFC 2863), and finds the interface of each LLDP port.

LLDP-MIB numbers ports in its own way (lldpLocPortNum; IEEE 802.1AB-2005, 12.2): some switches use the
ifIndex, others a number of the chip or slot. The reader therefore finds the interface by name. It uses the
number only if no name matches, and reports that as a doubt.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hyperscout_formats.facts.facts import PortCounters
from hyperscout_formats.snmp import values
from hyperscout_formats.snmp.rows import Row

# OIDs of the columns of ifTable, ifXTable and dot3StatsTable.
TABLE: Final = (1, 3, 6, 1, 2, 1, 2, 2, 1)
TABLE_X: Final = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
DESCRIPTION, SPEED, MAC, STATUS, IN_DISCARDS, IN_ERRORS, OUT_DISCARDS, OUT_ERRORS = (
    (*TABLE, column) for column in (2, 5, 6, 8, 13, 14, 19, 20)
)
NAME, HIGH_SPEED, ALIAS = ((*TABLE_X, column) for column in (1, 15, 18))
FCS_ERRORS: Final = (1, 3, 6, 1, 2, 1, 10, 7, 2, 1, 3)
COLUMNS: Final = (
    NAME,
    DESCRIPTION,
    ALIAS,
    MAC,
    STATUS,
    HIGH_SPEED,
    SPEED,
    IN_ERRORS,
    FCS_ERRORS,
    IN_DISCARDS,
    OUT_ERRORS,
    OUT_DISCARDS,
)

Oid = tuple[int, ...]

_MAX_MBPS: Final = 100_000_000  # 100 Tbit/s; a higher value is the -1 of a driver
_UNKNOWN_SPEED: Final = 2**32 - 1  # value of ifSpeed that refers to ifHighSpeed
_MAX_COUNT: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Interface:
    """One row of IF-MIB. `name` is ifName, else ifDescr, else "interface" and the index."""

    index: int
    name: str
    mac: str
    up: bool
    speed_mbps: int  # 0 = unknown
    counters: PortCounters


class Interfaces:
    """The interfaces of a switch. `columns` maps each of `COLUMNS` to its rows by index."""

    def __init__(self, columns: Mapping[Oid, Mapping[Oid, Row]]) -> None:
        self._columns = columns
        self._indexes = {
            index[0] for column in (NAME, DESCRIPTION) for index in columns[column] if len(index) == 1
        }
        self._names = self._by_text(NAME)
        self._aliases = self._by_text(ALIAS)
        self._macs: dict[str, list[int]] = defaultdict(list)
        for index in sorted(self._indexes):
            if found := values.mac(columns[MAC].get((index,))):
                self._macs[found].append(index)
        self._folded: dict[str, list[int]] = defaultdict(list)
        for known in (self._names, self._by_text(DESCRIPTION)):
            for wanted, at in known.items():
                self._folded[_folded(wanted)] += at

    def __len__(self) -> int:
        return len(self._indexes)

    def of_port(self, number: int, word: str, text: str, description: str) -> tuple[Interface | None, str]:
        """Return the interface of a port, None = not found, and what is uncertain about it, "" = nothing.

        The second text reads as a continuation of the port's name. `number` is lldpLocPortNum. `word` and
        `text` are the subtype and value of the port id that the port announces, "" = none.
        """
        for known, wanted in (
            (self._macs if word == "mac" else self._names, text),
            (self._folded, _folded(text)),
            (self._folded, _folded(description)),
            (self._aliases, text),
            (self._aliases, description),
        ):
            if wanted and (at := sorted(set(known.get(wanted, ())))):
                return self._one_of(at, number, wanted)
        # Junos announces the ifIndex as port id.
        if text.isascii() and text.isdigit() and int(text[:10]) in self._indexes and int(text[:10]) != number:
            return self.at(int(text[:10])), ""
        if number in self._indexes:
            found = self.at(number)
            return found, f"is assumed to be interface {found.name}, which has the same number"
        return None, "matches no interface" if self._indexes else ""

    def at(self, index: int) -> Interface:
        """Return the interface with this ifIndex."""
        columns, key = self._columns, (index,)
        speed = values.number(columns[HIGH_SPEED].get(key))
        if speed <= 0 and (bits := values.number(columns[SPEED].get(key))) != _UNKNOWN_SPEED:
            speed = bits // 1_000_000

        def count(column: Oid) -> int:
            return min(max(values.number(columns[column].get(key)), 0), _MAX_COUNT)

        name = values.text(columns[NAME].get(key)) or values.text(columns[DESCRIPTION].get(key))
        return Interface(
            index,
            name or f"interface {index}",
            values.mac(columns[MAC].get(key)),
            values.is_up(columns[STATUS].get(key)),
            speed if 0 < speed <= _MAX_MBPS else 0,
            PortCounters(
                rx_errors=count(IN_ERRORS),
                rx_crc_errors=count(FCS_ERRORS),
                rx_dropped=count(IN_DISCARDS),
                tx_errors=count(OUT_ERRORS),
                tx_dropped=count(OUT_DISCARDS),
            ),
        )

    def _by_text(self, column: Oid) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for index, row in sorted(self._columns[column].items()):
            if len(index) == 1 and (text := values.text(row)):
                found[text].append(index[0])
        return found

    def _one_of(self, indexes: list[int], number: int, name: str) -> tuple[Interface, str]:
        """Choose one of several interfaces with the same name, and return it with a doubt.

        An interface with the port's number is certain. Otherwise the result is the only interface that is up,
        else the interface with the lowest index, with a doubt in both cases.
        """
        if len(indexes) == 1 or number in indexes:
            return self.at(number if number in indexes else indexes[0]), ""
        up = [found for index in indexes if (found := self.at(index)).up]
        doubt = f"is one of {len(indexes)} interfaces with the name {name}"
        return up[0] if len(up) == 1 else self.at(indexes[0]), doubt


def _folded(text: str) -> str:
    return text.replace(" ", "").lower()
