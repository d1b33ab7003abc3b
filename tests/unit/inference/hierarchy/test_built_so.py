"""A host or a unit with fewer rails than its peers: built so, or ailing? Their own agents tell."""

from dataclasses import replace
from random import Random

import pytest
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.build import Builder, host_names, whole
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.faults import Fault, plant
from hyperscout_sim.fabric.racks import racks
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.health import SURE
from support.examples import seed_blocks
from support.inference import Namer, inputs_of, tiers, truth

# As many units with four rails as with eight.
MIXED = racks(1, 2, trays=4, hgx=4).fabric


def seen(fabric: SimFabric, built: SimFabric | None = None) -> FabricInputs:
    """Sweeps, and what the agents of all hosts tell of the adapters that they were `built` with."""
    cables = {cable.a: cable for cable in fabric.cables}
    ports = {
        host: tuple(port_facts(adapter, cables.get(adapter.guid)) for adapter in adapters)
        for host, adapters in (built or fabric).adapters_of().items()
    }
    return replace(inputs_of(fabric), infiniband=ports)


def without(fabric: SimFabric, host: str, devices: set[str]) -> SimFabric:
    """The host has not those adapters."""
    gone = {x.guid for x in fabric.adapters if x.host == host and x.device in devices}
    return replace(
        fabric,
        adapters=tuple(x for x in fabric.adapters if x.guid not in gone),
        cables=tuple(c for c in fabric.cables if c.a not in gone),
    )


def said(inputs: FabricInputs) -> list[tuple[str, str]]:
    return sorted((x.kind, x.subject.name) for x in infer(inputs).anomalies)


def test_units_with_half_the_rails_miss_no_switch() -> None:
    assert said(inputs_of(MIXED)) == []
    assert said(seen(MIXED)) == []


def test_a_dead_leaf_is_missed_where_agents_call_its_adapters_down() -> None:
    fabric = shapes.rail_optimised(3, 4, 4, 2)
    leaf = fabric.find("leaf-u02-r1")
    dead = replace(
        fabric,
        switches=tuple(s for s in fabric.switches if s.guid != leaf),
        cables=tuple(c for c in fabric.cables if leaf not in (c.a, c.b)),
    )
    assert said(seen(dead, fabric)) == [("MissingSwitch", "leaf-u02-r1")]


def test_a_host_with_one_adapter_lacks_no_cable() -> None:
    fabric = shapes.rail_optimised(2, 6, 4, 2)
    host = fabric.hosts[0]
    single = without(fabric, host, {"mlx5_1", "mlx5_2", "mlx5_3"})
    assert said(inputs_of(single)) == []
    assert said(seen(single)) == []


@pytest.mark.parametrize("kept", [{0}, {1}], ids=["first rail", "second rail"])
def test_a_host_with_one_of_two_adapters_is_not_accused(kept: set[int]) -> None:
    assert_not_accused(2, 1, kept)


@pytest.mark.parametrize("kept", [{0, 1}, {2, 3}, {1, 3}], ids=str)
def test_a_host_with_two_of_four_adapters_is_not_accused(kept: set[int]) -> None:
    assert_not_accused(4, 1, kept)


def test_hosts_of_different_units_with_six_of_eight_adapters_are_not_accused() -> None:
    assert_not_accused(8, 2, {0, 2, 4, 5, 6, 7})


def assert_not_accused(rails: int, hosts: int, kept: set[int]) -> None:
    """The names of a host's adapters decide nothing. Each unit has six hosts."""
    fabric = shapes.rail_optimised(2, 6, rails, 2)
    for host in fabric.hosts[::6][:hosts]:
        fabric = without(fabric, host, {f"mlx5_{n}" for n in range(rails) if n not in kept})
    assert {x.message: x.confidence for x in infer(inputs_of(fabric)).anomalies if x.confidence >= 0.5} == {}


def test_one_with_adapters_that_are_down_does() -> None:
    fabric = shapes.rail_optimised(2, 6, 4, 2)
    host = fabric.hosts[0]
    single = without(fabric, host, {"mlx5_1", "mlx5_2", "mlx5_3"})
    assert said(seen(single, fabric)) == [("MissingLink", host)] * 3


def test_one_that_lost_a_single_adapter_does_too() -> None:
    """The others are up, but a host with three of four rails was not built so."""
    fabric = shapes.rail_optimised(2, 6, 4, 2)
    host = fabric.hosts[0]
    assert said(seen(without(fabric, host, {"mlx5_2"}))) == [("MissingLink", host)]


