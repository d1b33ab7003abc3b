"""With what was published before: names stay, what is lost is named exactly, and no host is moved."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.hierarchy.history import forget
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.faults import Fault, plant
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
from hypothesis import given
from support.examples import seeds
from support.inference import inferred, tiers, truth, without_hosts, without_switch
from unit.inference.hierarchy.test_shapes import any_fabric, check_tree, fabrics


def names(topology: Topology) -> dict[tuple[int, frozenset[str]], str]:
    return {(h.tier, frozenset(h.nodes)): h.name for h in topology.hypernodes}


@given(fabrics())
def test_names_survive_a_restart(fabric: SimFabric) -> None:
    first = inferred(fabric)
    saved = from_json(to_json(first))
    again = inferred(fabric, previous=saved)
    assert names(again) == names(first)
    assert again.generation == first.generation + 1
    assert again.anomalies == ()


@seeds(50)
def test_the_loss_of_any_switch_moves_no_host_and_names_that_switch(seed: int) -> None:
    """Not so for a spine of some dragonfly+ fabrics: two of its cables are named as miswired too."""
    rng = Random(seed)
    fabric = any_fabric(rng.randint)
    first = inferred(fabric)
    lost = rng.choice(fabric.switches)
    after = inferred(without_switch(fabric, lost.guid), previous=first)
    check_tree(after)
    assert names(after) == names(first)
    assert [(x.kind, x.subject.device) for x in after.anomalies] == [("MissingSwitch", f"{lost.guid:016x}")]
    # And it stays missing, until it is back.
    later = inferred(without_switch(fabric, lost.guid), previous=after)
    assert [x.key for x in later.anomalies] == [x.key for x in after.anomalies]
    back = inferred(fabric, previous=later)
    assert names(back) == names(first)
    assert back.anomalies == ()


@pytest.mark.parametrize("level", [1, 2])
def test_a_replaced_switch_is_not_missing(level: int) -> None:
    """Another device is on the same cables. Where one of them stays unplugged, the old switch is missing."""
    fabric = shapes.clos2(4, 4, 3)
    first = inferred(fabric)
    old = next(s for s in fabric.switches if s.level == level)
    new = max(s.guid for s in fabric.switches) + 1
    cables = tuple(
        c._replace(a=new if c.a == old.guid else c.a, b=new if c.b == old.guid else c.b)
        for c in fabric.cables
    )
    switches = tuple(replace(s, guid=new) if s is old else s for s in fabric.switches)
    swapped = replace(fabric, switches=switches, cables=cables)
    after = inferred(swapped, previous=first)
    assert after.anomalies == ()
    assert [h.nodes for h in after.hypernodes] == [h.nodes for h in first.hypernodes]
    loose = next(c for c in cables if new in (c.a, c.b))
    unplugged = replace(swapped, cables=tuple(c for c in cables if c != loose))
    found = inferred(unplugged, previous=first).anomalies
    assert ("MissingSwitch", f"{old.guid:016x}") in [(x.kind, x.subject.device) for x in found]


@seeds(60)
def test_a_lost_cable_is_named_by_both_ports(seed: int) -> None:
    """Not so for some cables between the groups of a dragonfly+ fabric."""
    rng = Random(seed)
    fabric = any_fabric(rng.randint)
    first = inferred(fabric)
    spines = any(switch.level > 1 for switch in fabric.switches)
    faulty, planted = plant(fabric, rng.choice([Fault.HOST_LINK, *([Fault.UPLINK] * spines)]), rng)
    (cable,) = planted.before
    topology = inferred(faulty, previous=first)
    missing = [x for x in topology.anomalies if x.kind == "MissingLink"]
    assert len(missing) == len(topology.anomalies) == 1
    ends = {(e.device, e.port) for e in (missing[0].subject, missing[0].peer) if e}
    assert ends == {(f"{guid:016x}", str(port)) for guid, port in cable.ends}
    adapters = {x.id: x.name for x in first.adapters}
    for end in (missing[0].subject, missing[0].peer):
        assert end is not None
        assert end.adapter == adapters.get(end.device, "")
        assert f"{end.name} {end.adapter}".rstrip() + f"/p{end.port}" in missing[0].message
    assert names(topology) == names(first)  # a host that is cut off keeps its domain, and is listed
    assert set(topology.nodes_without_evidence) == set(planted.cut_off)


@pytest.mark.parametrize(
    ("grown", "new"),
    [
        (shapes.clos2(11, 8, 4), lambda i: i >= 80),
        (shapes.clos2(4, 22, 4), lambda i: i % 22 >= 20),
        (shapes.rail_optimised(11, 4, 4, 2), lambda i: i >= 40),
        (shapes.clos3(3, 11, 4, 4, 2), lambda i: i % 44 >= 40),
        (shapes.clos3(11, 3, 4, 4, 2), lambda i: i >= 120),
    ],
    ids=["a leaf more", "hosts more", "a unit more", "a leaf in every pod more", "a pod more"],
)
def test_names_survive_growth(grown: SimFabric, new: Callable[[int], bool]) -> None:
    newcomers = {host for i, host in enumerate(grown.hosts) if new(i)}
    first = inferred(without_hosts(grown, newcomers))
    assert first.anomalies == ()
    after = inferred(grown, previous=first)
    assert tiers(after) == truth(grown)
    assert after.anomalies == ()
    former = {h.name: set(h.nodes) for h in first.hypernodes}
    now = {h.name: set(h.nodes) for h in after.hypernodes}
    assert all(former[name] == now[name] - newcomers for name in former)


def test_a_split_leaves_the_name_to_the_larger_part_and_a_merge_to_the_larger_domain() -> None:
    fabric = shapes.clos2(3, 10, 4)
    first = inferred(fabric)
    leaf = {x.guid: x.domain for x in fabric.switches if x.domain is not None}
    by_domain = {d: guid for guid, d in leaf.items()}
    moved = [c for c in fabric.cables if leaf.get(c.b) == 0 and fabric.node_map().get(c.a)][:6]
    # Six of the ten hosts of the first leaf go to the second one, on ports that are free there.
    cables = [c for c in fabric.cables if c not in moved]
    cables += [c._replace(b=by_domain[1], b_port=30 + i) for i, c in enumerate(moved)]
    after = inferred(replace(fabric, cables=tuple(cables)), previous=first)
    size = {h.name: len(h.nodes) for h in after.hypernodes if h.tier == 1}
    old = {h.name: set(h.nodes) for h in first.hypernodes if h.tier == 1}
    assert set(size) == set(old)
    assert sorted(size.values()) == [4, 10, 16]


def test_a_tied_host_stays_where_it_was_published() -> None:
    fabric = shapes.dual_homed(4, 8, 4)
    first = inferred(fabric)
    swapped = next(
        planted
        for seed in range(50)
        for planted in [plant(fabric, Fault.SWAPPED_HOST_LINKS, Random(seed))]
        if planted[1].tied
    )
    topology = inferred(swapped[0], previous=first)
    assert names(topology) == names(first)
    accused = [x for x in topology.anomalies if x.kind == "Miswired"]
    assert accused
    assert all(x.confidence <= 0.5 for x in accused)


def test_what_is_forgotten_is_neither_kept_nor_missed() -> None:
    fabric = shapes.clos2(4, 4, 3)
    first = inferred(fabric)
    leaf, spine = fabric.switches[0], fabric.switches[-1]
    assert (leaf.level, spine.level) == (1, 2)
    smaller = without_switch(without_switch(fabric, leaf.guid), spine.guid)
    after = inferred(smaller, previous=first)
    assert names(after) == names(first)
    assert {x.kind for x in after.anomalies} == {"MissingSwitch"}
    past = forget(after, after.nodes_without_evidence, {x.key for x in after.anomalies})
    accepted = inferred(smaller, previous=past)
    check_tree(accepted)
    assert accepted.nodes_without_evidence == ()
    assert [x for x in accepted.anomalies if x.subject.device] == []  # what the wiring implies may be said on
    left = {h.name for h in first.hypernodes} - {h.name for h in accepted.hypernodes}
    assert left == {h.name for h in first.hypernodes if h.switches == (f"{leaf.guid:016x}",)}


def test_a_host_that_is_cut_off_goes_with_its_domain() -> None:
    """Its leaf hangs in another pod than before: the host is there, and not half in the old one."""
    fabric = shapes.clos3(2, 2, 3, 2, 2)
    lost = fabric.hosts[0]
    now = inferred(fabric)
    home, other = (h for h in now.hypernodes if h.tier == 2)
    leaf = next(h for h in now.hypernodes if h.tier == 1 and lost in h.nodes)
    if leaf.name not in home.children:
        home, other = other, home
    moved = {
        leaf.name: replace(leaf, parent=other.name),
        home.name: replace(
            home,
            children=tuple(c for c in home.children if c != leaf.name),
            nodes=tuple(n for n in home.nodes if n not in leaf.nodes),
        ),
        other.name: replace(
            other,
            children=tuple(sorted((*other.children, leaf.name))),
            nodes=tuple(sorted((*other.nodes, *leaf.nodes))),
        ),
    }
    before = replace(now, hypernodes=tuple(moved.get(h.name, h) for h in now.hypernodes))
    after = inferred(without_hosts(fabric, {lost}), previous=before)
    check_tree(after)
    assert names(after) == names(now)
    assert after.nodes_without_evidence == (lost,)


def test_a_host_that_was_published_under_a_guid_is_not_kept_under_it() -> None:
    """A sweep shows new adapters before the agents of their hosts report them."""
    fabric = shapes.clos2(3, 3, 2)
    fabric = replace(fabric, adapters=tuple(replace(x, description="MT4129") for x in fabric.adapters))
    inputs = FabricInputs(sweeps=(SweepSeen(parse(sweep_text(fabric))),))
    nameless = infer(inputs)
    assert all(len(node) == 16 for h in nameless.hypernodes for node in h.nodes)
    cables = {c.a: c for c in fabric.cables}
    agents = {x.host: (port_facts(x, cables[x.guid]),) for x in fabric.adapters}
    named = infer(replace(inputs, infiniband=agents), previous=nameless)
    assert {node for h in named.hypernodes for node in h.nodes} == set(fabric.hosts)
    assert named.nodes_without_evidence == ()


def test_another_number_of_tiers_is_not_grafted_onto_the_old_tree() -> None:
    first = inferred(shapes.clos3(3, 4, 4, 4, 4))
    after = inferred(shapes.single_rack(4), previous=first)
    check_tree(after)
    assert [h.tier for h in after.hypernodes] == [1]
