"""The lab's fabric as data: every port once, every name good for the kernel, every address its own."""

from collections import Counter

import pytest
from hyperscout_sim.fabric.fabric import Union
from lab.panel import CableError, stub_of
from lab.plan import PLAN, RAILS, SPINES, Cable, Plan, device_of, make_plan, port_of
from lab.trouble import PLAN as PODS

any_plan = pytest.mark.parametrize("plan", [PLAN, PODS], ids=["a pod", "two pods"])


def test_units_and_domains() -> None:
    assert PLAN.domains == {
        "a": frozenset({"node1", "node2", "node3"}),
        "b": frozenset({"node4", "node5", "node6"}),
    }
    assert PLAN.names == tuple(f"node{n}" for n in range(1, 7))
    assert [(node.name, node.unit) for node in PLAN.later] == [("node7", "a")]


@any_plan
def test_a_port_has_one_cable_and_is_there(plan: Plan) -> None:
    ends = [end for cable in plan.cables for end in cable.ends]
    assert max(Counter(ends).values()) == 1
    there = {f"{switch.name}/{port}" for switch in plan.switches for port in switch.ports}
    there |= {f"{node.name}/{port}" for node in (*plan.nodes, *plan.later) for port in node.rails}
    assert set(ends) <= there
    assert all(stub_of(port) for port in there)


@pytest.mark.parametrize("node", [*PLAN.nodes, *PLAN.later], ids=lambda node: node.name)
def test_a_rail_goes_to_its_leaf_of_the_unit(node) -> None:  # type: ignore[no-untyped-def]
    far = {cable.a: device_of(cable.b) for cable in PLAN.cables_of(node.name)}
    assert far == {f"{node.name}/rail{rail}": f"leaf-{node.unit}{rail + 1}" for rail in range(RAILS)}


def test_every_leaf_has_a_cable_to_each_spine() -> None:
    for unit in PLAN.domains:
        for leaf in PLAN.leaves(unit):
            assert PLAN.neighbours(leaf) == {f"spine-{n}" for n in range(1, SPINES + 1)}
    assert PLAN.neighbours("spine-1") == {"leaf-a1", "leaf-a2", "leaf-b1", "leaf-b2"}


def forwards(plan: Plan, port: str) -> bool:
    switches = {switch.name: switch for switch in plan.switches}
    device = device_of(port)
    return device not in switches or switches[device].forwards(port_of(port))


@any_plan
def test_what_forwards_has_no_loop_and_joins_each_rail(plan: Plan) -> None:
    """With one cable more than this frames would circle for ever."""
    parts = Union()
    used = [cable for cable in plan.cables if all(forwards(plan, end) for end in cable.ends)]
    for cable in used:
        # Rails of a node are apart; ports of a switch are together.
        parts.join(cable.a if port_of(cable.a).startswith("rail") else device_of(cable.a), device_of(cable.b))
    assert len(parts.parts()) == RAILS
    assert len(used) == sum(len(part) - 1 for part in parts.parts())


@any_plan
def test_addresses_are_unique(plan: Plan) -> None:
    nodes = (*plan.nodes, *plan.later)
    addresses = [node.address(rail) for node in nodes for rail in range(RAILS)]
    macs = [node.mac(rail) for node in nodes for rail in range(RAILS)]
    macs += [switch.mac(port) for switch in plan.switches for port in switch.ports]
    guids = [guid for node in nodes for guid in (node.ib_guid, node.ib_guid + 1)]
    guids += [switch.guid for switch in plan.ib_switches]
    for values in (addresses, macs, guids):
        assert len(set(values)) == len(values)


def test_another_fabric() -> None:
    plan = make_plan({"x": ["node1"], "y": ["node2"], "z": ["node3"]}, {"z": ["node9"]})
    assert [switch.name for switch in plan.ib_switches] == ["ib-leaf-x", "ib-leaf-y", "ib-leaf-z", "ib-spine"]
    assert Cable("node9/rail1", "leaf-z2/swp2") in plan.cables
    assert "node9" in plan
    assert "node4" not in plan
    with pytest.raises(KeyError):
        plan.node("node4")


def test_spines_of_several_pods_are_under_all_cores() -> None:
    assert PODS.neighbours("core-1") == {"spine-11", "spine-12", "spine-21", "spine-22"}
    assert PODS.neighbours("spine-21") == {"leaf-c1", "leaf-c2", "leaf-d1", "leaf-d2", "core-1", "core-2"}
    above = {switch.name: switch.above for switch in PODS.ib_switches}
    assert (above["ib-leaf-d"], above["ib-spine-2"], above["ib-core"]) == ("ib-spine-2", "ib-core", "")


def test_names_that_the_kernel_refuses() -> None:
    assert (device_of("leaf-a1/swp1"), port_of("leaf-a1/swp1")) == ("leaf-a1", "swp1")
    with pytest.raises(CableError, match="no name as long as"):
        stub_of("distribution-1/swp1")
