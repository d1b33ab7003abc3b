"""Defines the facts that readers return and inference uses: frozen dataclasses without behaviour."""

from dataclasses import dataclass
from typing import Final

SWITCHING: Final = frozenset({"Bridge", "Router"})
"""Capabilities of a device that forwards traffic for others (IEEE 802.1AB-2016, 8.5.8)."""

MAX_DEVICES: Final = 512  # of one resource of a node
MAX_NUMA_NODES: Final = 1024  # of a node: CONFIG_NODES_SHIFT of Linux is 10 at most


@dataclass(frozen=True, slots=True)
class LldpNeighbour:
    """One neighbour, as IEEE 802.1AB describes it. MAC addresses are lower-case hex with colons.

    Subtypes are the words that lldpctl prints: "mac", "ifname", "ifalias", "ip", "local". "unhandled" is the
    subtype of all values that lldpctl prints as bytes (components and agent circuits).

    Capabilities are also lldpctl's words: "Bridge", "Router", "Station", "Wlan", "Repeater", "Tel", "Docsis",
    "Other".
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
    capabilities: tuple[str, ...] = ()  # enabled capabilities, sorted


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Error and discard counters of a port. They only increase, until the port resets them.

    Source: Linux Documentation/ABI/testing/sysfs-class-net-statistics.
    """

    rx_errors: int = 0
    rx_crc_errors: int = 0
    rx_dropped: int = 0
    tx_errors: int = 0
    tx_dropped: int = 0


@dataclass(frozen=True, slots=True)
class LldpPort:
    """One local Ethernet port and the neighbours that sent LLDP frames to it."""

    interface: str
    neighbours: tuple[LldpNeighbour, ...]
    mac: str = ""
    carrier: bool = True
    speed_mbps: int = 0  # 0 = unknown
    carrier_changes: int = 0
    counters: PortCounters = PortCounters()
    pci_address: str = ""  # "" = none, or a virtual function
    pcie_root: str = ""
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """One port of a switch: its announced identifiers, and the neighbours that the switch reports on it.

    Subtypes and texts are as in `LldpNeighbour`. A neighbour of this port receives `chassis_id` and
    `port_id`.
    """

    interface: str
    chassis_id_subtype: str
    chassis_id: str
    neighbours: tuple[LldpNeighbour, ...]
    system_name: str = ""
    port_id_subtype: str = ""
    port_id: str = ""  # "" = lldpd does not run on this port
    port_description: str = ""
    mac: str = ""
    carrier: bool = True
    speed_mbps: int = 0  # 0 = unknown
    carrier_changes: int = 0
    counters: PortCounters = PortCounters()
    doubt: str = ""  # what is uncertain about this port; reads as a continuation of its name


