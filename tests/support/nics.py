"""NICs of nodes as agents report them, and a small topology with two rails that they are on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_formats.facts.facts import InfinibandPort, LldpPort
from hyperscout_publish.devices.nics import NodeNics
from hyperscout_topology.topology import Adapter, Link, Switch, Topology

from support.builders import hypernode

NODES = ("n1", "n2")


def rdma(n: int, **more: Any) -> InfinibandPort:
    """Adapter mlx5_N in a slot of its own."""
    port = InfinibandPort(f"mlx5_{n}", 1, 0x10 + n, 0, 0, "ACTIVE", "LinkUp", 400.0, 1, 1, "", "InfiniBand")
    slot = {"pci_address": f"0000:{n + 1:02x}:00.0", "pcie_root": f"pci0000:{n:02x}", "numa_node": n % 2}
    return replace(port, **(slot | more))


def row(node: str, fact: InfinibandPort | LldpPort) -> Row:
    subject = fact.device if isinstance(fact, InfinibandPort) else fact.interface
    return Row(Key(node, "infiniband", subject), 2, 0, 0, 0, 1, "", fact)


def node_nics(
    nodes: Mapping[str, Sequence[InfinibandPort]], interfaces: Mapping[tuple[str, int], str] | None = None
) -> NodeNics:
    """NICs of complete nodes. `interfaces`: the interface of a node's N-th adapter."""
    nics = NodeNics()
    for node, ports in nodes.items():
        rows = [row(node, port) for port in ports]
        for (owner, i), name in (interfaces or {}).items():
            if owner == node:
                slot = {"pci_address": ports[i].pci_address, "pcie_root": ports[i].pcie_root}
                rows.append(row(node, replace(LldpPort(name, ()), **slot)))
        nics.load(node, rows)
    return nics


def two_rails() -> Topology:
    """n1 with mlx5_0 and mlx5_1, and n2 with mlx5_2 and mlx5_3, on leaf-0 and leaf-1."""
    adapters = tuple(Adapter(f"{0x10 + n:016x}", NODES[n // 2], f"mlx5_{n}") for n in range(4))
    links = tuple(
        Link(adapter.id, "1", f"s{n % 2}", str(n // 2 + 1), f"infiniband-{n % 2}", ("ibnetdiscover",))
        for n, adapter in enumerate(adapters)
    )
    switches = tuple(Switch(f"s{n}", f"leaf-{n}", 1) for n in range(2))
    domain = hypernode("leaf", NODES, switches=("s0", "s1"))
    return Topology(1, (domain,), switches, adapters, links)
