"""What the API asks of a history."""

from typing import Protocol

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_topology.topology import Topology


class HistoryError(Exception):
    """It cannot be answered; says why. `code`: the word for it."""

    code = "unavailable"


class BadHistoryRequestError(HistoryError):
    """What was asked for makes no sense; names the field."""

    code = "invalid"


class NotKeptError(HistoryError):
    """The time lies before the oldest that is kept, or nothing is kept at all."""

    code = "not_kept"


class HistoryReader(Protocol):
    """Both block, for a picture of long ago some hundred ms: for a thread. Raise HistoryError."""

    def events(self, request: pb.ListHistoryRequest) -> pb.ListHistoryResponse:
        """A page, newest first."""

    def topology_at(self, at_ns: int) -> Topology:
        """What was published at that time (Unix ns), with its links."""
