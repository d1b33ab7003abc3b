"""Ethernet hosts behind a DPU, beside virtual machines, that route, and with slow NICs beside fast ones."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort, SwitchPort
from hyperscout_inference.fabric.inputs import FabricInputs, SwitchTableSeen
from hyperscout_inference.hierarchy import infer
from support.switched import SWITCHES, TWO_TIERS, Wiring, clos, domains

ALL = ["leaf-1a", "leaf-1b", "leaf-2a", "leaf-2b", "spine-1", "spine-2"]
HOSTS = [f"h{unit}{i}" for unit in (1, 2) for i in (1, 2, 3)]
ONE_RAIL = Wiring(
    clos(rails=1), HOSTS, asked=["leaf-1a", "leaf-2a", "spine-1", "spine-2"], asked_at_ns=0, named=HOSTS
)


def heard_on_leaves(
    inputs: FabricInputs, new: Callable[[LldpNeighbour], tuple[LldpNeighbour, ...]]
) -> tuple[SwitchTableSeen, ...]:
    """The tables, with other neighbours in the place of each host."""

    def of_port(port: SwitchPort) -> SwitchPort:
        found = [new(n) if not n.system_name.startswith(SWITCHES) else (n,) for n in port.neighbours]
        return replace(port, neighbours=tuple(n for some in found for n in some))

    return tuple(
        replace(seen, table=replace(seen.table, ports=tuple(map(of_port, seen.table.ports))))
        for seen in inputs.tables
    )


def dpu_of(host: str, port: str, capabilities: tuple[str, ...], system: str) -> LldpNeighbour:
    chassis = "a0:88:c2:00:00:" + host[1:]
    return LldpNeighbour(
        "mac",
        chassis,
        "ifname",
        port,
        120,
        system_name=f"{host}-bf3",
        system_description=system,
        capabilities=capabilities,
    )


@pytest.mark.parametrize(
    ("capabilities", "system", "port"),
    [
        (("Bridge", "Router", "Station"), "Ubuntu 22.04", "pf0"),
        (("Bridge", "Router"), "Ubuntu 22.04 BlueField", "pf0"),
        (("Bridge",), "Ubuntu 22.04.5 LTS Linux 5.15.0-1042-bluefield", "en3f0pf0sf0"),
        (("Bridge",), "", "pf0hpf"),
    ],
)
@pytest.mark.parametrize("walks", [True, False])
def test_a_host_is_behind_its_dpu(capabilities: tuple[str, ...], system: str, port: str, walks: bool) -> None:
    inputs = ONE_RAIL.inputs()
    lldp = {h: (LldpPort("eth0", (dpu_of(h, port, capabilities, system),)),) for h in HOSTS}
    tables = heard_on_leaves(inputs, lambda n: (dpu_of(n.system_name, "p0", capabilities, system),))
    topology = infer(replace(inputs, lldp=lldp, tables=tables if walks else ()))
    assert domains(topology) == (TWO_TIERS if walks else [])
    assert topology.anomalies == ()
    assert {s.name for s in topology.switches} == (set(ONE_RAIL.asked) if walks else set())
    if not walks:
        assert topology.nodes_without_evidence == tuple(HOSTS)


def test_a_device_that_two_hosts_hear_is_a_switch() -> None:
    box = dpu_of("h11", "p1", ("Bridge", "Station"), "")
    lldp = {h: (LldpPort("eth0", (replace(box, port_id=f"p{h}"),)),) for h in ("h11", "h12")}
    assert domains(infer(FabricInputs(lldp=lldp))) == [(1, ("h11", "h12"))]


@pytest.mark.parametrize("machine", ["52:54:00:00:00:{}", "00:50:56:00:00:{}"])
def test_virtual_machines_on_a_host_s_port_are_no_hosts(machine: str) -> None:
    inputs = ONE_RAIL.inputs()

    def crowd(n: LldpNeighbour) -> tuple[LldpNeighbour, ...]:
        real = "94:6d:ae:00:00:" + n.system_name[1:]
        made_up = machine.format(n.system_name[1:])
        host = replace(n, chassis_id=real, port_id_subtype="mac", port_id=real)
        guest = replace(host, chassis_id=made_up, port_id=made_up, system_name=f"vm-{n.system_name}")
        return (host, guest) if n.system_name in ("h11", "h22") else (host,)

    topology = infer(replace(inputs, lldp={}, tables=heard_on_leaves(inputs, crowd)))
    assert domains(topology) == TWO_TIERS
    assert topology.anomalies == ()
    assert topology.foreign_endpoints == ("vm-h11", "vm-h22")


@pytest.mark.parametrize(
    "change",
    [
        {"capabilities": ("Bridge", "Router", "Station")},
        {"capabilities": ("Router",), "port_id_subtype": "mac", "port_id": "94:6d:ae:00:00:{}"},
    ],
    ids=["a station, too", "ports by address"],
)
def test_hosts_that_route_are_hosts_in_walks_alone(change: dict[str, object]) -> None:
    inputs = ONE_RAIL.inputs()

    def routing(n: LldpNeighbour) -> tuple[LldpNeighbour, ...]:
        own = {k: v.format(n.system_name[1:]) if isinstance(v, str) else v for k, v in change.items()}
        return (replace(n, **own),)  # type: ignore[arg-type]

    topology = infer(replace(inputs, lldp={}, tables=heard_on_leaves(inputs, routing)))
    assert domains(topology) == TWO_TIERS
    assert topology.anomalies == ()


def test_a_switch_with_the_system_of_others_is_no_host() -> None:
    """The spines do not answer, and announce their ports by address."""
    inputs = replace(ONE_RAIL, asked=["leaf-1a", "leaf-2a"]).inputs()
    tables = inputs.tables

    def like_a_host(seen: SwitchTableSeen) -> SwitchTableSeen:
        ports = [
            replace(
                p,
                neighbours=tuple(
                    replace(
                        n,
                        port_id_subtype="mac",
                        port_id=f"02:00:00:00:0{n.system_name[-1]}:{p.chassis_id[-2:]}",
                        system_description="SONiC",
                    )
                    if n.system_name.startswith(SWITCHES)
                    else n
                    for n in p.neighbours
                ),
            )
            for p in seen.table.ports
        ]
        peer = LldpNeighbour(
            "mac", tables[0].table.ports[0].chassis_id, "ifname", "swp60", 120, system_description="SONiC"
        )
        ports.append(replace(ports[0], interface="swp60", port_id="swp60", neighbours=(peer,)))
        return replace(seen, table=replace(seen.table, ports=tuple(ports)))

    topology = infer(replace(inputs, tables=(tables[0], like_a_host(tables[1]))))
    assert {s.name for s in topology.switches} == {"leaf-1a", "leaf-2a", "spine-1", "spine-2"}


def test_a_switch_knows_the_speeds_that_lldpctl_does_not_print() -> None:
    management = [f"mgmt-{1 + i % 2}/swp{i} {host}/mgmt0" for i, host in enumerate(HOSTS, 1)]
    wiring = Wiring(
        [*clos(), *management, "mgmt-1/swp50 mgmt-2/swp50"],
        HOSTS,
        asked=[*ALL, "mgmt-1", "mgmt-2"],
        asked_at_ns=0,
        speeds_mbps={(host, "mgmt0"): 1000 for host in HOSTS},
    )
    inputs = wiring.inputs()
    silent = {node: tuple(replace(p, speed_mbps=0) for p in ports) for node, ports in inputs.lldp.items()}
    topology = infer(replace(inputs, lldp=silent))
    assert domains(topology) == TWO_TIERS
    assert topology.anomalies == ()


def test_rails_that_a_host_has_exchanged_are_named_by_both_cables() -> None:
    swapped = {
        "leaf-1a/swp2 h12/eth0": "leaf-1a/swp2 h12/eth3",
        "leaf-1d/swp2 h12/eth3": "leaf-1d/swp2 h12/eth0",
    }
    cables = [swapped.get(text, text) for text in clos(units=2, hosts=4, rails=4)]
    topology = infer(Wiring(cables).inputs())
    assert {(x.kind, x.subject.name, x.subject.port, x.peer and x.peer.name) for x in topology.anomalies} == {
        ("Miswired", "h12", "eth3", "leaf-1a"),
        ("Miswired", "h12", "eth0", "leaf-1d"),
    }
    pulled = Wiring(clos(units=2, hosts=4, rails=4)).without("leaf-1d/swp2 h12/eth3")
    (missing,) = infer(pulled.inputs()).anomalies
    assert (missing.kind, missing.subject.name, missing.subject.port) == ("MissingLink", "h12", "eth3")
