"""NVLink domains inside the wires: racks of trays, whole, parted and ailing, beside hosts of their own."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hyperscout_formats.facts.facts import Gpu, NvlinkFabric
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import nvlink
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.nvlink import Gpus
from hyperscout_sim.fabric.racks import RackCluster, racks
from hyperscout_sim.readings.lldp_frames import heard
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
from hypothesis import assume, given
from hypothesis import strategies as st
from support.examples import examples
from support.inference import Tiers, inferred, inputs_of, own_ports, tiers
from support.rack_inputs import changed, condition, degraded, domain_of, inferred_racks, seen, true_tiers
from unit.inference.hierarchy.test_shapes import check_tree

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SMALL = racks(2, 2, trays=6, hgx=2, cpu_nodes=1)
TRAY = SMALL.racks[1].trays[2]
WELL = SMALL.gpus[TRAY]
PCI = WELL[2].pci_address


def names(topology: Topology) -> dict[str, frozenset[str]]:
    return {h.name: frozenset(h.nodes) for h in topology.hypernodes}


def told(topology: Topology) -> list[tuple[str, str]]:
    return sorted((x.kind, x.subject.name) for x in topology.anomalies)


def saved(topology: Topology) -> Topology:
    """What is left of it when all that was kept is its JSON."""
    return from_json(json.loads(json.dumps(to_json(topology))))


def check(topology: Topology) -> None:
    """What must hold of any tree with NVLink in it."""
    check_tree(topology)
    for h in topology.hypernodes:
        assert LABEL.fullmatch(h.name)
        if h.tier_name == "nvlink":
            assert (h.source, h.tier) == ("nvlink", 1)


# Healthy clusters

HEALTHY = {
    "two racks a unit": (racks(2, 2), ["nvlink", "leaf", "pod"]),
    "beside HGX and a node without GPUs": (racks(2, 2, hgx=4, cpu_nodes=1), ["nvlink", "leaf", "pod"]),
    "a rack in two cliques": (racks(2, 2, split={3: 7}), ["nvlink", "leaf", "pod"]),
    "pods": (racks(2, 2, trays=4, pods=2, hgx=1), ["nvlink", "leaf", "pod", "core"]),
    "racks that are units: the leaf groups nothing more": (racks(3, 1, trays=6), ["nvlink", "pod"]),
    "one rack": (racks(1, 1, trays=6), ["nvlink"]),
    "one rack in two cliques": (racks(1, 1, trays=6, split={0: 3}), ["nvlink", "leaf"]),
    "units of one rack, one of them parted": (racks(3, 1, trays=6, split={1: 2}), ["nvlink", "leaf", "pod"]),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_clusters(name: str) -> None:
    cluster, tier_names = HEALTHY[name]
    topology = inferred_racks(cluster)
    check(topology)
    assert tiers(topology) == true_tiers(cluster)
    assert [t for _, t in sorted({(h.tier, h.tier_name) for h in topology.hypernodes})] == tier_names
    assert topology.anomalies == ()
    assert degraded(topology) == {}
    for h in topology.hypernodes:
        if h.tier_name == "nvlink":
            rack = next((rack.name for rack in cluster.racks if h.nodes[0] in rack.trays), h.nodes[0])
            assert re.fullmatch(rf"{rack}(-tray)?(-[0-9]+)?-[0-9a-f]{{8}}", h.name)


def test_nvlink_that_ends_at_home_is_no_tier_and_changes_nothing() -> None:
    cluster = racks(1, 1, trays=1, hgx=6)
    gpus = {host: nvlink.hgx_host(host) for host in cluster.hosts}
    with_gpus, without = inferred_racks(cluster, gpus), inferred_racks(cluster, {})
    check(with_gpus)
    assert tiers(with_gpus) == [set(tier) for tier in cluster.fabric.truth.tiers]
    assert names(with_gpus) == names(without)
    assert {h.tier_name for h in with_gpus.hypernodes} == {"leaf", "pod"}


def test_without_wires_each_domain_is_an_island() -> None:
    topology = infer(seen(SMALL, wires=False))
    check(topology)
    assert {h.tier_name for h in topology.hypernodes} == {"nvlink"}
    assert set(SMALL.nvlink[:4]) <= tiers(topology)[0]
    assert not {n for h in topology.hypernodes for n in h.nodes} & set(SMALL.without_gpus)


def test_trays_that_no_cable_shows_are_with_their_rack() -> None:
    """The fabric of half a rack is down, or has no agent: NVLink says where it is."""
    rack = SMALL.racks[0]
    dark = set(rack.trays[3:])
    guids = {x.guid for x in SMALL.fabric.adapters if x.host in dark}
    fabric = replace(
        SMALL.fabric,
        adapters=tuple(x for x in SMALL.fabric.adapters if x.host not in dark),
        cables=tuple(c for c in SMALL.fabric.cables if c.a not in guids),
    )
    topology = infer(seen(replace(SMALL, fabric=fabric)))
    check(topology)
    assert set(domain_of(topology, rack.trays[0]).nodes) == set(rack.trays)
    assert set(rack.trays) < set(domain_of(topology, rack.trays[0], "leaf").nodes)


def test_racks_under_ethernet_leaves() -> None:
    """LLDP shows the leaves and nothing above them."""
    cables = {cable.a: cable for cable in SMALL.fabric.cables}
    switches = {switch.guid: switch for switch in SMALL.fabric.switches}
    lldp = {
        host: tuple(heard(switches, [(adapter, cables.get(adapter.guid)) for adapter in adapters]))
        for host, adapters in SMALL.fabric.adapters_of().items()
    }
    topology = infer(FabricInputs(lldp=lldp, gpus=SMALL.gpus))
    check(topology)
    assert tiers(topology) == true_tiers(SMALL)[:2]
    assert {h.tier_name for h in topology.hypernodes} == {"nvlink", "leaf"}
    assert [x.message for x in topology.anomalies] == []


# Faults


@dataclass(frozen=True)
class Case:
    """`gpus`: what the tray tells. `says`: what its domain's Degraded must name; "" = it is not degraded.
    `alone`: the tray is in a domain of its own; `later`: so when it was published with its rack before, and
    then `missed` is said too."""

    gpus: Gpus
    says: Sequence[str] = ()
    alone: bool = False
    later: bool = False
    missed: str = ""


CASES = {
    "a dead link": Case(nvlink.dead_link(WELL, 2, 11), (TRAY, PCI, "nvlink11")),
    "two dead links": Case(nvlink.dead_link(nvlink.dead_link(WELL, 2, 11), 0, 3), ("nvlink11", "nvlink3")),
    "a GPU in another clique": Case(nvlink.wrong_clique(WELL, 2, 7), (TRAY, PCI, "clique 7")),
    "a GPU that is not done": Case(nvlink.in_progress(WELL, [2]), (TRAY, PCI, "in-progress")),
    "a GPU whose registration failed": Case(
        nvlink.failed_fabric(WELL, "Not Supported", [2]), (TRAY, PCI, "Not Supported")
    ),
    "a GPU with an access timeout": Case(
        nvlink.unhealthy(WELL, "access timeout recovery", which=[2]), (TRAY, PCI, "access timeout recovery")
    ),
    "no GPU is done": Case(nvlink.in_progress(WELL), (TRAY, "in-progress"), alone=True),
    "no GPU was registered": Case(nvlink.failed_fabric(WELL, "Unknown Error"), (TRAY, "Unknown"), alone=True),
    "no GPU answers": Case((), alone=True, missed="no longer reports a GPU"),
    "half of the GPUs are lost": Case(WELL[:2]),
    "all are in another clique": Case(nvlink.with_fabric(WELL, clique_id=7), alone=True, later=True),
    "all are in another cluster": Case(
        nvlink.with_fabric(WELL, cluster_uuid="c0ffee"), alone=True, later=True
    ),
    "all end at home": Case(nvlink.with_fabric(WELL, cluster_uuid="", clique_id=0), alone=True, later=True),
}


@pytest.mark.parametrize("before", [False, True], ids=["new", "published before"])
@pytest.mark.parametrize("name", CASES)
def test_faults_of_a_tray(name: str, before: bool) -> None:
    case = CASES[name]
    well = inferred_racks(SMALL)
    topology = inferred_racks(SMALL, changed(SMALL, **{TRAY: case.gpus}), saved(well) if before else None)
    check(topology)
    alone = case.later if before else case.alone
    inner = [domain - {TRAY} if alone else domain for domain in SMALL.nvlink]
    assert tiers(topology)[0] == {*inner, *([frozenset([TRAY])] if alone else [])}
    assert tiers(topology)[1:] == true_tiers(SMALL)[1:]
    mine = domain_of(topology, TRAY)
    found = degraded(topology)
    says = [*case.says, *([case.missed] if before and case.missed else [])]
    assert set(found) == ({mine.name} if says else set())
    assert all(word in found[mine.name] for word in says)
    if before:
        kept = {h.name for h in well.hypernodes} - ({mine.name} if alone else set())
        assert kept == {h.name for h in topology.hypernodes} - ({mine.name} if alone else set())
        healed = inferred_racks(SMALL, previous=saved(topology))
        assert names(healed) == names(well)
        assert healed.anomalies == ()


def test_a_host_whose_agent_is_silent_is_not_said_to_have_no_gpu() -> None:
    """As after a take-over, where its agent is late or its node is dead."""
    before = inferred_racks(SMALL)
    inputs = seen(SMALL, {host: mine for host, mine in SMALL.gpus.items() if host != TRAY})
    assert len(infer(inputs, previous=before).anomalies) == 1
    ports = {host: mine for host, mine in inputs.infiniband.items() if host != TRAY}
    silent = infer(replace(inputs, infiniband=ports), previous=before)
    assert silent.anomalies == ()
    assert tiers(silent) == tiers(before)


def test_a_new_domain_does_not_take_a_name_that_lives() -> None:
    well = inferred_racks(SMALL)
    apart = inferred_racks(
        SMALL, changed(SMALL, **{TRAY: nvlink.with_fabric(WELL, clique_id=7)}), saved(well)
    )
    assert domain_of(apart, TRAY).name not in names(well)
    assert domain_of(apart, TRAY).name.startswith(TRAY)


def test_as_many_gpus_for_one_clique_as_for_another_stay_where_they_were() -> None:
    torn = nvlink.with_fabric(WELL, [2, 3], clique_id=7)
    gpus = changed(SMALL, **{TRAY: torn})
    well = inferred_racks(SMALL)
    topology = inferred_racks(SMALL, gpus, saved(well))
    assert names(topology) == names(well)
    other = changed(SMALL, **{TRAY: nvlink.with_fabric(WELL, [2, 3], clique_id=nvlink.CLIQUE + 1)})
    assert names(inferred_racks(SMALL, other, saved(well))) == names(well)
    assert all(x.confidence <= 0.5 for x in topology.anomalies)
    # With no past, where most others are.
    assert tiers(inferred_racks(SMALL, gpus)) == true_tiers(SMALL)
    assert tiers(inferred_racks(SMALL, other)) == true_tiers(SMALL)


def test_a_dead_nvlink_switch_is_seen_where_all_hang_on_it() -> None:
    cluster = racks(1, 1, trays=3)
    gpus = cluster.gpus
    for place in range(4):
        gpus = {host: nvlink.dead_link(mine, place, 5) for host, mine in gpus.items()}
    topology = inferred_racks(cluster, gpus)
    assert told(topology) == [("MissingLink", tray) for tray in cluster.hosts for _ in range(4)]
    assert "12 NVLinks down" in next(iter(degraded(topology).values()))


def test_bridges_that_were_never_fitted_are_not_down() -> None:
    """Cards with two of three bridges."""
    gpus = {
        host: tuple(
            replace(gpu, links=tuple(replace(x, active=x.link < 8) for x in gpu.links))
            for gpu in nvlink.pcie_host(host, bridges=True)
        )
        for host in SMALL.hosts
    }
    assert degraded(inferred_racks(SMALL, gpus)) == {}


# NVLink against the wires


def test_a_rack_goes_whole_to_the_leaves_that_hold_most_of_it() -> None:
    plain = racks(2, 2, trays=6)
    rack = plain.racks[1]
    strays = rack.trays[4:]
    cluster = racks(2, 2, trays=6, moved=dict.fromkeys(strays, 1))
    topology = inferred_racks(cluster)
    check(topology)
    assert tiers(topology) == true_tiers(plain)
    apart = [x for x in topology.anomalies if x.kind == "SourcesDisagree"]
    assert apart
    assert {x.subject.name for x in topology.anomalies} <= {*strays, rack.name}
    text = " ".join(x.message for x in apart)
    assert all(tray in text for tray in strays)
    assert {node for x in apart for node in x.nodes} == set(strays)
    consistent = condition(domain_of(topology, strays[0]), "Consistent")
    assert consistent.status == "False"
    assert strays[0] in consistent.message
    assert degraded(topology) == {}


def test_a_rack_in_equal_halves_stays_where_it_was() -> None:
    plain = racks(2, 2, trays=6)
    rack = plain.racks[3]
    halves = racks(2, 2, trays=6, moved=dict.fromkeys(rack.trays[3:], 0))
    well = inferred_racks(plain)
    topology = inferred_racks(halves, previous=saved(well))
    check(topology)
    assert tiers(topology) == true_tiers(plain)
    assert names(topology) == names(well)
    new = inferred_racks(halves)
    check(new)
    assert set(rack.trays) in tiers(new)[0]


def test_a_new_rack_is_where_most_of_its_hosts_are() -> None:
    """Also if the leaf of the others is as new as the rack."""
    plain = racks(2, 2, trays=5)
    rack, old = plain.racks[3], {tray for rack in plain.racks[:2] for tray in rack.trays}
    cluster = racks(2, 2, trays=5, moved=dict.fromkeys(rack.trays[:3], 0))
    well = inferred_racks(cluster)
    known = [(h, tuple(node for node in h.nodes if node in old)) for h in well.hypernodes]
    before = replace(well, hypernodes=tuple(replace(h, nodes=nodes) for h, nodes in known if nodes))
    found = inferred_racks(cluster, previous=saved(before))
    (pod,) = (h for h in found.hypernodes if h.tier == 2 and set(rack.trays) <= set(h.nodes))
    assert old <= set(pod.nodes)


def test_one_host_that_copies_a_racks_domain_does_not_move_the_rack() -> None:
    plain = racks(2, 2, trays=6)
    rack, liar = plain.racks[3], plain.racks[0].trays[0]
    halves = racks(2, 2, trays=6, moved=dict.fromkeys(rack.trays[3:], 0))
    well = inferred_racks(halves, previous=saved(inferred_racks(plain)))
    found = inferred_racks(halves, changed(halves, **{liar: halves.gpus[rack.trays[0]]}), saved(well))
    check(found)
    own, *outer = (h.name for h in well.hypernodes if set(rack.trays) <= set(h.nodes))
    assert [h.name for h in found.hypernodes if set(rack.trays) <= set(h.nodes)] == [own, *outer]
    (text,) = {x.message for x in found.anomalies if x.kind == "SourcesDisagree" and liar in x.nodes}
    assert "(4 of the NVLink domain's 7 hosts)" in text
    assert "others to" in text


def test_a_racks_name_is_its_own_whatever_it_is_plugged_into() -> None:
    shared, own_leaves = inferred_racks(racks(2, 2, trays=6)), inferred_racks(racks(2, 1, trays=6))
    no_wires = infer(seen(SMALL, wires=False))
    tray = "uk-london1-dc01-row01-rack01-tray01"
    assert len({domain_of(x, tray).name for x in (shared, own_leaves, no_wires)}) == 1


# One agent alone


@pytest.mark.parametrize("order", [1, -1], ids=["the first tray", "the last tray"])
def test_a_tray_that_leaves_its_rack_adds_no_tier_of_leaves(order: int) -> None:
    cluster = racks(3, 1, trays=6)
    well = inferred_racks(cluster)
    trays = cluster.racks[1].trays[::order]
    first, second = ({tray: nvlink.with_fabric(cluster.gpus[tray], clique_id=7)} for tray in trays[:2])
    one = inferred_racks(cluster, changed(cluster, **first), saved(well))
    check(one)
    rest = [set(rack.trays) - {trays[0]} for rack in cluster.racks]
    assert tiers(one) == [{*map(frozenset, rest), frozenset([trays[0]])}, set(cluster.tiers[-1])]
    assert domain_of(one, trays[1]).switches == domain_of(well, trays[1]).switches
    assert len(tiers(inferred_racks(cluster, changed(cluster, **first)))) == 3, "it was never published"
    two = inferred_racks(cluster, changed(cluster, **first, **second), saved(one))
    check(two)
    assert len(tiers(two)) == 3, "two trays in another clique are two reporters"


@pytest.mark.parametrize("racks_per_unit", [1, 2], ids=["other leaves", "the same leaf"])
def test_two_hosts_alone_add_no_tier(racks_per_unit: int) -> None:
    """One of them may have copied the domain of the other."""
    cluster = racks(2, racks_per_unit, trays=1, hgx=2)
    one, other = (rack.trays[0] for rack in cluster.racks[:2])
    well = inferred_racks(cluster)
    copied = changed(cluster, **{other: cluster.gpus[one]})
    found = inferred_racks(cluster, copied, saved(well))
    check(found)
    assert tiers(found) == tiers(well)
    assert names(found) == names(well)
    named = {x.subject.name: x.peer.name for x in found.anomalies if x.peer is not None}
    assert named == ({one: other} if racks_per_unit == 1 else {})
    assert all(f"{one} (connected to" in x.message for x in found.anomalies)
    assert [h.conditions for h in found.hypernodes] == [h.conditions for h in well.hypernodes]


def test_pairs_of_trays_on_two_leaves_are_the_way_of_wiring() -> None:
    plain = racks(2, 4, trays=2)
    moved = {rack.trays[i]: i for rack in plain.racks for i in (0, 1)}
    topology = inferred_racks(racks(2, 4, trays=2, moved=moved))
    check(topology)
    assert tiers(topology)[0] == {frozenset(rack.trays) for rack in plain.racks}


@pytest.mark.parametrize("racks_per_unit", [1, 2], ids=["other leaves", "the same leaf"])
def test_a_pair_that_a_manager_reports_is_a_domain(racks_per_unit: int) -> None:
    cluster = racks(2, racks_per_unit, trays=1, hgx=2)
    one, other = (rack.trays[0] for rack in cluster.racks[:2])
    same = {one: cluster.gpus[one], other: cluster.gpus[one]}
    inputs = replace(seen(cluster, changed(cluster, **same)), managed_gpus=same)
    topology = infer(inputs)
    assert {one, other} in tiers(topology)[0]
    assert "nvlink" in {h.tier_name for h in topology.hypernodes}


def test_a_pair_without_cables_is_a_domain() -> None:
    pair = SMALL.racks[0].trays[:2]
    topology = infer(FabricInputs(gpus={tray: tuple(SMALL.gpus[tray]) for tray in pair}))
    assert tiers(topology)[0] == {frozenset(pair)}


def test_a_pair_stays_joined_when_one_of_them_is_moved_to_another_leaf() -> None:
    plain = racks(2, 1, trays=2, hgx=2)
    pair = plain.racks[0].trays
    well = inferred_racks(plain)
    moved = inferred_racks(racks(2, 1, trays=2, hgx=2, moved={pair[1]: 1}), previous=saved(well))
    check(moved)
    assert set(pair) in tiers(moved)[0]


def test_a_pair_that_was_published_stays_a_domain() -> None:
    cluster = racks(1, 2, trays=2, hgx=2)
    pair, rest = (set(rack.trays) for rack in cluster.racks)
    well = inferred_racks(cluster)
    gone = changed(cluster, **{tray: nvlink.hgx_host(tray) for tray in rest})
    found = inferred_racks(cluster, gone, saved(well))
    check(found)
    assert pair in tiers(found)[0]
    assert pair not in tiers(inferred_racks(cluster, gone))[0]


def test_the_cables_of_a_tray_that_left_its_rack_count_at_its_own_domain() -> None:
    cluster = racks(3, 1, trays=6)
    tray = cluster.racks[0].trays[0]
    left = changed(cluster, **{tray: nvlink.with_fabric(cluster.gpus[tray], clique_id=7)})
    before = inferred_racks(cluster, left, inferred_racks(cluster))
    adapter = next(x.guid for x in cluster.fabric.adapters if x.host == tray)
    fabric = replace(cluster.fabric, cables=tuple(c for c in cluster.fabric.cables if c.a != adapter))
    found = inferred_racks(replace(cluster, fabric=fabric), left, saved(before))
    assert degraded(found).keys() == {domain_of(found, tray).name}
    assert domain_of(found, tray).nodes == (tray,)


def test_ids_of_gpus_are_their_own() -> None:
    """An agent can report the id of any device for its GPUs."""
    victim, liar = SMALL.racks[0].trays[0], TRAY
    guid = f"{SMALL.fabric.adapters[0].guid:016x}"
    theirs, own = SMALL.gpus[victim][0].uuid, WELL[2].uuid
    fallback = f"GPU-{liar}/{WELL[3].pci_address}"
    well = inferred_racks(SMALL)
    for ids in ((theirs, guid, own, victim), (theirs[4:], own, own, fallback), (own[4:], "", "", theirs)):
        false = tuple(replace(gpu, uuid=uuid) for gpu, uuid in zip(WELL, ids, strict=True))
        found = inferred_racks(SMALL, changed(SMALL, **{liar: false}), saved(well))
        assert len({x.id for x in found.adapters}) == len(found.adapters)
        assert {x for x in found.adapters if x.node != liar} == {x for x in well.adapters if x.node != liar}
        mine = {x.id for x in found.adapters if x.node == liar and x.name == WELL[2].pci_address}
        assert mine == {own if ids[2] == own and ids[1] != own else f"GPU-{liar}/{WELL[2].pci_address}"}
        assert found.anomalies == ()


def test_gpus_of_one_address_have_different_ids() -> None:
    odd = tuple(replace(gpu, uuid=text, pci_address="0") for gpu, text in zip(WELL, "abcd", strict=True))
    found = inferred_racks(SMALL, changed(SMALL, **{TRAY: odd}))
    mine = {x.id for x in found.adapters if x.node == TRAY and x.id.startswith("GPU-")}
    assert mine == {f"GPU-{TRAY}/0", *(f"GPU-{TRAY}/0 ({i})" for i in (2, 3, 4))}


# Time

GROWN = racks(3, 2, trays=6)
ROW_03 = {tray for rack in GROWN.racks[4:] for tray in rack.trays}
ONE_RACK = set(GROWN.racks[1].trays)
TWO_TRAYS = set(GROWN.racks[0].trays[4:])


def without(cluster: RackCluster, gone: set[str]) -> FabricInputs:
    """What is seen before those hosts came (or after they went), and with them the leaves that serve
    no other host."""
    left = {x.guid for x in cluster.fabric.adapters if x.host in gone}
    cables = [c for c in cluster.fabric.cables if c.a not in left]
    serving = {c.b for c in cables if c.a in cluster.fabric.node_map()}
    bare = {s.guid for s in cluster.fabric.switches if s.level == 1 and s.guid not in serving}
    fabric = replace(
        cluster.fabric,
        switches=tuple(s for s in cluster.fabric.switches if s.guid not in bare),
        adapters=tuple(x for x in cluster.fabric.adapters if x.host not in gone),
        cables=tuple(c for c in cables if c.a not in bare),
    )
    gpus = {host: mine for host, mine in cluster.gpus.items() if host not in gone}
    return seen(replace(cluster, fabric=fabric), gpus)


def test_names_survive_a_restart() -> None:
    first = inferred_racks(SMALL)
    again = inferred_racks(SMALL, previous=saved(first))
    assert to_json(again) == to_json(first) | {"generation": 2}


@pytest.mark.parametrize("new", [ROW_03, ONE_RACK, TWO_TRAYS], ids=["a row", "a rack", "trays"])
def test_names_survive_growth(new: set[str]) -> None:
    first = infer(without(GROWN, new))
    check(first)
    assert first.anomalies == ()
    after = inferred_racks(GROWN, previous=saved(first))
    check(after)
    assert tiers(after) == true_tiers(GROWN)
    assert after.anomalies == ()
    now = names(after)
    assert all(now[name] - new == nodes for name, nodes in names(first).items())


@pytest.mark.parametrize("gone", [ONE_RACK, TWO_TRAYS], ids=["a rack", "trays"])
def test_what_loses_power_keeps_its_place(gone: set[str]) -> None:
    first = inferred_racks(GROWN)
    after = infer(without(GROWN, gone), previous=saved(first))
    check(after)
    assert names(after) == names(first)
    assert set(after.nodes_without_evidence) == gone
    back = inferred_racks(GROWN, previous=saved(after))
    assert names(back) == names(first)
    assert back.anomalies == ()


def test_no_nvlink_evidence_for_a_while_moves_no_host() -> None:
    """The probe is switched off, or the driver is being replaced everywhere."""
    first = inferred_racks(SMALL)
    after = inferred_racks(SMALL, {}, saved(first))
    check(after)
    assert names(after) == names(first)
    assert after.anomalies == ()
    rack = dict.fromkeys(SMALL.racks[1].trays, ())
    assert inferred_racks(SMALL, changed(SMALL, **rack), saved(first)).anomalies == ()


def test_a_rack_that_is_ready_late_is_not_called_after_a_tray() -> None:
    """Its trays were in domains of their own meanwhile."""
    trays = SMALL.racks[1].trays
    ready = names(inferred_racks(SMALL))
    late = changed(SMALL, **{tray: nvlink.in_progress(SMALL.gpus[tray]) for tray in trays})
    first = inferred_racks(SMALL, late)
    assert all(domain_of(first, tray).nodes == (tray,) for tray in trays)
    half = inferred_racks(SMALL, {**late, **{tray: SMALL.gpus[tray] for tray in trays[:3]}}, saved(first))
    assert domain_of(half, trays[0]).name == domain_of(inferred_racks(SMALL), trays[0]).name
    assert names(inferred_racks(SMALL, previous=saved(half))) == ready
    assert names(inferred_racks(SMALL, previous=saved(first))) == ready
    nodes = frozenset(SMALL.hosts) - set(trays[1:])
    one = inferred_racks(SMALL, previous=first, nodes=nodes)  # the others are no nodes of this cluster
    assert domain_of(one, trays[0]).name == domain_of(first, trays[0]).name


def test_a_leaf_that_went_when_nvlink_came_counts_where_its_domain_is_now() -> None:
    first = inferred_racks(SMALL, {})
    leaf = next(s for s in SMALL.fabric.switches if s.level == 1)
    cut = replace(
        SMALL.fabric,
        switches=tuple(s for s in SMALL.fabric.switches if s is not leaf),
        cables=tuple(c for c in SMALL.fabric.cables if leaf.guid not in (c.a, c.b)),
    )
    after = infer(seen(replace(SMALL, fabric=cut), SMALL.gpus), previous=saved(first))
    gone = next(x for x in after.anomalies if x.kind == "MissingSwitch")
    assert gone.subject.device == f"{leaf.guid:016x}"
    tier = {h.name: h.tier for h in after.hypernodes}
    assert gone.hypernode is not None
    assert gone.tier == tier[gone.hypernode] == 2
    later = infer(
        seen(replace(SMALL, fabric=cut), {}), previous=replace(saved(after), hypernodes=first.hypernodes)
    )
    still = next(x for x in later.anomalies if x.kind == "MissingSwitch")
    assert (still.hypernode, still.tier) == (gone.hypernode, 1)


def test_nvlink_that_shows_later_becomes_the_innermost_tier() -> None:
    first = inferred_racks(SMALL, {})
    after = inferred_racks(SMALL, previous=saved(first))
    check(after)
    assert tiers(after) == true_tiers(SMALL)
    assert {h.name for h in first.hypernodes} <= {h.name for h in after.hypernodes}
    assert names(inferred_racks(SMALL, previous=saved(after))) == names(after)


def test_domains_keep_their_nodes_when_only_hosts_of_no_domain_are_seen() -> None:
    first = inferred_racks(SMALL)
    ends = SMALL.fabric.adapters[:2]
    adapters = tuple(replace(x, host=f"new-{i}", description=f"new-{i} mlx5_0") for i, x in enumerate(ends))
    cable = SMALL.fabric.cables[0]._replace(a=ends[0].guid, a_port=1, b=ends[1].guid, b_port=1)
    back_to_back = replace(SMALL.fabric, switches=(), adapters=adapters, cables=(cable,))
    after = infer(seen(replace(SMALL, fabric=back_to_back), {}), previous=saved(first))
    check(after)
    assert names(after) == names(first)


# Whatever comes


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of a cluster of modest size."""
    n = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    plan = {
        "units": n(1, 3),
        "racks_per_unit": n(1, 3),
        "trays": n(2, 6),
        "rails": n(2, 4),
        "spines": n(2, 4),
    }
    number, tray = (
        st.integers(0, plan["units"] * plan["racks_per_unit"] - 1),
        st.integers(1, plan["trays"] - 1),
    )
    split = draw(st.dictionaries(number, tray, max_size=2))
    return plan | {
        "pods": n(1, 2),
        "hgx": draw(st.sampled_from([0, 3, 4])),
        "split": split,
        "seed": n(0, 1000),
    }


