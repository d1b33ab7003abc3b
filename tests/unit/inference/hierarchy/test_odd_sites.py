"""Sites of several designs below the same spines: what is healthy, and what is missed beside it."""

from dataclasses import replace

import pytest
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.build import Builder, whole
from hyperscout_sim.fabric.fabric import SimFabric
from support.inference import inferred, tiers, truth, without_switch


def dead(fabric: SimFabric, switch: str) -> SimFabric:
    """The fabric without a switch."""
    return without_switch(fabric, fabric.find(switch))


def test_leaves_on_the_same_port_of_two_pods_are_both_missed() -> None:
    fabric = shapes.fat_tree(8)
    found = inferred(dead(dead(fabric, "leaf-p01-02"), "leaf-p03-02")).anomalies
    assert {(x.kind, x.message.split()[0], x.confidence) for x in found} == {
        ("MissingSwitch", "leaf-p01-02", 0.9),
        ("MissingSwitch", "leaf-p03-02", 0.9),
    }


def test_a_missing_rail_is_found_beside_more_racks_of_single_rail_hosts() -> None:
    build = Builder("gpu-and-cpu", 0)
    spines = build.switches("spine", 2, 2)
    for unit in range(2):
        rails = [build.switch(f"gpu-{unit}-rail-{n}", 1) for n in range(8)]
        build.mesh(rails, spines)
        for n in range(6):
            build.host(f"gpu-{unit}{n}", rails)
    for rack in range(3):
        leaf = build.switch(f"cpu-{rack}", 1)
        build.mesh([leaf], spines)
        for n in range(8):
            build.host(f"cpu-{rack}{n}", [leaf])
    fabric = build.finish()
    assert inferred(fabric).anomalies == ()
    (found,) = inferred(dead(fabric, "gpu-1-rail-7")).anomalies
    assert (found.kind, found.confidence) == ("MissingSwitch", 0.9)
    assert found.message.partition(": ")[2].startswith("all 6 hosts of the domain, such as gpu-10,")


def slowed(fabric: SimFabric, *ends: str) -> SimFabric:
    """The fabric with one lane on the first cable between two switches."""
    pair = {fabric.find(end) for end in ends}
    row = next(i for i, c in enumerate(fabric.cables) if {c.a, c.b} == pair)
    cables = list(fabric.cables)
    cables[row] = cables[row]._replace(rate=f"1x{cables[row].rate[2:]}")
    return replace(fabric, cables=tuple(cables))


def border_leaf_on_cores() -> SimFabric:
    build = Builder("border", 0)
    cores = build.switches("core", 3, 2)
    for pod in range(2):
        spines = [build.switch(f"spine-{pod}{n}", 2) for n in range(2)]
        build.mesh(spines, cores, 2)
        for n in range(3):
            leaf = build.switch(f"leaf-{pod}{n}", 1)
            build.mesh([leaf], spines)
            for host in range(6):
                build.host(f"host-{pod}{n}{host}", [leaf])
    border = build.switch("border", 1)
    build.mesh([border], cores, 2)
    for host in range(4):
        build.host(f"out-{host}", [border])
    return build.finish()


def pair_of_leaves() -> SimFabric:
    build = Builder("pair", 0)
    leaves = build.switches("leaf", 1, 2)
    for n, leaf in enumerate(leaves):
        for host in range(4):
            build.host(f"host-{n}{host}", [leaf])
    build.mesh(leaves[:1], leaves[1:], 2)
    return build.finish()


