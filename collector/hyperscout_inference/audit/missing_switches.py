"""Find missing switches. All switches below (or above) a missing switch have no link on the same port."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import Endpoint, say

from hyperscout_inference.audit.audit import EITHER, INFERRED
from hyperscout_inference.audit.ranks import NOWHERE, Place, Rank
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.network import PORT_TEXTS, Ints, Network, distinct
from hyperscout_inference.grouping.grouping import Bools

_FEW_RAILS = 3  # with more than a third of the rails less, the domain is built so
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")


@dataclass(frozen=True, slots=True)
class _Hole:
    """One missing switch, as other devices show it.

    `place`: the domain to which it belongs. `text`: what shows that it is missing. `peer`: one of the devices
    that have no cable to it, with the port where that is known; None = no single one. `sure`: it has no
    other explanation as good, so its confidence is `INFERRED` also where its name is unknown.
    """

    place: Place
    text: str
    peer: Endpoint | None
    sure: bool = False


def missing_switches(
    net: Network, wires: Network, level: Ints, hosts: Rank, ranks: dict[int, Rank], home: dict[int, Place]
) -> list[Suspicion]:
    """Return one suspicion for each missing switch. Its id is unknown. Its name is known if the switches of
    its level are numbered and as many numbers as switches are missing. `wires`: the wiring of `net`."""
    busy: set[tuple[int, int]] = set()
    if any(rank.audit.dark_ports or rank.audit.dark_slots for rank in ranks.values()):
        busy = _ports_in_use(np.concatenate([net.a, net.b]), np.concatenate([net.a_port, net.b_port]))
    below, above = _of_switches(wires, level, ranks, home, busy)
    below = {1: _missing_rails(net, level, hosts), **below}
    found = []
    for lvl in sorted(below.keys() | above.keys()):
        holes = below.get(lvl, [])
        holes = [*holes, *above.get(lvl, [])[len(holes) :]]
        gaps = _name_gaps([net.names[s] for s in np.flatnonzero(level == lvl).tolist()]) if holes else []
        for i, hole in enumerate(sorted(holes, key=lambda h: (h.place, h.text))):
            name = gaps[i] if len(gaps) == len(holes) else ""
            sure = INFERRED if name or hole.sure else EITHER
            subject = Endpoint("", name or f"level-{lvl} switch")
            text = f"{name or 'a switch'} of level {lvl} is missing: {hole.text}"
            found.append(
                Suspicion("MissingSwitch", subject, hole.peer, *hole.place, sure, text, net.all_sources)
            )
    return found


@memoized
def _of_switches(
    net: Network, level: Ints, ranks: dict[int, Rank], home: dict[int, Place], busy: set[tuple[int, int]]
) -> tuple[dict[int, list[_Hole]], dict[int, list[_Hole]]]:
    """Return the missing switches that other switches show, by their level: as seen from below, and from
    above."""
    below: dict[int, list[_Hole]] = {}
    above: dict[int, list[_Hole]] = {}
    for low, rank in ranks.items():
        holes = _dark_from_below(net, rank, busy, home)
        holes += _fewer_than_siblings(net, rank, home, len(holes))
        below[low + 1] = holes or _orphans(net, level, low, rank, home)
        above[low] = _dark_from_above(net, rank, busy, home)
    return below, above


def _missing_rails(net: Network, level: Ints, hosts: Rank) -> list[_Hole]:
    """Find domains that lack a third or less of the leaves of other domains with hosts of the same kind. A
    domain with far more or fewer leaves (a rack of single-rail hosts) is of another design."""
    lacking = _lacking_rails(hosts, net.unclaimed)
    if not lacking:
        return []
    group = hosts.grouping.group
    cables = np.bincount(net.host[hosts.lower], minlength=len(net.hosts))
    reporting = np.zeros(len(net.hosts) + 1, np.bool_)  # the last one: no host
    reporting[net.host[~_mute(net)]] = True
    above = bool((net.is_switch & (level > 1) & ~_mute(net)).any())

    def built_so(g: int) -> bool:
        """Return whether the domain is built without the rail: its agents report all adapters as up. Also
        true if neither its hosts nor switches above leaves report their cables, since then only the rail's
        leaf could report them."""
        mine = np.flatnonzero(group == g).tolist()
        return all(net.whole.get(net.hosts[h]) for h in mine) or not (reporting[mine].any() or above)

    holes = []
    for g, lacks, usual in lacking:
        if built_so(g):
            continue
        mine = np.flatnonzero((group == g) & ~net.unclaimed)
        host = min((-int(cables[h]), net.hosts[h]) for h in mine.tolist())[1]
        text = (
            f"all {len(mine)} hosts of the domain, such as {host}, have no link to one rail "
            "that other domains have"
        )
        holes += [_Hole((0, g), text, Endpoint(host, host), sure=usual > 2)] * lacks
    return holes


@memoized
def _lacking_rails(hosts: Rank, unclaimed: Bools) -> list[tuple[int, int, int]]:
    """Return the domains with fewer leaves than is usual: how many it lacks, and how many are usual."""
    grouping, kinds = hosts.grouping, hosts.kinds
    placed = (grouping.group >= 0) & ~unclaimed
    size = np.bincount(grouping.group[placed], minlength=grouping.count)
    if kinds is None or not grouping.count:
        return []
    votes = np.zeros((grouping.count, len(kinds.cables)), np.int64)
    np.add.at(votes, (grouping.group[placed], kinds.of_child[placed]), 1)
    kind = votes.argmax(axis=1)
    width = np.array([len(items) for items in grouping.items], np.int64)
    found = []
    for k in distinct(kind[size > 0]).tolist():
        alike = np.flatnonzero((kind == k) & (size > 0))
        widths = Counter(width[alike].tolist())
        designs: Counter[int] = Counter()  # by number of leaves, the domains that have or should have it
        usual: dict[int, int] = {}
        for has in sorted(widths, reverse=True):
            near = {w: n for w, n in (designs + Counter({has: widths[has]})).items() if _near(w, has)}
            best = max(near, key=lambda w: (near[w], w))
            peers = sum(near.values())
            # Where the names of adapters are unknown, more domains have to agree.
            known = kinds.cables[k] or (peers >= 3 and near[best] * 3 >= 2 * peers)
            usual[has] = best if known else has
            designs[usual[has]] += widths[has]
        for g in alike[size[alike] >= 2].tolist():
            lacks = usual[int(width[g])] - int(width[g])
            if lacks > 0:
                found.append((g, lacks, usual[int(width[g])]))
    return found


def _near(one: int, other: int) -> bool:
    """Return whether the numbers of leaves of two domains are those of one design: the smaller one lacks a
    third or less, or one of two."""
    most = max(one, other)
    return abs(one - other) * _FEW_RAILS <= most or most == 2


def _dark_from_below(
    net: Network, rank: Rank, busy: set[tuple[int, int]], home: dict[int, Place]
) -> list[_Hole]:
    """Find uplink ports without a link on every switch of a group."""
    dark = _numbered(rank.audit.dark_ports)
    if not dark:
        return []
    grouping = rank.grouping
    below, above = distinct(rank.lower), distinct(rank.upper)
    holes: dict[int, list[int]] = defaultdict(list)
    for g, port in dark:
        members = below[grouping.group == g].tolist()
        if not any((m, port) in busy for m in members):
            holes[g].append(port)
    found = []
    for g, ports in sorted(holes.items()):
        members = below[grouping.group == g].tolist()
        wide = max(
            1, round(np.count_nonzero(np.isin(rank.lower, members)) / (len(members) * len(grouping.items[g])))
        )
        place = next((home[d] for d in above[list(grouping.items[g])].tolist() if d in home), NOWHERE)
        for port in ports[::wide]:
            peer = net.end(members[0], port)
            text = f"port {port} of all {len(members)} switches below it has no link (one is {say(peer)})"
            found.append(_Hole(place, text, peer))
    return found


def _dark_from_above(
    net: Network, rank: Rank, busy: set[tuple[int, int]], home: dict[int, Place]
) -> list[_Hole]:
    """Find downlink ports without a link on every switch above a group."""
    dark = _numbered(rank.audit.dark_slots)
    if not dark:
        return []
    grouping = rank.grouping
    above = distinct(rank.upper)
    found = []
    for g, port in dark:
        members = above[list(grouping.items[g])].tolist()
        if any((m, port) in busy for m in members):
            continue
        place = next((home[m] for m in members if m in home), NOWHERE)
        peer = net.end(members[0], port)
        text = f"port {port} of all {len(members)} switches above it has no link (one is {say(peer)})"
        found.append(_Hole(place, text, peer))
    return found


def _numbered(ports: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ports with numbers of the device. A number of `PORT_TEXTS` or more is an index of a text, so
    the numbers between two of them are no ports."""
    return [(group, port) for group, port in ports if port < PORT_TEXTS]


