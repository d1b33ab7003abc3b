"""A gang that runs, and nodes that fail: replacements that move only what must move."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperscout_collector.placer.answer import Cost, Placement, Refusal
from hyperscout_collector.placer.capacity import Capacity, Mask
from hyperscout_collector.placer.request import Request


@dataclass(frozen=True, slots=True)
class Move:
    rank: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Repair:
    """`moves`: by rank. `placement`: the gang afterwards. `kept_tier`: neither the gang nor a
    group of it is spread wider than before."""

    moves: tuple[Move, ...]
    placement: Placement
    kept_tier: bool


@dataclass(frozen=True, slots=True)
class Improvement:
    """`moves` would bring the gang from `before` to `placement.cost`. `gain`, `price`: in words."""

    moves: tuple[Move, ...]
    before: Cost
    placement: Placement
    gain: str
    price: str


def repair(
    capacity: Capacity,
    request: Request,
    running: Sequence[str],
    lost: frozenset[str],
    masks: Mapping[str, Mask],
) -> Repair | Refusal:
    """Replacements for the ranks on `lost` nodes. `running`: nodes by rank; what they hold is taken from
    `capacity` already. Fewest moves first, then the gang's cost as in `Cost`."""
    raise NotImplementedError


def improvement(
    capacity: Capacity, request: Request, running: Sequence[str], masks: Mapping[str, Mask]
) -> Improvement | None:
    """Whether the whole gang would be better off elsewhere now (fewer degraded links, a lower tier); None =
    it would not. Ranks that can stay where they are do."""
    raise NotImplementedError