def two_models(*models: tuple[int, int], spines: int = 8) -> SimFabric:
    """Leaves of several models below the same spines: so many leaves of so many hosts each, whose uplinks
    begin after those."""
    build = Builder("two-models", 0)
    tops = build.switches("spine", 2, spines)
    hosts = iter(host_names(sum(leaves * each for leaves, each in models)))
    parts = []
    for leaves, each in models:
        for _ in range(leaves):
            leaf = build.switch(f"leaf-{len(parts) + 1:02}", 1, len(parts))
            parts.append([next(hosts) for _ in range(each)])
            for host in parts[-1]:
                build.host(host, [leaf])
            build.mesh([leaf], tops)
    return build.finish(tuple(map(frozenset, parts)), whole(host for part in parts for host in part))


MODELS = {
    "a third of another": two_models((6, 20), (3, 16)),
    "one of another": two_models((8, 20), (1, 16)),
    "few uplinks": two_models((8, 2), (1, 3), spines=2),
    "with more hosts": two_models((8, 16), (2, 20), spines=16),
}


@pytest.mark.parametrize("name", MODELS)
def test_leaves_with_their_uplinks_on_other_ports_are_not_miswired(name: str) -> None:
    fabric = MODELS[name]
    topology = infer(inputs_of(fabric))
    assert tiers(topology) == truth(fabric)
    assert [x.message for x in topology.anomalies] == []


@seed_blocks(range(40, 44), [range(40)])
@pytest.mark.parametrize("fault", [Fault.UPLINK, Fault.SWAPPED_UPLINKS])
@pytest.mark.parametrize("name", list(MODELS)[:2])
def test_what_is_wrong_beside_them_is_still_named(name: str, fault: Fault, seeds: range) -> None:
    fabric = MODELS[name]
    namer = Namer(fabric)
    traced = 0
    for seed in seeds:
        faulty, planted = plant(fabric, fault, Random(seed))
        topology = infer(inputs_of(faulty))
        named = [x for x in topology.anomalies if namer.names(x, planted)]
        traced += planted.leaves_trace
        assert named or not planted.leaves_trace
        if planted.leaves_trace:
            assert [x.message for x in topology.anomalies if x not in named] == []
    assert traced > len(seeds) / 2


@pytest.mark.parametrize(("units", "sure"), [(1, False), (2, True)], ids=["two hosts", "four hosts"])
def test_one_host_is_no_witness_that_the_other_of_its_leaf_lacks_a_cable(units: int, sure: bool) -> None:
    """It may have one more. A third host with as many cables tells that they are usual."""
    fabric = shapes.rail_optimised(units, 2, 4, shared_spines=2)
    (adapter, *_) = fabric.adapters
    cut = replace(fabric, cables=tuple(c for c in fabric.cables if c.a != adapter.guid))
    (found,) = infer(inputs_of(cut)).anomalies
    assert (found.kind, found.confidence > SURE) == ("MissingLink", sure)
    down = replace(seen(cut), infiniband_at_ns=dict.fromkeys(fabric.hosts, 2))
    (found,) = infer(down).anomalies
    assert found.confidence > SURE, "its own agent reports the port as down"


def test_two_leaves_are_compared_by_sweeps_and_not_by_one_agent() -> None:
    fabric = shapes.clos2(2, 4, 4)
    cable = next(c for c in fabric.cables if c.a not in fabric.node_map())
    cut = replace(fabric, cables=tuple(c for c in fabric.cables if c != cable))
    (found,) = infer(inputs_of(cut)).anomalies
    assert (found.kind, found.confidence > SURE) == ("MissingLink", True)


def test_a_down_port_of_an_adapter_with_another_cable_lacks_its_cable() -> None:
    """All peers have both ports of one adapter cabled. The cable was never published."""
    two = shapes.rail_optimised(2, 4, 2, 1)
    first, second = ({h: mine[i] for h, mine in two.adapters_of().items()} for i in (0, 1))
    onto = {second[h].guid: first[h].guid for h in two.hosts}
    cables = tuple(c._replace(a=onto[c.a], a_port=2) if c.a in onto else c for c in two.cables)
    adapters = tuple(replace(x, port_count=2) for x in two.adapters if x.guid not in onto)
    fabric = replace(two, adapters=adapters, cables=cables)
    host = fabric.hosts[1]
    for gone in (1, 2):
        left = tuple(c for c in cables if (c.a, c.a_port) != (first[host].guid, gone))
        ports = {}
        for name in fabric.hosts:
            mine = {c.a_port: c for c in left if c.a == first[name].guid}
            facts = ((n, port_facts(first[name], mine.get(n))) for n in (1, 2))
            ports[name] = tuple(replace(x, port=n, port_guid=first[name].port_guid + n - 1) for n, x in facts)
        swept = inputs_of(replace(fabric, cables=left))
        found = infer(replace(swept, infiniband=ports))
        assert [(x.kind, x.confidence) for x in found.anomalies] == [("MissingLink", 0.9)]