@dataclass(frozen=True, slots=True)
class SwitchTable:
    """A whole switch, as another reporter observed it: an agent that queried it over SNMP, or its manager.

    All ports have one chassis id, which is the identity of the switch. `addresses` are the addresses at which
    the switch can be queried. The first one is the address that answered.
    """

    ports: tuple[SwitchPort, ...]
    addresses: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # problems that concern the switch as a whole


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
    counters: PortCounters = PortCounters()  # rx_errors includes symbol errors
    active_since_ns: int = 0  # since the agent sees it as ACTIVE, by the agent's clock; 0 = not, or unknown
    numa_node: int | None = None
    pci_address: str = ""  # "" = none, or a virtual function
    pcie_root: str = ""


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG instance: a part of a GPU that is used like a GPU. Example of a `profile`: "1g.10gb"."""

    uuid: str
    profile: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True)
class NvlinkLink:
    """One link of an accelerator fabric: an NVLink, the xGMI links to one GPU, or the network port of an NPU.

    `ber_exponent` is the effective bit error rate as a power of ten, 0 = not measured.
    """

    link: int
    active: bool
    version: int = 0  # 0 = unknown
    remote_type: str = ""  # "gpu", "switch", "other", "" = unknown
    remote_pci_address: str = ""
    replay_errors: int = 0
    recovery_errors: int = 0
    crc_errors: int = 0
    ber_exponent: int = 0
    gbytes_per_s: float = 0.0  # in one direction, 0 = unknown


@dataclass(frozen=True, slots=True)
class NvlinkFabric:
    """What the driver reports about a GPU's accelerator domain.

    Source: NVML's nvmlGpuFabricInfo. `health` contains one word for each problem that NVML's health mask or
    health summary reports. Of other kinds than NVLink, `domain` is the id of the hive (hex) or of the super
    pod (decimal), and `server_index` the number of the host in its super pod.
    """

    state: str  # "not-supported", "not-started", "in-progress", "completed"
    status: str = ""  # error of the registration with the fabric, "" = none
    cluster_uuid: str = ""  # "" = node-local (all zero)
    clique_id: int = 0
    health: tuple[str, ...] = ()
    domain: str = ""
    server_index: int | None = None


@dataclass(frozen=True, slots=True)
class GpuPeer:
    """Another GPU of the host.

    `ancestor` is the common ancestor of the two GPUs: "internal", "single-switch", "multiple-switches",
    "host-bridge", "node", "system", or "" = unknown. `nvlinks` is the number of NVLinks that join the two
    directly.
    """

    pci_address: str
    ancestor: str
    nvlinks: int = 0


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU or NPU of a host. PCI addresses have the form "0000:1b:00.0"; those of NPUs are "npu3/1".

    `kind`: of its accelerator fabric, see `accelerators.KINDS`.
    """

    uuid: str
    model: str
    pci_address: str
    driver_version: str = ""
    mig_mode: str = ""  # "disabled", "enabled", "" = the GPU has no MIG
    mig_instances: tuple[MigInstance, ...] = ()
    links: tuple[NvlinkLink, ...] = ()  # in order of link numbers
    fabric: NvlinkFabric | None = None
    numa_node: int | None = None
    nearest_nics: tuple[str, ...] = ()
    peers: tuple[GpuPeer, ...] = ()
    pcie_gbps: float = 0.0  # of the slowest PCIe link to its nearest NICs, 0 = unknown
    kind: str = "nvlink"


@dataclass(frozen=True, slots=True)
class LatencySample:
    """One earlier burst. `at_ns` is Unix time in ns by the agent's clock. Round trips are in microseconds."""

    at_ns: int
    min_us: float
    jitter_us: float


@dataclass(frozen=True, slots=True)
class LatencyResult:
    """One burst to one peer, as this end measured it.

    Round trips are in microseconds, 0 = no answer came back.
    """

    peer: str
    peer_interface: str
    method: str  # "udp", "rdma"
    at_ns: int  # Unix ns by the agent's clock
    sent: int
    received: int
    min_us: float
    median_us: float
    jitter_us: float  # median absolute deviation from the median
    bandwidth_gbps: float = 0.0  # 0 = not measured
    failure: str = ""
    history: tuple[LatencySample, ...] = ()  # earlier bursts, oldest first


@dataclass(frozen=True, slots=True)
class LatencyPort:
    """One compute interface: the addresses at which it answers pings, and the round trips to its peers."""

    interface: str
    addresses: tuple[str, ...] = ()
    udp_port: int = 0  # 0 = no UDP responder
    rdma_port: str = ""  # "mlx5_0/1"
    results: tuple[LatencyResult, ...] = ()  # one for each peer, peer interface and method


@dataclass(frozen=True, slots=True)
class NcclResult:
    """One operation at one message size. A gigabyte is 1e9 bytes."""

    operation: str  # "all_reduce", "sendrecv"
    size_bytes: int
    time_us: float
    algorithm_gbytes_per_s: float
    bus_gbytes_per_s: float


@dataclass(frozen=True, slots=True)
class NcclRun:
    """Collective operations within a host (`peer` is ""), or between the host and one peer."""

    peer: str
    method: str  # "nccl-tests", "libnccl"
    at_ns: int
    nccl_version: str
    ranks: int
    results: tuple[NcclResult, ...]
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeDevice:
    """One device of a device plugin. `numa_nodes`: sorted; () = the device plugin reports none."""

    id: str
    numa_nodes: tuple[int, ...] = ()
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class DeviceResource:
    """The devices of one resource of a node, sorted by id, as its kubelet reports them."""

    name: str
    devices: tuple[NodeDevice, ...] = ()
