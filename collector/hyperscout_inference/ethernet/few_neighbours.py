"""Bound the neighbours that one switch agent reports.

Each neighbour is a link, so one agent could make the topology a hundred times as large. A port may have tens
of virtual machines behind it, but no switch has thousands of such ports. Where a switch has too many
neighbours, each of its ports keeps a few. A port with one cable keeps its neighbour.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from hyperscout_formats.facts.facts import SWITCHING, LldpNeighbour, SwitchPort
from hyperscout_formats.text.reporters import switch_reporter
from hyperscout_topology.topology import Anomaly, Endpoint

from hyperscout_inference.ethernet.switch_reports import SOURCE
from hyperscout_inference.ethernet.virtual_machines import made_up
from hyperscout_inference.fabric.inputs import FabricInputs

MOST: Final = 4096  # 64 on each of 64 ports; an agent has at most as many ports, so one of each port fits
_OF_A_PORT: Final = (64, 16, 4, 1)  # the first that fits; an honest agent reports at most 64


def with_few_neighbours(inputs: FabricInputs) -> tuple[FabricInputs, dict[str, int]]:
    """Return the inputs with at most `MOST` neighbours of each switch agent, and how many each agent reports
    that reports more. The order of the evidence does not matter."""
    kept: dict[str, tuple[SwitchPort, ...]] = {}
    reported: dict[str, int] = {}
    for reporter, ports in inputs.switch_ports.items():
        total = sum(len(port.neighbours) for port in ports)
        if total > MOST:
            most = next((n for n in _OF_A_PORT if _left(ports, n) <= MOST), _OF_A_PORT[-1])
            kept[reporter] = tuple(_reduced(port, most) for port in ports)
            reported[reporter] = total
    return (replace(inputs, switch_ports={**inputs.switch_ports, **kept}) if kept else inputs), reported


def too_many_neighbours(reported: Mapping[str, int], inputs: FabricInputs) -> list[Anomaly]:
    """Return one finding for each current agent in `reported`, about the switch that it runs on. An agent
    without ports in `inputs` has none: it reports only other switches."""
    return [
        Anomaly(
            "SourcesDisagree",
            Endpoint(ports[0].chassis_id, reporter.removeprefix(switch_reporter(""))),
            None,
            None,
            (SOURCE,),
            0.9,
            f"{reporter} reports {total} neighbours, of which at most {MOST} count, a few of each port: "
            "look for a bridge or a loop",
        )
        for reporter, total in sorted(reported.items())
        if reporter not in inputs.silent and (ports := inputs.switch_ports[reporter])
    ]


def _left(ports: Sequence[SwitchPort], most: int) -> int:
    return sum(min(len(port.neighbours), most) for port in ports)


def _reduced(port: SwitchPort, most: int) -> SwitchPort:
    """Return the port with its `most` neighbours that are most likely at the other end of its cable."""
    if len(port.neighbours) <= most:
        return port
    return replace(port, neighbours=tuple(sorted(port.neighbours, key=_likely)[:most]))


def _likely(neighbour: LldpNeighbour) -> tuple[bool, int, str, str]:
    """Sort key: switches, then devices with the address of a NIC, then virtual machines."""
    is_other = SWITCHING.isdisjoint(neighbour.capabilities)
    return is_other, made_up(neighbour), neighbour.chassis_id, neighbour.port_id
