"""Keeps the placer's `Capacity` in step with the published topology and the unused resources of the nodes.

A topology with the tree of the previous one is read at once: only the health of nodes and domains differs.
Otherwise a large topology is read in a thread. Until it is read, the capacity is that of the previous one.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_topology.diff import same_members
from hyperscout_topology.gaps import named_only
from hyperscout_topology.topology import Topology

from hyperscout_placer.book.node_capacity import NodeCapacity
from hyperscout_placer.cluster.capacity import Capacity, Resources
from hyperscout_placer.cluster.forest import Forest, ForestError
from hyperscout_placer.cluster.numa_zones import ZoneDevices
from hyperscout_placer.cluster.speeds import LazySpeeds, TierSpeed

IN_A_THREAD = 2_000  # nodes in a topology; from this size on, reading takes several ms
_AT_ONCE = 5_000  # changed nodes; from this number on, the whole capacity is computed anew


class FreeCapacity:
    """The free resources of the published topology. It belongs to the event loop.

    `problem`: why nothing can be placed on the published topology, or None. `nodes`: the unused resources and
    the bookings. Change it through this object, or call `refresh` after a change. `single_hosts`: see
    `Forest.of`.
    """

    def __init__(self, *, single_hosts: bool = True) -> None:
        self.problem: str | None = None
        self.topology: Topology | None = None
        self.speeds: Sequence[TierSpeed] = ()  # of the tiers of `capacity`
        self.nodes = NodeCapacity()
        self._unused_known = False
        self._capacity: Capacity | None = None
        self._tree: Topology | None = None  # that `_capacity` was read from, with all its nodes
        self._adopted = 0  # number of topologies that were read or refused
        self._dirty: set[str] | None = None  # nodes that change while a topology is read in a thread
        self._runs = False
        self._wake = asyncio.Event()
        self._in_thread = BoundedExecutor("free-capacity")
        self._single_hosts = single_hosts

    @property
    def capacity(self) -> Capacity | None:
        """The free resources now. None: there are none yet, and `why_none` contains the reason."""
        return self._capacity if self.why_none is None else None

    @property
    def why_none(self) -> str | None:
        if self.problem is not None:
            return self.problem
        if self.topology is None or not self.topology.hypernodes:
            return "nothing can be placed yet: no topology has been published"
        if not self._unused_known:
            return "nothing can be placed yet: the free resources of the nodes are unknown"
        if self._capacity is None:
            return "nothing can be placed yet: the topology is being read"
        return None

    async def run(self) -> None:
        """Read large topologies in a thread, until cancelled."""
        self._runs = True
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._read_in_thread()
        finally:
            self._runs = False

    def set_topology(self, topology: Topology) -> None:
        self.topology = topology
        if (capacity := self._capacity) is None or not self._has_same_tree(topology):
            self._read_anew(topology)
            return
        self._wake.clear()
        self._adopt(topology, capacity.copy(capacity.forest.with_health_of(topology)))

    def _has_same_tree(self, topology: Topology) -> bool:
        """Whether the capacity was read from the same HyperNodes and members, and has all of them."""
        known = self._tree
        return known is not None and same_members(known, topology) and known.adapters == topology.adapters

    def _read_anew(self, topology: Topology) -> None:
        if self._runs and sum(len(h.nodes) for h in topology.hypernodes if h.tier == 1) >= IN_A_THREAD:
            self._wake.set()
            return
        self._wake.clear()
        try:
            self._adopt(topology, _read(topology, self.nodes, self._single_hosts))
        except ForestError as error:
            self._cannot_read(error)

    def set_default_unused(self, unused: Resources) -> None:
        """Set the unused resources of each node for which none are set."""
        self.nodes.default = dict(unused)
        self._unused_known = True
        self._tree = None  # the capacity has the former amounts
        if self.topology is not None:
            self._read_anew(self.topology)

    def set_unused(self, unused: Mapping[str, Resources]) -> None:
        """Set the unused resources of all nodes. Raises CapacityError."""
        changed = self.nodes.set_all(unused)
        self._unused_known = True
        self.refresh(changed)

    def set_unused_of(self, node: str, unused: Resources | None) -> None:
        """Set the unused resources of one node; None = use the default. Raises CapacityError."""
        self.nodes.set_one(node, unused)
        self.refresh((node,))

    def set_zones_of(self, node: str, zones: Sequence[ZoneDevices]) -> bool:
        """Set the NUMA zones of a node; () = unknown. Returns whether more workers fit in them."""
        if self.nodes.zones_of(node) == tuple(zones):
            return False
        before = self.nodes.free_on(node)
        self.nodes.set_zones(node, zones)
        self.refresh((node,))
        return any(amount > before.get(name, 0) for name, amount in self.nodes.free_on(node).items())

    def know_shares(self, shares: Collection[str]) -> None:
        """Make `capacity` contain the amounts of these shares of a NUMA zone.

        A new share computes all nodes with known zones anew. For 10,000 nodes of two zones that takes 0.1 s
        for the first share and 1 s with 32 known ones, on the event loop.
        """
        if changed := self.nodes.know_shares(shares):
            self.refresh(changed)

    def set_unusable(self, nodes: Collection[str]) -> None:
        """Set the nodes on which nothing is free, whatever their unused resources are."""
        unusable = frozenset(nodes)
        changed = unusable ^ self.nodes.unusable
        self.nodes.unusable = unusable
        self.refresh(changed)

    def refresh(self, nodes: Collection[str]) -> None:
        """Compute anew what is free on these nodes."""
        if self._dirty is not None:
            self._dirty.update(nodes)
        if (capacity := self._capacity) is None:
            return
        if len(nodes) >= _AT_ONCE:
            self._capacity = Capacity(capacity.forest, self.nodes.free(capacity.forest.nodes))
            return
        index = capacity.forest.index
        for node in nodes:
            if node in index:
                capacity.set_free(node, self.nodes.free_on(node))

    async def _read_in_thread(self) -> None:
        topology, adopted = self.topology, self._adopted
        if topology is None:
            return
        dirty = self._dirty = set()
        try:
            read = await self._in_thread(_read, topology, self.nodes.copy(), self._single_hosts)
        except ForestError as error:
            if self._adopted == adopted:
                self._cannot_read(error)
        else:
            if self._adopted == adopted:  # else the event loop read a newer one
                self._adopt(topology, read)
                self.refresh(dirty)
        finally:
            self._dirty = None

    def _adopt(self, topology: Topology, capacity: Capacity) -> None:
        forest = capacity.forest
        self._capacity, self.speeds = capacity, LazySpeeds(topology, forest)
        has_all = sum(len(h.nodes) for h in topology.hypernodes if h.tier == 1) == len(forest.nodes)
        self._tree = topology if has_all else None
        self._adopted += 1
        self.problem = None

    def _cannot_read(self, error: ForestError) -> None:
        self._capacity = None
        self._adopted += 1
        self.problem = f"nothing can be placed on the published topology: {error}"


def _read(topology: Topology, nodes: NodeCapacity, single_hosts: bool) -> Capacity:
    """Read a topology, without hosts that only a GUID identifies. Raises ForestError.

    Takes about 0.4 s for 100,000 nodes.
    """
    forest = Forest.of(named_only(topology), single_hosts=single_hosts)
    return Capacity(forest, nodes.free(forest.nodes))
