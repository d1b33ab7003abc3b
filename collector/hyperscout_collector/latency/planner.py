"""Which pairs to measure next: to learn a hierarchy that nothing else shows, or to verify a known one."""

from collections.abc import Sequence
from typing import NamedTuple

from hyperscout_collector.latency.pairs import Longs, PairTable


class Wish(NamedTuple):
    """Two nodes that should measure each other, by name, a < b."""

    a: str
    b: str


def plan(
    nodes: Sequence[str],
    pairs: PairTable,
    domains: Sequence[Longs],
    *,
    wired: bool,
    now_ns: int,
    reverify_ns: int,
    limit: int,
    seed: int,
) -> list[Wish]:
    """The next pairs, the most telling first, at most `limit`.

    `nodes`: those that can be measured now, sorted. `domains`: for each tier, innermost first, (nodes,) the
    domain of each, -1 = none: the hierarchy as it is known so far. `wired`: it comes from wires, and is only
    to be verified. What was measured within `reverify_ns` needs no new look. `seed` spreads the choice.
    """
    raise NotImplementedError
