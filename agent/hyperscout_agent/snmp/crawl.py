"""Selects the next address of a crawl along the switches' LLDP neighbours, and collects the results.

Pure: answers go in, addresses to query come out. The chassis id identifies a switch. A switch can have many
addresses, and an address can lead to a switch that was already reached by another address. So every loop of
links ends. `snmp.memory` keeps state from one crawl to the next.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Final

from hyperscout_formats.facts.facts import LldpNeighbour, SwitchTable

from hyperscout_agent.snmp.tables import anonymous, called, may_switch, short, with_problem

# Maximum number of addresses of one switch, tried in turn.
_MAX_ADDRESSES: Final = 4
_MAX_NAMES: Final = 8
_MAX_REASON_CHARS: Final = 600


class CloneError(Exception):
    """Two switches announce the same chassis id. The message names both."""

    def __init__(self, chassis: str, name: str, address: str) -> None:
        super().__init__(
            f"it announces chassis id {chassis}, which {name} at {address} announces too: "
            "give each switch its own chassis id"
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """`switches`: maximum number of addresses queried. `depth`: maximum number of hops from a seed."""

    switches: int
    depth: int


@dataclass(frozen=True, slots=True)
class Known:
    """A switch that answered in an earlier crawl.

    `failing_since_s`: monotonic seconds; None = it answered in the last crawl.
    """

    chassis: str
    name: str
    addresses: tuple[str, ...]
    depth: int
    subtype: str = ""
    failing_since_s: float | None = None


class _State(Enum):
    WAITS = "waits"
    ASKED = "asked"
    ANSWERED = "answered"
    FAILED = "failed"
    LEFT_OUT = "left out"


@dataclass(slots=True, eq=False)
class _Target:
    """The current knowledge of one switch. `tried`: failed addresses with the reason."""

    depth: int
    chassis: str = ""
    addresses: list[str] = field(default_factory=list)
    tried: dict[str, str] = field(default_factory=dict)
    asking: str = ""
    state: _State = _State.FAILED
    name: str = ""
    table: SwitchTable | None = None
    heard: bool = False  # a switch reported it as a neighbour in this crawl
    heard_as: set[str] = field(default_factory=set)  # names in neighbours' reports, up to the first dot


@dataclass(slots=True)
class CrawlCounts:
    """Counts of one crawl."""

    asked: int = 0
    outside: set[str] = field(default_factory=set)  # addresses that must not be queried; bounded
    without_address: int = 0  # neighbours that announce no address
    left_out: int = 0  # switches beyond Limits.switches
    too_deep: int = 0


class Crawl:
    """One crawl.

    `allowed`: returns whether an address may be queried. `known`: switches that answered in earlier crawls.
    `resting`: addresses that are not queried in this crawl, with the reason of their last failure.
    """

    def __init__(
        self,
        seeds: Iterable[str],
        allowed: Callable[[str], bool],
        limits: Limits,
        known: Collection[Known] = (),
        resting: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._allowed = allowed
        self._limits = limits
        self._resting = resting
        self.counts = CrawlCounts()
        self._targets: list[_Target] = []
        self._by_address: dict[str, _Target] = {}
        self._by_chassis: dict[str, _Target] = {}
        self._by_ports: dict[int, _Target] = {}  # answered switches, by a hash of their ports
        self._subtypes = {one.chassis: one.subtype for one in known}
        self._queue: list[tuple[int, int, _Target]] = []
        self._sequence = 0
        self._known = {one.chassis: one for one in known}
        for address in dict.fromkeys(seeds):
            self._hear(0, "", (address,))
        for one in self._known.values():
            self._hear(one.depth, one.chassis, one.addresses)

    # Input: results of queries

    def identified(self, address: str, chassis: str, name: str) -> bool:
        """Record the chassis id ("" = unknown) and name that a switch at `address` reports.

        Returns False when another address has already led to this switch. Raises CloneError.
        """
        target = self._by_address[address]
        target.name = name
        if not chassis:
            return True
        self._check_clone(address, chassis, name)
        other = self._by_chassis.get(chassis)
        if other is None or other is target:
            self._by_chassis[chassis] = target
            target.chassis = chassis
            return True
        if other.state in (_State.FAILED, _State.WAITS):
            self._merge(other, into=target)
            target.chassis = chassis
            self._by_chassis[chassis] = target
            return True
        if other.name and name and other.name != name:
            raise CloneError(chassis, other.name, other.asking or other.addresses[0])
        self._merge(target, into=other)
        return False

    def answered(self, address: str, table: SwitchTable, *, announced: bool = True) -> None:
        """Record the complete table of a switch and add its neighbours to the crawl. Raises CloneError.

        `announced`: the switch reports its own chassis id. Otherwise its neighbours report it.
        """
        target = self._by_address[address]
        chassis, name = table.ports[0].chassis_id, table.ports[0].system_name
        if target.state is not _State.ASKED or not self.identified(
            address, chassis if announced else "", name
        ):
            return
        # A switch without a chassis id is identified by its ports.
        ports = hash(anonymous(table))
        same = self._by_ports.setdefault(ports, target)
        if not announced and same is not target:
            self._merge(target, into=same)
            return
        target.table, target.state, target.asking = table, _State.ANSWERED, address
        for own in table.addresses:
            if self._allowed(own):
                self._claim(target, own)
        for port in table.ports:
            for neighbour in port.neighbours:
                if may_switch(neighbour):
                    self._hear_neighbour(target.depth + 1, neighbour)

    def failed(self, address: str, reason: str) -> None:
        """Record a failed query. Another address of the switch is tried, if there is one."""
        target = self._by_address[address]
        if target.state is not _State.ASKED or target.asking != address:
            return
        target.tried[address] = reason
        target.asking = ""
        target.state = _State.FAILED
        self._enqueue(target)

    # Output: addresses to query, and results

    def next(self) -> str | None:
        """Return the next address to query, None when there is none now.

        The caller must report the result with `answered` or `failed`.
        """
        while self._queue:
            _, _, target = heapq.heappop(self._queue)
            if target.state is not _State.WAITS:
                continue
            if self.counts.asked >= self._limits.switches:
                target.state = _State.LEFT_OUT
                self.counts.left_out += 1
                continue
            target.asking = next(a for a in target.addresses if a not in target.tried)
            target.state = _State.ASKED
            self.counts.asked += 1
            return target.asking
        return None

    @property
    def waiting(self) -> int:
        """Number of switches that are being queried or wait for it."""
        return sum(target.state in (_State.WAITS, _State.ASKED) for target in self._targets)

    def tables(self) -> dict[str, SwitchTable]:
        """Return the tables of the switches that answered, by chassis id."""
        found = (self._whole(target) for target in self._targets if target.table is not None)
        return {table.ports[0].chassis_id: table for table in found}

    def tried(self) -> dict[str, str]:
        """Return the failed addresses with the reason."""
        return {address: why for target in self._targets for address, why in target.tried.items()}

    def failures(self) -> dict[str, str]:
        """Return why switches failed, by chassis id, or by queried address when that is unknown."""
        tables = self.tables()
        found: dict[str, str] = {}
        for target in self._targets:
            if target.state is _State.FAILED and target.tried:
                subject = target.chassis if target.chassis not in tables else ""
                reason = "; ".join(f"{address}: {why}" for address, why in target.tried.items())
                found[subject or next(iter(target.tried))] = reason[:_MAX_REASON_CHARS]
        return found

    def remembered(self, now_s: float, forget_after_s: float) -> tuple[Known, ...]:
        """Return the switches that answered now or earlier, for the next crawl.

        A switch that has been failing for `forget_after_s` and that no switch reports is omitted.
        """
        kept: dict[str, Known] = {}
        for target in self._targets:
            if target.table is not None:
                addresses = tuple(dict.fromkeys((target.asking, *target.addresses)))[:_MAX_ADDRESSES]
                own = self._whole(target).ports[0]
                kept[own.chassis_id] = Known(
                    own.chassis_id, target.name, addresses, target.depth, own.chassis_id_subtype
                )
        for one in self._known.values():
            target_now = self._by_chassis.get(one.chassis)
            if one.chassis in kept:
                continue
            since_s = now_s if one.failing_since_s is None else one.failing_since_s
            if now_s - since_s < forget_after_s or (target_now is not None and target_now.heard):
                kept[one.chassis] = replace(one, failing_since_s=since_s)
        return tuple(kept.values())

    # Internals

    def _hear_neighbour(self, depth: int, neighbour: LldpNeighbour) -> None:
        chassis, subtype = neighbour.chassis_id, neighbour.chassis_id_subtype
        if subtype:
            self._subtypes.setdefault(chassis, subtype)
        else:
            chassis = ""  # the neighbour announces no chassis id; this one is a placeholder
        self._hear(depth, chassis, neighbour.management_addresses, neighbour.system_name)

    def _hear(self, depth: int, chassis: str, addresses: Iterable[str], heard_as: str | None = None) -> None:
        """Add a switch from a seed, an earlier crawl or a neighbour's report.

        `heard_as`: its name in a neighbour's report; None = not from a neighbour.
        """
        addresses = tuple(addresses)
        target = self._by_chassis.get(chassis) if chassis else None
        if target is None:
            owners = (self._by_address.get(address) for address in addresses)
            target = next((one for one in owners if one and (not one.chassis or not chassis)), None)
        if target is not None and chassis and not target.chassis:
            target.chassis = chassis
            self._by_chassis[chassis] = target
        usable = [address for address in addresses if self._may_ask(address)]
        if target is None:
            if not usable or depth > self._limits.depth:
                self.counts.without_address += not addresses
                self.counts.too_deep += bool(usable)
                return
            target = _Target(depth, chassis)
            self._targets.append(target)
            if chassis:
                self._by_chassis[chassis] = target
        if heard_as is not None:
            target.heard = True
            if heard_as and len(target.heard_as) < _MAX_NAMES:
                target.heard_as.add(short(heard_as))
        for address in usable:
            owner = self._by_address.get(address)
            if owner is not None and not owner.chassis and owner.state in (_State.WAITS, _State.FAILED):
                self._merge(owner, into=target)
            self._claim(target, address)
        if depth < target.depth:
            target.depth = depth
            if target.state is _State.WAITS:
                target.state = _State.FAILED  # so that it is queued again with the smaller depth
        self._enqueue(target)

    def _whole(self, target: _Target) -> SwitchTable:
        """Return the switch's table with the chassis id, problems and addresses from other reports."""
        table = target.table
        assert table is not None  # noqa: S101
        if target.chassis:
            table = called(table, target.chassis, self._subtypes.get(target.chassis, ""))
        if target.name and (others := target.heard_as - {short(target.name)}):
            table = with_problem(
                table,
                f"neighbours also report chassis id {target.chassis} under the name "
                f"{', '.join(sorted(others))}: two switches have one chassis id (give each its own), or the "
                "switch was renamed",
            )
        addresses = tuple(dict.fromkeys((target.asking, *table.addresses, *target.addresses)))
        return replace(table, addresses=addresses)

    def _may_ask(self, address: str) -> bool:
        if self._allowed(address):
            return True
        if len(self.counts.outside) < self._limits.switches:
            self.counts.outside.add(address)
        return False

    def _claim(self, target: _Target, address: str) -> None:
        if self._by_address.setdefault(address, target) is target and address not in target.addresses:
            if len(target.addresses) < _MAX_ADDRESSES:
                target.addresses.append(address)
                if address in self._resting:
                    target.tried[address] = self._resting[address]
            else:
                del self._by_address[address]

    def _enqueue(self, target: _Target) -> None:
        """Queue a switch that has an untried address and is not queued, queried or answered."""
        if target.state is not _State.FAILED or not any(a not in target.tried for a in target.addresses):
            return
        target.state = _State.WAITS
        self._sequence += 1
        heapq.heappush(self._queue, (target.depth, self._sequence, target))

    def _merge(self, target: _Target, *, into: _Target) -> None:
        """Merge `target` into `into`, because both are the same switch."""
        if target is into:
            return
        target.state = _State.FAILED
        into.tried |= target.tried if into.state is not _State.ANSWERED else {}
        into.heard |= target.heard
        into.heard_as |= target.heard_as
        into.depth = min(into.depth, target.depth)
        into.name = into.name or target.name
        if target.chassis and not into.chassis:
            into.chassis = target.chassis
            self._by_chassis[into.chassis] = into
        for address in target.addresses:
            self._by_address[address] = into
            if address not in into.addresses:
                into.addresses.append(address)
        target.addresses, target.tried = [], {}
        target.chassis = target.asking = ""
        self._targets.remove(target)

    def _check_clone(self, address: str, chassis: str, name: str) -> None:
        """Raise CloneError if another switch, by name and address, had this chassis id in the last crawl."""
        known = self._known.get(chassis)
        if known is None or address in known.addresses or not (known.name and name):
            return
        if known.name != name and known.failing_since_s is None:
            raise CloneError(chassis, known.name, known.addresses[0])
