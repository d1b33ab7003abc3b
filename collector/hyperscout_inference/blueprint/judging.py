"""What of a blueprint can be judged by what is seen, and what can not: that is neither there nor missing.

Nobody sees a cable between two switches of which only hosts tell. A port with an adapter on it that nobody
claims may have the right one. And a name that two switches have means neither.
"""

from dataclasses import dataclass

import numpy as np
from hyperscout_topology.topology import Topology

from hyperscout_inference.blueprint.declared import Blueprint, Cables, End
from hyperscout_inference.blueprint.matching import Bools, Match, Present, by_label, match, resolved

# Sources that tell of a switch what is plugged into it from the other side only.
_FROM_OUTSIDE = frozenset({"lldp"})


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """`cables`: the declared ones but those of `ambiguous` names, which are `unclear`. `found`: of `cables`.
    `unseen`: (cables,) those that are not there, and that nobody could see. `whole`: switches, as `present`
    calls them, that are declared whole."""

    present: Present
    cables: Cables
    found: Match
    unseen: Bools
    whole: frozenset[str]
    ambiguous: tuple[str, ...]
    unclear: Cables

    @property
    def missing(self) -> Bools:
        """(cables,)"""
        return ~self.found.there & ~self.unseen

    def ends(self, row: int) -> tuple[End, End]:
        """A declared cable's ends as `present` calls them."""
        a, b = self.cables.ends(row)
        names = self.found.resolved
        return End(names[self.cables.a[row]], a.port), End(names[self.cables.b[row]], b.port)


def judge(topology: Topology, blueprint: Blueprint) -> Judged:
    """Hold a blueprint against what is wired."""
    present = Present.of(topology)
    cables = by_label(blueprint.cables, present)
    names, ambiguous = resolved(blueprint.switches, cables, present)
    twice = [i for i, name in enumerate(cables.devices) if name in ambiguous]
    unclear = np.isin(cables.a, twice) | np.isin(cables.b, twice)
    clear = cables.chosen(~unclear)
    whole = frozenset(
        ident
        for s in blueprint.switches
        for ident in ((s.id,) if s.id and s.id in present.names else present.ids.get(s.name, (s.name,)))
    )
    found = match(clear, names, present)
    missing = ~found.there
    unseen = np.zeros_like(missing)
    if missing.any():
        unseen = missing & (_behind_unknown(present, found) | _out_of_sight(present, clear, found, whole))
    return Judged(present, clear, found, unseen, whole, tuple(ambiguous), cables.chosen(unclear))


def _behind_unknown(present: Present, found: Match) -> Bools:
    """Cables into a port that an adapter is on of which nobody says whose it is."""
    rows = present.unknown & ~found.declared
    ends = np.concatenate([found.have_a[rows], found.have_b[rows]])
    return np.isin(found.a, ends) | np.isin(found.b, ends)


def _out_of_sight(present: Present, cables: Cables, found: Match, whole: frozenset[str]) -> Bools:
    """Cables between two switches of which nobody tells who could see them."""
    table = present.table
    inside = np.array([not _FROM_OUTSIDE.issuperset(s) for s in table.source_sets], np.bool_)
    seen = np.zeros(len(present.devices), np.bool_)
    rows = inside[table.sources] if len(table) else np.zeros(0, np.bool_)
    seen[present.a[rows]] = seen[present.b[rows]] = True
    told_of = {device for device, told in zip(present.devices, seen.tolist(), strict=True) if told}
    names = found.resolved
    is_switch = np.array([n in present.names or n in whole for n in names], np.bool_)
    blind = is_switch & ~np.array([n in told_of for n in names], np.bool_)
    between = ~found.there & blind[cables.a] & blind[cables.b]
    # From a switch that somebody knows: where nobody knows either, both are missing, and that is told.
    reached = found.known & blind
    while True:
        more = reached.copy()
        more[cables.b[between & reached[cables.a]]] = True
        more[cables.a[between & reached[cables.b]]] = True
        if (more == reached).all():
            return between & reached[cables.a] & reached[cables.b]
        reached = more
