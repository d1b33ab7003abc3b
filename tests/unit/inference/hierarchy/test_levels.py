"""Levels: what is a leaf, and what only has a login node."""

from dataclasses import replace

import pytest
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.build import Builder
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from support.inference import inferred, tiers, truth


def levels(fabric: SimFabric) -> dict[str, int]:
    return {s.name: s.level for s in inferred(fabric).switches}


def thinned(fabric: SimFabric, leaf: str, hosts: int) -> SimFabric:
    """Only so many hosts are left on a leaf."""
    guid = fabric.find(leaf)
    on_it = [c for c in fabric.cables if c.b == guid and c.a in fabric.node_map()]
    gone = {c.a for c in on_it[hosts:]}
    return replace(
        fabric,
        adapters=tuple(x for x in fabric.adapters if x.guid not in gone),
        cables=tuple(c for c in fabric.cables if c.a not in gone),
    )


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_a_thinly_filled_leaf_is_a_leaf(hosts: int) -> None:
    for fabric, leaf in ((shapes.clos2(6, 12, 12), "leaf-02"), (shapes.clos3(3, 4, 8, 8, 4), "leaf-p02-02")):
        assert levels(thinned(fabric, leaf, hosts))[leaf] == 1


def test_one_astray_cable_to_the_core_lowers_nothing() -> None:
    fabric = shapes.clos3(5, 4, 4, 4, 4)
    a, a_port, b, b_port = "leaf-p01-01", 40, "core-01-01", 40
    extra = Cable(fabric.find(a), a_port, fabric.find(b), b_port)
    faulty = replace(fabric, cables=(*fabric.cables, extra))
    topology = inferred(faulty)
    assert {int(s.id, 16): s.level for s in topology.switches} == fabric.levels()
    assert tiers(topology) == truth(fabric)
    assert [(x.kind, x.subject.name, x.peer and x.peer.name) for x in topology.anomalies] == [
        ("Miswired", a, b)
    ]


def test_a_switch_that_no_leaf_reaches_has_no_level() -> None:
    fabric = shapes.clos2(2, 4, 2)
    lonely = replace(fabric.switches[0], guid=0xABC, name="lonely", description="lonely", level=0)
    other = replace(lonely, guid=0xABD, name="other", description="other")
    faulty = replace(
        fabric, switches=(*fabric.switches, lonely, other), cables=(*fabric.cables, Cable(0xABC, 1, 0xABD, 1))
    )
    from hyperscout_formats.infiniband.ibnetdiscover import parse
    from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
    from hyperscout_inference.hierarchy import infer
    from hyperscout_sim.readings.sweep_text import blocks, sweep_text

    text = sweep_text(fabric) + "".join(blocks(faulty, [0xABC, 0xABD])).encode()
    topology = infer(FabricInputs(sweeps=(SweepSeen(parse(text)),)))
    assert {s.name: s.level for s in topology.switches}["lonely"] == 0
    assert tiers(topology) == truth(fabric)


def pods(empty: int, border: int) -> SimFabric:
    """Two pods with hosts, others without, and leaves on the cores. The spines of a pod are in two planes."""
    build = Builder("pods", 0)
    cores = build.switches("core", 3, 4)
    for pod in range(2 + empty):
        spines = [build.switch(f"spine-{pod}{n}", 2) for n in range(2)]
        for plane, spine in enumerate(spines):
            build.mesh([spine], cores[2 * plane : 2 * plane + 2])
        for n in range(4):
            leaf = build.switch(f"leaf-{pod}{n}", 1)
            build.mesh([leaf], spines, 2)
            for host in range(4 if pod < 2 else 0):
                build.host(f"host-{pod}{n}{host}", [leaf])
    for n in range(border):
        leaf = build.switch(f"border-{n}", 1)
        build.mesh([leaf], cores)
        for host in range(3):
            build.host(f"out-{n}{host}", [leaf])
    return build.finish()


@pytest.mark.parametrize(("empty", "border"), [(1, 0), (0, 1), (0, 4)])
def test_a_cable_of_a_leaf_to_another_pod_moves_no_core(empty: int, border: int) -> None:
    fabric = pods(empty, border)
    leaf, spine, other = map(fabric.find, ("leaf-02", "spine-01", "spine-11"))
    moved = next(c for c in fabric.cables if c[:3:2] == (leaf, spine))
    rest = tuple(c for c in fabric.cables if c != moved)
    topology = inferred(replace(fabric, cables=(*rest, moved._replace(b=other, b_port=30))))
    cores = {s.name: s.level for s in topology.switches if s.name.startswith("core")}
    assert len(set(cores.values())) == 1
    sure = [(x.kind, x.subject.name) for x in topology.anomalies if x.confidence >= 0.5]
    assert sure == [("Miswired", "leaf-02")]


def test_two_stray_cables_that_form_a_square_are_both_named() -> None:
    build = Builder("strays", 0)
    spines, leaves = build.switches("spine", 2, 4), build.switches("leaf", 1, 6)
    build.mesh(leaves, spines, 2)
    for n, leaf in enumerate(leaves):
        for host in range(6):
            build.host(f"host-{n}{host}", [leaf])
    for n, spine in enumerate(spines):
        build.adapter(f"oss{n // 2}", f"mlx5_{n % 2}", [spine], foreign="storage")
    build.cable(*leaves[:2])
    build.cable(*spines[2:])
    fabric = build.finish()
    assert {int(s.id, 16): s.level for s in inferred(fabric).switches} == fabric.levels()
    found = [(x.kind, {x.subject.name, x.peer and x.peer.name}) for x in inferred(fabric).anomalies]
    assert sorted(found, key=str) == [
        ("Miswired", {"leaf-01", "leaf-02"}),
        ("Miswired", {"spine-03", "spine-04"}),
    ]
