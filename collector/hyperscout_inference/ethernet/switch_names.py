"""Name switches. Switches that share a name are distinguished by their chassis ids.

A switch that does not report itself has the name that most of its neighbours hear, each with one vote.
Without a majority it keeps the name under which it was published.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from hyperscout_formats.text.counts import first_few
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import Anomaly, Endpoint, say

from hyperscout_inference.ethernet.host_cables import HostCables, join, split
from hyperscout_inference.ethernet.host_reports import LLDP
from hyperscout_inference.ethernet.neighbours import SWITCH, Far
from hyperscout_inference.ethernet.switch_reports import Row, SwitchReports
from hyperscout_inference.fabric.network import Ints, distinct
from hyperscout_inference.fabric.part import Longs

_SHORT = 6  # characters of a chassis id that are added, at least
_NAMED = 3  # switches that a message names at most


class Vote(NamedTuple):
    """The name under which a neighbour hears a switch, and the port on which it does. The greatest counts."""

    current: bool  # the neighbour's reporter is not stale
    name: str
    port: str


Votes = dict[str, dict[str, Vote]]
"""By chassis id of the switch, and by neighbour: a node or the chassis id of a switch."""


def names_of_switches(
    cables: HostCables,
    reports: SwitchReports,
    fars: Sequence[tuple[Row, Far]],
    silent: Collection[str],
    earlier: Mapping[str, str],
) -> tuple[dict[str, str], list[Anomaly]]:
    """Return switch names by chassis id: the own name, else that which most neighbours hear. `cables`: as
    hosts report them; `silent`: stale hosts; `earlier`: the published names."""
    # A switch's own name would count.
    by_switches = [x for x in fars if x[1].kind == SWITCH and not reports.names.get(x[1].end.chassis)]
    pairs = tuple((far.end.chassis, row.neighbour.system_name) for row, far in by_switches)
    agreed, disputed = _agreed_names(cables.chassis.values, cables.heard.values, *_heard(cables), pairs)
    votes: Votes = {}
    if disputed:
        is_disputed = np.array([chassis in disputed for chassis in cables.chassis.values], np.bool_)
        for i in np.flatnonzero(is_disputed[cables.chassis.at]).tolist():
            cable = cables.rows[i]
            vote = Vote(cable.host not in silent, cable.heard, cable.interface)
            add_vote(votes, cable.chassis, cable.host, vote)
        for row, far in by_switches:
            if far.end.chassis in disputed:
                vote = Vote(not row.silent, row.neighbour.system_name, row.near.port)
                add_vote(votes, far.end.chassis, row.near.chassis, vote)
    sources = frozenset({LLDP} if cables.rows else ()).union(*{row.sources for row in reports.rows})
    return _chosen_names(agreed, votes, reports.names, reports.silent, earlier, sources)


def _heard(cables: HostCables) -> tuple[Ints, Longs]:
    """Return (chassis,) one of the names under which hosts hear each switch, and each other name as a pair of
    chassis and name (see `join`)."""
    chassis, heard = cables.chassis.at, cables.heard.at
    one_name = np.zeros(len(cables.chassis.values), np.int32)
    one_name[chassis] = heard
    others = np.flatnonzero(one_name[chassis] != heard)
    return one_name, distinct(join(chassis[others], heard[others]))


@memoized
def _agreed_names(
    chassis: Sequence[str],
    names: Sequence[str],
    one_name: Ints,
    others: Longs,
    by_switches: Sequence[tuple[str, str]],
) -> tuple[dict[str, str], set[str]]:
    """Return the name of each switch of which all neighbours hear the same one, and the chassis ids of the
    others, which are disputed.

    `chassis`, `names`: what `one_name` and `others` (see `_heard`) index. `by_switches`: chassis ids and
    names that switches hear.
    """
    names_of = {one: {names[name]} for one, name in zip(chassis, one_name.tolist(), strict=True)}
    for one, name in zip(*(x.tolist() for x in split(others)), strict=True):
        names_of[chassis[one]].add(names[name])
    for one, name in by_switches:
        names_of.setdefault(one, set()).add(name)
    disputed = {one for one, mine in names_of.items() if len(mine - {""}) > 1}
    return {one: max(mine) for one, mine in names_of.items() if one not in disputed}, disputed


@memoized
def _chosen_names(
    agreed: Mapping[str, str],
    votes: Votes,
    own: Mapping[str, str],
    silent: Collection[str],
    earlier: Mapping[str, str],
    sources: frozenset[str],
) -> tuple[dict[str, str], list[Anomaly]]:
    # Where all neighbours hear the same name, one vote is enough.
    all_votes = {chassis: {"": Vote(True, name, "")} for chassis, name in agreed.items()} | votes
    names, outvoted = heard_names(all_votes, own, earlier, sources)
    distinct_ones, clashes = distinct_names(names, silent, sources, earlier)
    return distinct_ones, [*outvoted, *clashes]


def add_vote(votes: Votes, chassis: str, neighbour: str, vote: Vote) -> None:
    """Add what a neighbour hears on one port. A neighbour with several ports has one vote."""
    mine = votes.setdefault(chassis, {})
    known = mine.get(neighbour)
    mine[neighbour] = vote if known is None or vote > known else known


def elected(votes: Mapping[str, Vote], earlier: str) -> str:
    """Return the name that most neighbours hear, else the earlier one, else the most frequent; "" = none.
    Stale neighbours count only where no neighbour is current."""
    if len(votes) == 1:
        return next(iter(votes.values())).name or earlier
    named = [vote for vote in votes.values() if vote.name]
    counts = Counter(vote.name for vote in [vote for vote in named if vote.current] or named)
    most, name = max(((n, name) for name, n in counts.items()), default=(0, ""))
    return name if most * 2 > counts.total() else earlier or name


@memoized
def heard_names(
    votes: Votes, own: Mapping[str, str], earlier: Mapping[str, str], sources: Collection[str]
) -> tuple[dict[str, str], list[Anomaly]]:
    """Return switch names by chassis id, and one finding per neighbour that hears other names.

    `own`: the names that switches report themselves, which count. `earlier`: the published names. `sources`:
    those of the findings.
    """
    names: dict[str, str] = {}
    others: dict[str, dict[str, Vote]] = {}  # by neighbour and chassis id
    for chassis in sorted(votes):
        if name := own.get(chassis):
            names[chassis] = name
            continue
        names[chassis] = name = elected(votes[chassis], earlier.get(chassis, ""))
        if len({vote.name for vote in votes[chassis].values() if vote.current and vote.name}) > 1:
            for neighbour, vote in votes[chassis].items():
                if vote.current and vote.name and vote.name != name:
                    others.setdefault(neighbour, {})[chassis] = vote
    names |= {chassis: name for chassis, name in own.items() if chassis not in names}
    return names, [_outvoted(one, others[one], names, sources) for one in sorted(others)]


def _outvoted(
    neighbour: str, votes: Mapping[str, Vote], names: Mapping[str, str], sources: Collection[str]
) -> Anomaly:
    subject = Endpoint(neighbour, names.get(neighbour) or neighbour, min(votes.values()).port)
    texts = [f"{names[chassis]} ({chassis}) as {votes[chassis].name}" for chassis in sorted(votes)]
    text = (
        f"{say(subject)} reports {first_few(texts, _NAMED)}: most of its neighbours, or an earlier topology, "
        "name it otherwise"
    )
    return Anomaly("SourcesDisagree", subject, None, None, tuple(sorted(sources)), 0.7, text)


@memoized
def distinct_names(
    names: Mapping[str, str],
    silent: Collection[str],
    sources: Collection[str],
    earlier: Mapping[str, str],
) -> tuple[dict[str, str], list[Anomaly]]:
    """Return switch names by chassis id, each name once, and one finding per name that several switches
    share.

    If only one of those switches is not in `silent`, it is taken as the replacement of the others: it keeps
    the name, and there is no finding. Otherwise the one that was published under the name (`earlier`) keeps
    it, and the finding is about the others.
    """
    by_name: dict[str, list[str]] = {}
    for chassis in sorted(names):
        by_name.setdefault(names[chassis] or chassis, []).append(chassis)
    found: dict[str, str] = {}
    anomalies = []
    for name, mine in sorted(by_name.items()):
        if len(mine) == 1:
            found[mine[0]] = name
            continue
        short = _short_ids(mine)
        found |= {chassis: f"{name}-{short[chassis]}" for chassis in mine}
        if len(live := [chassis for chassis in mine if chassis not in silent]) == 1:
            found[live[0]] = name
            continue
        if len(kept := [chassis for chassis in mine if earlier.get(chassis) == name]) == 1:
            found[kept[0]] = name
        shown = first_few([f"{found[chassis]} ({chassis})" for chassis in mine], _NAMED)
        text = f"{len(mine)} switches announce the name {name}: here they are {shown}"
        new = next(chassis for chassis in mine if chassis not in kept or len(kept) > 1)
        subject = Endpoint(new, found[new])
        anomalies.append(Anomaly("SourcesDisagree", subject, None, None, tuple(sorted(sources)), 0.9, text))
    return found, anomalies


def _short_ids(chassis_ids: Sequence[str]) -> dict[str, str]:
    """Return the shortest endings of these ids that differ."""
    plain = {c: "".join(ch for ch in c.rpartition("@")[2].lower() if ch.isalnum()) or c for c in chassis_ids}
    if len(set(plain.values())) < len(plain):
        return {c: c for c in chassis_ids}
    size = _SHORT
    while len({text[-size:] for text in plain.values()}) < len(plain):
        size += 1
    return {c: text[-size:] for c, text in plain.items()}
