"""Decides whose port counters count: those of the adapters and the switch that belong to the reporter.

A device belongs to the reporter under which it is published. Readers of whole fabrics (a sweep lease, an
agent of role `fabric`) may count on all of them. Without a published device every reporter counts, because
inference finds out to which one it belongs.
"""

from collections.abc import Callable, Mapping

from hyperscout_formats.facts.facts import InfinibandPort, SwitchPort
from hyperscout_formats.text.reporters import is_switch, plain_switch_name
from hyperscout_topology.topology import Topology

from hyperscout_collector.evidence.rows import Row


class PortOwners:
    """`topology()`: the published topology. Not thread-safe."""

    def __init__(self, topology: Callable[[], Topology]) -> None:
        self._topology = topology
        self._indexed = Topology(0)
        self._nodes: Mapping[str, str] = {}  # by adapter id
        self._switches: Mapping[str, str] = {}  # plain names by chassis id
        self._names: frozenset[str] = frozenset()

    def may_count(self, row: Row) -> bool:
        """Return False if the row's port is published as a port of another reporter."""
        self._index()
        match row.fact:
            case InfinibandPort(node_guid=guid):
                ident = f"{guid:016x}"
                return self._nodes.get(ident, ident) in (ident, row.key.node)
            case SwitchPort(chassis_id=chassis) if is_switch(row.key.node):
                own = plain_switch_name(row.key.node)
                known = self._switches.get(chassis, own)
                # An agent whose name no switch has may run on any: its certificate is named otherwise.
                return known == own or own not in self._names or _is_suffixed(known, own, chassis)
        return True

    def _index(self) -> None:
        # A generation shares the lists that did not change with the one before.
        before, self._indexed = self._indexed, self._topology()
        if self._indexed.adapters is not before.adapters:
            self._nodes = {x.id: x.node for x in self._indexed.adapters}
        if self._indexed.switches is not before.switches:
            self._switches = {x.id: plain_switch_name(x.name) for x in self._indexed.switches}
            self._names = frozenset(self._switches.values())


def _is_suffixed(known: str, own: str, chassis: str) -> bool:
    """Return whether a name is `own` with the end of the chassis id, as a second switch of one name has."""
    name, _, suffix = known.rpartition("-")
    return name == own and "".join(filter(str.isalnum, chassis.lower())).endswith(suffix)
