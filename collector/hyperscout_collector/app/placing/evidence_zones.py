"""Sets the NUMA zones of nodes from evidence: their devices that no container uses, and their NICs.

The devices are those that the probe `pod_resources` reports. The NICs of a zone are the RDMA devices in it.
If no RDMA device has a known zone, they are the nearest NICs of the GPUs in it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from hyperscout_formats.facts.facts import DeviceResource, Gpu, InfinibandPort
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.cluster.numa_zones import Zone, ZoneDevices

from hyperscout_collector.evidence.rows import Row
from hyperscout_collector.evidence.state import EvidenceState, KeyChange


class EvidenceZones:
    """Sets the zones of nodes in `placements`.

    Call `touch` with the nodes that were loaded at the start, then `follow` for each commit.
    """

    def __init__(self, placements: Placements, state: EvidenceState) -> None:
        self._placements = placements
        self._state = state

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        self.touch(
            {
                change.key.node
                for change in changes
                if any(isinstance(row.fact, DeviceResource | Gpu | InfinibandPort) for row in change.after)
                or any(isinstance(row.fact, DeviceResource) for row in change.before)
            }
        )

    def touch(self, nodes: Iterable[str]) -> None:
        """Set the zones of these nodes again."""
        for node in list(nodes):
            self._placements.set_zones_of(node, zones_of(self._state.rows_of_node(node)))


def zones_of(rows: Iterable[Row]) -> tuple[ZoneDevices, ...]:
    """The zones in the findings of a node, by number; () = the probe reports no devices.

    Devices without a zone are together in one without a number. A device that is in several zones is in none
    of them.
    """
    unused: dict[int | None, dict[str, int]] = {}
    rdma: defaultdict[int | None, set[str]] = defaultdict(set)
    nearest: defaultdict[int | None, set[str]] = defaultdict(set)
    for row in rows:
        match row.fact:
            case DeviceResource():
                for device in row.fact.devices:
                    if len(device.numa_nodes) <= 1:
                        zone = unused.setdefault(next(iter(device.numa_nodes), None), {})
                        zone[row.fact.name] = zone.get(row.fact.name, 0) + (not device.in_use)
            case InfinibandPort(numa_node=int()):
                rdma[row.fact.numa_node].add(row.fact.device)
            case Gpu(numa_node=int()):
                nearest[row.fact.numa_node].update(row.fact.nearest_nics)
    nics = rdma or nearest
    numbers = sorted(unused, key=lambda number: (number is None, number))
    return tuple(ZoneDevices(Zone(number, tuple(sorted(nics[number]))), unused[number]) for number in numbers)
