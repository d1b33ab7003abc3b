"""The fabric of the lab as pure data: what stands where, and which port is cabled to which.

Units of nodes, each on a pair of leaves (one for each rail). The leaves of a pod are under two spines; the
spines of several pods are under two cores. InfiniBand beside it joins the nodes in the same units and pods.
The lab is one pod of two units. Ports are written "device/port" throughout.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

RAILS = 2
SPINES = 2
# Ports of a switch: what is below it from swp1 up, and uplinks on these, one for each rail. Leaves have free
# ones, to move cables to.
UPLINKS = ("swp15", "swp16")
LEAF_SPARE = ("swp9", "swp20")
# InfiniBand switches have more ports than are used; only ibsim needs to know which ones.
IB_SWITCH_PORTS = 40
IB_UPLINKS = (39, 40)  # both to the one switch above
IB_DEVICE = "mlx5_0"
IB_RATE = "4xHDR"
# The upper halves are those of real adapters and switches, so that GUIDs look like some.
_IB_SWITCH_GUID = 0xB83FD203_00AA0000
_IB_NODE_GUID = 0x98039B03_00BB0000


@dataclass(frozen=True, slots=True)
class Cable:
    """One cable; `a` is the lower end. Both are "device/port"."""

    a: str
    b: str

    @property
    def ends(self) -> tuple[str, str]:
        return self.a, self.b


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that computes. `number` N makes its addresses: 10.88.RAIL.N."""

    name: str
    unit: str
    number: int
    place: int  # the port of its leaves that it is cabled to, from 1; on InfiniBand too

    @property
    def rails(self) -> tuple[str, ...]:
        return tuple(f"rail{rail}" for rail in range(RAILS))

    def address(self, rail: int) -> str:
        """With the length of the prefix: each rail is one network across all units."""
        return f"10.88.{rail}.{self.number}/24"

    def mac(self, rail: int) -> str:
        return f"02:88:00:00:{rail:02x}:{self.number:02x}"

    @property
    def ib_guid(self) -> int:
        """Of its adapter; its one port has the next."""
        return _IB_NODE_GUID + self.number * 0x10


@dataclass(frozen=True, slots=True)
class Switch:
    """An Ethernet switch. `rail` is that of the traffic it forwards: a leaf's own, or a spine's share."""

    name: str
    level: int  # 1 = leaf, 2 = spine, 3 = core
    rail: int
    number: int  # among all switches, from 1
    ports: tuple[str, ...]

    @property
    def chassis_mac(self) -> str:
        """What lldpd gives as chassis id: the address of the first port."""
        return self.mac(self.ports[0])

    def forwards(self, port: str) -> bool:
        """Whether frames of hosts pass here. Of the uplinks only the one to the switch of the same rail takes
        part, so that frames do not circle; the others carry LLDP alone."""
        return port not in UPLINKS or port == UPLINKS[self.rail]

    def mac(self, port: str) -> str:
        return f"02:77:00:00:{self.number:02x}:{int(port.removeprefix('swp')):02x}"


@dataclass(frozen=True, slots=True)
class IbSwitch:
    """An InfiniBand switch. `unit`: of a leaf, else "". `above`: the switch above, "" for the highest."""

    name: str
    level: int  # 1 = leaf
    unit: str
    above: str
    guid: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything. `nodes` are there from the start, `later` are added while it runs."""

    nodes: tuple[Node, ...]
    later: tuple[Node, ...]
    switches: tuple[Switch, ...]
    cables: tuple[Cable, ...]  # those of later nodes too
    ib_switches: tuple[IbSwitch, ...]
    pods: tuple[tuple[str, ...], ...]  # the units of each
    domains: Mapping[str, frozenset[str]] = field(hash=False)  # unit -> names of its first nodes

    @property
    def names(self) -> tuple[str, ...]:
        """Of the first nodes."""
        return tuple(node.name for node in self.nodes)

    def __contains__(self, name: object) -> bool:
        """Whether it has a node of that name."""
        return any(node.name == name for node in (*self.nodes, *self.later))

    def node(self, name: str) -> Node:
        """Raises KeyError."""
        for node in (*self.nodes, *self.later):
            if node.name == name:
                return node
        raise KeyError(name)

    def switch(self, name: str) -> Switch:
        """Raises KeyError."""
        for switch in self.switches:
            if switch.name == name:
                return switch
        raise KeyError(name)

    def leaves(self, unit: str) -> tuple[str, ...]:
        return tuple(s.name for s in self.switches if s.level == 1 and s.name.startswith(f"leaf-{unit}"))

    def ib_leaf(self, unit: str) -> IbSwitch:
        return next(switch for switch in self.ib_switches if switch.unit == unit)

    def cables_of(self, device: str) -> Iterator[Cable]:
        for cable in self.cables:
            if device in (device_of(cable.a), device_of(cable.b)):
                yield cable

    def neighbours(self, switch: str) -> set[str]:
        """Names of the switches at the other ends of a switch's cables."""
        names = {one.name for one in self.switches}
        ends = {device_of(end) for cable in self.cables_of(switch) for end in cable.ends}
        return (ends & names) - {switch}


