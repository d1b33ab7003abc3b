"""A patch panel: every port of every machine is a veth that ends here, and a cable joins two of these ends.

A plain veth from machine to machine would do for a cable that stays. But pulled out, it is no cable any more:
the end that is set down cannot be asked for its carrier, and lldpd drops the whole port. Through the panel
both ports stay as they were, up and with all they are called, and only their carrier goes, as with a real
cable; and a cable that moves to another switch leaves an empty port behind. A cable is a bridge of two ports
that passes LLDP on.

The panel is a network of its own; ports are "device/port".
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lab.plan import device_of, port_of

# Bit 14 of a bridge's group_fwd_mask: 01:80:c2:00:00:0e, which bridges otherwise keep to themselves.
_PASS_LLDP = "0x4000"
_MAX_NAME = 15  # IFNAMSIZ less the closing zero


class Machine(Protocol):
    """What a machine of the lab can do, as far as it matters here. `pid` counts in the sandbox."""

    @property
    def name(self) -> str: ...
    @property
    def ip(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def run(self, argv: Sequence[str], **options: Any) -> Any: ...
    def popen(self, argv: Sequence[str], log: Path) -> Any: ...


@dataclass(frozen=True, slots=True)
class Jack:
    """A port to be made: its name, and its hardware address."""

    port: str
    mac: str


@dataclass(frozen=True, slots=True)
class Equipment:
    """A machine and the ports that it gets. `then`: commands for ip(8) in it, once they are there and up."""

    machine: Machine
    jacks: Sequence[Jack]
    then: Sequence[str] = ()


class CableError(RuntimeError):
    """There is no such port, or it has a cable already: the caller meant another."""


class Panel:
    """Starts empty. `machine` gives the network that the panel is in, the sandbox's process ids besides."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._jacks: set[str] = set()
        self._stubs: set[str] = set()  # names of our ends, as far as their machines live
        self._far: dict[str, str] = {}  # port -> the port at the other end of its cable, both ways
        self._pulled: set[frozenset[str]] = set()  # cables that hang beside their ports
        self._dark: set[str] = set()  # devices without power
        quiet = "for one in all default; do echo 1 > /proc/sys/net/ipv6/conf/$one/disable_ipv6; done"
        machine.run(["sh", "-c", quiet], check=False)  # no device here has anything to send

    @classmethod
    def attach(cls, machine: Machine, running: Collection[str]) -> "Panel":
        """A panel that another process has set up; `running`: the machines that have power."""
        panel = cls(machine)
        shown = json.loads(machine.run(["ip", "-j", "link", "show"]).stdout)
        ends: dict[str, list[str]] = {}
        for one in shown:
            if "." not in one["ifname"]:
                continue
            port = one["ifname"].replace(".", "/", 1)
            panel._jacks.add(port)
            panel._stubs.add(one["ifname"])
            if device_of(port) not in running:
                panel._dark.add(device_of(port))
            if "master" in one:
                ends.setdefault(one["master"], []).append(port)
        lit = {one["ifname"] for one in shown if "UP" in one["flags"]}
        for a, b in (pair for pair in ends.values() if len(pair) == 2):
            panel._far[a], panel._far[b] = b, a
            powered = [port for port in (a, b) if device_of(port) not in panel._dark]
            if len(powered) == 2 and not any(stub_of(port) in lit for port in powered):
                panel._pulled.add(frozenset((a, b)))
        return panel

    def add(self, *equipment: Equipment) -> None:
        """Make ports in machines, up and without a carrier. Those that a machine has already, it keeps."""
        there = interfaces(self._machine)
        lines: list[str] = []
        for one in equipment:
            known = {stub_of(jack.port) for jack in one.jacks} & there
            inside = interfaces(one.machine) if known else set()
            for jack in one.jacks:
                stub, name = stub_of(jack.port), port_of(jack.port)
                if device_of(jack.port) != one.machine.name:
                    raise CableError(f"{jack.port} is no port of {one.machine.name}")
                self._jacks.add(jack.port)
                self._stubs.add(stub)
                if stub in known and name in inside:
                    continue
                if stub in known:  # of a machine that died just now: it may go before we take it away
                    self._machine.run(["ip", "link", "delete", stub], check=False)
                pid = one.machine.pid
                lines.append(f"link add {stub} type veth peer name {name} address {jack.mac} netns {pid}")
        self._batch(lines)
        for one in equipment:
            batch(one.machine, [*(f"link set {port_of(jack.port)} up" for jack in one.jacks), *one.then])
            self._dark.discard(one.machine.name)
        machines = {one.machine.name for one in equipment}
        self._settle(port for port in self._jacks if device_of(port) in machines)

    def ports_of(self, device: str) -> tuple[str, ...]:
        """Names of a machine's ports here, without the machine's, in order."""
        names = [port_of(port) for port in self._jacks if device_of(port) == device]
        return tuple(sorted(names, key=lambda name: (len(name), name)))

    def far_end(self, port: str) -> str:
        """The port at the other end of the cable that belongs here, plugged or not; "" without a cable."""
        return self._far.get(port, "")

    def connect(self, *cables: tuple[str, str]) -> None:
        """Cables, each between two free ports."""
        for a, b in cables:
            for port in (a, b):
                if port not in self._jacks:
                    raise CableError(f"there is no port {port}")
                if port in self._far:
                    raise CableError(f"{port} has a cable already, to {self._far[port]}")
            self._far[a], self._far[b] = b, a
        lines = []
        for cable in (_bridge(*ends) for ends in cables):
            lines.append(f"link add {cable} type bridge mcast_snooping 0 group_fwd_mask {_PASS_LLDP}")
            lines.append(f"link set {cable} up")
        self._batch([*lines, *self._settled(a for a, _ in cables)])

    def disconnect(self, port: str) -> str:
        """Take the cable away altogether; returns where its other end was."""
        far = self._far.pop(port, "")
        if not far:
            raise CableError(f"{port} has no cable")
        del self._far[far]
        self._pulled.discard(frozenset((port, far)))
        ends = [stub_of(end) for end in (port, far) if device_of(end) not in self._dark]
        self._batch([*(f"link set {end} down" for end in ends), f"link delete {_bridge(port, far)}"])
        return far

    def pull(self, port: str) -> None:
        """Pull the cable out of a port; both ends lose their carrier."""
        self._cable(port, pulled=True)

    def push(self, port: str) -> None:
        """Put it back."""
        self._cable(port, pulled=False)

    def power(self, device: str, *, on: bool) -> None:
        """A machine without power gives light to no cable."""
        if on:
            self._dark.discard(device)
        else:
            self._dark.add(device)
        self._settle(port for port in self._jacks if device_of(port) == device)

    def _cable(self, port: str, *, pulled: bool) -> None:
        far = self._far.get(port, "")
        if not far:
            raise CableError(f"{port} has no cable")
        cable = frozenset((port, far))
        if pulled:
            self._pulled.add(cable)
        else:
            self._pulled.discard(cable)
        self._settle((port,))

    def _settle(self, ports: Iterable[str]) -> None:
        """Set the ends of these ports' cables up or down, as they must be by now, all at once."""
        self._batch(self._settled(ports))

    def _settled(self, ports: Iterable[str]) -> list[str]:
        """The commands for that. Ends of a machine without power are left alone: they may vanish."""
        lines: dict[str, None] = {}
        for port in sorted(ports):
            ends = (port, self._far.get(port, ""))
            powered = [
                end for end in ends if stub_of(end) in self._stubs and device_of(end) not in self._dark
            ]
            if not ends[1]:
                continue
            state = "up" if len(powered) == 2 and frozenset(ends) not in self._pulled else "down"
            for end in powered:
                lines[f"link set {stub_of(end)} master {_bridge(*ends)} {state}"] = None
        return list(lines)

    def _batch(self, lines: Sequence[str]) -> None:
        batch(self._machine, lines)


def batch(machine: Machine, lines: Sequence[str]) -> None:
    """Commands for ip(8), in one process."""
    if lines:
        machine.run(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n")


def interfaces(machine: Machine) -> set[str]:
    """Names of all network interfaces of a machine."""
    return {one["ifname"] for one in json.loads(machine.run(["ip", "-j", "link", "show"]).stdout)}


def stub_of(port: str) -> str:
    """Name of the panel's end of a port."""
    name = f"{device_of(port)}.{port_of(port)}"
    if len(name) > _MAX_NAME:
        raise CableError(f"{port}: the kernel takes no name as long as {name}")
    return name


def _bridge(a: str, b: str) -> str:
    """Name of the bridge that is the cable between two ports: after one of them."""
    return stub_of(min(a, b)).replace(".", "=", 1)
