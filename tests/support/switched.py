"""Ethernet fabrics as hosts and switches tell of them over LLDP: their cables, and the reporters of each."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from hyperscout_formats.facts.facts import InfinibandPort, LldpNeighbour, LldpPort, SwitchPort, SwitchTable
from hyperscout_formats.text.reporters import switch_reporter
from hyperscout_inference.fabric.inputs import FabricInputs, SwitchTableSeen
from hyperscout_topology.topology import Topology

SWITCHES = ("leaf", "spine", "mgmt", "core", "edge")  # how names of switches begin; all others are hosts
Port = tuple[str, str]  # device, port


def cable(text: str) -> tuple[Port, Port]:
    """ "leaf-1/swp1 h1/eth0", in any order."""
    a, b = (tuple(end.split("/")) for end in text.split())
    return (a[0], a[1]), (b[0], b[1])


def is_switch(device: str) -> bool:
    return device.startswith(SWITCHES)


def chassis(device: str) -> str:
    """Its chassis id: a MAC address out of its name."""
    return "02:" + ":".join(f"{byte:02x}" for byte in device.encode().rjust(5, b"\0")[-5:])


def address(device: str) -> str:
    """Where it can be asked: an IPv4 address out of its name."""
    return f"10.{sum(device.encode()) % 256}.{device.encode()[-2]}.{device.encode()[-1]}"


def mac(port: Port) -> str:
    digits = sum(byte * 31**i for i, byte in enumerate("/".join(port).encode())) % 2**40
    return "06:" + ":".join(f"{byte:02x}" for byte in digits.to_bytes(5, "big"))


def roce(host: str, device: str, interface: str, eui64: bool = False) -> InfinibandPort:
    """An RDMA device of an Ethernet NIC: its GUID is made of the NIC's address, in one of two ways."""
    address = bytes.fromhex(mac((host, interface)).replace(":", ""))
    if eui64:
        address = bytes((address[0] ^ 2,)) + address[1:]
    middle = b"\xff\xfe" if eui64 else b"\x03\x00"
    guid = int.from_bytes(address[:3] + middle + address[3:], "big")
    return InfinibandPort(device, 1, guid, 0, guid, "ACTIVE", "LinkUp", 400.0, 0, 0, "", "Ethernet")


