"""Find the DPUs of hosts: NICs that switch by themselves (a BlueField in DPU mode).

Such a host hears only its own DPU, and the leaf hears the DPU. The DPU is then no switch: its cables are
those of its host. The signs of a DPU are that one host hears it, and that it announces itself as a station,
too, or announces the system or a port of a BlueField.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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


def dpus_of(reported: Iterable[Dpus], own: Collection[str]) -> dict[str, Dpu]:
    """Return the DPUs of all hosts, out of those that each host reports (see `may_be_dpus`). A DPU that two
    hosts report is a switch, and so is a device in `own`, the chassis ids of switches that report themselves,
    and of devices with more cables than a DPU."""
    found: dict[str, Dpu] = {}
    shared = set(own)
    for mine in reported:
        shared.update(mine.keys() & found.keys())
        found.update(mine)
    return {chassis: dpu for chassis, dpu in found.items() if chassis not in shared}


def may_be_dpus(host: str, ports: Sequence[LldpPort]) -> dict[str, Dpu]:
    """Return what a host hears that can be its DPUs."""
    found: dict[str, Dpu] = {}
    for port in ports:
        for neighbour in port.neighbours:
            if _can_be_dpu(neighbour):
                number = _NUMBER.search(neighbour.port_id)
                known = found.get(neighbour.chassis_id, Dpu(host, {}))
                interfaces = {number[0] if number else "": port.interface, **known.interfaces}
                found[neighbour.chassis_id] = Dpu(host, interfaces)
    return found


def _can_be_dpu(neighbour: LldpNeighbour) -> bool:
    """Return whether it switches and announces a station, the system of a BlueField or a port of one."""
    return not SWITCHING.isdisjoint(neighbour.capabilities) and (
        "Station" in neighbour.capabilities
        or _is_representor(neighbour.port_id)
        or _SYSTEM.search(neighbour.system_description) is not None
    )


def _is_representor(port_id: str) -> bool:
    return port_id.startswith("pf") and _REPRESENTOR.fullmatch(port_id) is not None