def device_of(port: str) -> str:
    return port.partition("/")[0]


def port_of(port: str) -> str:
    return port.partition("/")[2]


def make_plan(
    units: Mapping[str, Sequence[str]] = MappingProxyType(
        {"a": ("node1", "node2", "node3"), "b": ("node4", "node5", "node6")}
    ),
    later: Mapping[str, Sequence[str]] = MappingProxyType({"a": ("node7",)}),
    pods: Sequence[Sequence[str]] = (),
) -> Plan:
    """Nodes by unit; a name is "node" and its number. Up to eight nodes a unit. `pods`: the units of each; by
    default all are in one."""
    first, added = _nodes(units, {}), _nodes(later, {unit: len(names) for unit, names in units.items()})
    pods = [tuple(pod) for pod in pods] or [tuple(units)]
    switches, cables = _ethernet(pods)
    hosts = [
        Cable(f"{node.name}/rail{rail}", f"leaf-{node.unit}{rail + 1}/swp{node.place}")
        for node in (*first, *added)
        for rail in range(RAILS)
    ]
    domains = {unit: frozenset(names) for unit, names in units.items()}
    return Plan(
        first,
        added,
        tuple(switches),
        (*hosts, *cables),
        tuple(_infiniband(pods)),
        tuple(pods),
        MappingProxyType(domains),
    )


def _ethernet(pods: Sequence[Sequence[str]]) -> tuple[list[Switch], list[Cable]]:
    """The switches, and the cables between them."""
    switches: list[Switch] = []
    cables = []
    has_cores = len(pods) > 1

    def add(name: str, level: int, rail: int, ports: Sequence[str]) -> Switch:
        switches.append(Switch(name, level, rail, len(switches) + 1, tuple(dict.fromkeys(ports))))
        return switches[-1]

    hosts = [f"swp{n}" for n in range(1, 9)]
    leaves = [
        [
            add(f"leaf-{unit}{rail + 1}", 1, rail, (*hosts, *LEAF_SPARE, *UPLINKS))
            for unit in pod
            for rail in range(RAILS)
        ]
        for pod in pods
    ]
    spines = []
    for number, below in enumerate(leaves, 1):
        down = [f"swp{n}" for n in range(1, len(below) + 1)]
        ports = (*down, *UPLINKS) if has_cores else down
        pod = str(number) if has_cores else ""
        mine = [add(f"spine-{pod}{n + 1}", 2, n, ports) for n in range(SPINES)]
        cables += _cables(below, mine)
        spines += mine
    if has_cores:
        down = [f"swp{n}" for n in range(1, len(spines) + 1)]
        cables += _cables(spines, [add(f"core-{n + 1}", 3, n, down) for n in range(SPINES)])
    return switches, cables


def _cables(below: Sequence[Switch], above: Sequence[Switch]) -> list[Cable]:
    return [
        Cable(f"{one.name}/{uplink}", f"{other.name}/swp{number}")
        for number, one in enumerate(below, 1)
        for uplink, other in zip(UPLINKS, above, strict=True)
    ]


def _infiniband(pods: Sequence[Sequence[str]]) -> Iterator[IbSwitch]:
    has_core = len(pods) > 1
    number = 0
    for at, pod in enumerate(pods, 1):
        spine = f"ib-spine-{at}" if has_core else "ib-spine"
        for unit in pod:
            number += 1
            yield IbSwitch(f"ib-leaf-{unit}", 1, unit, spine, _IB_SWITCH_GUID + 0x100 * number)
        above = "ib-core" if has_core else ""
        yield IbSwitch(spine, 2, "", above, _IB_SWITCH_GUID + 0x10000 * (at - 1))
    if has_core:
        yield IbSwitch("ib-core", 3, "", "", _IB_SWITCH_GUID + 0x1000000)


def _nodes(units: Mapping[str, Sequence[str]], before: Mapping[str, int]) -> tuple[Node, ...]:
    return tuple(
        Node(name, unit, int(name.removeprefix("node")), before.get(unit, 0) + place)
        for unit, names in units.items()
        for place, name in enumerate(names, 1)
    )


PLAN = make_plan()
