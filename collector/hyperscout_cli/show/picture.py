"""The published hierarchy as a watch stream leaves it: a snapshot, then what changed."""

from typing import TYPE_CHECKING

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_topology.proto import topology_from_proto

if TYPE_CHECKING:
    from hyperscout_topology.topology import Topology


class Picture:
    """Takes events of WatchTopology in; knows HyperNodes and anomalies, not links."""

    def __init__(self) -> None:
        self._hypernodes: dict[str, pb.HyperNode] = {}
        self._anomalies: list[pb.Anomaly] = []
        self._generation = 0

    def take(self, event: pb.WatchTopologyResponse) -> None:
        """Take one event in."""
        if event.HasField("snapshot"):
            self._hypernodes = {h.name: h for h in event.snapshot.hypernodes}
            self._anomalies = list(event.snapshot.anomalies)
            self._generation = event.snapshot.generation
            return
        delta = event.delta
        self._hypernodes |= {h.name: h for h in delta.hypernodes}
        for name in delta.removed_hypernodes:
            self._hypernodes.pop(name, None)
        self._anomalies = list(delta.anomalies)
        self._generation = delta.generation

    def topology(self) -> "Topology":
        """What is published now, without links; HyperNodes by tier and name."""
        hypernodes = sorted(self._hypernodes.values(), key=lambda h: (h.tier, h.name))
        return topology_from_proto(
            pb.Topology(generation=self._generation, hypernodes=hypernodes, anomalies=self._anomalies)
        )
