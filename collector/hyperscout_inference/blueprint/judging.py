"""Decide which declared cables can be judged. A cable that cannot be observed is neither present nor missing.

No reporter observes a cable between two switches that only hosts report. A port with an adapter of an unknown
host may have the declared cable. A name that two switches share identifies neither.
"""

from dataclasses import dataclass

import numpy as np
from hyperscout_topology.topology import Topology

from hyperscout_inference.blueprint.declared import Blueprint, Cables, End
from hyperscout_inference.blueprint.matching import Bools, Match, Present, by_label, match, resolved

# Sources that report a switch only from the other end of its cables.
_FROM_OUTSIDE = frozenset({"lldp"})


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """`cables`: the declared cables without those of `ambiguous` names, which are in `unclear`. `found`: the
    match of `cables`. `unseen`: (cables,) those that are not present and that no reporter can observe.
    `whole`: switches that are declared as a whole, as `present` names them."""

    present: Present
    cables: Cables
    found: Match
    unseen: Bools
    whole: frozenset[str]
    ambiguous: tuple[str, ...]
    unclear: Cables

    @property
    def missing(self) -> Bools:
        """(cables,) those that are neither present nor unseen."""
        return ~self.found.there & ~self.unseen

    def ends(self, row: int) -> tuple[End, End]:
        """Return a declared cable's ends as `present` names them."""
        a, b = self.cables.ends(row)
        names = self.found.resolved
        return End(names[self.cables.a[row]], a.port), End(names[self.cables.b[row]], b.port)


def judge(topology: Topology, blueprint: Blueprint) -> Judged:
    """Compare a blueprint with the present wiring."""
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
        unseen = missing & (_behind_unknown(present, found) | _unobservable(present, clear, found, whole))
    return Judged(present, clear, found, unseen, whole, tuple(ambiguous), cables.chosen(unclear))


def _behind_unknown(present: Present, found: Match) -> Bools:
    """(cables,) those with a port on which an adapter of an unknown host is."""
    rows = present.unknown & ~found.declared
    ends = np.concatenate([found.have_a[rows], found.have_b[rows]])
    return np.isin(found.a, ends) | np.isin(found.b, ends)


def _unobservable(present: Present, cables: Cables, found: Match, whole: frozenset[str]) -> Bools:
    """(cables,) those between two switches that no reporter observes, except hosts on their own cables."""
    table = present.table
    inside = np.array([not _FROM_OUTSIDE.issuperset(s) for s in table.source_sets], np.bool_)
    seen = np.zeros(len(present.devices), np.bool_)
    rows = inside[table.sources] if len(table) else np.zeros(0, np.bool_)
    seen[present.a[rows]] = seen[present.b[rows]] = True
    reported = {device for device, is_seen in zip(present.devices, seen.tolist(), strict=True) if is_seen}
    names = found.resolved
    is_switch = np.array([n in present.names or n in whole for n in names], np.bool_)
    blind = is_switch & ~np.array([n in reported for n in names], np.bool_)
    between = ~found.there & blind[cables.a] & blind[cables.b]
    # Starts at present switches. If neither switch is present, the cable is missing and is reported.
    reached = found.known & blind
    while True:
        more = reached.copy()
        more[cables.b[between & reached[cables.a]]] = True
        more[cables.a[between & reached[cables.b]]] = True
        if (more == reached).all():
            return between & reached[cables.a] & reached[cables.b]
        reached = more
