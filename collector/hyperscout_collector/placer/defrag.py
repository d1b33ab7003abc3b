"""Room for a gang that does not fit now: which running gangs to move, and where to, at most so many moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperscout_collector.placer.answer import Placement, Refusal
from hyperscout_collector.placer.capacity import Capacity, Mask
from hyperscout_collector.placer.repair import Move
from hyperscout_collector.placer.request import Request


@dataclass(frozen=True, slots=True)
class Running:
    """A gang that runs: its request, and its nodes by rank."""

    name: str
    request: Request
    nodes: tuple[str, ...]
    movable: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """`moves`: by gang, in the order in which they can be done, each onto what is free by then; a gang that
    moves ends no higher than it was. `placement`: of the new gang, after them. `moved`: workers."""

    moves: tuple[tuple[str, tuple[Move, ...]], ...]
    placement: Placement
    moved: int


def defragment(
    capacity: Capacity,
    request: Request,
    gangs: Sequence[Running],
    masks: Mapping[str, Mask],
    *,
    most_moves: int = 64,
) -> Plan | Refusal:
    """The cheapest plan found that lets `request` fit, by workers moved."""
    raise NotImplementedError
