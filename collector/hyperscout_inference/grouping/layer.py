"""One tier of domains during inference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hyperscout_inference.fabric.network import Network
from hyperscout_inference.grouping.grouping import Grouping, Longs

_NAMED = 3


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One tier of domains over all hosts, inside and outside of the cluster.

    `domain`: (hosts,) index of the domain, -1 = none. `switches`: of each domain, sorted indexes of devices.
    `child`: (domains of the layer below,) the domain of each; empty at tier 1. `founders`: of each domain,
    the identities from which its name is derived; empty = its switches or the domains inside. `confidence`:
    of domains from latency, by index. `labelled`: domains from labels of nodes, by index. `kinds`: of each
    domain of the accelerator tier, the kind of its fabric; empty = another tier.
    """

    name: str
    domain: Longs
    switches: Sequence[tuple[int, ...]]
    child: Longs
    grouping: Grouping
    founders: Sequence[tuple[str, ...]] = ()
    confidence: Mapping[int, float] = field(default_factory=dict)
    labelled: frozenset[int] = frozenset()
    kinds: Sequence[str] = ()

    @property
    def count(self) -> int:
        return len(self.switches)

    def say_switches(self, net: Network, domain: int) -> str:
        """Name the first switches of a domain, for a message."""
        names = sorted(net.names[s] for s in self.switches[domain])
        return ", ".join(names[:_NAMED]) or "unknown switches"
