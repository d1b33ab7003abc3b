"""Recordings of simulated switches say what LLDP says of them, in every vendor's manner."""

from dataclasses import replace

import pytest
from hyperscout_formats.facts.facts import SwitchTable
from hyperscout_formats.lldp.frame import dissect
from hyperscout_formats.snmp.rows import parse
from hyperscout_formats.snmp.switch import read
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.fabric.shapes import clos2, dual_homed
from hyperscout_sim.readings.lldp import frame, mac_of, management_address
from hyperscout_sim.readings.lldp_frames import heard
from hyperscout_sim.readings.snmp import PLAIN, STYLES, Style, recordings, snmprec, walk_text, walks

FABRIC = dual_homed(2, 3, 2, peer_links=1)

# What a style leaves out of it is no fault of the reader's.
DOUBT = {"slx-os": "is one of 2 interfaces with the name "}


def tables(fabric: SimFabric, *styles: Style) -> dict[str, SwitchTable]:
    return {switch.name: read(rows, switch.name) for switch, rows in walks(fabric, styles)}


def cables(found: dict[str, SwitchTable]) -> set[frozenset[tuple[str, str]]]:
    """Chassis id and port id of both ends."""
    return {
        frozenset({(port.chassis_id, port.port_id), (far.chassis_id, far.port_id)})
        for table in found.values()
        for port in table.ports
        for far in port.neighbours
    }


@pytest.mark.parametrize("name", STYLES)
def test_each_style_reads_the_same_from_a_recording_and_from_a_walk(name: str) -> None:
    for switch, rows in walks(FABRIC, [STYLES[name]]):
        table = read(rows, switch.name)
        for text in (snmprec(rows), walk_text(rows)):
            again, problems = parse(text)
            assert (read(again, switch.name), problems) == (table, ())
        assert [row.oid for row in rows] == sorted({row.oid for row in rows})
        for port in table.ports:
            assert port.doubt.startswith(DOUBT.get(name, "")) or not port.neighbours
            assert bool(port.doubt) == (name in DOUBT)
            assert (port.carrier, port.speed_mbps) == ((True, 200_000) if port.neighbours else (False, 0))


@pytest.mark.parametrize("name", [name for name, style in STYLES.items() if style.tells_itself])
def test_both_ends_tell_of_the_same_cables(name: str) -> None:
    between = [cable for cable in FABRIC.cables if cable.a in FABRIC.levels()]
    found = tables(FABRIC, STYLES[name])
    assert len(cables(found)) == len(FABRIC.cables)
    both = [
        end
        for ends in cables(found)
        for end in ends
        if end[0] in {t.ports[0].chassis_id for t in found.values()}
    ]
    assert len(both) == len(FABRIC.cables) + len(between)


def test_vendors_side_by_side() -> None:
    assert len(cables(tables(FABRIC, *(s for s in STYLES.values() if s.tells_itself)))) == len(FABRIC.cables)


def test_walks_and_frames_agree_on_both_ends() -> None:
    found = tables(FABRIC, PLAIN)
    adapters = {x.guid: x for x in FABRIC.adapters}
    cable_of = {cable.a: cable for cable in FABRIC.cables}
    switches = {x.guid: x for x in FABRIC.switches}
    ports = {(port.chassis_id, port.port_id): port for table in found.values() for port in table.ports}
    for guid, adapter in adapters.items():
        ((host_port,),) = [heard(switches, [(adapter, cable_of[guid])])]
        (switch,) = host_port.neighbours
        (back,) = ports[switch.chassis_id, switch.port_id].neighbours
        assert (back.port_id_subtype, back.port_id) == ("mac", host_port.mac)
        assert back.system_name == adapter.host
        assert back.chassis_id == mac_of(FABRIC.adapters_of()[adapter.host][0].guid)
        assert back.capabilities == ("Station",)
    for cable in FABRIC.cables:
        if cable.a in switches:
            upper = switches[cable.b]
            said = dissect(frame(upper, cable.b_port))
            lower = found[switches[cable.a].name]
            (port,) = [port for port in lower.ports if port.port_id == f"swp{cable.a_port}"]
            assert replace(said, system_description="") == port.neighbours[0]
            assert found[upper.name].addresses == (management_address(upper),)


def test_a_switch_of_64_neighbours() -> None:
    fabric = clos2(4, 60, 4)
    found = [read(parse(text)[0], switch.name) for switch, text in recordings(fabric, [PLAIN])]
    assert [sum(len(port.neighbours) for port in table.ports) for table in found] == [64] * 4 + [4] * 4
