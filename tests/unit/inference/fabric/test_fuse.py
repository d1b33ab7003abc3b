"""Fusion: one cable for all witnesses, identity before description, and sources that disagree."""

from dataclasses import replace
from random import Random

import pytest
from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort
from hyperscout_formats.infiniband.ibnetdiscover import Sweep, parse
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_inference.hierarchy.fuse import fuse
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.faults import Fault, plant
from hyperscout_sim.readings.sweep_text import sweep_text, sweep_texts
from support.inference import inferred, own_ports, sweep, tiers, truth, without

NO_OPTIONS = InferOptions()
FABRIC = shapes.rail_optimised(3, 4, 4, 2)


def test_every_cable_is_one_link_however_many_saw_it() -> None:
    shared = shapes.clos2(3, 4, 2)
    net = fuse(FabricInputs(sweeps=(sweep(shared), sweep(shared, 1, "second"))), NO_OPTIONS)
    assert len(net.a) == len(shared.cables)
    assert net.fabrics == ["infiniband"]
    assert net.anomalies == ()
    ends = {
        (net.ids[a], p, net.ids[b], q)
        for a, p, b, q in zip(net.a, net.a_port, net.b, net.b_port, strict=True)
    }
    want = {frozenset(((f"{c.a:016x}", c.a_port), (f"{c.b:016x}", c.b_port))) for c in shared.cables}
    assert {frozenset(((a, p), (b, q))) for a, p, b, q in ends} == want


def test_the_newer_sweep_says_where_a_port_leads() -> None:
    fabric = shapes.clos2(3, 4, 2)
    old = fabric.cables[0]
    other = next(c for c in fabric.cables if c.b != old.b and c.a in fabric.node_map())
    free = old._replace(b=other.b, b_port=39)
    moved = replace(without(fabric, old), cables=(*without(fabric, old).cables, free))
    for order in ((sweep(fabric, 1), sweep(moved, 2)), (sweep(moved, 2), sweep(fabric, 1))):
        net = fuse(FabricInputs(sweeps=order), NO_OPTIONS)
        links = {(net.ids[a], net.ids[b]) for a, b in zip(net.a, net.b, strict=True)}
        assert tuple(sorted((f"{free.a:016x}", f"{free.b:016x}"))) in links
        assert tuple(sorted((f"{old.a:016x}", f"{old.b:016x}"))) not in links
        assert net.anomalies == ()  # the old view of a port that was plugged elsewhere is no contradiction


def test_a_record_that_only_one_end_has_is_a_link_and_a_disagreement() -> None:
    cable = FABRIC.cables[5]
    fabric = replace(FABRIC, hidden=frozenset([(cable.b, cable.b_port)]))
    topology = inferred(fabric)
    assert tiers(topology) == truth(FABRIC)
    assert [x.kind for x in topology.anomalies] == ["SourcesDisagree"]
    assert len(topology.links) == len(FABRIC.cables)


def test_agents_say_whose_an_adapter_is_whatever_its_description_says() -> None:
    unnamed = replace(
        FABRIC,
        adapters=tuple(
            replace(x, description="MT4129 ConnectX7   Mellanox Technologies") for x in FABRIC.adapters
        ),
    )
    texts = tuple(sweep(part) for part in _planes(unnamed))
    anonymous = infer(FabricInputs(sweeps=texts))
    assert {x.kind for x in anonymous.anomalies} == {"UnknownHost"}
    ports = {host: own_ports(unnamed, host) for host in unnamed.hosts}
    named = infer(FabricInputs(sweeps=texts, infiniband=ports))
    assert tiers(named) == truth(FABRIC)
    assert named.anomalies == ()
    mapped = infer(FabricInputs(sweeps=texts, node_map=unnamed.node_map()))
    assert tiers(mapped) == truth(FABRIC)
    assert mapped.anomalies == ()


def _planes(fabric: SimFabric) -> list[SimFabric]:
    """Rails without common switches are swept one by one."""
    return (
        [fabric] if len(sweep_texts(fabric)) == 1 else [_part(fabric, part) for part in fabric.components()]
    )


