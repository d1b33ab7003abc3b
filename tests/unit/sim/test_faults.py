"""Every fault does what it says, and says honestly whether it leaves a trace."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import pytest
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric, by_class
from hyperscout_sim.fabric.faults import (
    Fault,
    NotApplicableError,
    PlantedFault,
    Standing,
    plant,
    plant_many,
    standings,
)
from hyperscout_sim.fabric.foreign import FACTORY_DESCRIPTION, SHARP_DESCRIPTION
from hyperscout_sim.fabric.trace import judge

RAILS = shapes.rail_optimised(4, 4, 4, 2)
CLOS = shapes.clos2(5, 4, 4)
PODS = shapes.clos3(4, 2, 3, 3, 2)
PAIRS = shapes.dual_homed(4, 4, 2, 1)
SEEDS = range(12)


def planted(fabric: SimFabric, fault: Fault, seed: int) -> tuple[SimFabric, PlantedFault]:
    return plant(fabric, fault, Random(seed))


@dataclass(frozen=True)
class Trace:
    name: str
    fabric: SimFabric
    fault: Fault
    leaves: bool | None  # None = depends on the place


TRACES = [
    Trace("a rail's cable: the other rails tell", RAILS, Fault.HOST_LINK, True),
    Trace("the only cable: the host is just not there", CLOS, Fault.HOST_LINK, False),
    Trace("one of two", PAIRS, Fault.HOST_LINK, True),
    Trace(
        "a rail's cable, one other host to compare with", shapes.rail_only(2, 2, 4), Fault.HOST_LINK, False
    ),
    Trace("a dead rail", RAILS, Fault.DEAD_RAIL, True),
    Trace("the only adapter", CLOS, Fault.DEAD_RAIL, False),
    Trace("one uplink of many leaves", CLOS, Fault.UPLINK, True),
    Trace("one uplink of two leaves under two spines", shapes.clos2(2, 2, 2), Fault.UPLINK, False),
    Trace("single-homed hosts exchanged: a rebuild", CLOS, Fault.SWAPPED_HOST_LINKS, False),
    Trace("rails exchanged", RAILS, Fault.SWAPPED_HOST_LINKS, None),
    Trace("uplinks of few leaves exchanged", shapes.clos2(3, 2, 2), Fault.SWAPPED_UPLINKS, False),
    Trace("uplinks exchanged", CLOS, Fault.SWAPPED_UPLINKS, None),
    Trace("a leaf of one rail", RAILS, Fault.LEAF, True),
    Trace("a leaf with all its hosts", CLOS, Fault.LEAF, False),
    Trace(
        "a leaf of one rail, one unit to compare with", shapes.rail_optimised(2, 4, 4, 2), Fault.LEAF, False
    ),
    Trace("a spine of one rail", RAILS, Fault.SPINE, True),
    Trace("a spine for all", CLOS, Fault.SPINE, False),
    Trace("a pod's spine", PODS, Fault.SPINE, True),
    Trace("a core of one group", PODS, Fault.CORE, True),
    Trace("one record", CLOS, Fault.ONE_SIDED, True),
    Trace("storage", RAILS, Fault.STORAGE, False),
    Trace("SHARP", RAILS, Fault.SHARP, False),
    Trace("other names", RAILS, Fault.RENAMED, False),
]


@pytest.mark.parametrize("case", TRACES, ids=lambda case: case.name)
def test_trace(case: Trace) -> None:
    found = {planted(case.fabric, case.fault, seed)[1].leaves_trace for seed in SEEDS}
    assert found == ({True, False} if case.leaves is None else {case.leaves})


@pytest.mark.parametrize("fault", Fault)
def test_planting_is_deterministic_and_spares_the_rest(fault: Fault) -> None:
    before = PODS
    faulty, what = planted(PODS, fault, 3)
    assert (faulty, what) == planted(PODS, fault, 3)
    assert before == PODS
    assert what.fault is fault
    assert set(faulty.cables) - set(PODS.cables) - set(what.now) == (
        {c for c in faulty.cables if c.a not in PODS.levels() and c.a not in PODS.node_map()}
    )
    assert set(PODS.cables) - set(faulty.cables) == (set() if fault is Fault.ONE_SIDED else set(what.before))
    if fault is not Fault.RENAMED:
        assert faulty.truth == PODS.truth


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", [Fault.HOST_LINK, Fault.UPLINK])
def test_a_missing_cable(fault: Fault, seed: int) -> None:
    faulty, what = planted(RAILS, fault, seed)
    [cable] = what.before
    assert len(faulty.cables) == len(RAILS.cables) - 1
    kind = (0, 1) if fault is Fault.HOST_LINK else (1, 2)
    assert cable in by_class(RAILS)[kind]
    assert what.kinds == ("MissingLink",)
    assert faulty.adapters == RAILS.adapters
    assert len(what.hosts) == (1 if fault is Fault.HOST_LINK else 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_rail_takes_the_adapter_with_it(seed: int) -> None:
    faulty, what = planted(RAILS, Fault.DEAD_RAIL, seed)
    [gone] = set(RAILS.adapters) - set(faulty.adapters)
    assert what.adapters == (gone.guid,)
    assert what.hosts == (gone.host,)
    assert all(gone.guid not in (c.a, c.b) for c in faulty.cables)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", [Fault.SWAPPED_HOST_LINKS, Fault.SWAPPED_UPLINKS])
def test_a_swap_exchanges_the_upper_ends_of_two_cables_of_one_class(fault: Fault, seed: int) -> None:
    faulty, what = planted(PODS, fault, seed)
    one, other = what.before
    assert what.now == (
        one._replace(b=other.b, b_port=other.b_port),
        other._replace(b=one.b, b_port=one.b_port),
    )
    assert set(what.now) <= set(faulty.cables)
    [kind] = [k for k, cables in by_class(PODS).items() if one in cables]
    assert other in by_class(PODS)[kind]
    assert Counter(e for c in faulty.cables for e in c.ends) == Counter(
        e for c in PODS.cables for e in c.ends
    )
    if what.leaves_trace:
        assert {(c.a, c.b) for c in what.before} != {(c.a, c.b) for c in what.now}


def test_swaps_go_within_a_domain_and_across() -> None:
    domain = {x.guid: x.domain for x in RAILS.switches}
    across = {
        len({domain[c.b] for c in planted(RAILS, Fault.SWAPPED_HOST_LINKS, seed)[1].before}) for seed in SEEDS
    }
    assert across == {1, 2}


def test_a_swap_of_a_hosts_two_rails_leaves_no_trace() -> None:
    """Its set of leaves is what it was."""
    whats = [planted(shapes.rail_only_wide(3, 2), Fault.SWAPPED_HOST_LINKS, seed)[1] for seed in range(60)]
    own = [w for w in whats if len(w.hosts) == 1]
    assert own
    assert not any(w.leaves_trace for w in own)


def test_a_dual_homed_host_with_one_cable_in_another_rack_is_tied() -> None:
    whats = [planted(PAIRS, Fault.SWAPPED_HOST_LINKS, seed)[1] for seed in range(30)]
    domain = {x.guid: x.domain for x in PAIRS.switches}
    for what in whats:
        crossing = len({domain[c.b] for c in what.before}) == 2
        assert what.tied == (what.hosts if crossing else ())
    assert any(w.tied for w in whats)


def test_a_single_homed_host_that_was_swapped_away_is_outvoted() -> None:
    domain = {x.guid: x.domain for x in CLOS.switches}
    for seed in SEEDS:
        what = planted(CLOS, Fault.SWAPPED_HOST_LINKS, seed)[1]
        crossing = len({domain[c.b] for c in what.before}) == 2
        assert what.outvoted == (what.hosts if crossing else ())
        assert what.unplaced == set(what.outvoted)


def uplinks_swapped(fabric: SimFabric, one: tuple[str, str], other: tuple[str, str]) -> PlantedFault:
    """What is known after these two cables exchanged their upper ends."""
    before = (*fabric.between(*one), *fabric.between(*other))
    a, b = before
    now = (a._replace(b=b.b, b_port=b.b_port), b._replace(b=a.b, b_port=a.b_port))
    cables = tuple(c for c in fabric.cables if c not in before)
    faulty = replace(fabric, cables=(*cables, *now))
    return judge(fabric, faulty, [PlantedFault(Fault.SWAPPED_UPLINKS, ("Miswired",), before, now)])[0]


@dataclass(frozen=True)
class Above:
    name: str
    fabric: SimFabric
    one: tuple[str, str]
    other: tuple[str, str]
    leaves_trace: bool
    tied: tuple[int, ...]  # numbers of hosts


ABOVE = [
    Above(
        "one of three uplinks: the other two tell",
        shapes.clos3(3, 3, 2, 3, 1),
        ("leaf-p01-01", "spine-p01-01"),
        ("leaf-p02-01", "spine-p02-01"),
        True,
        (),
    ),
    Above(
        "one of two uplinks, spines with three leaves: the leaf's hosts are tied",
        shapes.clos3(3, 3, 1, 2, 1),
        ("leaf-p01-01", "spine-p01-01"),
        ("leaf-p02-01", "spine-p02-01"),
        True,
        (1, 4),
    ),
    Above(
        "pods of two leaves and two spines: nothing tells them apart",
        shapes.clos3(3, 2, 1, 2, 1),
        ("leaf-p01-01", "spine-p01-01"),
        ("leaf-p02-01", "spine-p02-01"),
        True,
        (1, 2, 3, 4),
    ),
    Above(
        "within such a pod: it falls apart",
        shapes.clos3(3, 2, 1, 2, 1),
        ("leaf-p01-01", "spine-p01-01"),
        ("leaf-p01-02", "spine-p01-02"),
        True,
        (1, 2),
    ),
    Above(
        "the other rails tell",
        shapes.rail_optimised(2, 2, 3, 2, pods=2),
        ("leaf-p01-u01-r0", "spine-p01-r0-01"),
        ("leaf-p02-u01-r0", "spine-p02-r0-01"),
        True,
        (),
    ),
    Above(
        "cables between the same two groups",
        shapes.dragonfly_plus(3, 3, 2, 1, 2),
        ("spine-g01-01", "spine-g02-01"),
        ("spine-g01-02", "spine-g02-02"),
        False,
        (),
    ),
    Above(
        "cables between four groups",
        shapes.dragonfly_plus(5, 3, 1, 1, 1),
        ("spine-g01-01", "spine-g02-01"),
        ("spine-g03-01", "spine-g04-01"),
        False,  # four of five spines are touched
        (),
    ),
    Above(
        "cables between four of nine groups",
        shapes.dragonfly_plus(9, 3, 1, 1, 1),
        ("spine-g01-01", "spine-g02-01"),
        ("spine-g03-01", "spine-g04-01"),
        True,
        (),
    ),
]


@pytest.mark.parametrize("case", ABOVE, ids=lambda case: case.name)
def test_what_swapped_uplinks_leave_unclear(case: Above) -> None:
    what = uplinks_swapped(case.fabric, case.one, case.other)
    tied = {f"node-{n:04}" for n in case.tied}
    assert (what.leaves_trace, set(what.tied)) == (case.leaves_trace, tied)


@pytest.mark.parametrize(("fault", "level"), [(Fault.LEAF, 1), (Fault.SPINE, 2), (Fault.CORE, 3)], ids=str)
def test_a_missing_switch_takes_its_cables_with_it(fault: Fault, level: int) -> None:
    faulty, what = planted(PODS, fault, 1)
    [gone] = set(PODS.switches) - set(faulty.switches)
    assert (what.switch, PODS.levels()[gone.guid]) == (gone.guid, level)
    assert set(what.before) == {c for c in PODS.cables if gone.guid in (c.a, c.b)}
    assert (
        what.cut_off
        == what.hosts
        == ((tuple(sorted(PODS.truth.tiers[0][gone.domain or 0]))) if level == 1 else ())
    )


def test_one_record_is_hidden() -> None:
    faulty, what = planted(CLOS, Fault.ONE_SIDED, 5)
    [end] = faulty.hidden
    assert end in what.before[0].ends
    assert faulty.cables == CLOS.cables


@pytest.mark.parametrize(
    ("fault", "count"), [(Fault.FACTORY_ADAPTER, 1), (Fault.FACTORY_HOST, 4), (Fault.FACTORY_FABRIC, 64)]
)
def test_factory_descriptions(fault: Fault, count: int) -> None:
    faulty, what = planted(RAILS, fault, 2)
    nameless = [x.guid for x in faulty.adapters if x.description == FACTORY_DESCRIPTION]
    assert tuple(nameless) == what.adapters
    assert len(nameless) == count
    assert len(what.hosts) == max(1, count // 4)
    assert faulty.node_map() == RAILS.node_map()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", [Fault.STORAGE, Fault.MANAGER, Fault.LOGIN])
def test_foreign_endpoints_take_free_ports(fault: Fault, seed: int) -> None:
    full = shapes.clos2(4, 36, 4)  # leaves with 40 of 40 ports taken
    faulty, what = planted(full, fault, seed)
    [new] = set(faulty.adapters) - set(full.adapters)
    assert (new.host,) == what.foreign
    assert new.host not in faulty.hosts
    assert what.kinds == ()
    cables = set(faulty.cables) - set(full.cables)
    assert len(cables) == new.port_count in ((1, 2) if fault is Fault.STORAGE else (1,))
    assert {faulty.levels()[c.b] for c in cables} == {1 if fault is Fault.STORAGE else 2}
    ports = {x.guid: x.port_count for x in faulty.switches}
    ends = [e for c in faulty.cables for e in c.ends]
    assert len(set(ends)) == len(ends)
    assert all(c.b_port <= ports[c.b] for c in cables)


def test_every_switch_has_one_sharp_node() -> None:
    faulty, what = planted(CLOS, Fault.SHARP, 0)
    sharp = [x for x in faulty.adapters if x.description == SHARP_DESCRIPTION]
    assert Counter(c.b for c in faulty.cables if c.a in {x.guid for x in sharp}) == Counter(
        CLOS.levels().keys()
    )
    assert len(what.foreign) == len(CLOS.switches)
    assert faulty.hosts == CLOS.hosts


def test_renamed_hosts_keep_cables_and_guids() -> None:
    faulty, what = planted(RAILS, Fault.RENAMED, 4)
    assert len(what.hosts) == 4
    assert set(faulty.hosts) - set(RAILS.hosts) == set(what.hosts)
    assert {x.guid for x in faulty.adapters} == {x.guid for x in RAILS.adapters}
    assert frozenset(faulty.hosts) == faulty.truth.tiers[-1][0]
    assert all(x.description == f"{x.host} {x.device}" for x in faulty.adapters)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: shapes.single_rack(4), Fault.LEAF),  # nothing would be left
        (lambda: shapes.single_rack(4), Fault.UPLINK),
        (lambda: shapes.rail_only(2, 2, 2), Fault.MANAGER),
        (lambda: shapes.clos2(2, 2, 2), Fault.CORE),
        (lambda: shapes.clos2(3, 2, 1), Fault.SPINE),  # the leaves would fall apart
        (lambda: shapes.single_rack(1), Fault.SWAPPED_HOST_LINKS),
    ],
)
def test_what_a_fabric_cannot_suffer_is_refused(make: Callable[[], SimFabric], fault: Fault) -> None:
    with pytest.raises(NotApplicableError):
        plant(make(), fault, Random(0))


@pytest.mark.parametrize("rails", [2, 4, 8])
def test_many_faults(rails: int) -> None:
    fabric = shapes.rail_optimised(8, 16, rails, 4)
    faulty, whats = plant_many(fabric, 0.05, 0.01, Random(7))
    total = len(fabric.cables)
    missing = [w for w in whats if not w.now]
    swapped = [w for w in whats if w.now]
    assert len(missing) == round(0.05 * total)
    assert 2 * len(swapped) == 2 * round(0.01 * total / 2)
    touched = [c for w in whats for c in w.before]
    assert len(touched) == len(set(touched))
    assert set(fabric.cables) - set(faulty.cables) == set(touched)
    assert set(faulty.cables) - set(fabric.cables) == {c for w in swapped for c in w.now}
    assert {w.fault for w in missing} == {Fault.HOST_LINK, Fault.UPLINK}
    assert faulty.islands() == fabric.islands() == 1


def test_many_missing_cables_leave_every_leaf_an_uplink() -> None:
    fabric = shapes.clos2(20, 3, 2)
    faulty, _ = plant_many(fabric, 0.4, 0.0, Random(1))
    assert {c.a for c in by_class(faulty)[1, 2]} == {x.guid for x in fabric.switches if x.level == 1}
    assert len(by_class(faulty)[1, 2]) < 40


def test_standings_count_what_is_left() -> None:
    fabric = shapes.rail_optimised(3, 3, 4, 2)
    lost = {"node-0001": 1, "node-0002": 2, "node-0003": 4}  # cables gone
    cables = []
    seen: Counter[str] = Counter()
    host_of = fabric.node_map()
    leaf = {x.name: x.guid for x in fabric.switches}
    for cable in fabric.cables:
        host = host_of.get(cable.a, "")
        seen[host] += 1
        if seen[host] <= lost.get(host, 0):
            continue
        rail = seen[host] - 1
        if host == "node-0002" and rail == 2:  # its first cable left leads elsewhere
            cables.append(cable._replace(b=leaf["leaf-u02-r2"], b_port=30))
        elif host == "node-0004" and rail < 3:
            cables.append(cable._replace(b=leaf[f"leaf-u01-r{rail}"], b_port=31))
        elif host == "node-0005" and rail < 2:
            cables.append(cable._replace(b=leaf[f"leaf-u0{1 + 2 * rail}-r{rail}"], b_port=32))
        else:
            cables.append(cable)
    faulty = SimFabric("f", fabric.switches, fabric.adapters, tuple(cables), fabric.truth)
    found = standings(fabric, faulty)
    assert found == {
        "node-0001": Standing.MAJORITY,
        "node-0002": Standing.TIED,
        "node-0003": Standing.CUT_OFF,
        "node-0004": Standing.OUTVOTED,
        "node-0005": Standing.PLURALITY,
        **{f"node-{n:04}": Standing.UNTOUCHED for n in range(6, 10)},
    }
