"""Facts that readers return and inference takes: plain frozen values without behaviour."""

from dataclasses import dataclass
from typing import Final

SWITCHING: Final = frozenset({"Bridge", "Router"})
"""Capabilities of what forwards for others (IEEE 802.1AB-2016, 8.5.8)."""


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
class PortCounters:
    """What went wrong on a port since it appeared; numbers that only grow, until it starts anew.

    Source: Linux Documentation/ABI/testing/sysfs-class-net-statistics.
    """

    rx_errors: int = 0
    rx_crc_errors: int = 0
    rx_dropped: int = 0
    tx_errors: int = 0
    tx_dropped: int = 0


@dataclass(frozen=True, slots=True)
class LldpPort:
    """One local Ethernet port and the neighbours heard on it."""

    interface: str
    neighbours: tuple[LldpNeighbour, ...]
    mac: str = ""
    carrier: bool = True
    speed_mbps: int = 0  # 0 = unknown
    carrier_changes: int = 0
    counters: PortCounters = PortCounters()


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """One port of a switch: what it announces of itself, and who its own lldpd hears on it.

    Subtypes and texts as in `LldpNeighbour`: what a neighbour hears of this port is `chassis_id`, `port_id`.
    """

    interface: str
    chassis_id_subtype: str
    chassis_id: str
    neighbours: tuple[LldpNeighbour, ...]
    system_name: str = ""
    port_id_subtype: str = ""
    port_id: str = ""  # "" = lldpd does not work on it
    port_description: str = ""
    mac: str = ""
    carrier: bool = True
    speed_mbps: int = 0  # 0 = unknown
    carrier_changes: int = 0
    counters: PortCounters = PortCounters()
    doubt: str = ""  # what is uncertain about it, in words that follow its name


@dataclass(frozen=True, slots=True)
class SwitchTable:
    """A whole switch as somebody else saw it: who asked it over SNMP, or its manager.

    All ports have one chassis id, which is the switch's identity. `addresses`: where it can be asked, the one
    that answered first.
    """

    ports: tuple[SwitchPort, ...]
    addresses: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # what is odd about the whole of it


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
    counters: PortCounters = PortCounters()  # symbol errors are rx_errors


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A part of a GPU that is used like one. `profile`: "1g.10gb"."""

    uuid: str
    profile: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class NvlinkLink:
    """One NVLink of a GPU. `ber_exponent`: effective bit error rate as a power of ten, 0 = not measured."""

    link: int
    active: bool
    version: int = 0  # 0 = unknown
    remote_type: str = ""  # "gpu", "switch", "other", "" = unknown
    remote_pci_address: str = ""
    replay_errors: int = 0
    recovery_errors: int = 0
    crc_errors: int = 0
    ber_exponent: int = 0
    gbytes_per_s: float = 0.0  # of one direction, 0 = unknown


@dataclass(frozen=True, slots=True)
class NvlinkFabric:
    """What a GPU was told about its NVLink domain.

    Source: NVML's nvmlGpuFabricInfo; `health` has words for the set bits of its health mask.
    """

    state: str  # "not-supported", "not-started", "in-progress", "completed"
    status: str = ""  # why completing failed
    cluster_uuid: str = ""  # "" = node-local (all zero)
    clique_id: int = 0
    health: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuPeer:
    """Another GPU of the host. `ancestor`: "internal", "single-switch", "multiple-switches", "host-bridge",
    "node", "system", "" = not known. `nvlinks`: how many join the two directly."""

    pci_address: str
    ancestor: str
    nvlinks: int = 0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a host. PCI addresses are written "0000:1b:00.0"."""

    uuid: str
    model: str
    pci_address: str
    driver_version: str = ""
    mig_mode: str = ""  # "disabled", "enabled", "" = it has none
    mig_instances: tuple[MigInstance, ...] = ()
    links: tuple[NvlinkLink, ...] = ()  # by number
    fabric: NvlinkFabric | None = None
    numa_node: int | None = None
    nearest_nics: tuple[str, ...] = ()
    peers: tuple[GpuPeer, ...] = ()


@dataclass(frozen=True, slots=True)
class LatencySample:
    """One burst of earlier: `at_ns` Unix ns by the agent's clock, round trip in microseconds."""

    at_ns: int
    min_us: float
    jitter_us: float


@dataclass(frozen=True, slots=True)
class LatencyResult:
    """One burst to one peer, as this end saw it. Round trips in microseconds, 0 where nothing came back."""

    peer: str
    peer_interface: str
    method: str  # "udp", "rdma"
    at_ns: int  # Unix ns by the agent's clock
    sent: int
    received: int
    min_us: float
    median_us: float
    jitter_us: float  # median distance from the median
    bandwidth_gbps: float = 0.0  # 0 = not measured
    failure: str = ""
    history: tuple[LatencySample, ...] = ()  # the bursts before, oldest first


@dataclass(frozen=True, slots=True)
class LatencyPort:
    """One compute interface: where it answers pings, and how far it found its peers to be."""

    interface: str
    addresses: tuple[str, ...] = ()
    udp_port: int = 0  # 0 = nobody answers there
    rdma_port: str = ""  # "mlx5_0/1"
    results: tuple[LatencyResult, ...] = ()  # by peer, its interface and method


@dataclass(frozen=True, slots=True)
class NcclResult:
    """One operation at one size. Gigabytes are 1e9 bytes."""

    operation: str  # "all_reduce", "sendrecv"
    size_bytes: int
    time_us: float
    algorithm_gbytes_per_s: float
    bus_gbytes_per_s: float


@dataclass(frozen=True, slots=True)
class NcclRun:
    """Collective operations within a host (`peer` is "") or between it and one peer."""

    peer: str
    method: str  # "nccl-tests", "libnccl"
    at_ns: int
    nccl_version: str
    ranks: int
    results: tuple[NcclResult, ...]
    duration_s: float = 0.0
