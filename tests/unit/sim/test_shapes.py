"""Every shape at a small size, against counts and groups worked out by hand."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric, by_class


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], SimFabric]
    tiers: list[list[str]]  # hosts by number, each domain a text like "1-3"
    levels: dict[int, int]  # level -> switches
    cables: dict[tuple[int, int], int]  # (level, level) -> cables, 0 = host
    parts: int  # disjoint fabrics
    islands: int


CASES = [
    Case(
        "clos2",
        lambda: shapes.clos2(3, 2, 2, 2),
        [["1-2", "3-4", "5-6"], ["1-6"]],
        {1: 3, 2: 2},
        {(0, 1): 6, (1, 2): 12},
        1,
        1,
    ),
    Case(
        "one leaf has no tier 2",
        lambda: shapes.clos2(1, 3, 2),
        [["1-3"]],
        {1: 1, 2: 2},
        {(0, 1): 3, (1, 2): 2},
        1,
        1,
    ),
    Case(
        "clos3",
        lambda: shapes.clos3(2, 2, 2, 3, 2),
        [["1-2", "3-4", "5-6", "7-8"], ["1-4", "5-8"], ["1-8"]],
        {1: 4, 2: 6, 3: 6},
        {(0, 1): 8, (1, 2): 12, (2, 3): 12},
        1,
        1,
    ),
    Case(
        "pods of one leaf are no tier",
        lambda: shapes.clos3(3, 1, 2, 2, 1),
        [["1-2", "3-4", "5-6"], ["1-6"]],
        {1: 3, 2: 6, 3: 2},
        {(0, 1): 6, (1, 2): 6, (2, 3): 6},
        1,
        1,
    ),
    Case(
        "fat tree",
        lambda: shapes.fat_tree(4),
        [
            ["1-2", "3-4", "5-6", "7-8", "9-10", "11-12", "13-14", "15-16"],
            ["1-4", "5-8", "9-12", "13-16"],
            ["1-16"],
        ],
        {1: 8, 2: 8, 3: 4},
        {(0, 1): 16, (1, 2): 16, (2, 3): 16},
        1,
        1,
    ),
    Case(
        "rails with spines of their own",
        lambda: shapes.rail_optimised(2, 3, 4, 2),
        [["1-3", "4-6"], ["1-6"]],
        {1: 8, 2: 8},
        {(0, 1): 24, (1, 2): 16},
        4,
        1,
    ),
    Case(
        "a cluster whose units differ by one host",
        lambda: shapes.cluster(5, hosts_per_unit=3),
        [["1-3", "4-5"], ["1-5"]],
        {1: 8, 2: 8},
        {(0, 1): 20, (1, 2): 16},
        4,
        1,
    ),
    Case(
        "rails with shared spines",
        lambda: shapes.rail_optimised(2, 3, 4, shared_spines=2),
        [["1-3", "4-6"], ["1-6"]],
        {1: 8, 2: 2},
        {(0, 1): 24, (1, 2): 16},
        1,
        1,
    ),
    Case(
        "rails in pods",
        lambda: shapes.rail_optimised(2, 2, 2, 1, pods=2),
        [["1-2", "3-4", "5-6", "7-8"], ["1-4", "5-8"], ["1-8"]],
        {1: 8, 2: 4, 3: 2},
        {(0, 1): 16, (1, 2): 8, (2, 3): 8},
        2,
        1,
    ),
    Case(
        "dual-homed",
        lambda: shapes.dual_homed(2, 3, 2, 2),
        [["1-3", "4-6"], ["1-6"]],
        {1: 4, 2: 2},
        {(0, 1): 12, (1, 1): 4, (1, 2): 8},
        1,
        1,
    ),
    Case("rail-only", lambda: shapes.rail_only(2, 2, 3), [["1-2", "3-4"]], {1: 6}, {(0, 1): 12}, 6, 2),
    Case("wide rails", lambda: shapes.rail_only_wide(5, 2), [["1-5"]], {1: 2}, {(0, 1): 10}, 2, 1),
    Case(
        "planes",
        lambda: shapes.multi_plane(3, 2, 2, 2),
        [["1-2", "3-4"], ["1-4"]],
        {1: 6, 2: 6},
        {(0, 1): 12, (1, 2): 12},
        3,
        1,
    ),
    Case(
        "dragonfly+",
        lambda: shapes.dragonfly_plus(3, 2, 2, 2, 2),
        [["1-2", "3-4", "5-6", "7-8", "9-10", "11-12"], ["1-4", "5-8", "9-12"], ["1-12"]],
        {1: 6, 2: 6},
        {(0, 1): 12, (1, 2): 12, (2, 2): 6},
        1,
        1,
    ),
    Case("single rack", lambda: shapes.single_rack(3, 2), [["1-3"]], {1: 1}, {(0, 1): 6}, 1, 1),
]


def hosts(run: str) -> frozenset[str]:
    first, last = run.split("-")
    return frozenset(f"node-{n:04}" for n in range(int(first), int(last) + 1))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shape(case: Case) -> None:
    fabric = case.make()
    assert [list(tier) for tier in fabric.truth.tiers] == [[hosts(d) for d in tier] for tier in case.tiers]
    assert Counter(fabric.levels().values()) == case.levels
    assert {kind: len(cables) for kind, cables in by_class(fabric).items()} == case.cables
    assert len(fabric.components()) == case.parts
    assert fabric.islands() == case.islands
    assert frozenset(fabric.hosts) == frozenset().union(*fabric.truth.tiers[-1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_port_holds_one_cable_and_exists(case: Case) -> None:
    fabric = case.make()
    ports = {x.guid: x.port_count for x in (*fabric.switches, *fabric.adapters)}
    ends = [end for cable in fabric.cables for end in cable.ends]
    assert len(ends) == len(set(ends))
    assert all(1 <= port <= ports[guid] for guid, port in ends)
    names = [x.name for x in fabric.switches]
    assert len(set(names)) == len(names)
    guids = [*ports, *(x.port_guid for x in fabric.adapters)]
    assert len(set(guids)) == len(guids)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_leaf_serves_the_hosts_of_its_domain(case: Case) -> None:
    fabric = case.make()
    host_of = fabric.node_map()
    domain = fabric.truth.domain_of()
    serves = {x.guid: x.domain for x in fabric.switches}
    for cable in by_class(fabric)[0, 1]:
        assert serves[cable.b] == domain[host_of[cable.a]]


def test_hosts_sit_on_the_same_port_of_every_rail_and_spine_port_j_leads_to_leaf_j() -> None:
    fabric = shapes.rail_optimised(3, 4, 2, shared_spines=2)
    name = {x.guid: x.name for x in fabric.switches}
    host_of = fabric.node_map()
    ports = {(host_of[c.a], c.b_port) for c in by_class(fabric)[0, 1]}
    assert ports == {(host, 1 + i % 4) for i, host in enumerate(fabric.hosts)}
    leads = {c.b_port: name[c.a] for c in by_class(fabric)[1, 2] if name[c.b] == "spine-02"}
    assert leads == {
        1: "leaf-u01-r0",
        2: "leaf-u02-r0",
        3: "leaf-u03-r0",
        4: "leaf-u01-r1",
        5: "leaf-u02-r1",
        6: "leaf-u03-r1",
    }
    assert {c.a_port for c in by_class(fabric)[1, 2]} == {5, 6}


def test_names_are_what_real_devices_say() -> None:
    fabric = shapes.rail_optimised(1, 2, 2, 1)
    assert [x.description for x in fabric.adapters] == [
        "node-0001 mlx5_0",
        "node-0001 mlx5_1",
        "node-0002 mlx5_0",
        "node-0002 mlx5_1",
    ]
    assert fabric.switches[0].description == "MF0;leaf-u01-r0:MQM8700/U1"
    wide = shapes.single_rack(50).switches[0]
    assert (wide.port_count, wide.description) == (64, "MF0;tor-01:MQM9700/U1")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equal_calls_make_equal_fabrics(case: Case) -> None:
    assert case.make() == case.make()


def test_the_seed_changes_guids_and_nothing_else() -> None:
    one, other = shapes.fat_tree(4, seed=1), shapes.fat_tree(4, seed=2)
    assert {x.guid for x in one.switches}.isdisjoint(x.guid for x in other.switches)
    assert [x.guid for x in one.adapters] != [x.guid for x in other.adapters]
    assert one.truth == other.truth
    assert [(c.a_port, c.b_port) for c in one.cables] == [(c.a_port, c.b_port) for c in other.cables]
    named = [[(f.name_of(c.a), f.name_of(c.b)) for c in f.cables] for f in (one, other)]
    assert named[0] == named[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: shapes.clos2(0, 1, 1),
        lambda: shapes.fat_tree(5),
        lambda: shapes.fat_tree(2),
        lambda: shapes.rail_optimised(1, 1, 1),
        lambda: shapes.rail_optimised(1, 1, 1, 1, shared_spines=1),
        lambda: shapes.dragonfly_plus(2, 1, 1, 1, 0),
    ],
)
def test_sizes_that_make_no_fabric_are_refused(make: Callable[[], SimFabric]) -> None:
    with pytest.raises(ValueError, match=r"at least|even number|either"):
        make()


def test_a_cluster_with_fewer_hosts_than_pods_is_refused_before_it_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(shapes, "rail_optimised")
    with pytest.raises(ValueError, match="3 hosts for 4 pods: expected at least one for each"):
        shapes.cluster(3, pods=4)


@pytest.mark.parametrize(("hosts", "pods", "highest_port"), [(1008, 2, 254), (1009, 3, 171)])
def test_a_pod_has_as_many_units_as_its_spines_have_ports(hosts: int, pods: int, highest_port: int) -> None:
    fabric = shapes.cluster(hosts, hosts_per_unit=2, pods=2)
    assert len(fabric.truth.tiers[1]) == pods
    assert max(port for cable in fabric.cables for _, port in cable.ends) == highest_port


@pytest.mark.slow
def test_65536_hosts() -> None:
    fabric = shapes.fat_tree(64)
    assert len(fabric.hosts) == 65_536
    assert [len(tier) for tier in fabric.truth.tiers] == [2048, 64, 1]
    assert len(fabric.cables) == 3 * 65_536
