"""Defines a fabric in memory, with the true topology against which inference is measured.

All values are frozen. A fault or a removed cable gives a new fabric. Devices are identified by their node
GUID and cables are plain tuples, so that a fabric of 65,536 hosts takes only seconds.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Partition = tuple[frozenset[str], ...]
End = tuple[int, int]  # (node GUID, port)
RATE = "4xHDR"  # of a cable: width and signalling rate as infiniband-diags prints them


class Cable(NamedTuple):
    """One cable. `a` is the lower end: the adapter, or the switch that is nearer to the hosts."""

    a: int
    a_port: int
    b: int
    b_port: int
    rate: str = RATE

    @property
    def ends(self) -> tuple[End, End]:
        return (self.a, self.a_port), (self.b, self.b_port)


@dataclass(frozen=True, slots=True)
class SimSwitch:
    """A switch. `level` 1 is a leaf.

    `domain` is the tier-1 domain of a leaf, as an index into `truth.tiers[0]`.
    """

    guid: int
    name: str
    description: str
    level: int
    port_count: int
    domain: int | None = None


@dataclass(frozen=True, slots=True)
class SimAdapter:
    """One adapter (one ibnetdiscover "Ca") of a host or of a foreign endpoint.

    `foreign` is the role of an endpoint that does not compute: "storage", "manager", "login" or "sharp".
    """

    guid: int
    port_guid: int  # of port 1; port n has port_guid + n - 1
    host: str
    device: str  # "mlx5_0"
    description: str
    port_count: int = 1
    foreign: str = ""


@dataclass(frozen=True, slots=True)
class Truth:
    """The expected result. `tiers[0]` is tier 1.

    It has only tiers that add information. The root of an island is its single domain in the highest tier, so
    all islands have the same depth.
    """

    tiers: tuple[Partition, ...]

    def domain_of(self, tier: int = 1) -> dict[str, int]:
        """Return host -> index of its domain in the partition of that tier."""
        return {host: i for i, domain in enumerate(self.tiers[tier - 1]) for host in domain}


@dataclass(frozen=True, slots=True)
class SimFabric:
    """All devices and cables.

    The ends in `hidden` are cabled, but the text of a sweep lacks their records.
    """

    name: str
    switches: tuple[SimSwitch, ...]
    adapters: tuple[SimAdapter, ...]
    cables: tuple[Cable, ...]
    truth: Truth
    hidden: frozenset[End] = field(default_factory=frozenset)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that compute, in order."""
        return tuple(dict.fromkeys(x.host for x in self.adapters if not x.foreign))

    def levels(self) -> dict[int, int]:
        """Return switch GUID -> level, 1 = leaf."""
        return {x.guid: x.level for x in self.switches}

    def node_map(self) -> dict[int, str]:
        """Return adapter GUID -> host, for adapters that compute."""
        return {x.guid: x.host for x in self.adapters if not x.foreign}

    def adapters_of(self) -> dict[str, list[SimAdapter]]:
        """Return host or foreign endpoint -> its adapters, in order."""
        found: dict[str, list[SimAdapter]] = defaultdict(list)
        for adapter in self.adapters:
            found[adapter.host].append(adapter)
        return found

    def name_of(self, guid: int) -> str:
        """Return the name of a switch, or "host device" of an adapter. Raises KeyError.

        Slow: for messages.
        """
        for switch in self.switches:
            if switch.guid == guid:
                return switch.name
        for adapter in self.adapters:
            if adapter.guid == guid:
                return f"{adapter.host} {adapter.device}"
        raise KeyError(f"{self.name}: no device {guid:016x}")

    def find(self, name: str) -> int:
        """Return the GUID of the switch with that name, or of the adapter with the name "host device".

        Slow: for interactive use. Raises KeyError.
        """
        for switch in self.switches:
            if switch.name == name:
                return switch.guid
        for adapter in self.adapters:
            if f"{adapter.host} {adapter.device}" == name:
                return adapter.guid
        raise KeyError(f"{self.name}: no device {name!r}")

    def between(self, a: str, b: str) -> list[Cable]:
        """Return the cables between two devices, named as in `find`. Raises KeyError.

        Slow: for interactive use.
        """
        pair = {self.find(a), self.find(b)}
        return [cable for cable in self.cables if {cable.a, cable.b} == pair]

    def components(self) -> list[set[int]]:
        """Return the node GUIDs of each disjoint part with a cable. A sweep reaches one part."""
        union = Union()
        for cable in self.cables:
            union.join(cable.a, cable.b)
        return [{x for x in part if isinstance(x, int)} for part in union.parts()]

    def islands(self) -> int:
        """Return the number of parts with a cabled host. A host joins its adapters."""
        union = Union()
        host_of = self.node_map()
        for cable in self.cables:
            union.join(cable.a, cable.b)
            if cable.a in host_of:
                union.join(cable.a, host_of[cable.a])
        return sum(any(isinstance(x, str) for x in part) for part in union.parts())


class Union:
    """Disjoint sets (union-find with path halving)."""

    def __init__(self) -> None:
        self._parent: dict[Hashable, Hashable] = {}

    def join(self, a: Hashable, b: Hashable) -> None:
        self._parent[self._root(a)] = self._root(b)

    def parts(self) -> list[list[Hashable]]:
        """Return the sets, in order of the item of each that was joined first."""
        found: dict[Hashable, list[Hashable]] = defaultdict(list)
        for item in self._parent:
            found[self._root(item)].append(item)
        return list(found.values())

    def _root(self, item: Hashable) -> Hashable:
        parent = self._parent
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item


def informative(partitions: Iterable[Partition]) -> tuple[Partition, ...]:
    """Drop every tier that is equal to the previous kept tier. Tier 1 is always kept."""
    kept: list[Partition] = []
    for partition in partitions:
        if not kept or set(partition) != set(kept[-1]):
            kept.append(partition)
    return tuple(kept)


def by_class(fabric: SimFabric) -> Mapping[tuple[int, int], list[Cable]]:
    """Return cables by the levels of their ends, 0 = computing host.

    Cables of foreign endpoints are left out.
    """
    level = fabric.levels()
    for adapter in fabric.adapters:
        if not adapter.foreign:
            level[adapter.guid] = 0
    found: dict[tuple[int, int], list[Cable]] = defaultdict(list)
    for cable in fabric.cables:
        if cable.a in level and cable.b in level:
            found[level[cable.a], level[cable.b]].append(cable)
    return found


def neighbours(cables: Iterable[Cable]) -> dict[int, list[int]]:
    """Return node GUID -> GUIDs at the other ends, one for each cable."""
    found: dict[int, list[int]] = defaultdict(list)
    for cable in cables:
        found[cable.a].append(cable.b)
        found[cable.b].append(cable.a)
    return found


def walk(fabric: SimFabric, start: int) -> Iterator[int]:
    """Yield the node GUIDs that are connected to `start`, breadth first, including `start`."""
    near = neighbours(fabric.cables)
    seen = {start}
    ring = [start]
    while ring:
        yield from ring
        following = []
        for guid in ring:
            for other in near.get(guid, ()):
                if other not in seen:
                    seen.add(other)
                    following.append(other)
        ring = following
