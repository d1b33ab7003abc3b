"""Sets the free resources of nodes from evidence where pods are not watched.

Each node has one worker, the GPUs that its agent found, and the devices of its kubelet. Their use does not
count, because a reservation may be for the pods that use them. So the free resources are the existing ones
minus the reservations. Workers in one NUMA zone are limited by the use, too (`evidence_zones`).
"""

from collections.abc import Iterable, Sequence

from hyperscout_formats.facts.facts import DeviceResource, Gpu
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.cluster.devices import devices_of
from hyperscout_placer.cluster.request import WORKERS

from hyperscout_collector.evidence.state import EvidenceState, KeyChange


class EvidenceCapacity:
    """Sets the resources of nodes in `placements`: of each node one worker, until its evidence is read.

    Call `touch` with the nodes that were loaded at the start, then `follow` for each commit.
    """

    def __init__(self, placements: Placements, state: EvidenceState) -> None:
        self._placements = placements
        self._state = state
        self._set: dict[str, dict[str, int]] = {}  # devices set last, by node; nodes without any are left out
        placements.set_default_unused({WORKERS: 1})

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        self.touch(
            {
                change.key.node
                for change in changes
                if any(isinstance(row.fact, Gpu | DeviceResource) for row in (*change.before, *change.after))
            }
        )

    def touch(self, nodes: Iterable[str]) -> None:
        """Set the resources of these nodes again."""
        for node in list(nodes):
            facts = [row.fact for row in self._state.rows_of_node(node)]
            gpus = devices_of(fact for fact in facts if isinstance(fact, Gpu))
            gpus |= {fact.name: len(fact.devices) for fact in facts if isinstance(fact, DeviceResource)}
            if gpus == self._set.get(node, {}):
                continue
            if gpus:
                self._placements.set_unused_of(node, {WORKERS: 1, **gpus})
                self._set[node] = gpus
            else:
                self._placements.set_unused_of(node, None)
                del self._set[node]
