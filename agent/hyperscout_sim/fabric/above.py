"""Finds hosts that cannot be placed above tier 1 after cables between switches were exchanged.

A switch *stands above* the tier-1 domains that it reaches downwards in a healthy fabric. Switches above the
same domains are a group (the spines of a pod). The place of these domains is unclear:
- A touched domain, if at least half of its uplinks lead to switches that do not stand above it.
- If there is such a domain: all domains that a touched switch stands above, if at least half of the switch's
  downlinks lead to other domains. Example: two pods of two leaves and two spines each, one uplink exchanged.
  The pods can then not be distinguished.
- All domains of a group, if the uplinks of the group no longer join all of them.
"""

from collections import Counter, defaultdict

from hyperscout_sim.fabric.fabric import Cable, SimFabric, Union, by_class
from hyperscout_sim.fabric.planted import PlantedFault

_Domains = frozenset[int]


class Above:
    """Finds unclear domains. Domains are indices into `truth.tiers[0]`."""

    def __init__(self, fabric: SimFabric, faulty: SimFabric) -> None:
        level = fabric.levels()
        self._leaf_domain = {x.guid: x.domain for x in fabric.switches if x.domain is not None}
        self._below = _below(fabric, level)
        self._own: Counter[int] = Counter()  # uplinks by domain: to switches that stand above it, to others
        self._other: Counter[int] = Counter()
        self._down: dict[int, list[int]] = defaultdict(list)  # switch -> domains at its downlinks to leaves
        for cable in faulty.cables:
            domain = self._leaf_domain.get(cable.a)
            if domain is not None and level.get(cable.b, 0) > 1:
                votes = self._own if domain in self._below[cable.b] else self._other
                votes[domain] += 1
                self._down[cable.b].append(domain)
        self._groups: dict[_Domains, list[int]] = defaultdict(list)
        for guid in self._down:
            self._groups[self._below[guid]].append(guid)

    def unclear(self, fault: PlantedFault) -> set[int]:
        """Return the tier-1 domains that no evidence places above tier 1."""
        touched = {self._leaf_domain[c.a] for c in fault.before if c.a in self._leaf_domain}
        uppers = {c.b for c in fault.before if c.a in self._leaf_domain and c.b in self._down}
        found = {domain for domain in touched if self._own[domain] <= self._other[domain]}
        if found:
            for upper in uppers:
                inside = sum(domain in self._below[upper] for domain in self._down[upper])
                if 2 * inside <= len(self._down[upper]):
                    found |= self._below[upper]
        for group in {self._below[upper] for upper in uppers}:
            if self._fell_apart(group):
                found |= group
        return found

    def place(self, switch: int) -> _Domains:
        """Return the domains that a switch stands above, for a leaf its own domain."""
        return self._below[switch]

    def _fell_apart(self, group: _Domains) -> bool:
        union = Union()
        for upper in self._groups[group]:
            for domain in self._down[upper]:
                if domain in group:
                    union.join(domain, ("switch", upper))
        reached = [group.intersection(x for x in part if isinstance(x, int)) for part in union.parts()]
        return group not in reached


def _below(fabric: SimFabric, level: dict[int, int]) -> dict[int, _Domains]:
    below: dict[int, set[int]] = {x.guid: set() for x in fabric.switches}
    for switch in fabric.switches:
        if switch.domain is not None:
            below[switch.guid].add(switch.domain)
    upward: list[Cable] = []
    for (low, high), cables in by_class(fabric).items():
        if 0 < low < high:
            upward.extend(cables)
    for cable in sorted(upward, key=lambda c: level[c.a]):
        below[cable.b] |= below[cable.a]
    return {guid: frozenset(domains) for guid, domains in below.items()}
