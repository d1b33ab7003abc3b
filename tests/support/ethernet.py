"""A simulated fabric as Ethernet: what its hosts' agents and the crawlers of its switches tell."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from hyperscout_formats.facts.facts import LldpPort
from hyperscout_formats.lldp.lldpctl import parse
from hyperscout_formats.snmp.switch import read
from hyperscout_inference.fabric.inputs import FabricInputs, SwitchTableSeen
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.planted import PlantedFault
from hyperscout_sim.readings.lldp import (
    interface_of,
    lldpctl_json0,
    mac_of,
    management_address,
    uplinks,
)
from hyperscout_sim.readings.snmp import PLAIN, Style, walks
from hyperscout_topology.topology import Anomaly


def tables_of(
    fabric: SimFabric, styles: Sequence[Style] = (PLAIN,), silent_switches: Collection[int] = ()
) -> tuple[SwitchTableSeen, ...]:
    """All switches that answer, through the reader of walks."""
    return tuple(
        SwitchTableSeen(read(rows, f"walk-{i}", management_address(switch)), observed_at_ns=1)
        for i, (switch, rows) in enumerate(walks(fabric, styles))
        if switch.guid not in silent_switches
    )


def heard_by(fabric: SimFabric, hosts: Collection[str]) -> dict[str, tuple[LldpPort, ...]]:
    """What the agents of some hosts hear, with addresses of their own ports; those without a cable too."""
    links = uplinks(fabric)
    found = {}
    for host, adapters in fabric.adapters_of().items():
        if host not in hosts:
            continue
        macs = {interface_of(x): mac_of(x.guid) for x in adapters}
        cabled, _ = parse(lldpctl_json0(links[host]))
        heard = {port.interface: replace(port, speed_mbps=200_000) for port in cabled}
        found[host] = tuple(
            replace(heard.get(name, LldpPort(name, (), carrier=False)), mac=mac) for name, mac in macs.items()
        )
    return found


def inputs_of(
    fabric: SimFabric,
    hosts: Collection[str] | None = (),
    styles: Sequence[Style] = (PLAIN,),
    silent_switches: Collection[int] = (),
) -> FabricInputs:
    """`hosts`: those that have an agent (None = all). `silent_switches`: GUIDs of those that never answer."""
    speaking = fabric.hosts if hosts is None else hosts
    return FabricInputs(lldp=heard_by(fabric, speaking), tables=tables_of(fabric, styles, silent_switches))


class EthernetNamer:
    """Anomalies by the hosts and the GUIDs of switches at their ends."""

    def __init__(self, fabric: SimFabric) -> None:
        self.guid_of = {mac_of(x.guid): x.guid for x in fabric.switches}
        self.host_of = {x.guid: x.host for x in fabric.adapters}
        self.name_of = {x.guid: x.name for x in fabric.switches}
        self.level_of = fabric.levels()

    def ends(self, anomaly: Anomaly) -> frozenset[object]:
        ends = [e for e in (anomaly.subject, anomaly.peer) if e is not None]
        return frozenset(self.guid_of.get(e.device, e.device) for e in ends)

    def names(self, anomaly: Anomaly, fault: PlantedFault) -> bool:
        """Whether the anomaly is about the fault."""
        if anomaly.kind not in fault.kinds:
            return False
        if anomaly.kind == "MissingSwitch":
            gone = fault.switch or 0
            return anomaly.subject.name in (self.name_of[gone], f"level-{self.level_of[gone]} switch")
        pairs = {frozenset(self.host_of.get(guid, guid) for guid in pair) for pair in fault.pairs()}
        return self.ends(anomaly) in pairs