@pytest.mark.parametrize(
    ("fabric", "one", "other"),
    [
        pytest.param(border_leaf_on_cores(), "border", "core-01", id="leaf on cores"),
        pytest.param(shapes.dragonfly_plus(3, 2, 2, 4, 2), "spine-g01-01", "spine-g02-01", id="long cable"),
        pytest.param(pair_of_leaves(), "leaf-01", "leaf-02", id="one of two trunks"),
    ],
)
def test_a_slow_cable_between_any_two_switches_is_named(fabric: SimFabric, one: str, other: str) -> None:
    assert [x.message for x in inferred(fabric).anomalies if x.kind == "SlowLink"] == []
    (found,) = (x for x in inferred(slowed(fabric, one, other)).anomalies if x.kind == "SlowLink")
    assert found.peer is not None
    assert ({found.subject.name, found.peer.name}, found.confidence) == ({one, other}, 0.9)
    assert "1 lane of 4" in found.message


def test_cores_above_a_large_pod_and_one_with_a_single_spine_are_no_leaves() -> None:
    build = Builder("unequal-pods", 0)
    cores = build.switches("core", 3, 4)
    pods = []
    for spines, leaves, each in ((4, 8, 2), (1, 4, 1)):
        above = [build.switch(f"spine-{len(pods)}{n}", 2) for n in range(spines)]
        build.mesh(above, cores, each)
        racks = []
        for n in range(leaves):
            leaf = build.switch(f"leaf-{len(pods)}{n}", 1)
            build.mesh([leaf], above, 2)
            racks.append(frozenset(f"host-{len(pods)}{n}{host}" for host in range(6)))
            for host in sorted(racks[-1]):
                build.host(host, [leaf])
        pods.append(racks)
    hosts = whole(host for racks in pods for rack in racks for host in rack)
    leaves = tuple(rack for racks in pods for rack in racks)
    fabric = build.finish(leaves, tuple(frozenset().union(*racks) for racks in pods), hosts)
    topology = inferred(fabric)
    assert {int(s.id, 16): s.level for s in topology.switches} == fabric.levels()
    assert tiers(topology) == truth(fabric)
    assert topology.anomalies == ()


def leaves_with(*uplinks: tuple[int, ...]) -> SimFabric:
    """Leaves of six hosts with so many cables to each spine."""
    build = Builder("uplinks", 0)
    spines = build.switches("spine", 2, len(uplinks[0]))
    for n, each in enumerate(uplinks):
        leaf = build.switch(f"leaf-{n:02}", 1)
        for host in range(6):
            build.host(f"host-{n:02}{host}", [leaf])
        for spine, cables in zip(spines, each, strict=True):
            build.mesh([leaf], [spine], cables)
    return build.finish()


ROTATED = [(3, 3, 2), (2, 3, 3), (3, 2, 3)]


@pytest.mark.parametrize(
    "uplinks",
    [
        pytest.param(ROTATED * 3, id="the rest of eight by three in turn"),
        pytest.param([(5, 4), (4, 5)] * 4, id="nine by two in turn"),
        pytest.param([(3, 3)] * 6 + [(4, 4)], id="one with more cables to each spine"),
    ],
)
def test_uplinks_that_are_spread_evenly_are_not_wrong(uplinks: list[tuple[int, ...]]) -> None:
    assert [x.message for x in inferred(leaves_with(*uplinks)).anomalies] == []


def test_an_uneven_leaf_among_them_is_named_as_unsure() -> None:
    found = inferred(leaves_with(*ROTATED * 3, (4, 2, 2))).anomalies
    assert {(x.subject.name, x.confidence < 0.5) for x in found} == {("leaf-09", True)}


def test_several_leaves_without_the_same_spine_were_built_so() -> None:
    """One leaf alone may have lost its cables; and one cable of several leaves is no design."""
    full, less = (2,) * 4, (2, 2, 2, 0)
    (sure,) = {x.confidence for x in inferred(leaves_with(*[full] * 8, less)).anomalies}
    (unsure,) = {x.confidence for x in inferred(leaves_with(*[full] * 8, less, less)).anomalies}
    assert unsure < 0.5 < sure


def test_one_of_four_spines_is_missing() -> None:
    fabric = leaves_with(*[(2,) * 4] * 6)
    (found,) = inferred(dead(fabric, "spine-03")).anomalies
    assert (found.kind, found.subject.name, found.confidence) == ("MissingSwitch", "spine-03", 0.9)


