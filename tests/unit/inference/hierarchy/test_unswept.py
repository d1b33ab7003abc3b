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
HOST = FABRIC.node_map()[CABLE.a]
PORTS = {host: own_ports(FABRIC, host) for host in FABRIC.hosts}
CUT = PORTS | {HOST: own_ports(FABRIC, HOST, down=CABLE)}
BEFORE = infer(FabricInputs(sweeps=(sweep(FABRIC),), infiniband=PORTS))
MISSING = infer(FabricInputs(sweeps=(sweep(without(FABRIC, CABLE)),), infiniband=CUT), previous=BEFORE)


def members(topology: Topology) -> set[Any]:
    return {(h.name, h.nodes, h.children) for h in topology.hypernodes}


@pytest.mark.parametrize("ports", [PORTS, {}, {HOST: PORTS[HOST]}], ids=["all agents", "none", "one agent"])
def test_it_stays_as_it_was(ports: Any) -> None:
    now = infer(FabricInputs(infiniband=ports), previous=BEFORE)
    assert now.anomalies == ()
    assert now.switches == BEFORE.switches
    assert set(now.links) == {replace(x, note=UNREPORTED) for x in BEFORE.links}
    assert members(now) == members(BEFORE)
    assert not set(now.nodes_without_evidence) & set(ports)
    swept = infer(FabricInputs(sweeps=(sweep(FABRIC),), infiniband=PORTS), previous=now)
    assert (swept.anomalies, set(swept.links)) == ((), set(BEFORE.links))


@pytest.mark.parametrize("previous", [BEFORE, MISSING], ids=["whole before", "missing before"])
@pytest.mark.parametrize("ports", [CUT[HOST], ()], ids=["a port that is down", "no adapter"])
def test_a_host_that_reports_its_own_loss_is_a_witness(ports: Any, previous: Topology) -> None:
    now = infer(FabricInputs(infiniband=PORTS | {HOST: ports}), previous=previous)
    [x] = now.anomalies
    assert (x.kind, x.subject.name, x.peer and x.peer.device) == ("MissingLink", HOST, f"{CABLE.b:016x}")
    assert members(now) == members(BEFORE)


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
