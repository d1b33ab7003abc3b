"""Define the values of a blueprint: switches, patterns, and all declared cables in columns.

An end is a device and a port of it. A device is given by name or by id. The port "" means any port. Ports are
stored in the form in which they are compared: "p17", a common way to write port 17, becomes "17".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_formats.text.counts import are, count
from hyperscout_topology.topology import Endpoint, say

from hyperscout_inference.blueprint.patterns import Loop, Template

Ints = npt.NDArray[np.int64]

_NUMBERED = re.compile(r"p([0-9]+)")
ARROW = re.compile(r"\s+(?:->|--)\s+")


def plain_port(text: str) -> str:
    """Return a port in the form in which ports are compared."""
    match = _NUMBERED.fullmatch(text)
    return match[1] if match else text


class End(NamedTuple):
    """One end of a cable. `port` "" means any port of the device."""

    device: str
    port: str

    def __str__(self) -> str:
        return say(Endpoint(self.device, self.device, self.port or None))


def end_of(text: str) -> End:
    """Parse an end such as "leaf-01/p3": the text after the first slash is the port."""
    device, _, port = text.partition("/")
    return End(device, plain_port(port))


@dataclass(frozen=True, slots=True)
class DeclaredSwitch:
    """A switch declared as a whole: a cable on it that is not in the blueprint is drift. `id` "" = any id."""

    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of cables. `written`: the values of each variable of `loop` as the file has them."""

    name: str
    written: tuple[tuple[str, tuple[str, ...]], ...]
    loop: Loop
    a: Template
    b: Template
    link: str


@dataclass(frozen=True, slots=True, eq=False)
class Cables:
    """Declared cables: `a`, `b` index `devices`, the ports index `ports`. `origin`: the line of the cable, or
    -1 - index of its pattern. All columns have shape (cables,)."""

    devices: Sequence[str]
    ports: Sequence[str]
    a: Ints
    a_port: Ints
    b: Ints
    b_port: Ints
    origin: Ints

    def __len__(self) -> int:
        return len(self.a)

    def ends(self, row: int) -> tuple[End, End]:
        return (
            End(self.devices[self.a[row]], self.ports[self.a_port[row]]),
            End(self.devices[self.b[row]], self.ports[self.b_port[row]]),
        )

    def chosen(self, rows: npt.NDArray[np.bool_]) -> "Cables":
        """Return the selected cables."""
        columns = (x[rows] for x in (self.a, self.a_port, self.b, self.b_port, self.origin))
        return Cables(self.devices, self.ports, *columns)


class CableList:
    """Collects cables."""

    def __init__(self) -> None:
        self._devices: dict[str, int] = {}
        self._ports: dict[str, int] = {"": 0}
        self._rows: list[tuple[int, int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, a: End, b: End, origin: int) -> None:
        devices, ports = self._devices, self._ports
        self._rows.append(
            (
                devices.setdefault(a.device, len(devices)),
                ports.setdefault(a.port, len(ports)),
                devices.setdefault(b.device, len(devices)),
                ports.setdefault(b.port, len(ports)),
                origin,
            )
        )

    def cables(self) -> Cables:
        columns = np.array(self._rows, np.int64).reshape(-1, 5).T
        return Cables(tuple(self._devices), tuple(self._ports), *columns)


@dataclass(frozen=True, slots=True, eq=False)
class Blueprint:
    """A blueprint without switches covers only the ports that it names.

    `header`: comment lines at the start of the file. `kind`: the format of another system, "" = a blueprint
    of hyperscout. `left_out`: number of cables that are only in such a file, by reason.
    """

    switches: tuple[DeclaredSwitch, ...]
    patterns: tuple[Pattern, ...]
    cables: Cables
    header: str = ""
    kind: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def omission(self) -> str:
        """Which cables of the file are left out, "" = none: `3 cables are left out: 2 X, 1 Y`."""
        number = sum(self.left_out.values())
        reasons = ", ".join(f"{n} {reason}" for reason, n in self.left_out.items())
        return f"{count(number, 'cable')} {are(number)} left out: {reasons}" if number else ""
