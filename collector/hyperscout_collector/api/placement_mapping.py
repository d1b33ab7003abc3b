"""Requests and placements between messages and values. The JSON of a request is that of its message."""

from hyperscout.v1 import placement_pb2 as pb

from hyperscout_collector.placer.allreduce import Predicted
from hyperscout_collector.placer.answer import Placement, Refusal
from hyperscout_collector.placer.forest import Forest
from hyperscout_collector.placer.request import Request


def request_of(message: pb.PlaceRequest, forest: Forest) -> Request:
    """Raises RequestError that names the field: unknown tier or node, bad quantity, count out of range."""
    raise NotImplementedError


def placement_message(
    gang: str,
    request: Request,
    answer: Placement | Refusal,
    forest: Forest,
    predicted: Predicted | None = None,
) -> pb.Placement:
    raise NotImplementedError
