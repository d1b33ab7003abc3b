"""Makes the LLDP frames that a simulated host receives, and reads them with the agent's own reader.

This module needs scapy (the extra `lldp`). Only a player with LLDP imports it.
"""

import functools
from collections.abc import Mapping, Sequence

from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort
from hyperscout_formats.lldp.frame import dissect

from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimSwitch
from hyperscout_sim.readings.lldp import frame, interface_of, mac_of
from hyperscout_sim.readings.sysfs import rate_gbps

_FRAMES_KEPT = 65_536  # a switch repeats its frames, and a dissection takes 0.2 ms


def heard(
    switches: Mapping[int, SimSwitch], ports: Sequence[tuple[SimAdapter, Cable | None]]
) -> list[LldpPort]:
    """Return the host's interfaces with the neighbour of each. `switches` is keyed by GUID."""
    return [
        LldpPort(interface_of(adapter), (), mac_of(adapter.guid), carrier=False)
        if cable is None
        else LldpPort(
            interface_of(adapter),
            (_dissected(frame(switches[cable.b], cable.b_port)),),
            mac_of(adapter.guid),
            speed_mbps=round(rate_gbps(cable.rate) * 1000),
        )
        for adapter, cable in ports
    ]


@functools.lru_cache(maxsize=_FRAMES_KEPT)
def _dissected(data: bytes) -> LldpNeighbour:
    return dissect(data, "simulated frame")