def _part(fabric: SimFabric, part: set[int]) -> SimFabric:
    return replace(
        fabric,
        switches=tuple(s for s in fabric.switches if s.guid in part),
        adapters=tuple(x for x in fabric.adapters if x.guid in part),
        cables=tuple(c for c in fabric.cables if c.a in part),
    )


@pytest.mark.parametrize(("agent_at", "down"), [(2, True), (0, False)], ids=["newer", "older"])
def test_a_host_knows_first_that_its_own_port_is_down(agent_at: int, down: bool) -> None:
    fabric = shapes.clos2(3, 4, 2)
    cable = next(c for c in fabric.cables if c.a in fabric.node_map())
    host = fabric.node_map()[cable.a]
    inputs = FabricInputs(
        sweeps=(sweep(fabric, 1),),
        infiniband={host: own_ports(fabric, host, down=cable)},
        infiniband_at_ns={host: agent_at},
    )
    topology = infer(inputs)
    missing = [x for x in topology.anomalies if x.kind == "MissingLink"]
    if not down:
        assert missing == []
        return
    assert [(x.confidence, x.sources) for x in missing] == [(1.0, ("infiniband",))]
    ends = {(e.device, e.port) for e in (missing[0].subject, missing[0].peer) if e}
    assert ends == {(f"{guid:016x}", str(port)) for guid, port in cable.ends}
    assert topology.nodes_without_evidence == (host,)
    domain = next(h for h in topology.hypernodes if h.name == missing[0].hypernode)
    assert domain.switches == (f"{cable.b:016x}",)
    assert {c.type: c.status for c in domain.conditions}["Degraded"] == "True"


def test_the_only_cable_there_is_may_be_down() -> None:
    fabric = shapes.single_rack(1, 1)
    (host,) = fabric.hosts
    whole = infer(FabricInputs(sweeps=(sweep(fabric, 1),)))
    inputs = FabricInputs(
        sweeps=(sweep(fabric, 1),),
        infiniband={host: own_ports(fabric, host, down=fabric.cables[0])},
        infiniband_at_ns={host: 2},
    )
    assert [(x.kind, x.hypernode) for x in infer(inputs).anomalies] == [("MissingLink", None)]
    (kept,) = (after := infer(inputs, previous=whole)).hypernodes
    assert kept.name == whole.hypernodes[0].name
    assert [(x.kind, x.hypernode) for x in after.anomalies] == [("MissingLink", kept.name)]


def test_a_partial_sweep_does_not_outdate_what_a_host_says_of_its_port() -> None:
    fabric = shapes.clos2(3, 4, 2)
    cable = next(c for c in fabric.cables if c.a in fabric.node_map())
    host = fabric.node_map()[cable.a]
    partial = replace(sweep(without(fabric, cable), 3), partial=True)
    inputs = FabricInputs(
        sweeps=(sweep(fabric, 1), partial),
        infiniband={host: own_ports(fabric, host, down=cable)},
        infiniband_at_ns={host: 2},
    )
    assert [x.kind for x in infer(inputs).anomalies] == ["MissingLink"]


def neighbour(chassis: str, port: str, *capabilities: str) -> LldpNeighbour:
    return LldpNeighbour(
        "mac", chassis, "ifname", port, 120, system_name=f"sw-{chassis}", capabilities=capabilities
    )


def heard(interface: str, *neighbours: LldpNeighbour, speed: int = 400_000, carrier: bool = True) -> LldpPort:
    return LldpPort(interface, neighbours, carrier=carrier, speed_mbps=speed)


def rack(hosts: int, first: int = 0) -> dict[str, tuple[LldpPort, ...]]:
    """Hosts with two fast rails to a rack's pair of leaves, and a slow port to a switch for all."""
    pair = f"0{first}"
    return {
        f"n{first}{i}": (
            heard("eth0", neighbour("aa:aa", f"mgmt{first}{i}", "Bridge"), speed=1_000),
            heard("ens1", neighbour(f"{pair}:0a", f"Ethernet{i}", "Bridge", "Router")),
            heard("ens2", neighbour(f"{pair}:0b", f"Ethernet{i}", "Bridge", "Router")),
        )
        for i in range(hosts)
    }


