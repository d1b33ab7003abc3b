"""Foreign endpoints: a name alone makes none, and wiring alone makes none."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hyperscout_inference.fabric.foreign import foreign_by_name
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.faults import Fault, plant
from support.inference import inferred, inputs_of, tiers

FABRIC = shapes.rail_optimised(2, 4, 4, 2)


def renamed(fabric: SimFabric, names: Mapping[str, str]) -> SimFabric:
    adapters = [
        replace(x, host=names[x.host], description=f"{names[x.host]} {x.device}") if x.host in names else x
        for x in fabric.adapters
    ]
    return replace(fabric, adapters=tuple(adapters))


@pytest.mark.parametrize(
    "name", ["sm-{:03}", "head-{}", "gw-gpu{:02}", "vast-gpu-{:02}", "nvidia{:02}", "MT{:03}"]
)
@pytest.mark.parametrize("share", [1, 2])
def test_hosts_wired_like_hosts_are_hosts_whatever_their_names(name: str, share: int) -> None:
    hosts = FABRIC.hosts
    names = {host: name.format(i) for i, host in enumerate(hosts) if i % share == 0}
    topology = inferred(renamed(FABRIC, names))
    expected = {frozenset(names.get(host, host) for host in domain) for domain in FABRIC.truth.tiers[0]}
    assert tiers(topology)[0] == expected
    assert topology.foreign_endpoints == ()
    assert topology.anomalies == ()


def test_a_node_map_that_names_the_fabric_manager_does_not_make_it_a_host() -> None:
    fabric, planted = plant(FABRIC, Fault.MANAGER, Random(1))
    (manager,) = planted.foreign
    node_map = {x.guid: x.host for x in fabric.adapters}
    topology = infer(replace(inputs_of(fabric), node_map=node_map))
    assert topology.foreign_endpoints == (manager,)
    assert topology.anomalies == ()
    listed = InferOptions(cluster_nodes=frozenset([*fabric.hosts, manager]))
    counted = infer(replace(inputs_of(fabric), node_map=node_map), listed)
    assert manager in {node for h in counted.hypernodes for node in h.nodes}


@pytest.mark.parametrize(
    ("cables", "foreign"),
    [
        pytest.param([("login1", "leaf-1")], {"login1"}, id="one, and a single cable says little"),
        pytest.param([(f"login{i}", "leaf-1") for i in range(4)], set(), id="many, wired like hosts"),
        pytest.param([("login1", "spine")], {"login1"}, id="on a spine"),
        pytest.param([("login1", "leaf-1"), ("login1", "leaf-2")], {"login1"}, id="with more cables"),
        pytest.param([("visitor", "spine")], set(), id="a host's name"),
        pytest.param([("gpu-login-a100", "spine")], set(), id="a role within a name"),
        pytest.param([(f"sm-{i}", "leaf-3") for i in range(8)], set(), id="a leaf of their own"),
    ],
)
def test_a_name_counts_only_with_unlike_wiring(cables: list[tuple[str, str]], foreign: set[str]) -> None:
    compute = [(f"gpu{i}", f"leaf-{1 + i // 8}") for i in range(16)]
    between = [("spine", "leaf-1"), ("spine", "leaf-2"), ("spine", "leaf-3")]
    hosts = {host for host, _ in [*compute, *cables]}
    assert foreign_by_name([*compute, *cables], between, hosts) == foreign
    assert foreign_by_name([*compute, *cables], between, hosts - foreign) == set()


def test_switches_are_named_by_the_node_map_and_told_apart_by_guid() -> None:
    shared = replace(
        FABRIC,
        switches=tuple(replace(s, description="Quantum Mellanox Technologies") for s in FABRIC.switches),
    )
    first, *others = sorted(FABRIC.switches, key=lambda s: s.guid)
    topology = infer(replace(inputs_of(shared), node_map={first.guid: "leaf-a"}))
    assert {s.id: s.name for s in topology.switches} == {
        f"{s.guid:016x}": f"Quantum Mellanox Technologies (0x{s.guid:016x})" for s in others
    } | {f"{first.guid:016x}": "leaf-a"}
    unnamed = infer(inputs_of(shared))
    assert {h.name.rpartition("-")[0] for h in unnamed.hypernodes} == {"quantum-mellanox-technologies"}


def test_a_description_that_is_only_a_model_names_no_host() -> None:
    models = renamed(FABRIC, {})
    adapters = tuple(replace(x, description="MT4129") for x in models.adapters)
    topology = infer(FabricInputs(sweeps=inputs_of(replace(models, adapters=adapters)).sweeps))
    assert {x.kind for x in topology.anomalies} == {"UnknownHost"}


def test_hosts_with_one_description_are_told_why_they_have_no_name() -> None:
    first, second = (FABRIC.adapters_of()[host][0] for host in FABRIC.hosts[:2])
    same = replace(second, description=first.description)
    fabric = replace(FABRIC, adapters=tuple(same if x == second else x for x in FABRIC.adapters))
    topology = infer(FabricInputs(sweeps=inputs_of(fabric).sweeps))
    found = {x.subject.device: x.message for x in topology.anomalies if x.kind == "UnknownHost"}
    assert set(found) == {f"{first.guid:016x}", f"{second.guid:016x}"}
    assert all(" has the description of another adapter " in message for message in found.values())