def is_one_pair(cluster: RackCluster) -> bool:
    """Whether two hosts are the only NVLink domain: that might be the claim of one agent."""
    return [len(domain) for domain in cluster.nvlink if len(domain) > 1] == [2]


@examples(0.5)
@given(plans())
def test_any_healthy_cluster_gives_exactly_its_domains(plan: dict[str, Any]) -> None:
    cluster = racks(**plan)
    assume(not is_one_pair(cluster))
    topology = inferred_racks(cluster)
    check(topology)
    assert tiers(topology) == true_tiers(cluster)
    assert [x.message for x in topology.anomalies] == []


FAULTS: list[Callable[[Gpus], Gpus]] = [
    lambda gpus: nvlink.dead_link(gpus, 0, 0),
    lambda gpus: nvlink.erring_link(gpus, 1, 2, replays=7, ber_exponent=-5),
    lambda gpus: nvlink.wrong_clique(gpus, 1, 9),
    lambda gpus: nvlink.in_progress(gpus, [0]),
    lambda gpus: nvlink.unhealthy(gpus, "degraded bandwidth", which=[1]),
    lambda gpus: nvlink.failed_fabric(gpus, "Unknown Error", [0]),
    lambda gpus: gpus[1:],
]


@examples(0.5)
@given(plans(), st.data())
def test_a_fault_of_less_than_half_a_trays_gpus_moves_no_host(
    plan: dict[str, Any], data: st.DataObject
) -> None:
    cluster = racks(**plan)
    assume(not is_one_pair(cluster))
    trays = [tray for rack in cluster.racks for tray in rack.trays]
    ill = data.draw(st.dictionaries(st.sampled_from(trays), st.sampled_from(FAULTS), max_size=4))
    gpus = changed(cluster, **{tray: fault(cluster.gpus[tray]) for tray, fault in ill.items()})
    topology = inferred_racks(cluster, gpus)
    check(topology)
    assert tiers(topology) == true_tiers(cluster)
    named = {x.subject.name for x in topology.anomalies}
    assert [x.message for x in topology.anomalies if x.subject.name not in ill] == []
    assert {tray for tray, fault in ill.items() if fault is not FAULTS[-1]} - named <= {
        tray for tray, fault in ill.items() if fault is FAULTS[1]
    }