def test_most_leaves_lack_one_cable_of_thick_trunks() -> None:
    """17 of 18 cables are spread evenly, too, but four leaves have all of them."""
    fabric = leaves_with(*[(9, 9)] * 12)
    spines = [fabric.find("spine-01"), fabric.find("spine-02")]
    lost = {
        next(c for c in fabric.cables if {c.a, c.b} == {fabric.find(f"leaf-{n:02}"), spines[n % 2]})
        for n in range(8)
    }
    topology = inferred(replace(fabric, cables=tuple(c for c in fabric.cables if c not in lost)))
    assert [(x.kind, x.confidence) for x in topology.anomalies] == [("MissingLink", 0.9)] * 8


def test_cables_of_all_hosts_to_switches_across_units_are_not_wrong() -> None:
    build = Builder("storage-across-units", 0)
    spines, storage = build.switches("spine", 2, 2), build.switches("storage-leaf", 1, 2)
    for unit in range(2):
        rails = [build.switch(f"leaf-{unit}-rail-{n}", 1) for n in range(2)]
        build.mesh(rails, spines)
        for n in range(4):
            build.host(f"host-{unit}{n}", [*rails, storage[n % 2]])
    assert inferred(build.finish()).anomalies == ()


@pytest.mark.parametrize(
    ("units", "strays"),
    [
        pytest.param(4, ["spine-01 spine-02", "spine-03 spine-04"], id="half of the spines"),
        pytest.param(4, ["leaf-0-0 leaf-2-0", "leaf-1-1 leaf-3-1"], id="half of the leaves"),
        pytest.param(4, ["leaf-0-0 leaf-2-0"] * 2, id="parallel, between two domains"),
        pytest.param(2, ["leaf-0-0 leaf-0-1"], id="within a domain"),
    ],
)
def test_few_cables_within_a_level_are_named(units: int, strays: list[str]) -> None:
    build = Builder("strays", 0)
    switch = {f"spine-{n:02}": build.switch(f"spine-{n:02}", 2) for n in range(1, 9)}
    spines = list(switch.values())
    for unit in range(units):
        rails = [build.switch(f"leaf-{unit}-{n}", 1) for n in range(2)]
        switch |= {f"leaf-{unit}-{n}": rail for n, rail in enumerate(rails)}
        for n in range(4):
            build.host(f"host-{unit}{n}", rails)
        build.mesh(rails, spines)
    for stray in strays:
        one, other = stray.split()
        build.cable(switch[one], switch[other])
    found = inferred(build.finish()).anomalies
    assert [(x.kind, x.confidence) for x in found] == [("Miswired", 0.9)] * len(strays)


def test_leaves_on_overlapping_pairs_of_spines_are_not_miswired() -> None:
    build = Builder("service-units", 0)
    spines = build.switches("spine", 2, 4)
    for unit, (leaves, wanted) in enumerate([*[(1, spines)] * 4, (2, spines[1:3]), (1, spines[:2])]):
        rails = [build.switch(f"leaf-{unit}-{n}", 1) for n in range(leaves)]
        for n in range(4):
            build.host(f"host-{unit}{n}", rails)
        build.mesh(rails, wanted, 2)
    assert [x.message for x in inferred(build.finish()).anomalies if x.confidence >= 0.5] == []


def test_exchanged_rails_are_both_named_beside_a_missing_cable_of_the_same_rail() -> None:
    fabric = shapes.rail_optimised(3, 4, 4, 2)
    first, *_, last = (host for host in fabric.hosts[4:8])
    leaf = {c.a: (c.b, c.b_port) for c in fabric.cables}
    adapters = {host: [x.guid for x in fabric.adapters if x.host == host] for host in (first, last)}
    one, other = adapters[last][:2]
    ends = {one: leaf[other], other: leaf[one]}
    cables = [
        c._replace(b=ends[c.a][0], b_port=ends[c.a][1]) if c.a in ends else c
        for c in fabric.cables
        if c.a != adapters[first][0]
    ]
    found = inferred(replace(fabric, cables=tuple(cables))).anomalies
    assert sorted((x.kind, x.subject.name) for x in found) == [
        ("MissingLink", first),
        ("Miswired", last),
        ("Miswired", last),
    ]


