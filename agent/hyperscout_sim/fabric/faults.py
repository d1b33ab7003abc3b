"""Plants one or many faults into a healthy fabric, at places that a random generator picks.

The true topology of the fabric does not change, because a fault is not a planned change. Only renamed hosts
get their new names in it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimFabric, Truth, by_class
from hyperscout_sim.fabric.foreign import (
    FACTORY_DESCRIPTION,
    add_login,
    add_manager,
    add_sharp,
    add_storage,
)
from hyperscout_sim.fabric.planted import Fault, NotApplicableError, PlantedFault
from hyperscout_sim.fabric.trace import Standing, judge, standings

__all__ = [
    "Fault",
    "NotApplicableError",
    "PlantedFault",
    "Standing",
    "plant",
    "plant_many",
    "standings",
]

_TRIES = 32
_T = TypeVar("_T")
_Planted = tuple[SimFabric, PlantedFault]
_Planter = Callable[[SimFabric, Random], _Planted]


def plant(fabric: SimFabric, fault: Fault, rng: Random) -> _Planted:
    """Plant one fault and return the faulty fabric and the fault. Raises NotApplicableError.

    A fault never splits an island. A swap may join two islands.
    """
    islands = fabric.islands()
    for _ in range(_TRIES):
        faulty, planted = _PLANTERS[fault](fabric, rng)
        if 1 <= faulty.islands() <= islands:
            return faulty, judge(fabric, faulty, [planted])[0]
    raise NotApplicableError(f"{fabric.name}: each attempted {fault} splits the fabric")


def plant_many(
    fabric: SimFabric, missing_share: float, swapped_share: float, rng: Random
) -> tuple[SimFabric, tuple[PlantedFault, ...]]:
    """Remove a share of all cables, and swap another share in pairs of one class. No cable has two faults.

    A switch keeps its last uplink. Each fault is judged with all other faults in place.
    """
    classes = by_class(fabric)
    level = fabric.levels()
    pool = [(cable, kind) for kind, cables in classes.items() for cable in cables]
    rng.shuffle(pool)
    uplinks_left = Counter(cable.a for cable, kind in pool if kind[0])
    taken: set[Cable] = set()
    faults: list[PlantedFault] = []
    wanted = round(missing_share * len(pool))
    for cable, kind in pool:
        if len(faults) == wanted:
            break
        if kind[0] and uplinks_left[cable.a] == 1:
            continue
        uplinks_left[cable.a] -= 1
        taken.add(cable)
        faults.append(_missing(fabric, cable, level))
    added: list[Cable] = []
    wanted = 2 * round(swapped_share * len(pool) / 2)
    for cable, kind in pool:
        if len(added) == wanted:
            break
        if cable in taken:
            continue
        other = _partner(cable, classes[kind], rng, lambda c: c not in taken)
        if other is None:
            continue
        planted = _swapped(fabric, cable, other, level)
        taken.update(planted.before)
        added.extend(planted.now)
        faults.append(planted)
    faulty = _rewired(fabric, taken, added)
    return faulty, judge(fabric, faulty, faults)


# Planters: each one makes the fault once. `plant` judges it.


def _link(what: str, *, uplinks: bool) -> _Planter:
    def planter(fabric: SimFabric, rng: Random) -> _Planted:
        cable = _pick(rng, _cables(fabric, uplinks=uplinks), what)
        return _rewired(fabric, [cable]), _missing(fabric, cable, fabric.levels())

    return planter


def _swapped_host_links(fabric: SimFabric, rng: Random) -> _Planted:
    """Swap two host links.

    In half of the cases both are in one domain, otherwise in two domains, if the fabric has them.
    """
    cables = _cables(fabric, uplinks=False)
    one = _pick(rng, cables, "host link")
    domain = {x.guid: x.domain for x in fabric.switches}
    inside = rng.random() < 0.5 or len(fabric.truth.tiers[0]) == 1
    others = [c for c in cables if c != one and (domain[c.b] == domain[one.b]) is inside]
    return _swap(fabric, one, others or cables, rng)


def _swapped_uplinks(fabric: SimFabric, rng: Random) -> _Planted:
    classes = [cables for kind, cables in by_class(fabric).items() if kind[0]]
    cables = _pick(rng, classes, "cable between switches")
    return _swap(fabric, rng.choice(cables), cables, rng)


def _swap(fabric: SimFabric, one: Cable, others: Sequence[Cable], rng: Random) -> _Planted:
    other = _partner(one, others, rng, lambda _: True)
    if other is None:
        raise NotApplicableError(f"{fabric.name} has no second cable for a swap")
    planted = _swapped(fabric, one, other, fabric.levels())
    return _rewired(fabric, planted.before, planted.now), planted


def _dead_rail(fabric: SimFabric, rng: Random) -> _Planted:
    cable = _pick(rng, _cables(fabric, uplinks=False), "host link")
    planted = replace(_missing(fabric, cable, {}), fault=Fault.DEAD_RAIL, adapters=(cable.a,))
    without = tuple(x for x in fabric.adapters if x.guid != cable.a)
    return replace(_rewired(fabric, [cable]), adapters=without), planted


def _switch_of(level: int, fault: Fault) -> _Planter:
    def planter(fabric: SimFabric, rng: Random) -> _Planted:
        guid = _pick(rng, [x.guid for x in fabric.switches if x.level == level], str(fault))
        lost = tuple(c for c in fabric.cables if guid in (c.a, c.b))
        kinds = ("MissingSwitch", "MissingLink")
        planted = PlantedFault(fault, kinds, lost, switch=guid, hosts=_hosts_of(fabric, lost))
        left = tuple(x for x in fabric.switches if x.guid != guid)
        return replace(_rewired(fabric, lost), switches=left), planted

    return planter


def _one_sided(fabric: SimFabric, rng: Random) -> _Planted:
    cable = _pick(rng, _cables(fabric), "cable")
    planted = PlantedFault(Fault.ONE_SIDED, ("SourcesDisagree",), (cable,), hosts=_hosts_of(fabric, [cable]))
    return replace(fabric, hidden=fabric.hidden | {rng.choice(cable.ends)}), planted


def _factory_adapter(fabric: SimFabric, rng: Random) -> _Planted:
    return _undescribed(fabric, Fault.FACTORY_ADAPTER, [_pick(rng, _computing(fabric), "adapter")])


def _factory_host(fabric: SimFabric, rng: Random) -> _Planted:
    host = _pick(rng, fabric.hosts, "host")
    return _undescribed(fabric, Fault.FACTORY_HOST, [x for x in _computing(fabric) if x.host == host])


def _factory_fabric(fabric: SimFabric, rng: Random) -> _Planted:
    del rng  # there is nothing to pick
    return _undescribed(fabric, Fault.FACTORY_FABRIC, _computing(fabric))


def _foreign(
    fault: Fault, add: Callable[[SimFabric, Random], tuple[SimFabric, str]], *, at_spines: bool = True
) -> _Planter:
    def planter(fabric: SimFabric, rng: Random) -> _Planted:
        if at_spines and all(x.level == 1 for x in fabric.switches):
            raise NotApplicableError(f"{fabric.name} has no switch above its leaves")
        faulty, name = add(fabric, rng)
        return faulty, PlantedFault(fault, foreign=(name,))

    return planter


def _sharp(fabric: SimFabric, rng: Random) -> _Planted:
    del rng  # every switch gets one
    faulty, names = add_sharp(fabric)
    return faulty, PlantedFault(Fault.SHARP, foreign=names)


def _renamed(fabric: SimFabric, rng: Random) -> _Planted:
    """Rename a quarter of the hosts. Cables and GUIDs stay."""
    hosts = fabric.hosts
    chosen = sorted(rng.sample(hosts, max(1, len(hosts) // 4)))
    new = {old: f"gpu-{old.removeprefix('node-')}" for old in chosen}
    adapters = tuple(
        replace(x, host=new[x.host], description=x.description.replace(x.host, new[x.host], 1))
        if x.host in new
        else x
        for x in fabric.adapters
    )
    tiers = tuple(
        tuple(frozenset(new.get(host, host) for host in domain) for domain in tier)
        for tier in fabric.truth.tiers
    )
    planted = PlantedFault(Fault.RENAMED, hosts=tuple(new.values()))
    return replace(fabric, adapters=adapters, truth=Truth(tiers)), planted


_PLANTERS: dict[Fault, _Planter] = {
    Fault.HOST_LINK: _link("host link", uplinks=False),
    Fault.UPLINK: _link("cable between switches", uplinks=True),
    Fault.SWAPPED_HOST_LINKS: _swapped_host_links,
    Fault.SWAPPED_UPLINKS: _swapped_uplinks,
    Fault.DEAD_RAIL: _dead_rail,
    Fault.LEAF: _switch_of(1, Fault.LEAF),
    Fault.SPINE: _switch_of(2, Fault.SPINE),
    Fault.CORE: _switch_of(3, Fault.CORE),
    Fault.ONE_SIDED: _one_sided,
    Fault.FACTORY_ADAPTER: _factory_adapter,
    Fault.FACTORY_HOST: _factory_host,
    Fault.FACTORY_FABRIC: _factory_fabric,
    Fault.STORAGE: _foreign(Fault.STORAGE, add_storage, at_spines=False),
    Fault.MANAGER: _foreign(Fault.MANAGER, add_manager),
    Fault.LOGIN: _foreign(Fault.LOGIN, add_login),
    Fault.SHARP: _sharp,
    Fault.RENAMED: _renamed,
}


def _missing(fabric: SimFabric, cable: Cable, level: dict[int, int]) -> PlantedFault:
    if cable.a in level:
        return PlantedFault(Fault.UPLINK, ("MissingLink",), (cable,))
    return PlantedFault(Fault.HOST_LINK, ("MissingLink",), (cable,), hosts=_hosts_of(fabric, [cable]))


def _swapped(fabric: SimFabric, one: Cable, other: Cable, level: dict[int, int]) -> PlantedFault:
    """Return the fault of two cables that exchange their upper ends. The lower ends stay."""
    now = (
        Cable(one.a, one.a_port, other.b, other.b_port, one.rate),
        Cable(other.a, other.a_port, one.b, one.b_port, other.rate),
    )
    between_switches = one.a in level
    return PlantedFault(
        Fault.SWAPPED_UPLINKS if between_switches else Fault.SWAPPED_HOST_LINKS,
        ("Miswired", "MissingLink"),
        (one, other),
        now,
        hosts=() if between_switches else _hosts_of(fabric, [one, other]),
    )


def _undescribed(fabric: SimFabric, fault: Fault, adapters: Sequence[SimAdapter]) -> _Planted:
    chosen = {x.guid for x in adapters}
    described = tuple(
        replace(x, description=FACTORY_DESCRIPTION) if x.guid in chosen else x for x in fabric.adapters
    )
    hosts = tuple(dict.fromkeys(x.host for x in adapters))
    planted = PlantedFault(fault, ("UnknownHost",), hosts=hosts, adapters=tuple(x.guid for x in adapters))
    return replace(fabric, adapters=described), planted


def _partner(
    one: Cable, others: Sequence[Cable], rng: Random, allowed: Callable[[Cable], bool]
) -> Cable | None:
    """Return a cable to swap with. No swap may connect a switch to itself."""
    for _ in range(_TRIES if others else 0):
        other = rng.choice(others)
        if other != one and allowed(other) and one.a != other.b and other.a != one.b:
            return other
    return None


def _cables(fabric: SimFabric, *, uplinks: bool | None = None) -> list[Cable]:
    """Return cables between switches, cables of hosts, or both, but never those of foreign endpoints."""
    classes = by_class(fabric).items()
    return [c for kind, cables in classes for c in cables if uplinks in (None, kind[0] > 0)]


def _hosts_of(fabric: SimFabric, cables: Iterable[Cable]) -> tuple[str, ...]:
    guids = {cable.a for cable in cables}
    return tuple(dict.fromkeys(x.host for x in fabric.adapters if x.guid in guids and not x.foreign))


def _computing(fabric: SimFabric) -> list[SimAdapter]:
    return [x for x in fabric.adapters if not x.foreign]


def _rewired(fabric: SimFabric, gone: Iterable[Cable], instead: Iterable[Cable] = ()) -> SimFabric:
    lost = set(gone)
    return replace(fabric, cables=(*(c for c in fabric.cables if c not in lost), *instead))


def _pick(rng: Random, items: Sequence[_T], what: str) -> _T:
    if not items:
        raise NotApplicableError(f"the fabric has no {what}")
    return rng.choice(items)
