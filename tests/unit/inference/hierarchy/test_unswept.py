"""A fabric that no sweep shows now, as after a take-over, stays as it was published, without accusations."""

from dataclasses import replace
from typing import Any

import pytest
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.hierarchy.infer import infer
from hyperscout_sim.fabric import shapes
from hyperscout_topology.link_changes import UNREPORTED
from hyperscout_topology.topology import Topology
from support.inference import inputs_of, own_ports, sweep, without

FABRIC = shapes.clos2(3, 4, 2)
CABLE = next(c for c in FABRIC.cables if c.a in FABRIC.node_map())
HOST, OTHER = FABRIC.node_map()[CABLE.a], FABRIC.hosts[-1]
PORTS = {host: own_ports(FABRIC, host) for host in FABRIC.hosts}
CUT = PORTS | {HOST: own_ports(FABRIC, HOST, down=CABLE)}
BEFORE = infer(FabricInputs(sweeps=(sweep(FABRIC),), infiniband=PORTS))
MISSING = infer(FabricInputs(sweeps=(sweep(without(FABRIC, CABLE)),), infiniband=CUT), previous=BEFORE)


def members(topology: Topology) -> set[Any]:
    return {(h.name, h.nodes, h.children) for h in topology.hypernodes}


@pytest.mark.parametrize("ports", [PORTS, {}, {HOST: PORTS[HOST]}], ids=["all agents", "none", "one agent"])
def test_it_stays_as_it_was(ports: Any) -> None:
    now = BEFORE
    for _ in range(3):
        now = infer(FabricInputs(infiniband=ports), previous=now)
        assert now.anomalies == ()
        assert (now.switches, set(now.adapters)) == (BEFORE.switches, set(BEFORE.adapters))
        assert set(now.links) == {replace(x, note=UNREPORTED) for x in BEFORE.links}
        assert members(now) == members(BEFORE)
        assert now.nodes_without_evidence == ()
    swept = infer(FabricInputs(sweeps=(sweep(FABRIC),), infiniband=PORTS), previous=now)
    assert (swept.anomalies, set(swept.links)) == ((), set(BEFORE.links))


def in_state(state: str) -> dict[str, Any]:
    return {host: tuple(replace(x, state=state) for x in ports) for host, ports in PORTS.items()}


@pytest.mark.parametrize("previous", [BEFORE, MISSING], ids=["whole before", "missing before"])
@pytest.mark.parametrize("liar", [{}, {OTHER: (*PORTS[OTHER], *PORTS[HOST])}], ids=["honest", "liar"])
def test_a_host_that_reports_its_port_as_down_is_a_witness(liar: Any, previous: Topology) -> None:
    now = infer(FabricInputs(infiniband=CUT | liar), previous=previous)
    [x] = now.anomalies
    assert (x.kind, x.subject.name, x.peer and x.peer.device) == ("MissingLink", HOST, f"{CABLE.b:016x}")
    assert members(now) == members(BEFORE)


@pytest.mark.parametrize("ports", [in_state("INIT"), PORTS | {HOST: ()}], ids=["training", "unreadable"])
def test_a_port_that_is_not_down_is_no_witness(ports: Any) -> None:
    assert infer(FabricInputs(infiniband=ports), previous=BEFORE).anomalies == ()


def test_a_partial_sweep_is_no_witness() -> None:
    part = without(FABRIC, *(c for c in FABRIC.cables if CABLE.b not in (c.a, c.b)))
    seen = replace(sweep(part), partial=True)
    now = infer(FabricInputs(sweeps=(seen,), infiniband=PORTS), previous=BEFORE)
    assert now.anomalies == ()
    assert members(now) == members(BEFORE)


def test_another_port_of_an_adapter_may_be_in_another_fabric() -> None:
    planes = shapes.multi_plane(2, 3, 4, 2)
    first = {x.host: x for x in reversed(planes.adapters)}  # one adapter with two ports for each host
    guid = {x.guid: first[x.host].guid for x in planes.adapters}
    port = {x.guid: 1 + (x.guid != first[x.host].guid) for x in planes.adapters}
    cables = tuple(c._replace(a=guid.get(c.a, c.a), a_port=port.get(c.a, c.a_port)) for c in planes.cables)
    planes = replace(planes, adapters=tuple(first.values()), cables=cables)
    sweeps = []
    for name in ("p1", "p2"):
        mine = {s.guid for s in planes.switches if name in s.name}
        switches = tuple(s for s in planes.switches if s.guid in mine)
        part = tuple(c for c in cables if c.b in mine)
        sweeps.append(sweep(replace(planes, switches=switches, cables=part)))
    ports = {host: own_ports(planes, host) for host in planes.hosts}
    before = infer(FabricInputs(sweeps=tuple(sweeps), infiniband=ports))
    now = infer(FabricInputs(sweeps=(sweeps[0],), infiniband=ports), previous=before)
    assert {x.fabric for x in before.links} == {"infiniband-1", "infiniband-2"}
    assert before.anomalies == now.anomalies == ()


def test_sweeps_from_files_are_complete() -> None:
    planes = shapes.multi_plane(2, 3, 4, 2)
    both = inputs_of(planes)
    now = infer(FabricInputs(sweeps=both.sweeps[:1]), previous=infer(both))
    assert {x.kind for x in now.anomalies} == {"MissingSwitch"}


def test_a_sweep_of_another_fabric_is_no_witness() -> None:
    planes = shapes.multi_plane(2, 3, 4, 2)
    both = inputs_of(planes)
    ports = {host: own_ports(planes, host) for host in planes.hosts}
    before = infer(replace(both, infiniband=ports))
    now = infer(FabricInputs(sweeps=both.sweeps[:1], infiniband=ports), previous=before)
    assert now.anomalies == before.anomalies == ()
    assert members(now) == members(before)
    assert len([x for x in now.links if x.note == UNREPORTED]) * 2 == len(now.links) == len(before.links)


def test_a_switch_that_a_sweep_of_its_fabric_lacks_is_missing() -> None:
    leaf = next(s for s in FABRIC.switches if s.guid == CABLE.b)
    cables = [c for c in FABRIC.cables if leaf.guid in (c.a, c.b)]
    dead = FABRIC
    for cable in cables:
        dead = without(dead, cable)
    now = infer(FabricInputs(sweeps=(sweep(dead),), infiniband=PORTS), previous=BEFORE)
    assert "MissingSwitch" in {x.kind for x in now.anomalies}