@pytest.mark.parametrize(
    ("leaves", "uplinks", "spines", "with_storage", "servers"),
    [
        pytest.param(2, 1, 4, 2, 3, id="more than downlinks, on some spines"),
        pytest.param(8, 1, 4, 2, 9, id="likewise, below more leaves"),
        pytest.param(3, 1, 4, 4, 6, id="as many as downlinks, on all spines"),
        pytest.param(6, 2, 2, 2, 12, id="likewise, on few spines"),
    ],
)
@pytest.mark.parametrize("name", ["oss", "s"])
def test_spines_full_of_storage_are_above_the_leaves(
    leaves: int, uplinks: int, spines: int, with_storage: int, servers: int, name: str
) -> None:
    build = Builder("storage", 0)
    above = build.switches("spine", 2, spines)
    below = build.switches("leaf", 1, leaves)
    build.mesh(below, above, uplinks)
    racks = [frozenset(f"node-{n}{host}" for host in range(6)) for n in range(leaves)]
    for leaf, rack in zip(below, racks, strict=True):
        for host in sorted(rack):
            build.host(host, [leaf])
    for n in range(servers):
        for i in range(2):
            spine = above[(2 * n + i) % with_storage]
            build.adapter(f"{name}{n + 1:02d}", f"mlx5_{i}", [spine], foreign="storage")
    topology = inferred(build.finish(tuple(racks), whole(host for rack in racks for host in rack)))
    assert {s.name: s.level for s in topology.switches if s.name.startswith("leaf")} == dict.fromkeys(
        (f"leaf-{n + 1:02d}" for n in range(leaves)), 1
    )
    assert [len(tier) for tier in tiers(topology)] == [leaves, 1]
    assert topology.anomalies == ()


@pytest.mark.parametrize("lines", [4, 6])
def test_a_line_chip_without_hosts_is_on_the_level_of_the_others(lines: int) -> None:
    build = Builder("director", 0)
    chips = [build.switch(f"director/L{n}", 1) for n in range(lines)]
    edges = build.switches("edge", 1, 2)
    build.mesh(edges, chips)
    build.mesh(chips, [build.switch(f"director/F{n}", 2) for n in range(4)])
    racks = []
    for n, (switch, hosts) in enumerate([*((c, lines) for c in chips[:-1]), *((e, 5) for e in edges)]):
        racks.append(frozenset(f"node-{n}{host}" for host in range(hosts)))
        for host in sorted(racks[-1]):
            build.host(host, [switch])
    fabric = build.finish(tuple(racks), whole(host for rack in racks for host in rack))
    topology = inferred(fabric)
    assert tiers(topology) == truth(fabric)
    assert topology.anomalies == ()
    assert len({s.level for s in topology.switches if "/L" in s.name}) == 1


def test_leaves_that_are_cabled_to_each_other_beside_a_storage_fabric() -> None:
    """One of the leaves alone has an uplink, so there is a switch above them with no leaf below it."""
    build = Builder("pair-and-storage", 0)
    tors = build.switches("tor", 1, 2)
    build.mesh(tors[:1], tors[1:])
    build.mesh(tors[1:], build.switches("spine", 2, 1))
    storage = build.switch("st-leaf", 1)
    build.mesh([storage], [st_spine := build.switch("st-spine", 2)])
    for n in range(2):
        build.host(f"node-{n}", [*tors, storage])
    build.adapter("ufm-01", "mlx5_0", [st_spine])
    assert tiers(inferred(build.finish())) == [{frozenset({"node-0", "node-1"})}]
