"""The NICs of nodes in the evidence, and their leaves and rails."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import KeyChange
from hyperscout_formats.facts.facts import InfinibandPort, LldpPort
from hyperscout_inference.fabric.inputs import InferOptions
from hyperscout_inference.hierarchy.infer import infer
from hyperscout_publish.devices.nics import MAX_NICS, Nic, NodeNics, nics_of
from hyperscout_publish.devices.places import NicEnds, Place, places
from hyperscout_sim.fabric.shapes import rail_optimised, single_rack
from hyperscout_topology.topology import Adapter, Link, Topology
from support.ethernet import inputs_of
from support.inference import inferred
from support.nics import rdma, row


def ethernet(name: str, n: int, **more: Any) -> LldpPort:
    slot = {"pci_address": f"0000:{n + 1:02x}:00.0", "pcie_root": f"pci0000:{n:02x}"}
    return replace(LldpPort(name, (), "02:00:00:00:00:01"), **(slot | more))


def change(node: str, before: Any, after: Any) -> KeyChange:
    rows = [() if fact is None else (row(node, fact),) for fact in (before, after)]
    return KeyChange(row(node, before or after).key, rows[0], rows[1])


def test_an_rdma_device_and_its_interface_are_one_nic() -> None:
    found = nics_of([ethernet("eth0", 9), ethernet("ens1", 1), rdma(1), rdma(0)])
    assert [(x.rdma_device, x.interface, x.numa_node) for x in found] == [
        ("mlx5_0", "", 0),
        ("mlx5_1", "ens1", 1),
        ("", "eth0", None),
    ]
    assert found[1] == Nic(
        "0000:02:00.0", "pci0000:01", 1, "mlx5_1", "0000000000000011", "ens1", "02:00:00:00:00:01"
    )
    assert found[1].name == "pci-0000-02-00-0"


def test_the_first_port_of_a_function_counts() -> None:
    found = nics_of([rdma(0, port=2), rdma(0), ethernet("b", 0), ethernet("a", 0)])
    assert [(x.rdma_device, x.interface) for x in found] == [("mlx5_0", "a")]


def test_a_node_has_at_most_as_many_as_a_slice_takes() -> None:
    facts = [rdma(n, pci_address=f"0000:01:{n // 8:02x}.{n % 8}") for n in range(MAX_NICS + 8)]
    assert len(nics_of(facts)) == MAX_NICS


def test_a_virtual_function_is_no_nic() -> None:
    assert nics_of([rdma(0, pci_address="", pcie_root="")]) == ()


def test_nodes_are_known_once_their_agents_have_reported_everything() -> None:
    nics, heard = NodeNics(), list[bool]()
    nics.changed.subscribe(lambda: heard.append(True))
    nics.follow([change("n1", None, rdma(0)), change("east/n2", None, rdma(0))])
    assert nics.of_cluster("") == {}
    for node in ("n1", "east/n2", "n3", "fabric/one"):
        nics.complete(node)
    assert nics.of_cluster("") == {"n1": nics_of([rdma(0)]), "n3": ()}
    assert nics.of_cluster("east") == {"n2": nics_of([rdma(0)])}
    count = len(heard)
    nics.follow([change("n1", rdma(0), rdma(0, lid=7))])
    assert len(heard) == count, "nothing of the NIC changed"
    nics.follow([change("n1", rdma(0), None)])
    assert nics.of_cluster("") == {"n1": (), "n3": ()}
    assert len(heard) > count


def test_a_failed_reading_keeps_the_earlier_one() -> None:
    nics = NodeNics()
    nics.load("n1", [row("n1", rdma(0))])
    failed = Row(Key("n1", "infiniband", "mlx5_0"), 0, 1, 0, 0, 3, "cannot be read", None)
    nics.follow([KeyChange(failed.key, (row("n1", rdma(0)),), (row("n1", rdma(0)), failed))])
    assert nics.of_cluster("") == {"n1": nics_of([rdma(0)])}
    restarted = NodeNics()
    restarted.load("n1", [row("n1", rdma(0)), failed])
    assert restarted.of_cluster("") == nics.of_cluster("")


# --- places -----------------------------------------------------------------------------------------------


def nics_in(topology: Topology, names: Sequence[str] = ()) -> dict[str, tuple[Nic, ...]]:
    """A NIC for each adapter. `names`: of the first node's adapters, in the order of their rails."""
    found: dict[str, list[InfinibandPort]] = {}
    for i, adapter in enumerate(sorted(topology.adapters, key=lambda a: (a.node, a.name))):
        slot = {"pci_address": f"0000:{i // 256:02x}:{i // 8 % 32:02x}.{i % 8}", "pcie_root": "pci0000:00"}
        mine = found.setdefault(adapter.node, [])
        device = names[len(mine)] if names and len(found) == 1 else adapter.name
        mine.append(rdma(0, device=device, node_guid=int(adapter.id, 16), **slot))
    return {node: nics_of(facts) for node, facts in found.items()}


