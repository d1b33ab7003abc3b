"""NetQ's topology graph: which node is a switch, cables between two nodes, quirks and bounds."""

import contextlib
import json
from typing import Any

import pytest
from hyperscout_formats.managers import netq
from hyperscout_formats.text.errors import FormatError
from hyperscout_sim.fabric.shapes import clos3
from hyperscout_sim.readings.netq import netq_graph
from hypothesis import given
from hypothesis import strategies as st


def graph(*links: Any, nodes: Any = None) -> bytes:
    nodes = nodes or [
        {"id": "node0", "name": "leaf-01", "tier": 1, "device_type": "switch"},
        {"id": "node1", "name": "gpu-01", "tier": -1, "device_type": "discovered_via_lldp"},
        {"id": "node2", "name": "spine-01", "tier": 2, "device_type": "discovered_via_lldp"},
    ]
    return json.dumps(
        [{"nodes": [{"compounded_nodes": nodes}], "links": [{"compounded_links": list(links)}]}]
    ).encode()


def cable(a: str, a_port: str, b: str, b_port: str) -> dict[str, Any]:
    ends = [{"node": a, "interface": a_port}, {"node": b, "interface": b_port}]
    return {"id": f"{a}:{a_port}-*-{b}:{b_port}", "interfaces": ends}


def said(data: bytes) -> dict[str, list[tuple[str, str, str]]]:
    """By switch: (own interface, neighbour, its interface)."""
    return {
        name: [(port.interface, n.system_name, n.port_id) for port in table.ports for n in port.neighbours]
        for name, table in netq.parse(data).tables.items()
    }


def test_both_ends_of_a_cable_between_switches_and_one_of_a_hosts() -> None:
    data = graph(cable("node0", "swp1", "node1", "eth0"), cable("node2", "swp7", "node0", "swp31"))
    assert said(data) == {
        "leaf-01": [("swp1", "gpu-01", "eth0"), ("swp31", "spine-01", "swp7")],
        "spine-01": [("swp7", "leaf-01", "swp31")],
    }
    found = netq.parse(data)
    assert not found.problems
    (port, uplink) = found.tables["leaf-01"].ports
    assert (port.chassis_id_subtype, port.chassis_id, port.port_id) == ("local", "leaf-01", "swp1")
    assert port.neighbours[0].capabilities == ("Station",)
    assert uplink.neighbours[0].capabilities == ("Bridge", "Router")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (graph(cable("node0", "swp1", "node9", "eth0")), "two known ends"),
        (graph(cable("node0", "", "node1", "eth0")), "two known ends"),
        (graph({"id": "x", "interfaces": None}), "two known ends"),
        (graph(nodes=[{"id": "a", "name": "x", "tier": 1}, {"id": "b", "name": "x"}]), "a second node"),
        (graph(nodes=[{"id": "a", "name": "x", "tier": 1}, {"id": "a", "name": "y"}]), "a second node"),
        (graph(nodes=[{"id": "a", "name": "x", "tier": 1}, {"name": "y"}]), "without an id or a name"),
        (graph(nodes=[{"id": "a", "name": "x" * 300}]), "without an id or a name"),
        (
            graph(*(cable("node0", "swp1", "node1", f"eth{n}") for n in range(65))),
            "65 neighbours; only 64 are kept",
        ),
    ],
)
def test_what_is_passed_over_is_named(data: bytes, problem: str) -> None:
    assert problem in str(netq.parse(data).problems[0])


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"[{}]", b"7", b"\xff", b"[" * 100_000, b'{"a":' * 100_000, b"<html>"]
)
def test_other_texts_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        netq.parse(data)


def test_a_whole_fabric() -> None:
    fabric = clos3(2, 2, 3, 2, 2)
    found = netq.parse(json.dumps(netq_graph(fabric)).encode())
    assert not found.problems
    assert set(found.tables) == {x.name for x in fabric.switches}
    switches = {x.guid for x in fabric.switches}
    heard = sum(len(port.neighbours) for table in found.tables.values() for port in table.ports)
    assert heard == sum((a in switches) + (b in switches) for a, _, b, _, _ in fabric.cables)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("nodes", "links", "compounded_nodes", "compounded_links", "interfaces", "id", "name", "tier")
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(json_values, st.binary(max_size=40))
def test_any_document(document: Any, data: bytes) -> None:
    for text in (
        json.dumps(document).encode(),
        json.dumps([{"nodes": document, "links": document}]).encode(),
        data,
    ):
        with contextlib.suppress(FormatError):
            netq.parse(text)
