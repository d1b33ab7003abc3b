"""Converts facts to and from the messages of finding.proto.

The agent and the collector both need this conversion, and neither may import the other. The conversion is
lossless: a fact that is read back from its message equals the original.
"""

from hyperscout.v1 import finding_pb2

from hyperscout_formats.facts.facts import (
    InfinibandPort,
    LldpNeighbour,
    LldpPort,
    PortCounters,
    SwitchPort,
    SwitchTable,
)


def lldp_to_proto(port: LldpPort) -> finding_pb2.LldpPort:
    """Return the message of a local port and its neighbours."""
    return finding_pb2.LldpPort(
        interface=port.interface,
        mac=port.mac,
        carrier=port.carrier,
        speed_mbps=port.speed_mbps,
        carrier_changes=port.carrier_changes,
        neighbours=list(map(_neighbour_to_proto, port.neighbours)),
        counters=counters_to_proto(port.counters),
    )


def lldp_from_proto(message: finding_pb2.LldpPort) -> LldpPort:
    """Return the fact in a message. A message without neighbours is a port that received no LLDP frame."""
    return LldpPort(
        interface=message.interface,
        mac=message.mac,
        carrier=message.carrier,
        speed_mbps=message.speed_mbps,
        carrier_changes=message.carrier_changes,
        neighbours=tuple(map(_neighbour_from_proto, message.neighbours)),
        counters=_counters_from_proto(message.counters),
    )


def infiniband_to_proto(port: InfinibandPort) -> finding_pb2.InfinibandPort:
    """Return the message of one port of one RDMA device."""
    return finding_pb2.InfinibandPort(
        device=port.device,
        port=port.port,
        node_guid=port.node_guid,
        port_guid=port.port_guid,
        system_image_guid=port.system_image_guid,
        state=port.state,
        physical_state=port.physical_state,
        rate_gbps=port.rate_gbps,
        lid=port.lid,
        sm_lid=port.sm_lid,
        node_description=port.node_description,
        link_layer=port.link_layer,
        board_id=port.board_id,
        link_downed=port.link_downed,
        counters=counters_to_proto(port.counters),
    )


def infiniband_from_proto(message: finding_pb2.InfinibandPort) -> InfinibandPort:
    """Return the fact in a message."""
    return InfinibandPort(
        device=message.device,
        port=message.port,
        node_guid=message.node_guid,
        port_guid=message.port_guid,
        system_image_guid=message.system_image_guid,
        state=message.state,
        physical_state=message.physical_state,
        rate_gbps=message.rate_gbps,
        lid=message.lid,
        sm_lid=message.sm_lid,
        node_description=message.node_description,
        link_layer=message.link_layer,
        board_id=message.board_id,
        link_downed=message.link_downed,
        counters=_counters_from_proto(message.counters),
    )


def switch_port_to_proto(port: SwitchPort) -> finding_pb2.SwitchPort:
    """Return the message of one port of a switch."""
    return finding_pb2.SwitchPort(
        interface=port.interface,
        mac=port.mac,
        carrier=port.carrier,
        speed_mbps=port.speed_mbps,
        carrier_changes=port.carrier_changes,
        chassis_id_subtype=port.chassis_id_subtype,
        chassis_id=port.chassis_id,
        system_name=port.system_name,
        port_id_subtype=port.port_id_subtype,
        port_id=port.port_id,
        port_description=port.port_description,
        neighbours=list(map(_neighbour_to_proto, port.neighbours)),
        counters=counters_to_proto(port.counters),
        doubt=port.doubt,
    )


def switch_port_from_proto(message: finding_pb2.SwitchPort) -> SwitchPort:
    """Return the fact in a message."""
    return SwitchPort(
        interface=message.interface,
        chassis_id_subtype=message.chassis_id_subtype,
        chassis_id=message.chassis_id,
        neighbours=tuple(map(_neighbour_from_proto, message.neighbours)),
        system_name=message.system_name,
        port_id_subtype=message.port_id_subtype,
        port_id=message.port_id,
        port_description=message.port_description,
        mac=message.mac,
        carrier=message.carrier,
        speed_mbps=message.speed_mbps,
        carrier_changes=message.carrier_changes,
        counters=_counters_from_proto(message.counters),
        doubt=message.doubt,
    )


def switch_table_to_proto(table: SwitchTable) -> finding_pb2.SwitchTable:
    """Return the message of a whole switch."""
    return finding_pb2.SwitchTable(
        ports=map(switch_port_to_proto, table.ports), addresses=table.addresses, problems=table.problems
    )


def switch_table_from_proto(message: finding_pb2.SwitchTable) -> SwitchTable:
    """Return the fact in a message."""
    ports = tuple(map(switch_port_from_proto, message.ports))
    return SwitchTable(ports, tuple(message.addresses), tuple(message.problems))


def counters_to_proto(counters: PortCounters) -> finding_pb2.PortCounters | None:
    """Return the message of counters, or None where all counters are 0, as on most ports."""
    if counters == PortCounters():
        return None
    return finding_pb2.PortCounters(
        rx_errors=counters.rx_errors,
        rx_crc_errors=counters.rx_crc_errors,
        rx_dropped=counters.rx_dropped,
        tx_errors=counters.tx_errors,
        tx_dropped=counters.tx_dropped,
    )


def _counters_from_proto(message: finding_pb2.PortCounters) -> PortCounters:
    return PortCounters(
        message.rx_errors,
        message.rx_crc_errors,
        message.rx_dropped,
        message.tx_errors,
        message.tx_dropped,
    )


def _neighbour_to_proto(neighbour: LldpNeighbour) -> finding_pb2.LldpNeighbour:
    return finding_pb2.LldpNeighbour(
        chassis_id_subtype=neighbour.chassis_id_subtype,
        chassis_id=neighbour.chassis_id,
        port_id_subtype=neighbour.port_id_subtype,
        port_id=neighbour.port_id,
        ttl_s=neighbour.ttl_s,
        port_description=neighbour.port_description,
        system_name=neighbour.system_name,
        system_description=neighbour.system_description,
        management_addresses=neighbour.management_addresses,
        capabilities=neighbour.capabilities,
    )


def _neighbour_from_proto(message: finding_pb2.LldpNeighbour) -> LldpNeighbour:
    return LldpNeighbour(
        chassis_id_subtype=message.chassis_id_subtype,
        chassis_id=message.chassis_id,
        port_id_subtype=message.port_id_subtype,
        port_id=message.port_id,
        ttl_s=message.ttl_s,
        port_description=message.port_description,
        system_name=message.system_name,
        system_description=message.system_description,
        management_addresses=tuple(message.management_addresses),
        capabilities=tuple(message.capabilities),
    )
