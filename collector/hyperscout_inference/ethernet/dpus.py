"""Find the DPUs of hosts: NICs that switch by themselves (a BlueField in DPU mode).

Such a host hears only its own DPU, and the leaf hears the DPU. The DPU is then no switch: its cables are
those of its host. The signs of a DPU are that one host hears it, and that it announces itself as a station,
too, or announces the system or a port of a BlueField.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from hyperscout_formats.facts.facts import SWITCHING, LldpPort

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
    # By description and capabilities, which many ports hear: whether such a system can be a DPU, and is one.
    signs: dict[tuple[str, tuple[str, ...]], tuple[bool, bool]] = {}
    heard = []
    for host, ports in lldp.items():
        for port in ports:
            for neighbour in port.neighbours:
                system = neighbour.system_description, neighbour.capabilities
                if (sign := signs.get(system)) is None:
                    sign = signs[system] = _sign(*system)
                can_be, is_one = sign
                if can_be and (is_one or _is_representor(neighbour.port_id)):
                    heard.append((host, port.interface, neighbour))
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


def _sign(system_description: str, capabilities: Sequence[str]) -> tuple[bool, bool]:
    """Return whether such a system can be a DPU, and whether it is one by these texts alone."""
    is_one = "Station" in capabilities or _SYSTEM.search(system_description) is not None
    return not SWITCHING.isdisjoint(capabilities), is_one


def _is_representor(port_id: str) -> bool:
    return port_id.startswith("pf") and _REPRESENTOR.fullmatch(port_id) is not None
