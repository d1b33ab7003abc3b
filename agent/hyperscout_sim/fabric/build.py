"""Builds a fabric port by port. All shapes use this builder."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random

from hyperscout_sim.fabric.fabric import (
    RATE,
    Cable,
    Partition,
    SimAdapter,
    SimFabric,
    SimSwitch,
    Truth,
    informative,
)

# Real vendor prefixes, for realistic GUIDs. The seed determines the lower half.
_SWITCH_PREFIX = 0xB83FD203_00000000
_ADAPTER_PREFIX = 0x98039B03_00000000
# Models by number of ports: two fixed ones, then directors of any width.
_MODELS = ((40, "MQM8700"), (64, "MQM9700"), (800, "CS8500"))


class Builder:
    """Collects the devices and cables of a fabric.

    Ports are assigned in the order of the calls, from 1, at both ends. `seed` determines the GUIDs, and thus
    every order that follows from them. Names and ports do not depend on it.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._rng = Random(seed)  # noqa: S311 - draws GUIDs, not secrets
        self._used_guids: set[int] = set()
        self._switches: dict[int, SimSwitch] = {}
        self._adapters: list[SimAdapter] = []
        self._cables: list[Cable] = []
        self._next_port: dict[int, int] = {}

    def switch(self, name: str, level: int, domain: int | None = None) -> int:
        guid = self._guid(_SWITCH_PREFIX, 64)
        self._switches[guid] = SimSwitch(guid, name, "", level, 0, domain)
        return guid

    def switches(self, kind: str, level: int, count: int) -> list[int]:
        return [self.switch(f"{kind}-{n}", level) for n in numbers(count)]

    def host(self, name: str, leaves: Sequence[int]) -> None:
        """Add a host with one single-port adapter for each leaf, cabled in that order."""
        for rail, leaf in enumerate(leaves):
            self.adapter(name, f"mlx5_{rail}", [leaf])

    def adapter(
        self, host: str, device: str, switches: Sequence[int], rate: str = RATE, foreign: str = ""
    ) -> int:
        """Add an adapter with one port for each switch, cabled in that order. Return its GUID."""
        guid = self._guid(_ADAPTER_PREFIX, 16)
        ports = max(1, len(switches))
        self._adapters.append(
            SimAdapter(guid, guid + 1, host, device, f"{host} {device}", ports, foreign=foreign)
        )
        for switch in switches:
            self.cable(guid, switch, rate)
        return guid

    def cable(self, a: int, b: int, rate: str = RATE) -> None:
        self._cables.append(Cable(a, self._take_port(a), b, self._take_port(b), rate))

    def skip_to(self, guid: int, port: int) -> None:
        """Use this port for the device's next cable, or the next free port if that is higher.

        Leaves with different numbers of hosts can thus have their uplinks on the same ports, as in a real
        cabling plan.
        """
        self._next_port[guid] = max(port, self._next_port.get(guid, 1))

    def restart_at(self, guid: int, port: int) -> None:
        """Use this port for the device's next cable, also below ports that are in use.

        The caller ensures that the ports from there on are free.
        """
        self._next_port[guid] = port

    def mesh(self, lower: Iterable[int], upper: Sequence[int], each: int = 1, rate: str = RATE) -> None:
        """Add `each` cables from every lower switch to every upper one."""
        for low in lower:
            for high in upper:
                for _ in range(each):
                    self.cable(low, high, rate)

    def finish(self, *tiers: Partition) -> SimFabric:
        switches = []
        for guid, switch in self._switches.items():
            used = self._next_port.get(guid, 1) - 1
            ports, model = next((m for m in _MODELS if m[0] >= used), (used, _MODELS[-1][1]))
            description = f"MF0;{switch.name}:{model}/U1"
            switches.append(replace(switch, description=description, port_count=ports))
        return SimFabric(
            self._name, tuple(switches), tuple(self._adapters), tuple(self._cables), Truth(informative(tiers))
        )

    def _guid(self, prefix: int, step: int) -> int:
        while True:
            guid = prefix + self._rng.randrange(1, 2**32 // step) * step
            if guid not in self._used_guids:
                self._used_guids.add(guid)
                return guid

    def _take_port(self, guid: int) -> int:
        port = self._next_port.get(guid, 1)
        self._next_port[guid] = port + 1
        return port


def numbers(count: int, least: int = 2) -> Iterator[str]:
    """Return "01", "02", and so on, as wide as the highest number, with at least `least` digits."""
    digits = max(least, len(str(count)))
    return (f"{n:0{digits}d}" for n in range(1, count + 1))


def host_names(count: int) -> list[str]:
    return [f"node-{n}" for n in numbers(count, 4)]


def runs(hosts: Sequence[str], size: int) -> Partition:
    """Split the hosts into domains of `size` consecutive hosts."""
    return tuple(frozenset(hosts[i : i + size]) for i in range(0, len(hosts), size))


def whole(hosts: Iterable[str]) -> Partition:
    return (frozenset(hosts),)