UUIDS = st.sampled_from(["", "aa", "bb"])
FABRICS = st.none() | st.builds(
    NvlinkFabric,
    st.sampled_from(["not-supported", "not-started", "in-progress", "completed", "what"]),
    st.sampled_from(["", "Unknown Error"]),
    UUIDS,
    st.integers(0, 2),
    st.sampled_from([(), ("degraded bandwidth",)]),
)


@st.composite
def any_gpus(draw: st.DrawFn) -> dict[str, Gpus]:
    """GPUs of a small cluster that were told anything."""
    found = {}
    for host in SMALL.hosts:
        count = draw(st.integers(0, 3))
        well = SMALL.gpus.get(host, WELL)
        heard = [draw(FABRICS) for _ in range(count)]
        found[host] = tuple(replace(gpu, fabric=said) for gpu, said in zip(well, heard, strict=False))
    return found


@given(any_gpus(), any_gpus(), st.randoms(use_true_random=False), st.booleans())
@pytest.mark.slow
def test_a_valid_tree_comes_out_of_anything_and_in_any_order(
    before: dict[str, Gpus], now: dict[str, Gpus], rng: Random, wires: bool
) -> None:
    first = infer(seen(SMALL, before, wires=wires))
    check(first)
    inputs = seen(SMALL, now, wires=wires)
    second = infer(inputs, previous=saved(first))
    check(second)
    hosts = list(now)
    rng.shuffle(hosts)
    shuffled: dict[str, tuple[Gpu, ...]] = {}
    for host in hosts:
        mine = list(now[host])
        rng.shuffle(mine)
        shuffled[host] = tuple(mine)
    other = replace(inputs, gpus=shuffled, infiniband=dict(reversed(inputs.infiniband.items())))
    assert to_json(infer(other, previous=saved(first))) == to_json(second)


