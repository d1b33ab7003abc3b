"""What placement makes of anomalies: of hand-made ones, and of what inference finds of planted faults."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import conditions, infer
from hyperscout_placer.cluster.health import Health, health_of
from hyperscout_publish.nodes.taint_policy import TaintSettings, troubles
from hyperscout_sim.fabric import nvlink, shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.faults import Fault, plant
from hyperscout_sim.fabric.racks import racks
from hyperscout_topology.health import DEGRADING
from hyperscout_topology.topology import Anomaly, Endpoint, Link, LinkTable, Switch, Topology
from support.examples import slow_after
from support.inference import inferred, inputs_of
from support.measurements import pinged
from support.rack_inputs import changed, domain_of, inferred_racks
from support.topologies import HOST, LEAF, SECOND, SPINE, on_leaf_b, two_leaves


def of(*anomalies: Anomaly) -> Health:
    return health_of(replace(two_leaves(), anomalies=anomalies))


def link(subject: Endpoint, peer: Endpoint | None = LEAF, kind: str = "MissingLink", **more: Any) -> Anomaly:
    return on_leaf_b(kind, subject, peer, **more)


def measured(subject: Endpoint, peer: Endpoint | None = None, **more: Any) -> Anomaly:
    return on_leaf_b("SlowLink", subject, peer, sources=("latency",), **more)


PORT_2, BACK = Endpoint("s2", "leaf-b", "2"), Endpoint("a01", "n01", "1")
BARE = link(Endpoint("s2", "leaf-b"), Endpoint("s9", "spine"))
GONE, SWITCH = Endpoint("gone", "n04", "1"), Endpoint("", "leaf-c")
DOMAIN, READ = Endpoint("domain/leaf of n03", "leaf of n03"), Endpoint("hypernode/leaf-b", "1 link down")
N01, N03 = Endpoint("n01", "n01", "eth0"), Endpoint("n03", "n03", "eth0")
B = {"leaf-b": 1}
C = {"core": 1}


@pytest.mark.parametrize(
    ("name", "anomalies", "down", "nodes", "hypernodes"),
    [
        ("nothing", [], "", {}, {}),
        ("a cable that is out", [link(HOST)], "n03", {"n03": 1}, {}),
        ("named from the switch's end", [link(LEAF, HOST)], "n03", {"n03": 1}, {}),
        ("errors", [link(HOST, LEAF, "ErroringLink")], "", {"n03": 1}, {}),
        ("a slow link", [link(HOST, LEAF, "SlowLink")], "", {"n03": 1}, {}),
        ("two of a node", [link(HOST, LEAF, "SlowLink"), link(SECOND)], "n03", {"n03": 2}, {}),
        ("told of twice", [link(HOST), link(LEAF, HOST, "ErroringLink")], "n03", {"n03": 1}, {}),
        ("an adapter that is gone", [link(GONE)], "n04", {"n04": 1}, {}),
        ("perhaps built so", [link(HOST, confidence=0.5)], "", {"n03": 1}, {}),
        ("back to back", [link(HOST, BACK)], "n01 n03", {"n01": 1, "n03": 1}, {}),
        ("a plug in another leaf", [link(HOST, LEAF, "Miswired")], "", {}, {}),
        ("sources disagree", [link(HOST, LEAF, "SourcesDisagree")], "", {}, {}),
        ("an uplink", [link(LEAF, SPINE)], "", {}, B),
        ("two uplinks", [link(LEAF, SPINE), link(PORT_2, SPINE, "SlowLink")], "", {}, {"leaf-b": 2}),
        ("an uplink twice", [link(LEAF, SPINE, "ErroringLink"), link(SPINE, LEAF, "SlowLink")], "", {}, B),
        ("two uplinks of unknown ports", [BARE, BARE], "", {}, {"leaf-b": 2}),
        ("in no domain", [link(LEAF, SPINE, hypernode=None)], "", {}, {}),
        ("in a domain that is no more", [link(LEAF, SPINE, hypernode="leaf-z")], "", {}, {}),
        ("storage", [link(Endpoint("st", "storage-1", "1"))], "", {}, {}),
        ("a slow way", [measured(N03, N01, confidence=0.5, hypernode="core")], "", {}, C),
        ("a slow host", [measured(N03)], "", {"n03": 1}, {}),
        ("a slow domain", [measured(DOMAIN)], "", {}, B),
        ("a condition that was read", [link(READ, None, confidence=0.5)], "", {}, B),
        ("the only switch", [on_leaf_b("MissingSwitch", SWITCH, None, hypernode="core")], "", {}, C),
    ],
)
def test_whose_it_is(
    name: str, anomalies: Sequence[Anomaly], down: str, nodes: dict[str, int], hypernodes: dict[str, int]
) -> None:
    assert of(*anomalies) == Health(frozenset(down.split()), nodes, hypernodes)


def test_what_degrades_here_is_what_the_condition_says() -> None:
    assert {kind for kind, _, _ in conditions.DEGRADED_REASONS} == DEGRADING


def test_a_switch_that_is_missing_counts_with_the_links_that_its_siblings_have() -> None:
    topology = two_leaves()
    leaf = replace(topology.hypernodes[1], switches=("s2", "s3", "s4"))
    core = replace(topology.hypernodes[2], switches=("s2", "s9"))  # a leaf that is listed again
    links = [Link("s2", str(i), "s9", str(i), "ib", ()) for i in range(4)]
    links += [Link(s, str(i), "s8", str(i), "ib", ()) for s in ("s3", "s4") for i in range(3)]
    links += [Link("s9", f"1{i}", "s8", f"1{i}", "ib", ()) for i in range(4)]
    gone = Endpoint("", "leaf-b2")
    told = replace(
        topology,
        hypernodes=(topology.hypernodes[0], leaf, core),
        switches=tuple(Switch(s, s, 1) for s in ("s1", "s2", "s3", "s4", "s8", "s9")),
        links=LinkTable.of(links),
        anomalies=(
            on_leaf_b("MissingSwitch", gone, None),
            on_leaf_b("MissingSwitch", replace(gone, name="leaf-b3"), None, confidence=0.5),
            link(LEAF, SPINE),
            on_leaf_b("MissingSwitch", replace(gone, name="spine-2"), None, hypernode="core"),
        ),
    )
    assert health_of(told) == Health(frozenset(), {}, {"leaf-b": 1 + 2 * 3, "core": 8})


def test_a_node_that_no_fabric_shows_is_down() -> None:
    topology = replace(two_leaves(), anomalies=(), nodes_without_evidence=("n02",))
    assert health_of(topology) == Health(frozenset({"n02"}), {}, {})


def test_what_would_be_tainted_is_degraded_here_too() -> None:
    """One question, one answer: whose link it is."""
    faulty = shapes.rail_optimised(4, 8, 4, 4)
    for seed, fault in enumerate((Fault.HOST_LINK, Fault.UPLINK, Fault.HOST_LINK, Fault.DEAD_RAIL)):
        faulty, _ = plant(faulty, fault, Random(seed))
    topology = inferred(faulty)
    ill = {node: trouble.links for node, trouble in troubles(topology, TaintSettings()).items()}
    assert ill
    assert ill == health_of(topology).nodes


# -- what inference makes of planted faults -----------------------------------------------------------------

SHAPES = {
    "clos2": lambda seed: shapes.clos2(4, 8, 4, 2, seed=seed),
    "clos3": lambda seed: shapes.clos3(3, 4, 4, 4, 4, seed=seed),
    "rail": lambda seed: shapes.rail_optimised(4, 8, 4, 4, seed=seed),
    "rail-pods": lambda seed: shapes.rail_optimised(4, 8, 4, 4, pods=3, seed=seed),
    "dual-homed": lambda seed: shapes.dual_homed(4, 8, 4, 2, seed=seed),
}


def planted(shape: str, fault: Fault, seed: int) -> tuple[SimFabric, tuple[str, ...], Topology, Health]:
    """The healthy fabric, hosts that the fault touches, and what comes of it."""
    fabric = SHAPES[shape](seed)
    for more in range(seed, seed + 200, 10):
        faulty, told = plant(fabric, fault, Random(more))
        if told.leaves_trace and not told.unplaced:
            topology = inferred(faulty, inferred(fabric))
            return fabric, told.hosts, topology, health_of(topology)
    raise AssertionError("no such fault leaves a trace")


@pytest.mark.parametrize("seed", slow_after(1, range(3)))
@pytest.mark.parametrize("shape", ["rail", "rail-pods", "dual-homed"])
@pytest.mark.parametrize("fault", [Fault.HOST_LINK, Fault.DEAD_RAIL])
def test_a_host_with_one_rail_of_several_down_is_down(shape: str, fault: Fault, seed: int) -> None:
    _, hosts, _, health = planted(shape, fault, seed)
    assert health == Health(frozenset(hosts), dict.fromkeys(hosts, 1), {})


@pytest.mark.parametrize("seed", slow_after(1, range(3)))
@pytest.mark.parametrize("shape", SHAPES)
def test_an_uplink_that_is_down_counts_with_one_domain_and_no_node(shape: str, seed: int) -> None:
    *_, topology, health = planted(shape, Fault.UPLINK, seed)
    assert (health.down, health.nodes) == (frozenset(), {})
    assert list(health.hypernodes.values()) == [1]
    (x,) = topology.anomalies
    assert set(health.hypernodes) == {x.hypernode}


@pytest.mark.parametrize("seed", slow_after(1, range(3)))
@pytest.mark.parametrize("fault", [Fault.SWAPPED_UPLINKS, Fault.SWAPPED_HOST_LINKS])
def test_swapped_cables_carry_traffic(fault: Fault, seed: int) -> None:
    *_, topology, health = planted("rail", fault, seed)
    assert {x.kind for x in topology.anomalies} >= {"Miswired"}
    assert health == Health(frozenset(), {}, {})


@pytest.mark.parametrize("seed", slow_after(1, range(3)))
@pytest.mark.parametrize(("fault", "links"), [(Fault.LEAF, 8 + 4), (Fault.SPINE, 4)])
def test_a_switch_that_is_gone_counts_with_its_links(fault: Fault, links: int, seed: int) -> None:
    """8 hosts below a leaf and 4 spines above it; 4 units below a spine."""
    *_, topology, health = planted("rail", fault, seed)
    assert [x.kind for x in topology.anomalies] == ["MissingSwitch"]
    assert (health.down, health.nodes) == (frozenset(), {})
    assert list(health.hypernodes.values()) == [links]


def test_a_host_that_is_cut_off_is_down() -> None:
    fabric = shapes.rail_optimised(4, 8, 4, 4)
    host = fabric.hosts[5]
    mine = {x.guid for x in fabric.adapters_of()[host]}
    bare = replace(fabric, cables=tuple(c for c in fabric.cables if c.a not in mine))
    topology = inferred(bare, inferred(fabric))
    assert host in {n for h in topology.hypernodes for n in h.nodes}
    assert health_of(topology).down == {host}


SMALL = racks(2, 2)
TRAY = SMALL.fabric.hosts[0]


def test_an_nvlink_that_is_down_is_the_nodes_own() -> None:
    well = SMALL.gpus[TRAY]
    topology = inferred_racks(SMALL, changed(SMALL, **{TRAY: nvlink.dead_link(well, 2, 11)}))
    assert health_of(topology) == Health(frozenset({TRAY}), {TRAY: 1}, {})
    topology = inferred_racks(SMALL, changed(SMALL, **{TRAY: nvlink.in_progress(well, [2])}))
    assert health_of(topology) == Health(frozenset(), {TRAY: 1}, {})


def test_a_host_that_lost_all_its_gpus_is_down() -> None:
    topology = inferred_racks(SMALL, changed(SMALL, **{TRAY: ()}), inferred_racks(SMALL))
    assert domain_of(topology, TRAY)
    assert health_of(topology).down == {TRAY}


CLOS = shapes.clos3(2, 3, 6, 3, 2, seed=1)


def test_what_is_measured_to_be_slow_takes_no_node_out_of_use() -> None:
    pings = pinged(CLOS)

    def slowed(chosen: np.ndarray, us: float, bursts: int = 3) -> tuple[Topology, Health]:
        inputs: FabricInputs = replace(inputs_of(CLOS), pairs=pings.plus(chosen, us).table(bursts))
        topology = infer(inputs)
        return topology, health_of(topology)

    leaf = pings.fabric.domain[0]
    topology, health = slowed((leaf[pings.a] == 2) != (leaf[pings.b] == 2), 9.0)
    host = pings.names[int(np.flatnonzero(leaf == 2)[0])]
    home = next(h.name for h in topology.hypernodes if host in h.nodes and not h.children)
    assert health == Health(frozenset(), {}, {home: 1})

    assert slowed(pings.touching(4), 12.0)[1] == Health(frozenset(), {pings.names[4]: 1}, {})

    row = int(np.flatnonzero(leaf[pings.a] != leaf[pings.b])[5])
    topology, health = slowed(np.array([row]), 12.0, 9)
    (x,) = topology.anomalies
    assert health == Health(frozenset(), {}, {x.hypernode: 1})
