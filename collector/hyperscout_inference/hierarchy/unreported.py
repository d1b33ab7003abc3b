"""Keep links that no reporter could show now, as after a take-over. They are not missing, only not known."""

from collections.abc import Sequence
from dataclasses import replace

from hyperscout_formats.text.reporters import SWITCH_PROBE
from hyperscout_topology.link_changes import UNREPORTED, extended, links_at, table_of
from hyperscout_topology.topology import Link, Switch, Topology

from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy.history import LostCable, hosts_of

# Sources of links that come from switches only: from their own agents, and from agents that query them.
SWITCHES = frozenset({SWITCH_PROBE, "snmp", "netq"})


def unreported(lost: Sequence[LostCable], inputs: FabricInputs, previous: Topology) -> list[LostCable]:
    """Return those lost cables that no reporter could show now, unless they were missing before.

    These are cables that the agent of a host showed, which reports nothing now, and cables that switches
    alone showed, of which neither does. Whether the host has lost its power is not for its switch to say.
    """
    missing = {x.ends for x in previous.anomalies if x.kind == "MissingLink"}
    lost = [x for x in lost if x.ends not in missing]
    if not lost:
        return []
    host_of = hosts_of(previous)
    reporting = {port.chassis_id for ports in inputs.switch_ports.values() for port in ports}
    reporting |= {port.chassis_id for seen in inputs.tables for port in seen.table.ports}

    def is_unknown(x: LostCable) -> bool:
        if "lldp" in x.sources:
            hosts = [host_of.get(device, device) for device in x.devices]
            return not any(host in inputs.lldp or host in inputs.infiniband for host in hosts)
        return SWITCHES.issuperset(x.sources) and reporting.isdisjoint(x.devices)

    return [x for x in lost if is_unknown(x)]


def with_unreported(
    links: Sequence[Link], switches: Sequence[Switch], known: Sequence[LostCable], previous: Topology
) -> tuple[Sequence[Link], list[Switch]]:
    """Return links and switches with the `known` cables and the switches at them, as published."""
    devices, ends = {device for x in known for device in x.devices}, {x.ends for x in known}
    kept = [
        replace(x, note=UNREPORTED)
        for x in links_at(previous.links, devices)
        if frozenset([(x.a_device, x.a_port), (x.b_device, x.b_port)]) in ends
    ]
    added = devices.difference(x.id for x in switches)
    return extended(table_of(links), kept), [*switches, *(x for x in previous.switches if x.id in added)]
