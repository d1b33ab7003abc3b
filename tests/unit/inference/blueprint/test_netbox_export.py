"""Links as NetBox's import of cables: what is written is read back as the same cables."""

import csv
import io
from dataclasses import replace

from hyperscout_formats.cabling.netbox_csv import parse
from hyperscout_inference.blueprint import reading
from hyperscout_inference.blueprint.comparing import compare
from hyperscout_inference.blueprint.netbox_export import netbox_csv
from hyperscout_sim.fabric.shapes import rail_optimised
from hyperscout_topology.topology import Link, LinkTable, Switch, Topology
from hypothesis import given
from hypothesis import strategies as st
from support.cabling_files import CABLES, NETBOX_HEADER, rows
from support.inference import inferred
from support.topologies import two_leaves


def linked(*links: Link) -> Topology:
    devices = sorted({x.b_device for x in links})
    return Topology(1, switches=tuple(Switch(d, d, 1) for d in devices), links=LinkTable.of(links))


def link(a: str, port: str, b: str, b_port: str, note: str = "") -> Link:
    return Link(a, port, b, b_port, "", (), note)


def test_a_row_for_each_link() -> None:
    found = netbox_csv(two_leaves())
    lines = found.text.splitlines()
    assert (lines[0], len(lines), found.left_out) == (f"{NETBOX_HEADER},status", 6, 0)
    assert lines[1] == "n01,dcim.interface,mlx5_0,leaf-a,dcim.interface,1,connected"
    assert rows(parse(found.text.encode())) == CABLES


def test_a_fabric_is_as_its_export_declares_it() -> None:
    topology = inferred(rail_optimised(units=2, hosts_per_unit=4, rails=2, spines_per_rail=2))
    found = netbox_csv(topology)
    blueprint = reading.parse(found.text.encode())
    assert (len(blueprint.cables), found.left_out) == (len(topology.links), 0)
    assert compare(topology, blueprint).drifts == ()


def test_switches_of_one_name_have_their_ids() -> None:
    topology = linked(link("h1", "eth0", "s1", "1"), link("h2", "eth0", "s2", "1"))
    same = replace(topology, switches=tuple(replace(s, name="leaf") for s in topology.switches))
    assert [row[2] for row in rows(parse(netbox_csv(same).text.encode()))] == ["s1", "s2"]


def test_what_cannot_be_imported_is_left_out() -> None:
    found = netbox_csv(
        linked(
            link("h1", "eth0", "l1", "1", "doubtful"),
            link("h2", "eth0", "l1", "1"),
            link("h3", "", "l1", "3"),
            link("h4\x1b", "eth0", "l1", "4"),
            link("h5", "eth\n0", "l1", "5"),
        )
    )
    assert rows(parse(found.text.encode())) == [("h2", "eth0", "l1", "1")]
    assert found.left_out == 4


def test_a_port_is_written_as_it_was_discovered() -> None:
    text = netbox_csv(linked(link("h1", "eth0", "l1", "p17"))).text
    assert text.splitlines()[1] == "h1,dcim.interface,eth0,l1,dcim.interface,p17,connected"


def test_a_written_name_and_port_comes_once() -> None:
    """A host has the name of a switch."""
    topology = linked(link("h1", "eth0", "s1", "1"), link("leaf", "1", "s2", "1"))
    switches = tuple(replace(s, name="leaf") if s.id == "s1" else s for s in topology.switches)
    found = netbox_csv(replace(topology, switches=switches))
    assert (len(rows(parse(found.text.encode()))), found.left_out) == (1, 1)


names = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["a,b", 'a"b', "=1+1", "a;b", "a\tb", " a", "é", "p7"]
)


@given(st.lists(st.tuples(names, names, names, names), max_size=6))
def test_whatever_things_are_called_it_is_read_back(cables: list[tuple[str, str, str, str]]) -> None:
    topology = linked(*(link(*cable) for cable in cables))
    found = netbox_csv(topology)
    written = list(csv.reader(io.StringIO(found.text, newline="")))[1:]
    assert len(written) + found.left_out == len(cables)
    assert all(cell.isprintable() for row in written for cell in row)
    if written:
        ends = {frozenset({(a, p), (b, q)}) for a, p, b, q in cables}
        read = rows(parse(found.text.encode()))
        assert len(read) == len(written)
        assert {frozenset({(a, p), (b, q)}) for a, p, b, q in read} <= ends
        assert [
            x for x in compare(topology, reading.parse(found.text.encode())).drifts if x.sign != "+"
        ] == []
