"""Facts that readers return and inference takes: plain frozen values without behaviour."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LldpNeighbour:
    """One neighbour as IEEE 802.1AB describes it. MAC addresses are lower-case hex with colons.

    Subtypes are the words of lldpctl: "mac", "ifname", "ifalias", "ip", "local", and "unhandled" for what
    lldpctl prints as bytes (components, agent circuits). Capabilities too: "Bridge", "Router", "Station",
    "Wlan", "Repeater", "Tel", "Docsis", "Other".
    """

    chassis_id_subtype: str
    chassis_id: str
    port_id_subtype: str
    port_id: str
    ttl_s: int
    port_description: str = ""
    system_name: str = ""
    system_description: str = ""
    management_addresses: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()  # enabled ones, sorted


@dataclass(frozen=True, slots=True)
class LldpPort:
    """One local Ethernet port and the neighbours heard on it."""

    interface: str
    neighbours: tuple[LldpNeighbour, ...]
    mac: str = ""
    carrier: bool = True
    speed_mbps: int = 0  # 0 = unknown
    carrier_changes: int = 0


@dataclass(frozen=True, slots=True)
class InfinibandPort:
    """One port of one RDMA device of a host, from sysfs.

    Source: Linux Documentation/ABI/stable/sysfs-class-infiniband.
    """

    device: str
    port: int
    node_guid: int
    port_guid: int  # 0 for RoCE
    system_image_guid: int
    state: str  # "ACTIVE", "DOWN", "INIT", "ARMED"
    physical_state: str  # "LinkUp", "Polling", "Disabled", ...
    rate_gbps: float
    lid: int
    sm_lid: int
    node_description: str
    link_layer: str  # "InfiniBand" or "Ethernet"
    board_id: str = ""
    link_downed: int = 0