@given(plans(), st.data())
@pytest.mark.slow
def test_asking_for_some_nodes_changes_no_grouping(plan: dict[str, Any], data: st.DataObject) -> None:
    cluster = racks(**plan)
    assume(not is_one_pair(cluster))
    asked = frozenset(data.draw(st.sets(st.sampled_from(cluster.hosts), min_size=1)))
    whole, part = inferred_racks(cluster), inferred_racks(cluster, nodes=asked)
    check(part)
    cut: Tiers = [{domain & asked for domain in tier} - {frozenset()} for tier in true_tiers(cluster)]
    assert tiers(part) == cut
    assert {h.name for h in part.hypernodes} <= {h.name for h in whole.hypernodes}


def test_gpus_without_a_fabric_leave_the_wires_as_they_are() -> None:
    gpus = {host: nvlink.pcie_host(host, bridges=True) for host in SMALL.hosts}
    topology = inferred_racks(SMALL, gpus)
    assert tiers(topology) == tiers(inferred(SMALL.fabric))
    assert degraded(topology) == {}


def test_a_host_without_gpus_that_lost_its_cable_is_without_evidence() -> None:
    """Its agent still reports the adapter, with a port that is down."""
    cluster = racks(2, 2, trays=3, rails=2, spines=2, cpu_nodes=1)
    host = next(x for x in cluster.fabric.hosts if "cpu" in x)
    mine = {x.guid for x in cluster.fabric.adapters if x.host == host}
    ports = {x: own_ports(cluster.fabric, x) for x in cluster.fabric.hosts}
    gpus = {node: tuple(found) for node, found in cluster.gpus.items()}

    def inferred_from(fabric: SimFabric, previous: Topology | None = None) -> Topology:
        swept = replace(inputs_of(fabric), infiniband=ports, gpus=gpus)
        return infer(swept, previous=previous)

    before = inferred_from(cluster.fabric)
    lost = tuple(c for c in cluster.fabric.cables if c.a in mine)
    ports[host] = own_ports(cluster.fabric, host, down=lost[0])
    for gone in (lost, tuple(c for c in cluster.fabric.cables if {c.a, c.b} & {x.b for x in lost})):
        rest = tuple(c for c in cluster.fabric.cables if c not in gone)
        found = inferred_from(replace(cluster.fabric, cables=rest), before)
        assert found.nodes_without_evidence == (host,)
        assert len([h for h in found.hypernodes if h.parent is None]) == 1