def test_leaves_are_heard_over_lldp_and_management_does_not_shape() -> None:
    topology = infer(FabricInputs(lldp=rack(4, 1) | rack(4, 2)))
    assert [sorted(h.nodes) for h in topology.hypernodes] == [[f"n{r}{i}" for i in range(4)] for r in (1, 2)]
    assert [h.switches for h in topology.hypernodes] == [("01:0a", "01:0b"), ("02:0a", "02:0b")]
    assert topology.anomalies == ()
    assert len(topology.links) == 24  # management is shown


def test_a_pattern_says_which_ports_compute() -> None:
    topology = infer(FabricInputs(lldp=rack(4, 1) | rack(4, 2)), InferOptions(compute_ports="^eth"))
    assert [len(h.nodes) for h in topology.hypernodes] == [8]


def test_beside_infiniband_ethernet_is_shown_and_shapes_nothing() -> None:
    fabric = shapes.clos2(2, 4, 2)
    lldp = {
        host: (heard("ens1", neighbour("aa:bb", f"p{i}", "Bridge")),) for i, host in enumerate(fabric.hosts)
    }
    topology = infer(FabricInputs(sweeps=(sweep(fabric),), lldp=lldp))
    assert tiers(topology) == truth(fabric)
    assert {x.fabric for x in topology.links} == {"infiniband", "ethernet"}


@pytest.mark.parametrize(
    ("port", "links"),
    [
        (heard("ens1", neighbour("01:01", "self", "Station"), neighbour("0a:0a", "p1", "Bridge")), 1),
        (heard("ens1", neighbour("01:01", "self", "Station")), 0),
        (heard("ens1", neighbour("0a:0a", "p1")), 1),  # says nothing of itself: taken for a switch
        (heard("ens1", neighbour("0a:0a", "p1", "Bridge"), carrier=False), 0),
        (heard("ens1"), 0),
    ],
    ids=["nic-agent-beside-switch", "nic-agent-alone", "no-capabilities", "no-carrier", "silence"],
)
def test_which_neighbour_makes_a_link(port: LldpPort, links: int) -> None:
    topology = infer(FabricInputs(lldp={"n1": (port,)}))
    assert len(topology.links) == links
    assert topology.nodes_without_evidence == (() if links else ("n1",))


def test_one_switch_port_on_two_hosts_is_a_disagreement() -> None:
    both = {n: (heard("ens1", neighbour("0a:0a", "p1", "Bridge")),) for n in ("n1", "n2")}
    topology = infer(FabricInputs(lldp=both))
    assert {x.kind for x in topology.anomalies} == {"SourcesDisagree"}
    assert [h.nodes for h in topology.hypernodes] == [("n1", "n2")]


def test_damaged_sweeps_never_crash_inference() -> None:
    text = sweep_text(FABRIC)
    for cut in range(200, len(text), len(text) // 40):
        damaged: Sweep = parse(text[:cut] + text[cut + 37 :])
        topology = infer(FabricInputs(sweeps=(SweepSeen(damaged),)))
        assert {n for h in topology.hypernodes for n in h.nodes}


def test_foreign_endpoints_are_listed_and_shape_nothing() -> None:
    for fault in (Fault.STORAGE, Fault.MANAGER, Fault.LOGIN, Fault.SHARP):
        fabric, planted = plant(shapes.clos2(4, 8, 4), fault, Random(3))
        topology = inferred(fabric)
        assert tiers(topology) == truth(fabric)
        assert topology.foreign_endpoints
        if fault is not Fault.SHARP:
            assert set(topology.foreign_endpoints) == set(planted.foreign)


def test_a_login_node_on_a_spine_that_the_cluster_counts_is_a_domain_of_its_own() -> None:
    fabric, planted = plant(shapes.clos2(4, 8, 4), Fault.LOGIN, Random(3))
    login = planted.foreign[0]
    topology = inferred(fabric, nodes=[*fabric.hosts, login])
    assert [set(h.nodes) for h in topology.hypernodes if login in h.nodes and h.tier == 1] == [{login}]
    assert {frozenset(h.nodes) - {login} for h in topology.hypernodes if h.tier == 1} - {
        frozenset()
    } == truth(fabric)[0]
