"""A MeasurementService with behaviour: remembers what it was told, and refuses on request."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from hyperscout.v1 import measurement_pb2 as pb
from hyperscout.v1.finding_pb2 import NcclRun
from hyperscout.v1.measurement_pb2_grpc import (
    MeasurementServiceServicer,
    add_MeasurementServiceServicer_to_server,
)


@dataclass
class FakeMeasurementService(MeasurementServiceServicer):
    """What a collector would say; `refusal`: why it changes nothing."""

    measuring: pb.GetMeasuringResponse = field(default_factory=pb.GetMeasuringResponse)
    run: NcclRun = field(default_factory=NcclRun)
    refusal: str = ""
    asked: list[Any] = field(default_factory=list)
    address: str = ""

    def _take(self, request: Any, context: Any) -> None:
        if self.refusal:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refusal)
        self.asked.append(request)

    def GetMeasuring(self, request: pb.GetMeasuringRequest, context: Any) -> pb.GetMeasuringResponse:  # noqa: N802
        return self.measuring

    def SetMeasuring(self, request: pb.SetMeasuringRequest, context: Any) -> pb.SetMeasuringResponse:  # noqa: N802
        self._take(request, context)
        return pb.SetMeasuringResponse()

    def RunNccl(self, request: pb.RunNcclRequest, context: Any) -> pb.RunNcclResponse:  # noqa: N802
        self._take(request, context)
        return pb.RunNcclResponse(run=self.run)


@contextmanager
def serving_measurement(service: FakeMeasurementService) -> Iterator[FakeMeasurementService]:
    """The service on a loopback port of its own; `service.address` says which."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    add_MeasurementServiceServicer_to_server(service, server)
    service.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield service
    finally:
        server.stop(None).wait(10)