def placed(topology: Topology, nics: dict[str, tuple[Nic, ...]], **more: Any) -> dict[tuple[str, str], Place]:
    found = places(topology, nics, more.get("before", {}), NicEnds(nics))
    by_address = {(node, x.pci_address): x.rdma_device for node, mine in nics.items() for x in mine}
    return {(node, by_address[node, address]): place for (node, address), place in found.items()}


RAILS = inferred(rail_optimised(2, 4, 3, 2))


@pytest.mark.parametrize("names", [(), ("mlx5_7", "mlx5_3", "mlx5_5")])
def test_a_rail_is_that_of_the_leaf_whatever_the_name(names: Sequence[str]) -> None:
    nics = nics_in(RAILS, names)
    found = placed(RAILS, nics)
    assert len(found) == 24
    for (node, device), place in found.items():
        unit = "u01" if node <= "node-0004" else "u02"
        rail = names.index(device) if names and node == "node-0001" else int(device[-1])
        assert place == Place(f"leaf-{unit}-r{rail}", rail), (node, device)


def test_a_host_that_lacks_an_adapter_keeps_the_rails_of_the_others() -> None:
    nics = nics_in(RAILS)
    nics["node-0001"] = nics["node-0001"][1:]
    found = placed(RAILS, nics)
    assert {d: p.rail for (n, d), p in found.items() if n == "node-0001"} == {"mlx5_1": 1, "mlx5_2": 2}


def test_a_host_with_many_adapters_does_not_change_the_rails_of_others() -> None:
    nics = nics_in(RAILS)
    own = nics["node-0001"] = nics["node-0001"][1:]  # its rails are those of the neighbours' leaves
    (link,) = (x for x in RAILS.links if own[0].guid in (x.a_device, x.b_device))
    many = [rdma(n, node_guid=0xE000 + n) for n in range(20)]
    adapters = tuple(Adapter(f"{x.node_guid:016x}", "node-0002", x.device) for x in many)
    leaf = link.b_device if link.a_device == own[0].guid else link.a_device
    links = tuple(Link(x.id, "1", leaf, str(100 + n), link.fabric, ("x",)) for n, x in enumerate(adapters))
    topology = replace(RAILS, adapters=RAILS.adapters + adapters, links=(*RAILS.links, *links))
    nics["node-0002"] = nics_of(many)
    found = placed(topology, nics)
    assert {d: p.rail for (n, d), p in found.items() if n == "node-0001"} == {"mlx5_1": 1, "mlx5_2": 2}


def test_on_one_leaf_a_rail_is_the_position() -> None:
    topology = inferred(single_rack(4, 2))
    found = placed(topology, nics_in(topology))
    assert len(found) == 8
    assert {(device, place) for (_, device), place in found.items()} == {
        ("mlx5_0", Place("tor-01", 0)),
        ("mlx5_1", Place("tor-01", 1)),
    }


def test_a_nic_whose_link_is_gone_keeps_its_place() -> None:
    nics = nics_in(RAILS)
    gone = nics["node-0001"][0]
    links = [x for x in RAILS.links if gone.guid not in (x.a_device, x.b_device)]
    topology = replace(RAILS, links=tuple(links))
    assert ("node-0001", "mlx5_0") not in placed(topology, nics)
    before = {("node-0001", gone.pci_address): Place("leaf-u01-r0", 0)}
    found = placed(topology, nics, before=before)
    assert found["node-0001", "mlx5_0"] == Place("leaf-u01-r0", 0)
    assert found["node-0001", "mlx5_2"] == Place("leaf-u01-r2", 2)


def test_a_node_that_reports_the_nics_of_another_takes_no_place() -> None:
    nics = nics_in(RAILS)
    truth = placed(RAILS, nics)
    liar = nics | {"node-0004": nics["node-0001"]}
    found = placed(RAILS, liar)
    assert {key: place for key, place in found.items() if key[0] != "node-0004"} == {
        key: place for key, place in truth.items() if key[0] != "node-0004"
    }
    assert not any(node == "node-0004" for node, _ in found)


def test_nics_on_ethernet() -> None:
    fabric = rail_optimised(2, 4, 3, 2)
    topology = infer(inputs_of(fabric, None), InferOptions())
    nics = {host: nics_of([ethernet(f"eth{n}", n) for n in range(3)]) for host in fabric.hosts}
    found = places(topology, nics, {}, NicEnds(nics))
    assert {place.rail for place in found.values()} == {0, 1, 2}
    assert found["node-0001", "0000:02:00.0"] == Place("leaf-u01-r1", 1)
    assert len(found) == 24
