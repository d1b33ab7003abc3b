"""Gangs that wait for nodes, as the API shows them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """The domain that is kept for a waiting gang. `tier`, `hypernode`: as in `Drain`.

    `nodes`: number of kept nodes. `fits`: how many of the `workers` of the gang's most numerous kind fit on
    them now.
    """

    tier: int
    hypernode: str | None
    nodes: int
    fits: int
    workers: int
    since_ns: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting gang. `holder`: kind of its workload. `since_ns`: when its first pod was created, Unix ns.

    `reason`: why it was not placed when it was tried last; "" = it was not tried yet.
    """

    gang: str
    holder: str
    priority: int
    workers: int
    since_ns: int
    reason: str
    kept: Kept | None = None
