"""Levels: what is a leaf, and what only has a login node."""

from dataclasses import replace

import pytest
from hyperscout_sim.fabric import shapes
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
