"""Why a gang went where it went, or nowhere: the candidates, and why each lost."""

from collections.abc import Mapping
from dataclasses import dataclass

from hyperscout_collector.placer.allreduce import Predicted
from hyperscout_collector.placer.answer import Cost, Placement, Refusal
from hyperscout_collector.placer.capacity import Capacity, Mask
from hyperscout_collector.placer.request import Request


@dataclass(frozen=True, slots=True)
class Candidate:
    """A domain that could have held the gang, or came close. `cost` None: it does not fit there. `why`: what
    decided against it ("4 leaf domains instead of 3"), "" for the chosen one."""

    hypernode: str
    tier: int
    free: int  # workers of the gang's most numerous role that fit
    cost: Cost | None
    predicted: Predicted | None
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """`candidates`: the chosen one first, then by cost, then those that do not fit; at most `limit`.
    `considered`: how many there were. `text`: the same in a few sentences."""

    answer: Placement | Refusal
    candidates: tuple[Candidate, ...]
    considered: int
    predicted: Predicted | None
    text: str


def explain(
    capacity: Capacity,
    request: Request,
    answer: Placement | Refusal,
    masks: Mapping[str, Mask],
    *,
    limit: int = 10,
) -> Explanation:
    """Of an answer that `place` gave on this very capacity."""
    raise NotImplementedError
