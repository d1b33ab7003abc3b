"""Sends the management addresses of switches, as reporters heard them, to agents of role fabric.

A crawling agent starts at these addresses and decides by its own settings which of them it may query. All
agents contribute addresses, and a single agent must not crowd out the others: above `MAX_SEEDS`, the
addresses that the fewest reporters know are dropped.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain

from hyperscout.v1 import discovery_pb2
from hyperscout.v1.discovery_pb2 import StreamFindingsResponse
from hyperscout_formats.facts.facts import (
    SWITCHING,
    LldpNeighbour,
    LldpPort,
    SwitchPort,
    SwitchTable,
)
from hyperscout_formats.text.reporters import is_fabric

from hyperscout_collector.evidence.rows import Row
from hyperscout_collector.evidence.state import EvidenceState, KeyChange
from hyperscout_collector.ingest.streams import Connection, Streams

MAX_SEEDS = 4096
_MAX_OF_ONE = 16  # addresses of one switch
_MAX_CHARS = 64  # of an address: an IPv6 address with an interface has fewer


class Seeds:
    """Follows the evidence and sends addresses to agents of role fabric.

    Call `touch` with the reporters that were loaded at the start, and `tick` about once a second.
    """

    def __init__(self, streams: Streams, state: EvidenceState) -> None:
        self._streams = streams
        self._state = state
        # Addresses by reporter. A tuple is much smaller than a set.
        self._of: dict[str, tuple[str, ...]] = {}
        self._reporters: Counter[str] = Counter()  # how many of them heard an address
        self._all: tuple[str, ...] | None = ()  # None = `_reporters` changed since
        self._sent: tuple[str, ...] = ()  # addresses sent last

    @property
    def addresses(self) -> tuple[str, ...]:
        """The management addresses, sorted, at most `MAX_SEEDS`."""
        if self._all is None:
            self._all = _most_known(self._reporters)
        return self._all

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        touched = set()
        for change in changes:
            if not change.is_renewal and _neighbours(change.before) != _neighbours(change.after):
                touched.add(change.key.node)
        self.touch(touched)

    def touch(self, reporters: Iterable[str]) -> None:
        """Read the addresses that these reporters heard again."""
        for reporter in reporters:
            found = frozenset(_addresses_in(self._state.rows_of_node(reporter)))
            before = frozenset(self._of.pop(reporter, ()))
            if found:
                self._of[reporter] = tuple(found)
            if found == before:
                continue
            self._reporters.update(found - before)
            for address in before - found:
                self._reporters[address] -= 1
                if not self._reporters[address]:
                    del self._reporters[address]
            self._all = None

    def tick(self) -> None:
        """Send the addresses if they changed.

        They are not sent with each commit: agents that start together would cause thousands of messages.
        """
        if self.addresses != self._sent:
            self._sent = self.addresses
            for stream in self._streams:
                if is_fabric(stream.node):
                    self._send(stream)

    def connected(self, stream: Connection) -> None:
        if is_fabric(stream.node):
            self._send(stream)

    def _send(self, stream: Connection) -> None:
        seeds = discovery_pb2.Seeds(addresses=self.addresses)
        stream.tell(StreamFindingsResponse(seeds=seeds))


def _addresses_in(rows: Iterable[Row]) -> Iterator[str]:
    return chain.from_iterable(map(_of_switches, _neighbours(rows)))


def _neighbours(rows: Iterable[Row]) -> list[tuple[LldpNeighbour, ...]]:
    """The neighbours of each port."""
    found = []
    for row in rows:
        match row.fact:
            case LldpPort() | SwitchPort():
                found.append(row.fact.neighbours)
            case SwitchTable():
                found += [port.neighbours for port in row.fact.ports]
    return found


def _of_switches(neighbours: Iterable[LldpNeighbour]) -> Iterator[str]:
    """Addresses of neighbours that switch, or that do not report their capabilities."""
    for neighbour in neighbours:
        if not neighbour.capabilities or not SWITCHING.isdisjoint(neighbour.capabilities):
            for text in neighbour.management_addresses[:_MAX_OF_ONE]:
                if len(text) <= _MAX_CHARS and (address := _reachable(text)) is not None:
                    yield address


@lru_cache(MAX_SEEDS)  # thousands of hosts hear the same switches
def _reachable(text: str) -> str | None:
    """The address in canonical form; None if other machines cannot reach it."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    bad = found.is_unspecified or found.is_loopback or found.is_multicast or found.is_link_local
    return None if bad else str(found)


def _most_known(reporters: Counter[str]) -> tuple[str, ...]:
    if len(reporters) <= MAX_SEEDS:
        return tuple(sorted(reporters))
    return tuple(sorted(sorted(reporters, key=lambda address: (-reporters[address], address))[:MAX_SEEDS]))
