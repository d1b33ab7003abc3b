"""Connects the placer to the collector: its inputs, its watchers and the reservations on disk.

published topology, evidence, cluster -> Placements -> watchers, reservations on disk
"""

from collections.abc import Callable, Iterable, Sequence

from hyperscout_placer.book.placements import Placements
from hyperscout_topology.topology import Topology

from hyperscout_collector.app.inference.cluster import Cluster
from hyperscout_collector.app.placing.evidence_capacity import EvidenceCapacity
from hyperscout_collector.app.placing.evidence_zones import EvidenceZones
from hyperscout_collector.app.placing.reservations import Reservations
from hyperscout_collector.evidence.state import EvidenceState, KeyChange
from hyperscout_collector.serve.grpc.placement_watchers import PlacementWatchers


class Placing:
    """The placer with its inputs and outputs. It is complete after `load`, which the builder calls.

    `clock_ns`: Unix ns. `timer`: monotonic seconds. `seen_ns(node)`: when the agent of a node last reported,
    Unix ns, 0 = never.

    `pods_are_watched`: another part sets the free resources of nodes (`set_unused`, `set_unused_of`) from
    the pods on them. Otherwise they are set from evidence. `decided` receives the duration of each decision
    in seconds. `single_hosts`: whether answers name accelerator domains of one host.
    """

    def __init__(
        self,
        reservations: Reservations,
        state: EvidenceState,
        cluster: Cluster,
        *,
        decided: Callable[[float], None],
        clock_ns: Callable[[], int],
        timer: Callable[[], float],
        seen_ns: Callable[[str], int],
        pods_are_watched: bool = False,
        single_hosts: bool = True,
    ) -> None:
        self.placements = Placements(
            clock_ns=clock_ns, timer=timer, decided=decided, single_hosts=single_hosts
        )
        self.watchers = PlacementWatchers(lambda: list(self.placements))
        self.reservations = reservations
        self._cluster = cluster
        self._seen_ns = seen_ns
        self._cluster_changed = False
        self._topology = Topology(0)
        self._capacity = None if pods_are_watched else EvidenceCapacity(self.placements, state)
        self._zones = EvidenceZones(self.placements, state)
        for held in reservations.restored:  # even if their resources are not free now
            self.placements.restore(held)
        self.placements.changed.subscribe(self.watchers.changed)
        self.placements.changed.subscribe(self.reservations.follow)

    @property
    def problems(self) -> list[str]:
        return [x for x in (self.reservations.queue.problem, self.placements.problem) if x is not None]

    def published(self, topology: Topology) -> None:
        """A generation was published."""
        self._topology = topology
        self.placements.set_topology(topology)
        self._cluster_changed = True

    def cluster_changed(self) -> None:
        """A node of the cluster changed."""
        self._cluster_changed = True

    def follow(self, changes: Sequence[KeyChange]) -> None:
        """A commit changed the evidence."""
        changes = [change for change in changes if not change.is_renewal]
        if self._capacity is not None:
            self._capacity.follow(changes)
        self._zones.follow(changes)

    def touch(self, nodes: Iterable[str]) -> None:
        """Read the evidence of these nodes: call it with the nodes that were loaded at the start."""
        nodes = list(nodes)
        if self._capacity is not None:
            self._capacity.touch(nodes)
        self._zones.touch(nodes)

    def tick(self) -> None:
        """Remove expired reservations, mark down nodes as unusable, and forget failed nodes that are healthy
        again. Call it about once a second."""
        self.placements.expire()
        if not self._cluster.is_known:
            return
        if self._cluster_changed:
            self._cluster_changed = False
            self.placements.set_unusable(self._cluster.view().down(self._topology).keys())
        self.placements.forget_healthy(self._seen_ns)
