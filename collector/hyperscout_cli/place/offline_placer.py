"""The placer on files: a saved topology and free capacity. It needs no cluster and no collector."""

from collections.abc import Mapping

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_placer.cluster.capacity import Capacity, CapacityError, Mask
from hyperscout_placer.cluster.numa_zones import zone_share
from hyperscout_placer.cluster.request import Request, RequestError, ends
from hyperscout_placer.cluster.speeds import speeds_of
from hyperscout_placer.demands.node_masks import MaskTable
from hyperscout_placer.messages.placements import explanation_message, placement_message, predicted_for
from hyperscout_placer.messages.requests import request_of
from hyperscout_placer.solve.clusters import place_in_cluster
from hyperscout_placer.solve.explain import explain
from hyperscout_topology.topology import Topology

from hyperscout_cli.place.gang_flags import Gang
from hyperscout_cli.place.placement_files import (
    default_room,
    read_capacity,
    read_forest,
    read_nodes,
    room_of,
)
from hyperscout_cli.shared.errors import BadInputError
from hyperscout_cli.shared.files import shown
from hyperscout_cli.shared.output import note

_UNKNOWN = "labels and taints are unknown: give --nodes, the output of `kubectl get nodes -o json`"


class OfflinePlacer:
    """Places gangs on a saved topology, with optional files of free capacity and of nodes."""

    def __init__(
        self, gang: Gang, topology: str, capacity: str | None, nodes: str | None, *, unnamed: bool
    ) -> None:
        self._gang = gang
        self._topology, self._forest = read_forest(topology, unnamed=unnamed)
        self._files = (topology, capacity)
        self._free = None if capacity is None else read_capacity(capacity)
        self._has_nodes = nodes is not None
        self._masks = MaskTable(self._forest, None if nodes is None else read_nodes(nodes), _UNKNOWN)

    def topology(self) -> Topology:
        return self._topology

    def place(self, message: pb.PlaceRequest) -> pb.Placement:
        request, capacity, masks = self._meant(message)
        answer = place_in_cluster(capacity, request, masks)
        predicted = predicted_for(answer, self._forest, speeds_of(self._topology, self._forest))
        return placement_message("", request, answer, self._forest, predicted)

    def explain(self, message: pb.PlaceRequest, limit: int) -> pb.ExplainPlacementResponse:
        request, capacity, masks = self._meant(message)
        answer, speeds = place_in_cluster(capacity, request, masks), speeds_of(self._topology, self._forest)
        found = explain(capacity, request, answer, masks, limit=limit, speeds=speeds)
        return explanation_message("", request, found, self._forest)

    def _meant(self, message: pb.PlaceRequest) -> tuple[Request, Capacity, Mapping[str, Mask]]:
        try:
            request = request_of(message, self._forest)
        except RequestError as error:
            raise BadInputError(self._gang.in_flags(str(error))) from error
        if self._has_nodes and not request.demands:
            note("--nodes has no effect: no worker has a node selector, tolerations or node affinity")
        if any(zone_share(kind.resources) for kind in ends(request.gang)):
            raise BadInputError(self._gang.in_flags("singleNuma: needs a collector: a file has no zones"))
        topology, capacity = self._files
        if self._free is None or capacity is None:
            devices = self._topology.devices
            room = default_room(self._forest, devices, request, self._gang.gpus)
        else:
            room = room_of(self._free, request, self._forest, capacity)
        try:
            return request, Capacity(self._forest, room), self._masks.of(request)
        except CapacityError as error:
            raise BadInputError(f"{shown(capacity or topology)}: {error}") from error
