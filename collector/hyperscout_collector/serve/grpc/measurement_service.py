"""Serves MeasurementService: the state of measuring, pausing and resuming it, and NCCL runs on request.

`identity.access` authorizes callers first: GetMeasuring needs the verb "get", the other methods "update".
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc
import grpc.aio
from hyperscout.v1 import measurement_pb2 as pb
from hyperscout.v1.finding_pb2 import NcclRun

from hyperscout_collector.identity.access import CALLER
from hyperscout_collector.serve.grpc.handlers import unary, with_codes

SERVICE = "hyperscout.v1.MeasurementService"

MAX_REASON_CHARS = 256
MAX_NODES = 2
MAX_SIZES = 32
MAX_TIMEOUT_S = 3600.0


class MeasurementError(Exception):
    """The call failed. The message contains the reason and the next step."""


class NotNowError(MeasurementError):
    """The call is not possible now because of a setting, the state of a node or a running measurement."""


class RunFailedError(MeasurementError):
    """The run started and failed."""


_CODES = (
    (NotNowError, grpc.StatusCode.FAILED_PRECONDITION),
    (RunFailedError, grpc.StatusCode.ABORTED),
    (MeasurementError, grpc.StatusCode.INTERNAL),
)


class Measuring(Protocol):
    """Latency measurements between agents. No method blocks."""

    def report(self) -> pb.GetMeasuringResponse: ...

    def pause(self, reason: str) -> None:
        """Stop all measurements and start none. Raises MeasurementError."""

    def resume(self) -> None:
        """Continue measuring. Raises MeasurementError."""


class NcclRunner(Protocol):
    """NCCL runs within one node or between two."""

    async def run_nccl(self, request: pb.RunNcclRequest) -> NcclRun:
        """Run NCCL and return the result. Cancelling ends the run. Raises MeasurementError."""


class MeasurementService:
    """`add_to(server)` registers the service. `nccl`: None = this collector does not run NCCL."""

    def __init__(self, measuring: Measuring, nccl: NcclRunner | None) -> None:
        self._measuring = measuring
        self._nccl = nccl

    def add_to(self, server: grpc.aio.Server) -> None:
        handlers = {
            "GetMeasuring": unary(self.answered("get_measuring"), pb.GetMeasuringRequest),
            "SetMeasuring": unary(self.answered("set_measuring"), pb.SetMeasuringRequest),
            "RunNccl": unary(self.answered("run_nccl"), pb.RunNcclRequest),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    def answered(self, name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        """A method by name; its errors abort the call with a gRPC code, also in a call over REST."""
        return with_codes(getattr(self, name), _CODES)

    async def get_measuring(self, request: pb.GetMeasuringRequest, context: Any) -> pb.GetMeasuringResponse:
        return self._measuring.report()

    async def set_measuring(self, request: pb.SetMeasuringRequest, context: Any) -> pb.SetMeasuringResponse:
        if not request.HasField("paused"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "paused: missing: expected true or false")
        if request.paused:
            why = f": {request.reason[:MAX_REASON_CHARS]}" if request.reason else ""
            self._measuring.pause(f"by {CALLER.get()}{why}")
        else:
            self._measuring.resume()
        return pb.SetMeasuringResponse()

    async def run_nccl(self, request: pb.RunNcclRequest, context: Any) -> pb.RunNcclResponse:
        if problem := _error_in(request):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        if self._nccl is None:
            raise NotNowError("this collector does not run NCCL")
        return pb.RunNcclResponse(run=await self._nccl.run_nccl(request))


def _error_in(request: pb.RunNcclRequest) -> str | None:
    """The error in a request to run NCCL; None = the request is valid."""
    nodes = list(request.nodes)
    if not 1 <= len(nodes) <= MAX_NODES or not all(nodes):
        return (
            f"nodes: found {len(nodes)}, expected 1 (run within the node) or 2 (run between them), not empty"
        )
    if len(set(nodes)) < len(nodes):
        return f"nodes: {nodes[0]!r} is given twice: give it once to run within the node"
    if len(request.sizes_bytes) > MAX_SIZES:
        return f"sizes_bytes: found {len(request.sizes_bytes)} sizes, expected at most {MAX_SIZES}"
    if not 0 <= request.timeout_s <= MAX_TIMEOUT_S:
        return f"timeout_s: {request.timeout_s:g} s: expected 0 to {MAX_TIMEOUT_S:g} s"
    return None
