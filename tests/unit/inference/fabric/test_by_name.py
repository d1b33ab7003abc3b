"""NetQ's names beside LLDP: one switch, one cable, more witnesses; and by itself, without other sources."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort, SwitchPort, SwitchTable
from hyperscout_formats.managers import netq
from hyperscout_inference.ethernet.by_name import with_identities
from hyperscout_inference.fabric.inputs import FabricInputs, SwitchTableSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos2, clos3, rail_optimised
from hyperscout_sim.readings.netq import netq_graph
from hypothesis import given
from hypothesis import strategies as st
from support.inference import tiers, truth

SHAPES: list[Callable[[], SimFabric]] = [
    lambda: clos2(3, 4, 2),
    lambda: clos3(2, 2, 4, 2, 2),
    lambda: rail_optimised(2, 4, 2, 2),
]


def tables(fabric: SimFabric, rename: Callable[[str], str] = str) -> tuple[SwitchTableSeen, ...]:
    graph = json.loads(rename(json.dumps(netq_graph(fabric))))
    found = netq.parse(json.dumps(graph).encode()).tables.values()
    return tuple(SwitchTableSeen(table, "netq", observed_at_ns=1) for table in found if table.ports)


def heard_by_hosts(fabric: SimFabric, port_ids: str = "ifname") -> dict[str, tuple[LldpPort, ...]]:
    """What agents hear: chassis ids, and port ids of one or another kind."""
    switches = {x.guid: x for x in fabric.switches}
    hosts = {x.guid: x for x in fabric.adapters}
    found: dict[str, list[LldpPort]] = {}
    for n, cable in enumerate(fabric.cables):
        if cable.a not in hosts:
            continue
        switch = switches[cable.b]
        name = f"swp{cable.b_port}"
        port_id = name if port_ids == "ifname" else f"{switch.guid % 2**16}:{cable.b_port}"
        neighbour = LldpNeighbour(
            "mac",
            chassis(switch.guid),
            port_ids,
            port_id,
            120,
            port_description=name,
            system_name=f"{switch.name}.example.com",
            capabilities=("Bridge", "Router"),
        )
        adapter = hosts[cable.a]
        port = LldpPort(
            f"{adapter.device}p{cable.a_port}", (neighbour,), f"02:00:00:00:00:{n:02x}", speed_mbps=400_000
        )
        found.setdefault(adapter.host, []).append(port)
    return {host: tuple(ports) for host, ports in found.items()}


def chassis(guid: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (guid % 2**48).to_bytes(6))


@pytest.mark.parametrize("shape", SHAPES)
def test_netq_alone_gives_the_true_hierarchy(shape: Callable[[], SimFabric]) -> None:
    fabric = shape()
    found = infer(FabricInputs(tables=tables(fabric)))
    assert tiers(found) == truth(fabric)
    assert {link.sources for link in found.links} == {("netq",)}
    assert len(found.links) == len(fabric.cables)
    assert not found.anomalies


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("port_ids", ["ifname", "local"])
def test_beside_agents_it_shows_the_tiers_above(shape: Callable[[], SimFabric], port_ids: str) -> None:
    fabric = shape()
    found = infer(FabricInputs(lldp=heard_by_hosts(fabric, port_ids), tables=tables(fabric)))
    assert tiers(found) == truth(fabric)
    hosts = set(fabric.hosts)
    assert {link.sources for link in found.links if hosts & {link.a_device, link.b_device}} == {
        ("lldp", "netq")
    }
    assert len(found.links) == len(fabric.cables)
    leaves = {chassis(x.guid) for x in fabric.switches if x.level == 1}
    assert leaves <= {switch.id for switch in found.switches}
    assert not found.anomalies


def switch(name: str, mac: str, port: str = "swp1") -> SwitchPort:
    return SwitchPort(port, "mac", mac, (), name, "ifname", port)


def named(name: str, *neighbours: str) -> SwitchTableSeen:
    heard = tuple(LldpNeighbour("local", n, "ifname", "swp9", 120, system_name=n) for n in neighbours)
    port = replace(switch(name, name), chassis_id_subtype="local", neighbours=heard)
    return SwitchTableSeen(SwitchTable((port,)), "netq")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        pytest.param([switch("leaf-01", "m1")], "m1", id="its own name"),
        pytest.param([switch("LEAF-01.example.com.", "m1")], "m1", id="a longer name, in capitals"),
        pytest.param([switch("leaf-01", "m1"), switch("leaf-01", "m2")], "leaf-01", id="two of that name"),
        pytest.param([switch("leaf-01.a", "m1"), switch("leaf-01.b", "m2")], "leaf-01", id="two short ones"),
        pytest.param(
            [switch("leaf-01", "m1"), switch("leaf-01.b", "m2")], "m1", id="one of them to the letter"
        ),
        pytest.param([replace(switch("leaf-01", "x"), chassis_id_subtype="")], "leaf-01", id="a makeshift"),
        pytest.param([], "leaf-01", id="no neighbour"),
    ],
)
def test_which_chassis_id_a_name_stands_for(told: list[SwitchPort], expected: str) -> None:
    inputs = FabricInputs(switch_ports={"switch/x": tuple(told)}, tables=(named("leaf-01", "leaf-01"),))
    ((port,),) = [seen.table.ports for seen in with_identities(inputs)]
    assert port.chassis_id == port.neighbours[0].chassis_id == expected


def test_tables_of_others_stay_as_they_are() -> None:
    snmp = SwitchTableSeen(SwitchTable((switch("leaf-01", "m1"),)), "snmp")
    assert with_identities(FabricInputs(tables=(snmp,)))[0] is snmp
    assert with_identities(FabricInputs(tables=(snmp, named("leaf-01"))))[0] is snmp


@given(st.permutations(range(4)))
def test_order_does_not_matter(order: list[int]) -> None:
    told = [named("leaf-01", "spine-01"), named("spine-01", "leaf-01"), named("x")]
    told.append(SwitchTableSeen(SwitchTable((switch("leaf-01", "m1"),)), "snmp"))
    found = with_identities(FabricInputs(tables=tuple(told[i] for i in order)))
    assert sorted(map(repr, found)) == sorted(map(repr, with_identities(FabricInputs(tables=tuple(told)))))


def test_what_a_switch_calls_its_ports_on_the_wire() -> None:
    own = replace(switch("leaf-01", "m1", "swp9"), port_id_subtype="local", port_id="9")
    heard = LldpNeighbour(
        "mac", "m2", "mac", "02:00:00:00:00:01", 120, port_description="swp9", system_name="spine-01"
    )
    asked = SwitchTableSeen(SwitchTable((own, replace(switch("x", "mx"), neighbours=(heard,)))), "snmp")
    netq_says = named("leaf-01", "spine-01")
    netq_says = replace(
        netq_says,
        table=replace(netq_says.table, ports=(replace(netq_says.table.ports[0], interface="swp9"),)),
    )
    _, found = with_identities(FabricInputs(tables=(asked, netq_says)))
    (port,) = found.table.ports
    assert (port.chassis_id, port.port_id_subtype, port.port_id) == ("m1", "local", "9")
    (neighbour,) = port.neighbours
    assert (neighbour.chassis_id, neighbour.port_id) == ("m2", "02:00:00:00:00:01")
