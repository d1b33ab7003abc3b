"""Computes what is free on each node: its unused resources, less the bookings of gangs.

A booking is what a gang reserved on a node and does not use yet. Bookings are kept by node name, so they stay
when the topology changes or when a node goes away and comes back. An amount is never negative: where the
bookings exceed the unused resources, 0 is free.

For workers that need their devices in one NUMA zone, a node with known zones also has the resources of
`cluster.numa_zones`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from hyperscout_placer.cluster.capacity import Resources, check_free
from hyperscout_placer.cluster.numa_zones import FreeInZones, Zone, ZoneDevices, zone_share
from hyperscout_placer.cluster.quantity import is_extended
from hyperscout_placer.cluster.request import WORKERS, Workers

_NOTHING: Resources = {}
_MAX_SHARES = 32  # kinds of workers in one zone for which nodes have amounts; the newest count


class NodeCapacity:
    """Unused resources and bookings by node name.

    `default`: unused resources of a node for which none are set.

    A worker that is only counted (the resource "workers") takes the whole node. No device (extended resource)
    is free beside it, and no such worker fits beside a booked device.
    """

    def __init__(self) -> None:
        self.default: Resources = _NOTHING
        self.unusable: frozenset[str] = frozenset()
        self._unused: dict[str, Resources] = {}
        self._booked: dict[str, dict[str, int]] = {}
        self._zones: dict[str, tuple[ZoneDevices, ...]] = {}
        self._shares: tuple[str, ...] = ()

    def copy(self) -> "NodeCapacity":
        """A copy of the present state, for a thread."""
        other = NodeCapacity()
        other.default, other.unusable = self.default, self.unusable
        other._unused = dict(self._unused)
        other._booked = {node: dict(booked) for node, booked in self._booked.items()}
        other._zones, other._shares = dict(self._zones), self._shares
        return other

    def set_all(self, unused: Mapping[str, Resources]) -> set[str]:
        """Set the unused resources of all nodes.

        Returns the names of the nodes that changed. Raises CapacityError, and then changes nothing.
        """
        for node, resources in unused.items():
            check_free(node, resources)
        before, self._unused = self._unused, {node: dict(resources) for node, resources in unused.items()}
        names = {*before, *self._unused}
        return {node for node in names if before.get(node) != self._unused.get(node)}

    def set_one(self, node: str, unused: Resources | None) -> None:
        """Set the unused resources of one node; None = use the default.

        Raises CapacityError, and then changes nothing.
        """
        if unused is None:
            self._unused.pop(node, None)
        else:
            check_free(node, unused)
            self._unused[node] = dict(unused)

    def zones_of(self, node: str) -> tuple[ZoneDevices, ...]:
        return self._zones.get(node, ())

    def set_zones(self, node: str, zones: Sequence[ZoneDevices]) -> None:
        """Set the NUMA zones of a node; () = unknown."""
        self._zones.pop(node, None)
        if zones:
            self._zones[node] = tuple(zones)

    def know_shares(self, shares: Iterable[str]) -> set[str]:
        """Give nodes the amounts of these shares of a zone; returns the nodes that get new ones."""
        if not (new := [share for share in shares if share not in self._shares]):
            return set()
        self._shares = (*self._shares, *new)[-_MAX_SHARES:]
        return set(self._zones)

    def zones_for(self, nodes: Sequence[str], needs: Sequence[Workers]) -> tuple[Zone | None, ...]:
        """Choose the NUMA zone of each worker that needs one; None = it needs none, or fits in none now."""
        free: dict[str, FreeInZones] = {}
        found: list[Zone | None] = []
        for node, worker in zip(nodes, needs, strict=True):
            share = zone_share(worker.resources)
            if share is None or node not in self._zones:
                found.append(None)
                continue
            if node not in free:
                booked = self._booked.get(node, _NOTHING)
                free[node] = FreeInZones(self._zones[node], self.free_on(node), booked)
            found.append(free[node].take(share))
        return tuple(found)

    def book(self, nodes: Iterable[str], needs: Iterable[Workers]) -> set[str]:
        """Book one worker on each of these nodes; returns the nodes' names."""
        sums = summed(nodes, needs)
        for node, amounts in sums.items():
            booked = self._booked.setdefault(node, {})
            for name, amount in amounts.items():
                booked[name] = booked.get(name, 0) + amount
        return set(sums)

    def unbook(self, nodes: Iterable[str], needs: Iterable[Workers]) -> set[str]:
        """Remove bookings that `book` made; returns the nodes' names."""
        sums = summed(nodes, needs)
        for node, amounts in sums.items():
            booked = self._booked[node]
            for name, amount in amounts.items():
                booked[name] -= amount
                if not booked[name]:
                    del booked[name]
            if not booked:
                del self._booked[node]
        return set(sums)

    def free_on(self, node: str, without: Resources = _NOTHING, left: Resources = _NOTHING) -> Resources:
        """What is free on a node.

        `without`: bookings that do not count. `left`: used resources that count as unused. The caller must
        not change the result.
        """
        if node in self.unusable:
            return _NOTHING
        unused = self._unused.get(node, self.default)
        booked: Resources = self._booked.get(node, _NOTHING)
        if booked and without:
            booked = {name: rest for name, has in booked.items() if (rest := has - without.get(name, 0)) > 0}
        free = _less(unused, booked) if booked else unused
        if left:
            free = {name: free.get(name, 0) + left.get(name, 0) for name in {**free, **left}}
        if self._shares and (zones := self._zones.get(node)):
            if left:
                booked = {name: booked.get(name, 0) - left.get(name, 0) for name in {**booked, **left}}
            in_zones = FreeInZones(zones, free, booked)
            free = {**free, **{share: in_zones.fits(share) for share in self._shares}}
        return free

    def free(self, nodes: Iterable[str]) -> dict[str, Resources]:
        return {node: self.free_on(node) for node in nodes}

    def lacking(self, nodes: Sequence[str], needs: Sequence[Workers]) -> str | None:
        """Describe the first shortage of these workers in words; None when all of them fit."""
        for node, amounts in summed(nodes, needs).items():
            free = self.free_on(node)
            for name, amount in amounts.items():
                if amount > free.get(name, 0):
                    return f"node {node}: {amount} {name} are needed, {free.get(name, 0)} are free"
        return None


def summed(nodes: Iterable[str], needs: Iterable[Workers]) -> dict[str, dict[str, int]]:
    """Amounts by node and resource, for one worker on each of these nodes."""
    sums: dict[str, dict[str, int]] = {}
    for node, worker in zip(nodes, needs, strict=True):
        amounts = sums.get(node)
        if amounts is None:
            amounts = sums[node] = defaultdict(int)
        for name, amount in worker.resources:
            if amount:
                amounts[name] += amount
    return sums


def _less(unused: Resources, booked: Resources) -> Resources:
    whole = WORKERS in booked
    devices = any(map(is_extended, booked))
    return {
        name: 0
        if (whole and is_extended(name)) or (devices and name == WORKERS)
        else max(0, has - booked.get(name, 0))
        for name, has in unused.items()
    }
