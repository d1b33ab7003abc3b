"""The placer that a command uses: on files in this process, or the collector's. Both take the same request
and return the same message."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click
from hyperscout.v1 import placement_pb2 as pb

from hyperscout_cli.place.gang_flags import Gang
from hyperscout_cli.place.placement_files import Files
from hyperscout_cli.shared.errors import BadInputError
from hyperscout_cli.shared.options import Endpoint

if TYPE_CHECKING:
    from hyperscout_topology.topology import Topology

    from hyperscout_cli.remote.client import Collector


class Placer(Protocol):
    """Methods raise CliError; BadInputError for an invalid request."""

    def place(self, request: pb.PlaceRequest) -> pb.Placement: ...

    def explain(self, request: pb.PlaceRequest, limit: int) -> pb.ExplainPlacementResponse: ...

    def topology(self) -> "Topology":
        """The topology without links, for names."""
        ...


@contextmanager
def placer(gang: Gang, *, files: Files, collector: Endpoint, unnamed: bool) -> "Iterator[Placer]":
    """The placer on files if there is a file of a topology, else the collector's.

    `unnamed`: hosts that only a GUID identifies are nodes; for a file only.
    """
    if files.topology is not None:
        from hyperscout_cli.place.offline_placer import OfflinePlacer

        yield OfflinePlacer(gang, files.topology, files.capacity, files.nodes, unnamed=unnamed)
        return
    from hyperscout_cli.remote.client import Collector

    context = click.get_current_context()
    with Collector(collector, or_saved=not context.params.get("reserve")) as connection:
        yield OnlinePlacer(gang, connection)


def check_sources(gang: Gang, files: Files, *, unnamed: bool) -> None:
    """Check that the sources do not contradict each other. Raises UsageError; reads no file."""
    topology, capacity = files.topology, files.capacity
    if topology is not None and gang.single_numa:
        raise click.UsageError("--single-numa needs a collector: a file has no zones")
    if topology is None and unnamed:
        raise click.UsageError(
            "--include-unnamed needs --topology: a collector places on named hosts only (set its node_map)"
        )
    if topology is None and capacity is not None:
        raise click.UsageError("--capacity needs --topology: a collector knows the free capacity")
    if topology is None and files.nodes is not None:
        raise click.UsageError("--nodes needs --topology: a collector reads the nodes of its cluster")
    if [topology, capacity, files.nodes, gang.request].count("-") > 1:
        raise click.UsageError("stdin (-) can be read only once: save one of them to a file")


@contextmanager
def in_flags(gang: Gang) -> Iterator[None]:
    """Convert a collector's errors about fields of the request to errors about flags."""
    try:
        yield
    except BadInputError as error:
        raise BadInputError(gang.in_flags(error.message)) from error


class OnlinePlacer:
    """Places gangs at a collector."""

    def __init__(self, gang: Gang, connection: "Collector") -> None:
        self._gang = gang
        self._connection = connection

    def topology(self) -> "Topology":
        return self._connection.topology(links=False)

    def place(self, message: pb.PlaceRequest) -> pb.Placement:
        with in_flags(self._gang):
            return self._connection.place(message)

    def explain(self, message: pb.PlaceRequest, limit: int) -> pb.ExplainPlacementResponse:
        with in_flags(self._gang):
            asked = pb.ExplainPlacementRequest(request=message, limit=limit)
            return self._connection.explain_placement(asked)
