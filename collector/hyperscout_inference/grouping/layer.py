"""One tier of domains, as the steps of inference hand it on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hyperscout_inference.grouping.grouping import Grouping, Longs


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One tier of domains over all hosts, in the cluster or not.

    `domain`: (hosts,) the domain of each host, -1 = none. `switches`: for each domain the devices whose
    switching its members share, sorted. `child`: (domains of the layer below,) the domain of each; empty
    at tier 1. `founders`: for each domain the identities that it is founded on, where those are not its
    switches or what is inside it. `confidence`: of domains that come from latency, by index. `told`: those
    that come from labels of nodes.
    """

    name: str
    domain: Longs
    switches: Sequence[tuple[int, ...]]
    child: Longs
    grouping: Grouping
    founders: Sequence[tuple[str, ...]] = ()
    confidence: Mapping[int, float] = field(default_factory=dict)
    told: frozenset[int] = frozenset()

    @property
    def count(self) -> int:
        return len(self.switches)
