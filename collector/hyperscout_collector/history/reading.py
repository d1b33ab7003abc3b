"""The interface that the API uses to read a history."""

from typing import Protocol

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_topology.topology import Topology


class HistoryError(Exception):
    """The query cannot be answered. The message gives the reason. `code`: the API's word for it."""

    code = "unavailable"


class BadHistoryRequestError(HistoryError):
    """The request is invalid. The message names the field."""

    code = "invalid"


class NotKeptError(HistoryError):
    """The time is before the oldest record, or nothing is recorded."""

    code = "not_kept"


class HistoryReader(Protocol):
    """Both methods block, up to some hundred ms for an old topology: call them in a thread.

    Both raise HistoryError.
    """

    def events(self, request: pb.ListHistoryRequest) -> pb.ListHistoryResponse:
        """Returns a page of events, newest first."""

    def topology_at(self, at_ns: int) -> Topology:
        """Returns the topology that was published at that time (Unix ns), with its links."""
