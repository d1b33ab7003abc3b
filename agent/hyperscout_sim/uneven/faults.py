"""Plants one to three faults into a healthy uneven fabric, each with the anomaly that must name it.

Not planted, because no evidence shows them: the only cable of a host is missing, hosts with two rails and one
cable elsewhere, two hosts of one leaf that exchange cables, a spine that all leaves below it have lost alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from hyperscout_sim.fabric.fabric import Cable, Partition, Truth, informative
from hyperscout_sim.fabric.planted import NotApplicableError
from hyperscout_sim.uneven.case import Defect, Uneven, healthy
from hyperscout_sim.uneven.wiring import Wiring

_TRIES: Final = 12
_STRIDE: Final = 10_007  # to the next fabric that is tried
_T = TypeVar("_T")
_Planter = Callable[[Wiring, Random], list[Defect]]


def faulty(seed: int, kind: str = "") -> Uneven:
    """Return an uneven fabric with one to three faults. The seed selects kind and first fault in turn.

    Where a fabric has no place for that fault, others are drawn.
    """
    rng = Random(f"faults {seed}")  # noqa: S311 - draws faults, not secrets
    names = list(FAULTS)
    first = names[seed % len(names)]
    order = [first, *rng.sample([n for n in names if n != first], len(names) - 1)]
    count = rng.choice((1, 1, 2, 3))
    for attempt in range(_TRIES):
        found = plant(healthy(seed + attempt * _STRIDE, kind), order, count, rng)
        if any(defect.what == first for defect in found.defects):
            break
    return found


def plant(case: Uneven, order: Sequence[str], count: int, rng: Random) -> Uneven:
    """Plant the first `count` faults of `order` that the fabric has a place for."""
    wiring = Wiring(case)
    defects: list[Defect] = []
    planted = 0
    for name in order:
        if planted == count:
            break
        if not case.tree and name not in _WITHOUT_TREE:
            continue
        try:
            found = FAULTS[name](wiring, rng)
        except NotApplicableError:
            continue
        defects += [replace(defect, what=name) for defect in found]
        planted += 1
    return _finished(case, wiring, defects)


def _finished(case: Uneven, wiring: Wiring, defects: list[Defect]) -> Uneven:
    """Return the case with the present cables. Hosts on spines alone have no true domain."""
    stray = frozenset(
        adapter.host
        for cable in wiring.cables
        if (adapter := wiring.adapter.get(cable.a)) and adapter.host in wiring.links
        if len(wiring.links[adapter.host]) == 1 and cable.b in wiring.computing
        if wiring.switch[cable.b].domain is None
    )
    order = {cable: n for n, cable in enumerate(case.fabric.cables)}
    cables = sorted(wiring.cables, key=lambda c: (order.get(c, len(order)), c))
    fabric = replace(
        case.fabric,
        cables=tuple(cables),
        truth=_without(case.fabric.truth, stray),
    )
    return replace(
        case,
        fabric=fabric,
        alternatives=tuple(_without(truth, stray) for truth in case.alternatives),
        may_be_missing=case.may_be_missing | stray,
        defects=tuple(defects),
    )


def _without(truth: Truth, hosts: frozenset[str]) -> Truth:
    def reduced(tier: Partition) -> Partition:
        return tuple(domain - hosts for domain in tier if domain - hosts)

    return Truth(informative(reduced(tier) for tier in truth.tiers)) if hosts else truth


# Cables of hosts


def _missing_host_cable(wiring: Wiring, rng: Random) -> list[Defect]:
    cable = rng.choice(wiring.links[_pick(rng, _hosts_that_miss(wiring))])
    wiring.rewire([cable])
    wiring.touch(cable.a)
    return [_missing(cable)]


def _missing_rail_cables(wiring: Wiring, rng: Random) -> list[Defect]:
    """About half of a unit's hosts lack the cable of one rail. Two other units are alike and whole."""
    host = _pick(rng, [h for h in _hosts_that_miss(wiring) if len(wiring.links[h]) >= 4])
    alike = [h for h in wiring.hosts(4) if wiring.unit[h] == wiring.unit[host]]
    if len(alike) < 6 or len(set(wiring.unit.values())) < 3:
        raise NotApplicableError("the unit or the fabric is too small")
    rail = rng.randrange(len(wiring.links[host]))
    hosts = rng.sample(alike, len(alike) // 2)
    gone = [wiring.links[h][rail] for h in hosts if len(wiring.links[h]) > rail]
    wiring.rewire(gone)
    wiring.touch(*(c.a for h in alike for c in wiring.links[h]), *{c.b for c in gone})
    return [_missing(cable) for cable in gone]


def _exchanged_rails(wiring: Wiring, rng: Random) -> list[Defect]:
    """Two cables of one host are exchanged. Without the hosts' reports, Ethernet adapters have no order."""
    host = _pick(rng, _ordered(wiring, 3))
    return _exchange(wiring, *rng.sample(wiring.links[host], 2))


def _exchanged_hosts(wiring: Wiring, rng: Random) -> list[Defect]:
    """Two hosts of different units exchange the cables of one rail, or two of one unit those of two rails."""
    one = _pick(rng, _ordered(wiring, 3))
    apart = rng.random() < 0.6
    others = [h for h in _ordered(wiring, 3) if h != one and (wiring.unit[h] != wiring.unit[one]) is apart]
    other = _pick(rng, others)
    mine, theirs = wiring.links[one], wiring.links[other]
    rail = rng.randrange(min(len(mine), len(theirs)))
    return _exchange(wiring, mine[rail], theirs[rail if apart else rail - 1])


def _other_leaf(wiring: Wiring, rng: Random) -> list[Defect]:
    """A cable of a host is plugged into a free port of a leaf of another unit."""
    host = _pick(rng, _ordered(wiring, 3))
    cable = rng.choice(wiring.links[host])
    here = wiring.switch[cable.b].domain
    leaves = {c.b for h in wiring.hosts(3) for c in wiring.links[h] if wiring.switch[c.b].domain != here}
    return _move(wiring, cable, _pick(rng, sorted(leaves - wiring.touched)))


def _only_on_spine(wiring: Wiring, rng: Random) -> list[Defect]:
    """The only cable of a host is plugged into a spine that has no endpoints otherwise."""
    case = wiring.case
    if case.foreign or case.ethernet or case.kind == "director with hosts":
        raise NotApplicableError("other endpoints may be on spines, or a spine with a host looks like a leaf")
    host = _pick(rng, [h for h in wiring.hosts() if len(wiring.links[h]) == 1])
    [cable] = wiring.links[host]
    spines = [c.b for c in wiring.uplinks[cable.b] if wiring.switch[c.b].domain is None]
    return _move(wiring, cable, _pick(rng, spines))


def _slow_host_cable(wiring: Wiring, rng: Random) -> list[Defect]:
    hosts = [] if wiring.case.hearing.dpu else wiring.hosts()
    return _slow(wiring, rng.choice(wiring.links[_pick(rng, hosts)]))


# Cables between switches


def _missing_uplink(wiring: Wiring, rng: Random) -> list[Defect]:
    cable = rng.choice(wiring.uplinks[_pick(rng, wiring.lowers(2))])
    wiring.rewire([cable])
    wiring.touch(cable.a)
    return [_missing(cable)]


def _missing_pair(wiring: Wiring, rng: Random) -> list[Defect]:
    """Both cables of a parallel pair are missing."""
    lower = _pick(rng, wiring.lowers(4))
    upper = rng.choice(wiring.uplinks[lower]).b
    pair = [c for c in wiring.uplinks[lower] if c.b == upper]
    if len(pair) != 2:
        raise NotApplicableError("the cables are no pairs")
    wiring.rewire(pair)
    wiring.touch(lower)
    return [_missing(cable) for cable in pair]


def _exchanged_uplinks(wiring: Wiring, rng: Random) -> list[Defect]:
    """Two leaves or spines exchange an uplink to different switches."""
    one, other = _two(rng, wiring.lowers(3), wiring)
    cable = rng.choice(wiring.uplinks[one])
    others = [c for c in wiring.uplinks[other] if c.b != cable.b]
    return _exchange(wiring, cable, _pick(rng, others))


def _exchanged_leaves(wiring: Wiring, rng: Random) -> list[Defect]:
    """All uplinks of a leaf are exchanged with those of a leaf in another pod. Its unit has other leaves."""
    several = {c.b for h in wiring.hosts(3) for c in wiring.links[h]}
    one, other = _two(rng, [g for g in wiring.lowers(2) if g in several], wiring)
    mine, theirs = wiring.uplinks[one], wiring.uplinks[other]
    if len(mine) != len(theirs) or {c.b for c in mine} & {c.b for c in theirs}:
        raise NotApplicableError("the leaves are in one pod, or differ")
    if wiring.switch[one].domain == wiring.switch[other].domain:
        raise NotApplicableError("the leaves are in one unit")
    return [defect for pair in zip(mine, theirs, strict=True) for defect in _exchange(wiring, *pair)]


def _loop(wiring: Wiring, rng: Random) -> list[Defect]:
    guid = _pick(rng, sorted(wiring.computing - wiring.touched))
    return _add(wiring, guid, guid)


def _stray(wiring: Wiring, rng: Random) -> list[Defect]:
    """A cable joins two switches of one level that have no such cables otherwise."""
    level = rng.choice((1, 1, 2))
    candidates = wiring.computing - wiring.touched
    switches = sorted(g for g in candidates if wiring.level(g) == level and (level > 1 or wiring.uplinks[g]))
    lateral = any(wiring.level(n) == level for g in switches for n in wiring.near[g])
    if lateral or len(switches) < 4 or "two trees" in wiring.case.traits:
        raise NotApplicableError("cables within the level are usual, or there are too few switches")
    return _add(wiring, *rng.sample(switches, 2))


def _slow_uplink(wiring: Wiring, rng: Random) -> list[Defect]:
    return _slow(wiring, rng.choice(wiring.uplinks[_pick(rng, wiring.lowers(2))]))


def _leaf_down(wiring: Wiring, rng: Random) -> list[Defect]:
    """A leaf is down. Its hosts have at least two other cables, and two other units are of the same model.

    A unit of a model of its own would look as if it were built with one rail less.
    """
    host = _pick(rng, _hosts_that_miss(wiring))
    leaves = len(wiring.links[host])
    like = {wiring.unit[h] for h in wiring.hosts(3) if wiring.devices(h) == wiring.devices(host)}
    cable = rng.choice(wiring.links[host])
    below = [h for h, mine in wiring.links.items() if any(c.b == cable.b for c in mine)]
    thin = any(len(wiring.links[h]) < 3 for h in below)
    unit = {c.b for h in below for c in wiring.links[h]}
    if len(like) < 3 or leaves < 3 or thin or wiring.touched & {*below, *unit}:
        raise NotApplicableError("too few units are alike")
    found = _down(wiring, cable.b)
    wiring.touch(*unit)
    return found


def _down(wiring: Wiring, guid: int) -> list[Defect]:
    gone = [c for c in wiring.cables if guid in (c.a, c.b)]
    ends: list[tuple[int, int | None]] = [(guid, None)]
    for cable in sorted(gone):
        other, port = cable.ends[cable.a == guid]
        ends.append((other, port if other in wiring.switch else None))
    wiring.rewire(gone)
    wiring.touch(*(other for other, _ in ends))
    return [Defect("", "MissingSwitch", tuple(ends))]


FAULTS: Final[dict[str, _Planter]] = {
    "missing host cable": _missing_host_cable,
    "missing cables of a rail": _missing_rail_cables,
    "missing uplink": _missing_uplink,
    "missing parallel pair": _missing_pair,
    "rails of a host exchanged": _exchanged_rails,
    "cables of two hosts exchanged": _exchanged_hosts,
    "cable in another leaf": _other_leaf,
    "host only on a spine": _only_on_spine,
    "uplinks exchanged": _exchanged_uplinks,
    "all uplinks of two leaves exchanged": _exchanged_leaves,
    "loop cable": _loop,
    "stray cable": _stray,
    "slow host cable": _slow_host_cable,
    "slow uplink": _slow_uplink,
    "leaf down": _leaf_down,
}
_WITHOUT_TREE: Final = frozenset({"loop cable", "slow host cable"})


def _hosts_that_miss(wiring: Wiring) -> list[str]:
    """Return hosts whose missing cable shows: with others alike, and none that has one cable by design.

    The host ports of BlueFields are not those of the cables.
    """
    if wiring.case.hearing.dpu:
        return []
    single = any(len(mine) == 1 for mine in wiring.links.values())
    return wiring.hosts(3 if single else 2)


def _ordered(wiring: Wiring, rails: int) -> list[str]:
    """Return hosts whose adapters are in a known order, with others alike."""
    return [] if wiring.case.walks_only or wiring.case.hearing.dpu else wiring.hosts(rails)


def _exchange(wiring: Wiring, one: Cable, other: Cable) -> list[Defect]:
    """Exchange the upper ends of two cables."""
    now = [one._replace(b=other.b, b_port=other.b_port), other._replace(b=one.b, b_port=one.b_port)]
    wiring.rewire([one, other], now)
    wiring.touch(one.a, other.a)
    return [_miswired(cable, wiring) for cable in now]


def _move(wiring: Wiring, cable: Cable, to: int) -> list[Defect]:
    now = cable._replace(b=to, b_port=wiring.free_port(to))
    wiring.rewire([cable], [now])
    wiring.touch(cable.a, to)
    return [_miswired(now, wiring)]


def _add(wiring: Wiring, a: int, b: int) -> list[Defect]:
    rate = next(c.rate for c in wiring.case.fabric.cables if a in (c.a, c.b))
    cable = Cable(a, wiring.free_port(a), b, wiring.free_port(b), rate)
    wiring.rewire([], [cable])
    wiring.touch(a, b)
    return [_miswired(cable, wiring)]


def _slow(wiring: Wiring, cable: Cable) -> list[Defect]:
    wiring.rewire([cable], [cable._replace(rate="1x" + cable.rate.partition("x")[2])])
    wiring.touch(cable.a)
    return [Defect("", "SlowLink", _ends(cable, wiring))]


def _missing(cable: Cable) -> Defect:
    return Defect("", "MissingLink", cable.ends)


def _miswired(cable: Cable, wiring: Wiring) -> Defect:
    return Defect("", "Miswired", _ends(cable, wiring))


def _ends(cable: Cable, wiring: Wiring) -> tuple[tuple[int, int | None], ...]:
    return (cable.a, cable.a_port if cable.a in wiring.switch else None), (cable.b, cable.b_port)


def _two(rng: Random, lowers: Sequence[int], wiring: Wiring) -> tuple[int, int]:
    """Return two switches of one level. Each has two others alike beside the other one."""
    one = _pick(rng, lowers)
    others = [g for g in lowers if g != one and wiring.level(g) == wiring.level(one)]
    return one, _pick(rng, [g for g in others if wiring.lower_has_witnesses(g, besides=one)])


def _pick(rng: Random, items: Sequence[_T]) -> _T:
    if not items:
        raise NotApplicableError("the fabric has no place for this fault")
    return rng.choice(items)
