"""Finds the leaf and the rail of each NIC in a topology. Uses no I/O.

| NIC | its rail |
|---|---|
| on a leaf that serves one position of most of its hosts | that position, whatever its name |
| on a leaf that serves several NICs of a host | its own position |
| without a link now | the leaf and the rail that it had |

A position is the number of a NIC, from 0, among the NICs of its host on the leaves of its domain, in the
order of names. So a host whose adapters have other names, or that lacks one, has the rails of its neighbours.
A host with several NICs on a leaf has no say in the leaf's position: no agent counts more than another.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hyperscout_topology.health import lowest_domains
from hyperscout_topology.link_changes import DENIED, links_at
from hyperscout_topology.memo import nodes_of_adapters
from hyperscout_topology.topology import Topology

from hyperscout_publish.devices.nics import Nic

Nics = Mapping[str, tuple[Nic, ...]]  # by node
NicKey = tuple[str, str]  # node and PCI address


class Place(NamedTuple):
    """`leaf`: name of the switch."""

    leaf: str
    rail: int


class NicEnds:
    """Finds the NIC at the end of a link of a node. An agent may report the GUID of another node's NIC, so
    inference says whose end it is."""

    def __init__(self, nics: Nics) -> None:
        # By node, and RDMA device, GUID or interface. After a restart, inference knows a link that is down by
        # its node and the RDMA device only.
        self._nics: dict[tuple[str, str], Nic] = {}
        for node, mine in nics.items():
            for nic in mine:
                names = nic.rdma_device, nic.guid, nic.interface
                self._nics |= {(node, name): nic for name in names if name}
        self.devices = {*nics, *(nic.guid for mine in nics.values() for nic in mine)} - {""}
        """The devices of a topology at which a NIC may be: on Ethernet, the node itself."""

    def at(self, node: str, device: str, port: str | None) -> Nic | None:
        """Return the NIC at this end; None = it is no NIC of the node."""
        return self._nics.get((node, (port or "") if device == node else device))


def places(
    topology: Topology, nics: Nics, before: Mapping[NicKey, Place], ends: NicEnds
) -> dict[NicKey, Place]:
    """Return the place of each NIC that has one. `before`: the places that were published."""
    leaf_of = dict(_leaves(topology, ends))
    positions: dict[NicKey, int] = {}
    votes: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for node, mine in nics.items():
        keys = [(node, nic.pci_address) for nic in mine]
        placed = [key for key in keys if key in leaf_of or key in before]
        positions |= {key: position for position, key in enumerate(placed)}
        here = Counter(leaf_of[key] for key in placed if key in leaf_of)
        for key in placed:
            if key in leaf_of and here[leaf_of[key]] == 1:
                votes[leaf_of[key]][positions[key]] += 1
    rails = {leaf: rail for leaf, found in votes.items() if (rail := _majority(found)) is not None}
    names = {switch.id: switch.name for switch in topology.switches}
    result: dict[NicKey, Place] = {}
    for node, mine in nics.items():
        linked = [key for nic in mine if (key := (node, nic.pci_address)) in leaf_of]
        by_leaf = {key: rails.get(leaf_of[key], positions[key]) for key in linked}
        unique = len(set(by_leaf.values())) == len(by_leaf)
        for nic in mine:
            key = node, nic.pci_address
            if key in leaf_of:
                rail = by_leaf[key] if unique else positions[key]
                result[key] = Place(names.get(leaf_of[key], leaf_of[key]), rail)
            elif key in before:
                result[key] = before[key]
    return result


def _majority(found: Counter[int]) -> int | None:
    (rail, n), *_ = found.most_common(1)
    return rail if 2 * n > found.total() else None


def _leaves(topology: Topology, ends: NicEnds) -> Iterator[tuple[NicKey, str]]:
    """Yield the leaf of each NIC with a link to a switch of its domain; of several ports, the first."""
    domain_of = {node: h for h in lowest_domains(topology) if h.switches for node in h.nodes}
    switches = {node: frozenset(h.switches) for node, h in domain_of.items()}
    owner = nodes_of_adapters(topology.adapters)
    found: dict[NicKey, tuple[str, str]] = {}
    for link in links_at(topology.links, ends.devices):
        if link.note.startswith(DENIED):
            continue
        sides = (link.a_device, link.a_port, link.b_device), (link.b_device, link.b_port, link.a_device)
        for device, port, peer in sides:
            node = owner.get(device, device)
            nic = ends.at(node, device, port)
            if nic is not None and peer not in owner and peer in switches.get(node, ()):
                key = node, nic.pci_address
                found[key] = min(found.get(key, (port, peer)), (port, peer))
    for key, (_, leaf) in found.items():
        yield key, leaf
