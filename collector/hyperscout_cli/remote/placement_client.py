"""The collector's PlacementService as the command line sees it."""

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
from hyperscout.v1 import placement_pb2 as pb
from hyperscout.v1.placement_pb2_grpc import PlacementServiceStub

from hyperscout_cli.remote.client import Collector
from hyperscout_cli.shared.errors import BadInputError, CliError

_OF_THIS_GANG = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)


class NotReleasedError(CliError):
    """That gang cannot be released, and others can: nobody holds anything by its name, or its pods do."""


class PlacementCollector(Collector):
    """A connection to a collector's placer. Every method raises CliError, nothing else: BadInputError for a
    request that cannot be meant there."""

    def stubs(self, channel: grpc.Channel) -> Sequence[Any]:
        return (PlacementServiceStub(channel),)

    def place(self, request: pb.PlaceRequest) -> pb.Placement:
        """Place, and reserve unless it is a dry run."""
        answer: pb.PlaceResponse = self._ask("Place", request)
        return answer.placement

    def explain_placement(self, request: pb.ExplainPlacementRequest) -> pb.ExplainPlacementResponse:
        answer: pb.ExplainPlacementResponse = self._ask("ExplainPlacement", request)
        return answer

    def release(self, gang: str) -> None:
        """Raises NotReleasedError."""
        try:
            self._ask("Release", pb.ReleaseRequest(gang=gang))
        except CliError as error:
            cause = error.__cause__
            if isinstance(cause, grpc.Call) and cause.code() in _OF_THIS_GANG:
                raise NotReleasedError(error.message) from error
            raise

    def placements(self) -> Sequence[pb.Placement]:
        """By gang."""
        answer: pb.ListPlacementsResponse = self._ask("ListPlacements", pb.ListPlacementsRequest())
        return answer.placements

    def watch_placements(self) -> Iterator[pb.WatchPlacementsResponse]:
        """All of them, then each change; ends only with an error."""
        yield from self._stream("WatchPlacements", pb.WatchPlacementsRequest())

    def repair(self, gang: str, failed_nodes: Sequence[str], *, dry_run: bool) -> pb.RepairResponse:
        request = pb.RepairRequest(gang=gang, failed_nodes=failed_nodes, dry_run=dry_run)
        answer: pb.RepairResponse = self._ask("Repair", request)
        return answer

    def improve(self, gang: str) -> pb.ImproveResponse:
        answer: pb.ImproveResponse = self._ask("Improve", pb.ImproveRequest(gang=gang))
        return answer

    def defragment(self, request: pb.PlaceRequest, most_moves: int) -> pb.DefragmentResponse:
        asked = pb.DefragmentRequest(request=request, most_moves=most_moves)
        answer: pb.DefragmentResponse = self._ask("Defragment", asked)
        return answer

    def _ask(self, method: str, request: Any, timeout_s: float | None = None) -> Any:
        try:
            return super()._ask(method, request, timeout_s)
        except CliError as error:
            cause = error.__cause__
            if isinstance(cause, grpc.Call) and cause.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise BadInputError(error.message) from error
            raise
