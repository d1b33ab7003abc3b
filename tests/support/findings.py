"""Findings as agents send them, in one line each, for tests of the collector."""

from collections.abc import Mapping, Sequence
from zlib import crc32

from google.protobuf.timestamp_pb2 import Timestamp
from hyperscout.v1.finding_pb2 import (
    DeviceResource,
    Finding,
    FindingKey,
    NodeDevice,
    Outcome,
    Sweep,
)
from hyperscout_formats.facts.facts import (
    InfinibandPort,
    LldpNeighbour,
    LldpPort,
    SwitchPort,
    SwitchTable,
)
from hyperscout_formats.facts.wire import (
    infiniband_to_proto,
    lldp_to_proto,
    switch_port_to_proto,
    switch_table_to_proto,
)

S = 1_000_000_000  # nanoseconds in a second
T0 = 1_760_000_000 * S  # some instant, Unix ns


def stamp(ns: int) -> Timestamp:
    found = Timestamp()
    found.FromNanoseconds(ns)
    return found


def lldp(
    node: str,
    interface: str,
    at_ns: int = T0,
    *,
    neighbour: str = "leaf-1",
    port: str = "swp1",
    flaps: int = 0,
) -> Finding:
    """A port that hears one neighbour; "" = none."""
    heard = (LldpNeighbour("mac", chassis(neighbour), "ifname", port, 120, "", neighbour),)
    fact = LldpPort(interface, heard if neighbour else (), "02:00:00:00:01:01", True, 100_000, flaps)
    outcome = Outcome.OUTCOME_DATA if neighbour else Outcome.OUTCOME_NOTHING
    return Finding(
        key=FindingKey(node=node, probe="lldp", subject=interface),
        observed_at=stamp(at_ns),
        outcome=outcome,
        lldp=lldp_to_proto(fact),
    )


def called(finding: Finding, node: str, probe: str) -> Finding:
    """The same finding under another key."""
    found = Finding()
    found.CopyFrom(finding)
    found.key.node, found.key.probe = node, probe
    return found


def switch_port(
    reporter: str, interface: str, at_ns: int = T0, *, neighbour: str = "spine-1", port: str = "swp1"
) -> Finding:
    """A port of a switch that hears one neighbour; "" = none. Any name may be the reporter's."""
    name = reporter.removeprefix("switch/")
    heard = (
        LldpNeighbour("mac", chassis(neighbour), "ifname", port, 120, "", neighbour, "", (), ("Bridge",)),
    )
    own = ("mac", chassis(name), heard if neighbour else (), name, "ifname", interface)
    return Finding(
        key=FindingKey(node=reporter, probe="switch", subject=interface),
        observed_at=stamp(at_ns),
        outcome=Outcome.OUTCOME_DATA if neighbour else Outcome.OUTCOME_NOTHING,
        switch_port=switch_port_to_proto(SwitchPort(interface, *own)),
    )


def table(
    switch: str,
    cables: Mapping[str, str],
    at_ns: int = T0,
    *,
    reporter: str = "fabric/crawl",
    probe: str = "snmp",
    address: str = "10.0.0.1",
) -> Finding:
    """A whole switch. `cables`: its port -> the switch at the other end, "name/port"; "" = none."""
    ports = [
        SwitchPort(port, "mac", chassis(switch), _switches_at(other), switch, "ifname", port)
        for port, other in cables.items()
    ]
    return Finding(
        key=FindingKey(node=reporter, probe=probe, subject=chassis(switch)),
        observed_at=stamp(at_ns),
        outcome=Outcome.OUTCOME_DATA,
        switch_table=switch_table_to_proto(SwitchTable(tuple(ports), (address,))),
    )


def _switches_at(end: str) -> tuple[LldpNeighbour, ...]:
    if not end:
        return ()
    name, _, port = end.partition("/")
    address = (f"10.1.0.{crc32(name.encode()) & 0xFF}",)
    return (
        LldpNeighbour("mac", chassis(name), "ifname", port, 120, "", name, "", address, ("Bridge", "Router")),
    )


def chassis(name: str) -> str:
    return f"02:00:00:00:00:{crc32(name.encode()) & 0xFF:02x}"


def adapter(
    node: str,
    device: str = "mlx5_0",
    at_ns: int = T0,
    *,
    guid: int = 1,
    state: str = "ACTIVE",
    since_ns: int = 0,
) -> Finding:
    name = f"{node} {device}"
    fact = InfinibandPort(
        device, 1, guid, guid + 1, guid, state, "LinkUp", 400.0, 1, 1, name, "InfiniBand", "", 0,
        active_since_ns=since_ns,
    )  # fmt: skip
    return Finding(
        key=FindingKey(node=node, probe="infiniband", subject=f"{device}/1"),
        observed_at=stamp(at_ns),
        outcome=Outcome.OUTCOME_DATA,
        infiniband=infiniband_to_proto(fact),
    )


def failed(
    node: str, probe: str, subject: str, at_ns: int = T0, reason: str = "permission denied"
) -> Finding:
    return Finding(
        key=FindingKey(node=node, probe=probe, subject=subject),
        observed_at=stamp(at_ns),
        outcome=Outcome.OUTCOME_FAILED,
        reason=reason,
    )


def sweep(
    node: str,
    sha256: bytes,
    at_ns: int = T0,
    *,
    device: str = "mlx5_0",
    partial: bool = False,
    lease_id: str = "lease-1",
    size_bytes: int = 0,
) -> Finding:
    return Finding(
        key=FindingKey(node=node, probe="ibnetdiscover", subject=f"{device}/1"),
        observed_at=stamp(at_ns),
        outcome=Outcome.OUTCOME_DATA,
        sweep=Sweep(
            format="ibnetdiscover",
            device=device,
            port=1,
            port_guid=2,
            sha256=sha256,
            size_bytes=size_bytes,
            partial=partial,
            partial_reason="a node did not answer" if partial else "",
            lease_id=lease_id,
        ),
    )


def gpus(*ids: str, subject: str = "nvidia.com/gpu", numa_nodes: Sequence[int] = ()) -> Finding:
    """What the kubelet of n1 says about its GPUs, none of them in use."""
    found = DeviceResource(
        name="nvidia.com/gpu", devices=[NodeDevice(id=one, numa_nodes=numa_nodes) for one in ids]
    )
    key = FindingKey(node="n1", probe="pod_resources", subject=subject)
    return Finding(key=key, observed_at=stamp(T0), outcome=Outcome.OUTCOME_DATA, device_resource=found)
