"""Find the DPUs of hosts: NICs that switch by themselves (a BlueField in DPU mode).

Such a host hears only its own DPU, and the leaf hears the DPU. The DPU is then no switch: its cables are
those of its host. The signs of a DPU are that one host hears it, and that it announces itself as a station,
too, or announces the system or a port of a BlueField.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from hyperscout_formats.facts.facts import SWITCHING, LldpNeighbour, LldpPort

from hyperscout_inference.ethernet.switch_reports import End

MAX_PORTS = 2  # cables of a DPU to switches
# The text that the system of a BlueField announces: "Ubuntu 22.04 BlueField", "Linux 5.15.0-1042-bluefield".
_SYSTEM = re.compile(r"bluefield", re.IGNORECASE)
_REPRESENTOR = re.compile(r"pf(\d+)(?:hpf|vf\d+|sf\d+)")
_NUMBER = re.compile(r"\d+")


class Dpu(NamedTuple):
    """`interfaces`: the host's interfaces on the DPU, by the number of the DPU's port."""

    host: str
    interfaces: Mapping[str, str]

    def jack(self, port: str) -> End:
        """Return the host's port for a port of the DPU. An uplink without an interface keeps its name."""
        number = _NUMBER.search(port)
        return End(self.host, self.interfaces.get(number[0] if number else "", port))


Dpus = Mapping[str, Dpu]
"""DPUs by chassis id."""


def dpus_of(lldp: Mapping[str, Sequence[LldpPort]], own: Collection[str]) -> dict[str, Dpu]:
    """Return the DPUs that hosts report. A DPU that two hosts report is a switch, and so is a device in
    `own`, the chassis ids of switches that report themselves, and of devices with more cables than a DPU."""
    found: dict[str, Dpu] = {}
    shared: set[str] = set()
    signs: dict[str, bool] = {}  # whether a system announces that it is a BlueField: many ports hear one
    heard = [
        (host, port.interface, neighbour)
        for host, ports in lldp.items()
        for port in ports
        for neighbour in port.neighbours
        if _is_dpu(neighbour, signs)
    ]
    for host, interface, neighbour in sorted(heard, key=itemgetter(0)):
        chassis = neighbour.chassis_id
        if chassis in own:
            continue
        known = found.setdefault(chassis, Dpu(host, {}))
        if known.host != host:
            shared.add(chassis)
        number = _NUMBER.search(neighbour.port_id)
        found[chassis] = Dpu(host, {number[0] if number else "": interface, **known.interfaces})
    return {chassis: dpu for chassis, dpu in found.items() if chassis not in shared}


def _is_dpu(neighbour: LldpNeighbour, signs: dict[str, bool]) -> bool:
    """`signs`: what is known of descriptions of systems, filled here."""
    system = neighbour.system_description
    is_bluefield = signs.get(system)
    if is_bluefield is None:
        is_bluefield = signs[system] = _SYSTEM.search(system) is not None
    return (
        is_bluefield
        or "Station" in neighbour.capabilities
        or (neighbour.port_id.startswith("pf") and _REPRESENTOR.fullmatch(neighbour.port_id) is not None)
    ) and not SWITCHING.isdisjoint(neighbour.capabilities)
