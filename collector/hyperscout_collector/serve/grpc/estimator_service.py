"""Serves the estimator of replicas that Karmada's scheduler asks, at a port of its own.

The names of the service and the method are Karmada's (pkg/estimator/service/service.proto). Without the
collector's knowledge, Karmada adds up free resources; this service counts where replicas fit.
"""

from collections.abc import Collection
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio
from hyperscout.v1 import estimator_pb2 as pb
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.cluster.request import RequestError
from hyperscout_placer.demands.node_masks import NodeMasks
from hyperscout_placer.messages.replicas import replica_request, replicas
from hyperscout_runtime.bounded_executor import BoundedExecutor

from hyperscout_collector.serve.grpc.handlers import unary, with_codes
from hyperscout_collector.serve.grpc.placement_checks import CODES

SERVICE: Final = "github.com.karmada_io.karmada.pkg.estimator.service.Estimator"
_MAX_WAITING = 64  # calls, running and waiting


class EstimatorService:
    """`own`: the name that Karmada has for the collector's own cluster; "" = it has none. `clusters`: the
    others, whose names are the same in Karmada. Call `close` after the last call has ended.
    """

    def __init__(
        self, placements: Placements, masks: NodeMasks, *, own: str, clusters: Collection[str]
    ) -> None:
        self._placements = placements
        self._masks = masks
        self._names = {name: name for name in clusters} | ({own: ""} if own else {})
        self._count = BoundedExecutor("estimator", most=_MAX_WAITING)

    def add_to(self, server: grpc.aio.Server) -> None:
        call = with_codes(self.max_available_replicas, CODES)
        handlers = {"MaxAvailableReplicas": unary(call, pb.MaxAvailableReplicasRequest)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    def close(self) -> None:
        self._count.close()

    async def max_available_replicas(
        self, request: pb.MaxAvailableReplicasRequest, context: Any
    ) -> pb.MaxAvailableReplicasResponse:
        """How many replicas fit now. Raises RequestError, NotReadyError, BusyError."""
        if (cluster := self._names.get(request.cluster)) is None:
            raise RequestError(
                f"cluster: {request.cluster[:253]!r}: expected {' or '.join(sorted(self._names))}: set "
                "clusters, or estimator_cluster for the collector's own cluster"
            )
        placements = self._placements
        asked, tier = replica_request(request.replica_requirements, cluster, placements.capacity)
        capacity = placements.capacity_for(asked).copy()
        masks = partial(self._masks.now(capacity.forest).of, asked)
        found = await self._count(lambda: replicas(capacity, asked, masks(), tier))
        return pb.MaxAvailableReplicasResponse(max_replicas=found)