def _fewer_than_siblings(net: Network, rank: Rank, home: dict[int, Place], known: int) -> list[_Hole]:
    """Find groups with fewer switches above them than most groups of their rank, if any switch of the group
    reports its cables. The first `known` holes are already found."""
    grouping = rank.grouping
    widths = [len(items) for items in grouping.items]
    if len(widths) < 3:
        return []
    typical, share = Counter(widths).most_common(1)[0]
    if share * 3 < 2 * len(widths):
        return []
    narrow = [(g, width) for g, width in enumerate(widths) if width < typical < 2 * width]
    if not narrow:
        return []
    above, below = distinct(rank.upper), distinct(rank.lower)
    reporting = ~_mute(net)[below]
    found = []
    for g, width in narrow:
        if not reporting[grouping.group == g].any():
            continue
        place = next((home[d] for d in above[list(grouping.items[g])].tolist() if d in home), NOWHERE)
        text = f"its siblings have {typical} switches above them, this group has {width}"
        found += [_Hole(place, text, None)] * (typical - width)
    return found[known:]


def _orphans(net: Network, level: Ints, low: int, rank: Rank, home: dict[int, Place]) -> list[_Hole]:
    """Find switches without a switch above them, if most of their level have one."""
    mine = np.flatnonzero(level == low)
    alone = mine[~np.isin(mine, rank.lower) & ~_mute(net)[mine]].tolist()
    if len(alone) < 2 or 3 * len(alone) > len(mine):
        return []
    names = ", ".join(net.names[s] for s in alone[:4])
    text = f"{len(alone)} switches have no switch above them, unlike their peers: {names}"
    return [_Hole(home.get(alone[0], NOWHERE), text, net.end(alone[0]))]


def _ports_in_use(devices: npt.NDArray[np.integer], ports: npt.NDArray[np.integer]) -> set[tuple[int, int]]:
    """Return the (device, port) pairs of the cables."""
    return set(zip(devices.tolist(), ports.tolist(), strict=True))


def _mute(net: Network) -> npt.NDArray[np.bool_]:
    return np.zeros(len(net.ids), np.bool_) if net.mute is None else net.mute


def _name_gaps(names: list[str]) -> list[str]:
    """Return the names that are missing between the first and the last of each numbered series."""
    series: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            series[match[1], match[3]].append(match[2])
    gaps = []
    for (head, tail), numbers in sorted(series.items()):
        width = min(map(len, numbers)) if any(n.startswith("0") for n in numbers) else 0
        there = {int(n) for n in numbers}
        if len(there) >= 2 and max(there) - min(there) < 2 * len(there):
            gaps += [f"{head}{n:0{width}d}{tail}" for n in range(min(there), max(there)) if n not in there]
    return gaps
