"""Decides what can be inferred about a planted fault: the bound of what inference is expected to find.

A fault *leaves a trace* if one sweep of the faulty fabric differs from every sweep of a healthy rebuild, and
a majority of equal parts shows the correct state:
- Cable of a host: the host still has cables that indicate its domain, and at least two other hosts of the
  domain have all of their cables. (A host with a single adapter disappears, or moves to another leaf.)
- Cable between switches: the untouched peers outnumber the touched ones, at the lower or at the upper end.
- Leaf: its hosts have other cables, and there are at least two other domains.
- Higher switch: the peers of the switches below that lost a cable outnumber them. (A two-level fabric without
  one spine is a healthy, smaller fabric.)
- Swap: it leaves no trace if every host and switch keeps its neighbours (two ports of one switch, two rails
  of one host), or if a cable between equals joins the same groups as before (dragonfly+).

The cables of a host can make it tied or outvoted. The uplinks of its domain can make it tied (see `above`).
Earlier sweeps and the findings of agents give more evidence, which is not counted here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from hyperscout_sim.fabric.above import Above
from hyperscout_sim.fabric.fabric import Cable, SimFabric, by_class
from hyperscout_sim.fabric.planted import Fault, PlantedFault

_ALWAYS = (Fault.ONE_SIDED, Fault.FACTORY_ADAPTER, Fault.FACTORY_HOST, Fault.FACTORY_FABRIC)
_Classes = Mapping[tuple[int, int], set[int]]


class Standing(StrEnum):
    """What the remaining cables of a host indicate about its tier-1 domain."""

    UNTOUCHED = "untouched"  # no cable changed
    MAJORITY = "majority"  # more than half indicate its own domain
    PLURALITY = "plurality"  # more than for any other domain, but not more than half
    TIED = "tied"
    OUTVOTED = "outvoted"
    CUT_OFF = "cut-off"  # no cable left


def standings(fabric: SimFabric, faulty: SimFabric) -> dict[str, Standing]:
    """Return the standing of each host of the healthy `fabric` in the faulty one."""
    domain_of_leaf = {x.guid: x.domain for x in fabric.switches if x.domain is not None}
    own = fabric.truth.domain_of()
    host_of = fabric.node_map()
    changed = set(fabric.cables) ^ set(faulty.cables)
    votes: dict[str, Counter[int]] = {host_of[c.a]: Counter() for c in changed if c.a in host_of}
    for cable in faulty.cables:
        host = host_of.get(cable.a)
        domain = domain_of_leaf.get(cable.b)
        if host in votes and domain is not None:
            votes[host][domain] += 1
    return {
        host: _standing(votes[host], domain) if host in votes else Standing.UNTOUCHED
        for host, domain in own.items()
    }


def judge(fabric: SimFabric, faulty: SimFabric, faults: Sequence[PlantedFault]) -> tuple[PlantedFault, ...]:
    """Return the faults in `faulty`, completed with the judgement of each.

    The judgement is whether the fault leaves a trace, and which hosts it makes tied, outvoted or cut off.
    """
    bench = _Judge(fabric, faulty)
    return tuple(bench.judged(fault) for fault in faults)


def _standing(votes: Counter[int], own: int) -> Standing:
    mine = votes[own]
    others = max((n for domain, n in votes.items() if domain != own), default=0)
    if not mine and not others:
        return Standing.CUT_OFF
    if 2 * mine > votes.total():
        return Standing.MAJORITY
    if mine > others:
        return Standing.PLURALITY
    return Standing.TIED if mine == others else Standing.OUTVOTED


class _Judge:
    def __init__(self, fabric: SimFabric, faulty: SimFabric) -> None:
        self._standing = standings(fabric, faulty)
        self._host_of = fabric.node_map()
        self._level = fabric.levels()
        self._own = fabric.truth.domain_of()
        self._domains = fabric.truth.tiers[0]
        self._above = Above(fabric, faulty)
        classes = by_class(fabric)
        self._lower = {kind: {c.a for c in cables} for kind, cables in classes.items()}
        self._upper = {kind: {c.b for c in cables} for kind, cables in classes.items()}
        self._whole = Counter(self._own[h] for h, s in self._standing.items() if s is Standing.UNTOUCHED)

    def judged(self, fault: PlantedFault) -> PlantedFault:
        stand = {host: self._standing[host] for host in fault.hosts if host in self._standing}
        if fault.fault is Fault.SWAPPED_UPLINKS:
            unclear = sorted(self._above.unclear(fault))
            stand = {host: Standing.TIED for domain in unclear for host in sorted(self._domains[domain])}
        return replace(
            fault,
            leaves_trace=self._trace(fault),
            tied=tuple(host for host, s in stand.items() if s is Standing.TIED),
            outvoted=tuple(host for host, s in stand.items() if s is Standing.OUTVOTED),
            cut_off=tuple(host for host, s in stand.items() if s is Standing.CUT_OFF),
        )

    def _trace(self, fault: PlantedFault) -> bool:
        if not fault.kinds:
            return False
        if fault.fault in _ALWAYS:
            return True
        if fault.fault is Fault.LEAF:
            return len(self._domains) > 2 and any(self._speaks(host) for host in fault.hosts)
        if fault.switch is not None:
            lost = [c for c in fault.before if c.b == fault.switch and c.a in self._level]
            return self._outnumbered(lost, self._lower, {c.a for c in lost})
        if self._wiring(fault.before) == self._wiring(fault.now):
            return False
        if fault.hosts:
            return any(self._speaks(host) and self._whole[self._own[host]] >= 2 for host in fault.hosts)
        cables = fault.before
        return self._outnumbered(cables, self._lower, {c.a for c in cables}) or self._outnumbered(
            cables, self._upper, {c.b for c in cables}
        )

    def _speaks(self, host: str) -> bool:
        return self._standing[host] not in (Standing.CUT_OFF, Standing.OUTVOTED)

    def _outnumbered(self, cables: Iterable[Cable], peers_of: _Classes, touched: set[int]) -> bool:
        kinds = {(self._level[c.a], self._level[c.b]) for c in cables}
        peers = set().union(*(peers_of[kind] for kind in kinds)) - touched
        return len(peers) > len(touched)

    def _wiring(self, cables: Iterable[Cable]) -> Counter[frozenset[object]]:
        """Return the pairs of connected devices, without ports and rails.

        For a cable between equals, the pair contains the groups of the two switches.
        """
        return Counter(frozenset(self._ends(cable)) for cable in cables)

    def _ends(self, cable: Cable) -> tuple[object, object]:
        if self._level.get(cable.a) == self._level[cable.b]:
            return self._above.place(cable.a), self._above.place(cable.b)
        return self._host_of.get(cable.a, cable.a), cable.b