@dataclass(frozen=True)
class Wiring:
    """`cables`: as `cable` reads them. `agents`: the devices that report (None = all). `silent`: those whose
    agents speak no more. `deaf`: ports whose owner hears nothing there. `dark`: ports without a carrier that
    are in no cable. `speeds_mbps`: of cables, by one of their ends. `talkers`: hosts that talk LLDP as
    routers do. `asked`: switches that a crawler asked, `asked_at_ns` when (0: they are files). `named`:
    hosts that run lldpd, and so tell their names."""

    cables: Sequence[str]
    agents: Collection[str] | None = None
    silent: Collection[str] = ()
    deaf: Collection[Port] = ()
    dark: Collection[Port] = ()
    speeds_mbps: dict[Port, int] = field(default_factory=dict)
    talkers: Collection[str] = ()
    asked: Collection[str] = ()
    asked_at_ns: int = 1
    named: Collection[str] = ()

    def without(self, *cables: str) -> "Wiring":
        """Pulled: both ports are there, and dark."""
        gone = [cable(text) for text in cables]
        kept = [text for text in self.cables if cable(text) not in gone]
        assert len(kept) == len(self.cables) - len(gone)
        return replace(self, cables=kept, dark=[*self.dark, *(end for pair in gone for end in pair)])

    def inputs(self) -> FabricInputs:
        ends: dict[Port, Port] = {}
        for text in self.cables:
            a, b = cable(text)
            ends |= {a: b, b: a}
        ports: dict[str, list[Port]] = {}
        for port in sorted({*ends, *self.dark}):
            ports.setdefault(port[0], []).append(port)
        heard = {port: self._heard(ends.get(port), port) for of in ports.values() for port in of}
        speaking = ports.keys() if self.agents is None else self.agents
        return FabricInputs(
            lldp={
                name: tuple(self._host_port(port, ends, heard[port]) for port in ports[name])
                for name in ports
                if name in speaking and not is_switch(name)
            },
            switch_ports={
                switch_reporter(name): tuple(
                    self._switch_port(port, ends, heard[port]) for port in ports[name]
                )
                for name in ports
                if name in speaking and is_switch(name)
            },
            silent=frozenset(switch_reporter(name) if is_switch(name) else name for name in self.silent),
            tables=tuple(
                SwitchTableSeen(
                    SwitchTable(
                        tuple(self._switch_port(port, ends, heard[port]) for port in ports[name]),
                        (address(name),),
                    ),
                    silent=name in self.silent,
                    observed_at_ns=self.asked_at_ns,
                )
                for name in self.asked
            ),
        )

    def _heard(self, other: Port | None, port: Port) -> tuple[LldpNeighbour, ...]:
        if other is None or port in self.deaf:
            return ()
        if is_switch(other[0]):
            return (
                LldpNeighbour(
                    "mac",
                    chassis(other[0]),
                    "ifname",
                    other[1],
                    120,
                    system_name=other[0],
                    capabilities=("Bridge", "Router"),
                    management_addresses=(address(other[0]),),
                ),
            )
        says = ("Bridge", "Router") if other[0] in self.talkers else ("Station",)
        if other[0] in self.named:
            own = mac((other[0], "eth0"))
            return (
                LldpNeighbour("mac", own, "ifname", other[1], 120, system_name=other[0], capabilities=says),
            )
        return (
            LldpNeighbour("mac", mac(other), "mac", mac(other), 120, system_name="MT4129", capabilities=says),
        )

    def _speed(self, port: Port, ends: dict[Port, Port]) -> int:
        return self.speeds_mbps.get(port, self.speeds_mbps.get(ends.get(port, port), 100_000))

    def _host_port(self, port: Port, ends: dict[Port, Port], heard: tuple[LldpNeighbour, ...]) -> LldpPort:
        return LldpPort(port[1], heard, mac(port), port in ends, self._speed(port, ends))

    def _switch_port(
        self, port: Port, ends: dict[Port, Port], heard: tuple[LldpNeighbour, ...]
    ) -> SwitchPort:
        return SwitchPort(
            port[1],
            "mac",
            chassis(port[0]),
            heard,
            port[0],
            "ifname",
            port[1],
            mac=mac(port),
            carrier=port in ends,
            speed_mbps=self._speed(port, ends),
        )


def clos(units: int = 2, hosts: int = 3, spines: int = 2, rails: int = 2) -> list[str]:
    """`units` of `hosts` on one leaf a rail each; every leaf on every spine."""
    found: list[str] = []
    for unit in range(1, units + 1):
        for rail in range(rails):
            leaf = f"leaf-{unit}{'abcd'[rail]}"
            found += [f"{leaf}/swp{i + 1} h{unit}{i + 1}/eth{rail}" for i in range(hosts)]
            found += [
                f"{leaf}/swp{30 + s} spine-{s}/swp{(unit - 1) * rails + rail + 1}"
                for s in range(1, spines + 1)
            ]
    return found


TWO_TIERS = [  # the domains of `clos()`
    (1, ("h11", "h12", "h13")),
    (1, ("h21", "h22", "h23")),
    (2, ("h11", "h12", "h13", "h21", "h22", "h23")),
]


def links(found: Iterable[object]) -> set[tuple[frozenset[Port], tuple[str, ...]]]:
    """Links of a topology by both ends (names of hosts, chassis ids of switches) with their sources."""
    return {
        (frozenset([(x.a_device, x.a_port), (x.b_device, x.b_port)]), tuple(x.sources))  # type: ignore[attr-defined]
        for x in found
    }


def notes(topology: Topology) -> dict[frozenset[Port], str]:
    """What is uncertain about links, by their ends."""
    return {
        frozenset([(x.a_device, x.a_port), (x.b_device, x.b_port)]): x.note for x in topology.links if x.note
    }


def domains(topology: Topology) -> list[tuple[int, tuple[str, ...]]]:
    """Tier and nodes of each domain."""
    return [(h.tier, h.nodes) for h in topology.hypernodes]


def ends(text: str) -> frozenset[Port]:
    """The same of a cable's text."""
    return frozenset((chassis(d) if is_switch(d) else d, p) for d, p in cable(text))
