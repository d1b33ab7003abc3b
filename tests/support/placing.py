"""Requests for placements, and what is free after all."""

from collections.abc import Mapping
from typing import Any

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_collector.placements import Placements


def part(count: int, resources: Mapping[str, str] | None = None, role: str = "") -> pb.Part:
    return pb.Part(workers=pb.Workers(count=count, resources=resources or {}, role=role))


def group(count: int, *parts: pb.Part, **fields: Any) -> pb.Part:
    return pb.Part(group=pb.Group(count=count, parts=parts, **fields))


def request(count: int, *, resources: Mapping[str, str] | None = None, **fields: Any) -> pb.PlaceRequest:
    """So many workers of one kind."""
    return pb.PlaceRequest(parts=[part(count, resources)], **fields)


def free_of(placements: Placements) -> dict[str, dict[str, int]]:
    """What the placer takes for free, by node."""
    capacity = placements.capacity
    return {node: capacity.free_of(node) for node in capacity.forest.nodes}
