"""Keep links that no reporter could show now, as after a take-over. They are not missing, only not known."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hyperscout_formats.infiniband.ibnetdiscover import SWITCH
from hyperscout_topology.link_changes import UNREPORTED, extended, links_at, table_of
from hyperscout_topology.topology import Adapter, Link, Switch, Topology

from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy.history import LostCable, hosts_of

_SWITCHES = frozenset({"switch", "snmp", "netq"})  # sources that are switches, or ask them
_SWEEPS = frozenset({"ibnetdiscover", "ufm", "infiniband"})  # sources that show a whole fabric


def unreported(lost: Sequence[LostCable], inputs: FabricInputs, previous: Topology) -> list[LostCable]:
    """Return those lost cables that no reporter could show now, unless they were missing before.

    These are cables that the agent of a host showed, which reports nothing now; cables that switches alone
    showed, of which neither does; and cables of a fabric without a whole sweep, unless the agent of the host
    reports the port as DOWN. Whether the host has lost its power is not for its switch to say.
    """
    missing = {x.ends for x in previous.anomalies if x.kind == "MissingLink"}
    lost = [x for x in lost if x.ends not in missing]
    if not lost:
        return []
    host_of = hosts_of(previous)
    heard = inputs.lldp.keys() | inputs.infiniband.keys()
    reporting = {port.chassis_id for ports in inputs.switch_ports.values() for port in ports}
    reporting |= {port.chassis_id for seen in inputs.tables for port in seen.table.ports}
    unswept = _unswept([x for x in lost if _SWEEPS.issuperset(x.sources)], inputs, previous)

    def is_down(device: str, port: str) -> bool:
        ports = inputs.infiniband.get(host_of.get(device, ""), ())
        return any((f"{x.node_guid:016x}", str(x.port), x.state) == (device, port, "DOWN") for x in ports)

    def is_unknown(x: LostCable) -> bool:
        if "lldp" in x.sources:
            return not any(host_of.get(device, device) in heard for device in x.devices)
        if _SWITCHES.issuperset(x.sources):
            return reporting.isdisjoint(x.devices)
        is_witnessed = is_down(x.a_device, x.a_port) or is_down(x.b_device, x.b_port)
        return x in unswept and not is_witnessed

    return [x for x in lost if is_unknown(x)]


def _unswept(lost: Sequence[LostCable], inputs: FabricInputs, previous: Topology) -> set[LostCable]:
    """Return the cables of fabrics of which no whole sweep shows a switch."""
    if inputs.sweeps and not inputs.infiniband:
        return set()  # sweeps without agents, as from files, are complete
    swept = _switches(inputs)
    # An adapter with two ports is in two fabrics, so switches alone identify a fabric.
    open_ = {x for x in lost if not any(_guid(device) in swept for device in x.devices)}
    if not open_:
        return open_
    table = table_of(previous.links)
    is_swept = np.fromiter((_guid(device) in swept for device in table.devices), np.bool_)
    fabrics = {table.fabrics[i] for i in table.fabric[is_swept[table.a] | is_swept[table.b]].tolist()}
    near = links_at(table, {device for x in open_ for device in x.devices})
    return open_ - {_lost(x) for x in near if x.fabric in fabrics}


def _lost(x: Link) -> LostCable:
    return LostCable(x.a_device, x.a_port, x.b_device, x.b_port, x.sources)


def _switches(inputs: FabricInputs) -> set[int]:
    """Return the GUIDs of all switches in whole sweeps, and all GUIDs of those without a switch."""
    found: set[int] = set()
    for seen in inputs.sweeps:
        if not seen.partial:
            switches = seen.sweep.guid[seen.sweep.kind == SWITCH]
            found.update((switches if len(switches) else seen.sweep.guid).tolist())
    return found


def _guid(device: str) -> int | None:
    try:
        return int(device, 16)
    except ValueError:
        return None


def with_unreported(
    links: Sequence[Link],
    switches: Sequence[Switch],
    adapters: Sequence[Adapter],
    known: Sequence[LostCable],
    previous: Topology,
) -> tuple[Sequence[Link], list[Switch], list[Adapter]]:
    """Return links, switches and adapters with the `known` cables and the devices at them, as published."""
    if not known:
        return links, [*switches], [*adapters]
    devices, ends = {device for x in known for device in x.devices}, {x.ends for x in known}
    kept = [replace(x, note=UNREPORTED) for x in links_at(previous.links, devices) if _lost(x).ends in ends]
    there = {x.id for x in switches} | {x.id for x in adapters}
    return (
        extended(table_of(links), kept),
        [*switches, *(x for x in previous.switches if x.id in devices - there)],
        [*adapters, *(x for x in previous.adapters if x.id in devices - there)],
    )
