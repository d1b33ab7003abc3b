"""The placer's answers: nodes by rank, their cost, and whether a better placement is excluded."""

from dataclasses import dataclass, field

from hyperscout_placer.cluster.numa_zones import Zone


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """The objective. Fields are compared in order, and less is better.

    `top`: tier of the lowest domain that contains the gang; one above the highest tier where no domain does.
    `domains`: number of used domains by tier, from the one below `top` down to tier 1. `degraded`: degraded
    links in the used domains (including `top`'s) and on the used nodes. `fragmentation`: workers that would
    still fit in the used domains, by tier from `top` down to tier 1, and last on the used nodes. With several
    roles, the workers of the most numerous role count (the first of equals).
    """

    top: int
    domains: tuple[int, ...]
    nodes: int
    degraded: int
    fragmentation: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """A found placement.

    `nodes`: by rank. `tier`, `hypernode`: the lowest HyperNode that contains all of them, None where there is
    none. `exact`: no placement has a lower `cost`. Otherwise `bound` is a cost that no placement is below.
    `relaxed`: preferences that could not be met, in words. `zones`: by rank, the NUMA zone of a worker that
    needs one; () = no worker does, or it is not decided yet.
    """

    nodes: tuple[str, ...]
    tier: int | None
    hypernode: str | None
    cost: Cost
    exact: bool = True
    bound: Cost | None = None
    relaxed: tuple[str, ...] = ()
    zones: tuple[Zone | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """No placement was found.

    `tier`: the highest allowed tier. `reason`: one sentence that names the resource that is short, the place,
    the tier and the next step.
    """

    tier: int
    reason: str = ""
    # False where the search stopped at its limit; a placement may exist.
    proven: bool = field(default=True)
