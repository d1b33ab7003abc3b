"""Converts facts to and from the messages of finding.proto.

The agent and the collector both need this conversion, and neither may import the other. The conversion is
lossless: a fact that is read back from its message equals the original.
"""

from collections.abc import Iterable
from dataclasses import replace

from hyperscout.v1 import finding_pb2

from hyperscout_formats.facts.facts import (
    DeviceResource,
    InfinibandPort,
    LldpNeighbour,
    LldpPort,
    NodeDevice,
    PortCounters,
    SwitchPort,
    SwitchTable,
)
from hyperscout_formats.facts.shared_fields import SharedFields, one_copy_of_all, one_number, reader

_NOTHING_COUNTED = PortCounters()
_LLDP = SharedFields(LldpPort, "neighbours", "counters", "numa_node")
_INFINIBAND = SharedFields(InfinibandPort, "counters", "numa_node")
_SWITCH_PORT = SharedFields(SwitchPort, "neighbours", "counters")
_NEIGHBOUR = SharedFields(LldpNeighbour, "management_addresses", "capabilities")
_COUNTERS = SharedFields(PortCounters)


def lldp_to_proto(port: LldpPort) -> finding_pb2.LldpPort:
    """Return the message of a local port and its neighbours."""
    return finding_pb2.LldpPort(
        **_LLDP.of(port),
        neighbours=map(_neighbour_to_proto, port.neighbours),
        counters=counters_to_proto(port.counters),
        numa_node=port.numa_node,
    )


def lldp_from_proto(message: finding_pb2.LldpPort) -> LldpPort:
    """Return the fact in a message. A message without neighbours is a port that received no LLDP frame."""
    port = _read_lldp(message)
    # An unset number reads as 0.
    return port if message.HasField("numa_node") else replace(port, numa_node=None)


def infiniband_to_proto(port: InfinibandPort) -> finding_pb2.InfinibandPort:
    """Return the message of one port of one RDMA device."""
    return finding_pb2.InfinibandPort(
        **_INFINIBAND.of(port), counters=counters_to_proto(port.counters), numa_node=port.numa_node
    )


def infiniband_from_proto(message: finding_pb2.InfinibandPort) -> InfinibandPort:
    """Return the fact in a message."""
    port = _read_infiniband(message)
    return port if message.HasField("numa_node") else replace(port, numa_node=None)


def switch_port_to_proto(port: SwitchPort) -> finding_pb2.SwitchPort:
    """Return the message of one port of a switch."""
    return finding_pb2.SwitchPort(
        **_SWITCH_PORT.of(port),
        neighbours=map(_neighbour_to_proto, port.neighbours),
        counters=counters_to_proto(port.counters),
    )


def switch_port_from_proto(message: finding_pb2.SwitchPort) -> SwitchPort:
    """Return the fact in a message."""
    return _read_switch_port(message)


def switch_table_to_proto(table: SwitchTable) -> finding_pb2.SwitchTable:
    """Return the message of a whole switch."""
    return finding_pb2.SwitchTable(
        ports=map(switch_port_to_proto, table.ports), addresses=table.addresses, problems=table.problems
    )


def switch_table_from_proto(message: finding_pb2.SwitchTable) -> SwitchTable:
    """Return the fact in a message."""
    ports = tuple(map(switch_port_from_proto, message.ports))
    return SwitchTable(ports, tuple(message.addresses), tuple(message.problems))


def device_resource_to_proto(resource: DeviceResource) -> finding_pb2.DeviceResource:
    """Return the message of the devices of one resource."""
    return finding_pb2.DeviceResource(
        name=resource.name,
        devices=(
            finding_pb2.NodeDevice(id=one.id, numa_nodes=one.numa_nodes, in_use=one.in_use)
            for one in resource.devices
        ),
    )


def device_resource_from_proto(message: finding_pb2.DeviceResource) -> DeviceResource:
    """Return the fact in a message."""
    return DeviceResource(message.name, tuple(map(_read_device, message.devices)))


def counters_to_proto(counters: PortCounters) -> finding_pb2.PortCounters | None:
    """Return the message of counters, or None where all counters are 0, as on most ports."""
    return None if counters == _NOTHING_COUNTED else finding_pb2.PortCounters(**_COUNTERS.of(counters))


def _neighbour_to_proto(neighbour: LldpNeighbour) -> finding_pb2.LldpNeighbour:
    return finding_pb2.LldpNeighbour(
        **_NEIGHBOUR.of(neighbour),
        management_addresses=neighbour.management_addresses,
        capabilities=neighbour.capabilities,
    )


_read_counted = reader(PortCounters)


def _read_counters(message: finding_pb2.PortCounters) -> PortCounters:
    return _read_counted(message) if message.ByteSize() else _NOTHING_COUNTED


_read_neighbour = reader(LldpNeighbour, management_addresses=one_copy_of_all, capabilities=one_copy_of_all)


def _read_neighbours(messages: Iterable[finding_pb2.LldpNeighbour]) -> tuple[LldpNeighbour, ...]:
    return tuple(map(_read_neighbour, messages))


_read_lldp = reader(LldpPort, neighbours=_read_neighbours, counters=_read_counters, speed_mbps=one_number)
_read_device = reader(NodeDevice, numa_nodes=tuple)
_read_infiniband = reader(InfinibandPort, counters=_read_counters, rate_gbps=one_number)
_read_switch_port = reader(SwitchPort, neighbours=_read_neighbours, counters=_read_counters)
