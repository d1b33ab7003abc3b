"""Dead cables alone move no host and accuse no healthy cable. Cables that are plugged in elsewhere do."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import Cable
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.topology import Topology, held_back
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.lldp_lies import at_port, evil_ports
from support.rack_inputs import domain_of
from support.switched import Wiring, cable, clos, is_switch
from support.unharmed import check_others_stay
from unit.inference.hierarchy.test_shapes import check_tree

# Each unit has three hosts, and a leaf for each of two rails.
PAIRS = clos(units=2, hosts=3, spines=2, rails=2)
WIRINGS = {
    "pairs": PAIRS,
    "one rail": clos(units=3, hosts=4, spines=2, rails=1),
    "four rails": clos(units=2, hosts=4, spines=2, rails=4),
}
SHAPES = {
    "two tiers": shapes.clos2(4, 4, 2, 2),
    "three tiers": shapes.clos3(2, 2, 3, 2, 2),
    "two switches for a rack": shapes.dual_homed(3, 4, 2),
    "peer links": shapes.dual_homed(3, 3, 2, 1),
    "dragonfly": shapes.dragonfly_plus(4, 2, 2, 3, 2),
}


def hosts_of(cables: Sequence[str]) -> list[str]:
    return sorted({device for text in cables for device, _ in cable(text) if not is_switch(device)})


def check_only_gone(before: Topology, after: Topology) -> None:
    """All nodes are where they were, and nothing is reported but links and switches that are gone."""
    check_others_stay(before, after, ())
    check_tree(after)
    assert {x.kind for x in after.anomalies} <= {"MissingLink", "MissingSwitch"}
    assert all("is gone" in x.message for x in after.anomalies if x.confidence >= 0.5)


@given(st.data(), st.sampled_from(sorted(WIRINGS)), st.booleans())
@examples(3)
def test_dead_cables_of_ethernet(data: st.DataObject, kind: str, agents_on_switches: bool) -> None:
    cables = WIRINGS[kind]
    hosts = hosts_of(cables)
    wiring = Wiring(cables, agents=None if agents_on_switches else hosts)
    nodes = InferOptions(cluster_nodes=frozenset(hosts))
    before = after = infer(wiring.inputs(), nodes)
    order = data.draw(st.permutations(cables))
    for count in data.draw(st.lists(st.integers(1, len(cables) // 3), min_size=1, max_size=4).map(sorted)):
        after = infer(wiring.without(*order[:count]).inputs(), nodes, after)
        check_only_gone(before, after)


@given(st.data(), st.sampled_from(sorted(SHAPES)))
@examples(3)
def test_dead_cables_of_infiniband(data: st.DataObject, kind: str) -> None:
    fabric = SHAPES[kind]
    nodes = InferOptions(cluster_nodes=frozenset(fabric.hosts))

    def swept(dead: int) -> FabricInputs:
        seen = replace(fabric, cables=tuple(order[dead:]))
        return FabricInputs(sweeps=(SweepSeen(parse(sweep_text(seen)), observed_at_ns=1 + dead),))

    order = data.draw(st.permutations(fabric.cables))
    before = after = infer(swept(0), nodes)
    for count in data.draw(st.lists(st.integers(1, len(order) // 4), min_size=1, max_size=4).map(sorted)):
        after = infer(swept(count), nodes, after)
        check_only_gone(before, after)


def test_a_dead_cable_of_each_of_two_hosts() -> None:
    """Their leaves share one host only, as if they belonged to two units."""
    wiring = Wiring(PAIRS, agents=hosts_of(PAIRS))
    before = after = infer(wiring.inputs())
    for dead in (["leaf-1a/swp1 h11/eth0"], ["leaf-1a/swp1 h11/eth0", "leaf-1b/swp3 h13/eth1"]):
        for _ in range(3):
            after = infer(wiring.without(*dead).inputs(), previous=after)
            check_only_gone(before, after)
            degraded = next(c for c in domain_of(after, "h12", "leaf").conditions if c.type == "Degraded")
            assert degraded.message.startswith(f"{len(dead)} of 6 host links down")
    assert infer(wiring.inputs(), previous=after).anomalies == ()


@pytest.mark.parametrize(
    "dead", [[], ["leaf-1b/swp1 h11/eth1"]], ids=["both rails", "the other rail is dead"]
)
def test_a_host_that_is_plugged_in_elsewhere_moves(dead: list[str]) -> None:
    before = infer(Wiring(PAIRS).inputs())
    out = Wiring(PAIRS).without("leaf-1a/swp1 h11/eth0", "leaf-1b/swp1 h11/eth1")
    between = infer(out.inputs(), previous=before)
    check_others_stay(before, between, ())
    elsewhere = ["leaf-2a/swp9 h11/eth0", *([] if dead else ["leaf-2b/swp9 h11/eth1"])]
    after = between
    for _ in range(3):
        after = infer(replace(out, cables=[*out.cables, *elsewhere]).inputs(), previous=after)
        assert "h21" in domain_of(after, "h11", "leaf").nodes


def test_a_host_whose_cables_are_all_dead_is_not_ready() -> None:
    nodes = InferOptions(cluster_nodes=frozenset(hosts_of(PAIRS)))
    before = after = infer(Wiring(PAIRS).inputs(), nodes)
    dead = ["leaf-1a/swp1 h11/eth0", "leaf-1b/swp1 h11/eth1"]
    for count, without in ((1, ()), (2, ("h11",)), (2, ("h11",))):
        after = infer(Wiring(PAIRS).without(*dead[:count]).inputs(), nodes, after)
        check_others_stay(before, after, ())
        assert after.nodes_without_evidence == without


@pytest.mark.parametrize("kind", sorted(SHAPES))
def test_a_host_that_infiniband_shows_no_more_is_not_ready(kind: str) -> None:
    """Its agent still reports its adapters."""
    fabric = SHAPES[kind]
    host = fabric.hosts[0]
    own = {x.guid for x in fabric.adapters if x.host == host}
    cables = {c.a: c for c in fabric.cables}
    agents = {x.host: (port_facts(x, cables[x.guid]),) for x in fabric.adapters}
    nodes = InferOptions(cluster_nodes=frozenset(fabric.hosts))

    def swept(cables: Sequence[Cable]) -> FabricInputs:
        sweep = SweepSeen(parse(sweep_text(replace(fabric, cables=tuple(cables)))), observed_at_ns=1)
        return FabricInputs(sweeps=(sweep,), infiniband=agents)

    before = infer(swept(fabric.cables), nodes)
    after = infer(swept([c for c in fabric.cables if c.a not in own]), nodes, before)
    check_others_stay(before, after, ())
    assert after.nodes_without_evidence == (host,)


@pytest.mark.parametrize("order", [("up", "mute"), ("mute", "up")], ids=" first ".join)
def test_all_cables_to_the_spines(order: tuple[str, str]) -> None:
    """The tier above the leaves stays, whatever else happens."""
    hosts = hosts_of(PAIRS)
    nodes = InferOptions(cluster_nodes=frozenset(hosts))
    wiring = Wiring(PAIRS, agents=hosts + [f"leaf-{unit}{rail}" for unit in "12" for rail in "ab"])
    before = after = infer(wiring.inputs(), nodes)
    dead = wiring.without(*(text for text in PAIRS if "spine" in text))

    def without_h11(inputs: FabricInputs) -> FabricInputs:
        return replace(inputs, lldp={host: x for host, x in inputs.lldp.items() if host != "h11"})

    first = {"up": dead.inputs(), "mute": without_h11(wiring.inputs())}[order[0]]
    for inputs in (first, without_h11(dead.inputs()), dead.inputs()):
        after = infer(inputs, nodes, after)
        check_others_stay(before, after, ())


def test_the_last_leaf_has_no_tier_above() -> None:
    """Here the spines have cables: it is not their loss that ends the tier."""
    before = infer(Wiring(PAIRS).inputs())
    rest = [text for text in PAIRS if "leaf-1" in text]
    nodes = InferOptions(cluster_nodes=frozenset(hosts_of(rest)))
    after = infer(Wiring(rest).inputs(), nodes, infer(Wiring(PAIRS).inputs(), nodes, before))
    assert {h.tier for h in after.hypernodes} == {1}


def reporting(inputs: FabricInputs, host: str, *ends: str) -> FabricInputs:
    """The host reports these switch ports beside its own."""
    ports = evil_ports(host, map(at_port, ends))
    return replace(inputs, lldp={**inputs.lldp, host: inputs.lldp[host] + ports})


ALONE = InferOptions(cluster_nodes=frozenset(hosts_of(PAIRS)))


def test_a_cable_that_its_switch_denied_places_no_host_later() -> None:
    honest = Wiring(PAIRS).inputs()
    before = infer(honest, ALONE)
    claimed = infer(reporting(honest, "h12", "spine-1/swp8"), ALONE, before)
    left = replace(honest, lldp={**honest.lldp, "h12": ()})
    for inputs in (reporting(left, "h12", "leaf-2a/swp34"), left, honest):
        claimed = infer(inputs, ALONE, claimed)
        check_tree(claimed)
        check_others_stay(before, claimed, ())
    assert claimed.anomalies == ()


def test_a_denied_cable_hides_no_dead_one() -> None:
    wiring = Wiring(PAIRS).without("leaf-2a/swp31 spine-1/swp3")
    before = infer(wiring.inputs(), ALONE, infer(Wiring(PAIRS).inputs(), ALONE))
    (missing,) = before.anomalies
    claimed = infer(reporting(wiring.inputs(), "h12", "spine-1/swp3"), ALONE, before)
    assert missing in claimed.anomalies
    assert infer(wiring.inputs(), ALONE, claimed).anomalies == (missing,)


def test_cables_of_a_moment_do_not_outvote_live_ones() -> None:
    """One of them takes the port of a dead cable."""
    dead = Wiring(PAIRS).without("leaf-2b/swp2 h22/eth1")
    before = infer(dead.inputs(), ALONE, infer(Wiring(PAIRS).inputs(), ALONE))
    more = ["leaf-2b/swp18 h21/eth8", "leaf-2b/swp2 h21/eth9"]
    after = infer(replace(dead, dark=[("h22", "eth1")], cables=[*dead.cables, *more]).inputs(), ALONE, before)
    for _ in range(3):
        after = infer(dead.inputs(), ALONE, after)
        check_others_stay(before, after, ())
        assert "Miswired" not in {x.kind for x in after.anomalies if x.confidence >= 0.5}


@pytest.mark.parametrize("absent", [False, True])
def test_a_tier_of_labels_ends_with_its_labels(absent: bool) -> None:
    """It has no cables that could be dead."""
    labels = {f"n{i}": (f"zone-{i // 4}", f"rack-{i // 2}") for i in range(8)}
    nodes = InferOptions(cluster_nodes=frozenset(labels))
    before = infer(FabricInputs(labels=labels), nodes)
    assert {h.tier for h in before.hypernodes} == {1, 2}
    racks = {host: texts[1:] for host, texts in labels.items() if not absent or host != "n7"}
    after = infer(FabricInputs(labels=racks), nodes, before)
    assert {h.tier for h in after.hypernodes} == {1}


def test_a_stray_cable_that_is_pulled_is_forgotten() -> None:
    stray = "leaf-1a/swp7 leaf-2a/swp7"
    before = infer(Wiring([*PAIRS, stray]).inputs(), previous=infer(Wiring(PAIRS).inputs()))
    assert "Miswired" in {x.kind for x in before.anomalies}
    assert infer(Wiring(PAIRS).inputs(), previous=before).anomalies == ()


def test_a_missing_cable_that_is_over_is_no_memory_of_its_ports() -> None:
    """Its all-clear is held back when the cable at its new place dies, too."""
    first = next(text for text in PAIRS if hosts_of([text]))
    host, leaf = sorted(cable(first), key=lambda end: is_switch(end[0]))
    there = f"{leaf[0]}/swp30 {'/'.join(host)}"
    moved = Wiring([*(text for text in PAIRS if text != first), there], dark=[leaf])
    before = infer(Wiring(PAIRS).inputs())
    cut = infer(Wiring(PAIRS).without(first).inputs(), previous=before)
    assert len(cut.anomalies) == 1
    settled = infer(moved.inputs(), previous=cut)
    assert settled.anomalies == ()
    over = [held_back(replace(x, flaps=1, changed_ns=1, clears_ns=2), is_up=False) for x in cut.anomalies]
    after = infer(moved.without(there).inputs(), previous=replace(settled, anomalies=tuple(over)))
    [x] = after.anomalies
    assert x.peer is not None
    assert {x.subject.port, x.peer.port} == {host[1], "swp30"}
