"""Follows the NICs of nodes in the evidence. A NIC is one physical PCI function, whatever its name.

An RDMA device and a network interface with the same PCI address are one NIC.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import KeyChange
from hyperscout_formats.facts.facts import InfinibandPort, LldpPort
from hyperscout_formats.text.host_list import natural_key
from hyperscout_formats.text.reporters import cluster_of, is_node, name_in_cluster
from hyperscout_runtime.signals import Signal

MAX_NICS = 128  # of a node: the most devices of one ResourceSlice


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC. `guid`: of the RDMA device, 16 hex digits. "" = there is none."""

    pci_address: str
    pcie_root: str
    numa_node: int | None = None
    rdma_device: str = ""
    guid: str = ""
    interface: str = ""
    mac: str = ""

    @property
    def name(self) -> str:
        """The name of the device: a DNS label that lasts as long as the slot."""
        return "pci-" + self.pci_address.replace(":", "-").replace(".", "-")

    @property
    def order(self) -> tuple[bool, Any, str]:
        """RDMA devices first, then in the order of their names."""
        return not self.rdma_device, natural_key(self.rdma_device or self.interface), self.pci_address


def nics_of(facts: Iterable[InfinibandPort | LldpPort]) -> tuple[Nic, ...]:
    """Return the NICs in the facts of a node in their order, at most MAX_NICS.

    Of several ports or interfaces of one function, the first counts.
    """
    rdma: dict[str, InfinibandPort] = {}
    ethernet: dict[str, LldpPort] = {}
    for fact in sorted(facts, key=_fact_order):
        if isinstance(fact, InfinibandPort):
            rdma.setdefault(fact.pci_address, fact)
        else:
            ethernet.setdefault(fact.pci_address, fact)
    found = []
    for address in sorted({*rdma, *ethernet} - {""}):
        a, b = rdma.get(address), ethernet.get(address)
        root = a.pcie_root if a is not None else b.pcie_root if b is not None else ""
        zones = [one.numa_node for one in (a, b) if one is not None and one.numa_node is not None]
        found.append(
            Nic(
                address,
                root,
                next(iter(zones), None),
                a.device if a is not None else "",
                f"{a.node_guid:016x}" if a is not None else "",
                b.interface if b is not None else "",
                b.mac if b is not None else "",
            )
        )
    return tuple(sorted(found, key=lambda nic: nic.order)[:MAX_NICS])


def _fact_order(fact: InfinibandPort | LldpPort) -> tuple[Any, ...]:
    if isinstance(fact, InfinibandPort):
        return 0, natural_key(fact.device), fact.port
    return 1, natural_key(fact.interface), 0


class NodeNics:
    """The NICs of each node whose agent has reported everything, or whose evidence was stored.

    `changed` is emitted when the NICs of a node change. Subscribe `follow` to commits and `complete` to full
    states, and call `load` with the stored rows of each node at the start.
    """

    def __init__(self) -> None:
        self.changed = Signal[[]]()
        self._facts: dict[str, dict[Key, InfinibandPort | LldpPort]] = {}
        self._nics: dict[str, tuple[Nic, ...]] = {}
        self._complete: set[str] = set()

    def of_cluster(self, cluster: str) -> dict[str, tuple[Nic, ...]]:
        """Return the NICs of the complete nodes of a cluster, by the names that its API server knows.

        A node without NICs is in it, too.
        """
        mine = (node for node in self._complete if is_node(node) and cluster_of(node) == cluster)
        return {name_in_cluster(node): self._nics.get(node, ()) for node in mine}

    def load(self, node: str, rows: Iterable[Row]) -> None:
        """Take the stored evidence of a node."""
        by_key: dict[Key, list[Row]] = {}
        for row in rows:
            by_key.setdefault(row.key, []).append(row)
        for key, mine in by_key.items():
            self._set(key, mine)
        self._recount(node)
        self.complete(node)

    def complete(self, node: str) -> None:
        """The agent of a node has reported everything."""
        if node not in self._complete:
            self._complete.add(node)
            self.changed()

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        touched = {x.key.node for x in changes if not x.is_renewal and self._set(x.key, x.after)}
        changed = [node for node in touched if self._recount(node)]
        if changed:
            self.changed()

    def _set(self, key: Key, rows: Sequence[Row]) -> bool:
        """Set the fact of a key. Returns whether it changed."""
        fact = next((row.fact for row in rows if row.fact is not None), None)
        facts = self._facts.setdefault(key.node, {})
        before = facts.get(key)
        if isinstance(fact, InfinibandPort | LldpPort) and fact.pci_address:
            facts[key] = fact
        else:
            facts.pop(key, None)
            fact = None
        if not facts:
            del self._facts[key.node]
        return before != fact

    def _recount(self, node: str) -> bool:
        """Return whether the NICs of a node changed."""
        before, now = self._nics.get(node, ()), nics_of(self._facts.get(node, {}).values())
        if now:
            self._nics[node] = now
        else:
            self._nics.pop(node, None)
        return before != now
