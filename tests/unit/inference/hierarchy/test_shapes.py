"""Every shape without a fault: exact domains, exact levels, no anomaly; and what must hold of any tree."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.examples import seeds
from support.inference import inferred, inputs_of, tiers, truth


def any_fabric(n: Callable[[int, int], int]) -> SimFabric:
    """Any shape of modest size. `n`: an integer between two bounds, both included."""
    seed = n(0, 1000)
    kind = n(0, 9)
    match kind:
        case 0:
            return shapes.clos2(n(2, 5), n(3, 8), n(2, 5), n(1, 2), seed=seed)
        case 1:
            return shapes.clos3(n(2, 4), n(2, 4), n(3, 5), n(2, 4), n(2, 3), seed=seed)
        case 2:
            return shapes.rail_optimised(n(2, 4), n(3, 6), n(2, 8), n(2, 4), seed=seed)
        case 3:
            return shapes.rail_optimised(n(2, 3), n(3, 5), n(2, 4), n(2, 3), pods=n(2, 3), seed=seed)
        case 4:
            return shapes.rail_optimised(n(2, 4), n(3, 6), n(2, 8), shared_spines=n(2, 4), seed=seed)
        case 5:
            return shapes.dual_homed(n(2, 5), n(3, 8), n(2, 4), n(0, 2), seed=seed)
        case 6:
            return shapes.rail_only(n(2, 4), n(3, 6), n(2, 8), seed=seed)
        case 7:
            return shapes.multi_plane(n(2, 4), n(2, 4), n(3, 6), n(2, 4), seed=seed)
        case 8:
            return shapes.dragonfly_plus(n(3, 5), n(2, 4), n(2, 4), n(3, 5), n(1, 4), seed=seed)
        case _:
            return shapes.single_rack(n(3, 24), n(1, 8), seed=seed)


@st.composite
def fabrics(draw: st.DrawFn) -> SimFabric:
    return any_fabric(lambda low, high: draw(st.integers(low, high)))


def shuffled_ports(fabric: SimFabric, seed: int) -> SimFabric:
    """The same wiring, on ports that follow no plan."""
    rng = Random(seed)
    port_of = {}
    for switch in fabric.switches:
        ports = list(range(1, min(switch.port_count, 254) + 1))  # InfiniBand counts no further
        rng.shuffle(ports)
        port_of[switch.guid] = [0, *ports]
    cables = [
        c._replace(
            a_port=port_of[c.a][c.a_port] if c.a in port_of else c.a_port, b_port=port_of[c.b][c.b_port]
        )
        for c in fabric.cables
    ]
    return replace(fabric, cables=tuple(cables))


def check_tree(topology: Topology) -> None:
    """What a consumer of HyperNodes needs, whatever was wired."""
    by_name = {h.name: h for h in topology.hypernodes}
    assert len(by_name) == len(topology.hypernodes)
    depth = max((h.tier for h in topology.hypernodes), default=0)
    for h in topology.hypernodes:
        assert h.nodes
        assert len(h.name) <= 63
        if h.parent is None:
            assert h.tier == depth  # one root an island, all of one depth
        else:
            assert by_name[h.parent].tier == h.tier + 1
            assert h.name in by_name[h.parent].children
        below = [by_name[child] for child in h.children]
        assert all(child.parent == h.name for child in below)
        if h.tier > 1:
            nodes = [node for child in below for node in child.nodes]
            assert sorted(nodes) == list(h.nodes)  # laminar, and nothing beside the children
    leaves = [node for h in topology.hypernodes if h.tier == 1 for node in h.nodes]
    assert len(leaves) == len(set(leaves))
    assert len({(h.tier, h.tier_name) for h in topology.hypernodes}) == depth
    assert len({h.tier_name for h in topology.hypernodes}) == depth


@given(fabrics())
def test_a_healthy_fabric_gives_exactly_its_domains_and_no_anomaly(fabric: SimFabric) -> None:
    topology = inferred(fabric)
    check_tree(topology)
    assert tiers(topology) == truth(fabric)
    assert [x.message for x in topology.anomalies] == []
    assert {int(s.id, 16): s.level for s in topology.switches} == fabric.levels()
    assert len(topology.links) == len(fabric.cables)


@seeds(60)
def test_ports_without_a_plan_change_nothing(seed: int) -> None:
    """Not so where the same port of two switches is free by chance: that can look like a missing switch."""
    rng = Random(seed)
    fabric = any_fabric(rng.randint)
    topology = inferred(shuffled_ports(fabric, rng.randint(0, 1000)))
    assert tiers(topology) == truth(fabric)
    assert [x.message for x in topology.anomalies] == []


@given(fabrics(), st.randoms(use_true_random=False))
def test_the_order_of_evidence_does_not_matter(fabric: SimFabric, rng: Random) -> None:
    inputs = inputs_of(fabric)
    other = list(inputs.sweeps)
    rng.shuffle(other)
    assert to_json(infer(FabricInputs(sweeps=tuple(other)))) == to_json(infer(inputs))


@pytest.mark.slow
@given(fabrics(), st.data())
def test_asking_for_some_hosts_changes_no_level_and_no_grouping(
    fabric: SimFabric, data: st.DataObject
) -> None:
    asked = data.draw(st.sets(st.sampled_from(fabric.hosts)))
    whole, part = inferred(fabric), inferred(fabric, nodes=asked)
    check_tree(part)
    rest = set(fabric.hosts) - asked
    assert tiers(part) == [t for t in truth(fabric, without=rest) if t]
    assert part.switches == whole.switches
    assert {h.name for h in part.hypernodes} <= {h.name for h in whole.hypernodes}


def test_no_evidence_is_an_empty_topology() -> None:
    topology = infer(FabricInputs())
    assert topology.hypernodes == () == topology.anomalies == topology.switches
    assert list(topology.links) == []


@pytest.mark.parametrize(
    ("shape", "arguments", "domains"),
    [
        (shapes.fat_tree, (4,), [8, 4, 1]),
        (shapes.fat_tree, (8,), [32, 8, 1]),
        (shapes.rail_only_wide, (16, 8), [1]),
        (shapes.clos3, (1, 4, 8, 4, 4), [4, 1]),  # one pod: cores group nothing new
        (shapes.clos2, (2, 2, 2), [2, 1]),
        (shapes.multi_plane, (8, 32, 32, 16), [32, 1]),
    ],
    ids=["fat4", "fat8", "wide", "one-pod", "tiny", "planes"],
)
def test_known_shapes(
    shape: Callable[..., SimFabric], arguments: tuple[int, ...], domains: list[int]
) -> None:
    fabric = shape(*arguments)
    topology = inferred(fabric)
    assert [len(tier) for tier in tiers(topology)] == domains
    assert tiers(topology) == truth(fabric)
    assert topology.anomalies == ()
