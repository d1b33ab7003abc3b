"""Who answers where a gang goes: the placer on files in this process, or a collector's. The same request
goes to either, and the same message comes back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click
from click.core import ParameterSource
from hyperscout.v1 import placement_pb2 as pb

from hyperscout_cli.place.gang_flags import Gang
from hyperscout_cli.shared.errors import BadInputError
from hyperscout_cli.shared.options import Endpoint

if TYPE_CHECKING:
    from hyperscout_topology.topology import Topology

    from hyperscout_cli.remote.placement_client import PlacementCollector


class Placer(Protocol):
    """Methods raise CliError; BadInputError for a request that cannot be meant."""

    def place(self, request: pb.PlaceRequest) -> pb.Placement: ...

    def explain(self, request: pb.PlaceRequest, limit: int) -> pb.ExplainPlacementResponse: ...

    def topology(self) -> "Topology":
        """For names; without links."""
        ...


@contextmanager
def placer(
    gang: Gang, *, topology: str | None, capacity: str | None, collector: Endpoint
) -> "Iterator[Placer]":
    """Of files where a topology is one, else of the collector."""
    if topology is not None:
        from hyperscout_cli.place.offline_placer import OfflinePlacer

        yield OfflinePlacer(gang, topology, capacity)
        return
    from hyperscout_cli.remote.placement_client import PlacementCollector

    with PlacementCollector(collector) as connection:
        yield OnlinePlacer(gang, connection)


def check_sources(gang: Gang, topology: str | None, capacity: str | None) -> None:
    """Whether what is read goes together. Raises UsageError; opens nothing."""
    context = click.get_current_context()
    if topology is not None and context.get_parameter_source("collector") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--topology and --collector: give one of them")
    if topology is None and capacity is not None:
        raise click.UsageError("--capacity goes with --topology: a collector knows what is free")
    if [topology, capacity, gang.request].count("-") > 1:
        raise click.UsageError("stdin (-) can be read only once")


def explained(
    gang: Gang,
    name: str | None,
    message: pb.PlaceRequest | None,
    limit: int,
    *,
    topology: str | None,
    capacity: str | None,
    collector: Endpoint,
) -> pb.ExplainPlacementResponse:
    """Of a request, or of the gang of that name at the collector."""
    if message is None:
        from hyperscout_cli.remote.placement_client import PlacementCollector

        with PlacementCollector(collector) as connection:
            return connection.explain_placement(pb.ExplainPlacementRequest(gang=name or "", limit=limit))
    with placer(gang, topology=topology, capacity=capacity, collector=collector) as asked:
        return asked.explain(message, limit)


@contextmanager
def in_flags(gang: Gang) -> Iterator[None]:
    """What a collector says of the request's fields, said of the flags they are from."""
    try:
        yield
    except BadInputError as error:
        raise BadInputError(gang.in_flags(error.message)) from error


class OnlinePlacer:
    """At a collector."""

    def __init__(self, gang: Gang, connection: "PlacementCollector") -> None:
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
