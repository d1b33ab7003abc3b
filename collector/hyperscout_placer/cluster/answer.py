"""What the placer answers: nodes by rank, what that costs, and how sure it is that nothing is better."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """The objective, in its order: the less the better, from the first field on.

    `top`: tier of the lowest domain that holds the gang; one above the highest where no domain does.
    `domains`: used ones by tier, from the one below `top` down to tier 1. `degraded`: links that are
    degraded in the used domains (`top`'s too) and on the used nodes. `fragmentation`: workers that would
    still fit, by tier from `top` down to tier 1 and then nodes, in the used ones. Of several roles those of
    the most numerous count (of equals, the first).
    """

    top: int
    domains: tuple[int, ...]
    nodes: int
    degraded: int
    fragmentation: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """`nodes`: by rank. `tier`, `hypernode`: the lowest HyperNode that holds them all, None where none does.

    `exact`: nothing is better in `cost`. Else `bound` is a cost that nothing goes below. `relaxed`: what was
    preferred and could not be had, in words.
    """

    nodes: tuple[str, ...]
    tier: int | None
    hypernode: str | None
    cost: Cost
    exact: bool = True
    bound: Cost | None = None
    relaxed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shortage:
    """How close a domain came. `hypernode` None: all islands together. `fits`: how many workers of the gang
    it holds (whole groups of them); `workers`: how many were asked for."""

    hypernode: str | None
    tier: int
    fits: int
    workers: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """No placement. `tier`: the highest that was allowed. `closest`: domains of that tier that came closest,
    best first, a few. `reason`: one sentence that says what was short, where, at which tier, and what to do.
    """

    tier: int
    closest: tuple[Shortage, ...] = ()
    reason: str = ""
    # False where the search ended at its limit: it may be that there is a place.
    proven: bool = field(default=True)
