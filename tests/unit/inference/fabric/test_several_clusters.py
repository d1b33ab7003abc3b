"""Nodes of several clusters on one fabric: which node is meant by the name that a host announces."""

from dataclasses import replace

import pytest
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_formats.text.reporters import node_in
from hyperscout_inference.fabric.identify import announced_names
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.topology import Topology
from hypothesis import given, settings
from hypothesis import strategies as st
from support.inference import tiers, truth
from support.switched import Wiring

FABRIC = shapes.clos3(2, 2, 3, 2, 1)
HOSTS = FABRIC.hosts
CLUSTERS = st.lists(st.sampled_from(["", "east", "west"]), min_size=len(HOSTS), max_size=len(HOSTS))


def seen(fabric: SimFabric, nodes: dict[str, str], agents: set[str]) -> Topology:
    """What inference finds. `nodes`: the node that each host is; those in `agents` have one."""
    cable_of = {c.a: c for c in fabric.cables}
    ports = {
        nodes[host]: tuple(port_facts(x, cable_of.get(x.guid)) for x in mine)
        for host, mine in fabric.adapters_of().items()
        if host in agents
    }
    sweep = SweepSeen(parse(sweep_text(fabric), "sweep"))
    inputs = FabricInputs((sweep,), infiniband=ports, node_names=announced_names(nodes.values()))
    return infer(inputs, InferOptions(cluster_nodes=frozenset(nodes.values())))


@settings(max_examples=25, deadline=None)
@given(CLUSTERS, st.sets(st.sampled_from(HOSTS)))
def test_names_that_one_node_has_mean_that_node(clusters: list[str], agents: set[str]) -> None:
    nodes = {host: node_in(cluster, host) for host, cluster in zip(HOSTS, clusters, strict=True)}
    topology = seen(FABRIC, nodes, agents)
    wanted = [{frozenset(map(nodes.__getitem__, domain)) for domain in tier} for tier in truth(FABRIC)]
    assert tiers(topology) == wanted
    assert topology.anomalies == ()


def twins(fabric: SimFabric) -> tuple[SimFabric, dict[str, str]]:
    """The first and the last host have the same name in two clusters."""
    first, last = fabric.hosts[0], fabric.hosts[-1]
    adapters = tuple(
        replace(x, description=f"{first} mlx5_7", device="mlx5_7") if x.host == last else x
        for x in fabric.adapters
    )
    nodes = {host: node_in("east", host) for host in fabric.hosts} | {last: f"west/{first}"}
    return replace(fabric, adapters=adapters), nodes


def test_nodes_of_two_clusters_with_one_name_are_told_apart_by_their_adapters() -> None:
    fabric, nodes = twins(FABRIC)
    topology = seen(fabric, nodes, set(HOSTS))
    wanted = [{frozenset(map(nodes.__getitem__, domain)) for domain in tier} for tier in truth(FABRIC)]
    assert tiers(topology) == wanted
    assert topology.anomalies == ()


def test_an_adapter_with_the_name_of_two_nodes_belongs_to_neither() -> None:
    fabric, nodes = twins(FABRIC)
    topology = seen(fabric, nodes, set())
    both = {nodes[HOSTS[0]], nodes[HOSTS[-1]]}
    assert both == set(topology.nodes_without_evidence)
    placed = {node for h in topology.hypernodes for node in h.nodes}
    assert placed == set(nodes.values()) - both
    unknown = [x for x in topology.anomalies if x.kind == "UnknownHost"]
    assert len(unknown) == 2
    assert all("nodes of several clusters" in x.message for x in unknown)


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        (["n1", "n2"], {}),
        (["east/n1", "n2"], {"n1": "east/n1"}),
        (["east/n1", "west/n1", "west/n2"], {"n1": "", "n2": "west/n2"}),
        (["east/n1", "n1"], {"n1": ""}),
        (["east/n1.example.com", "n1"], {"n1": "", "n1.example.com": "east/n1.example.com"}),
        (["east/n1.example.com", "east/n1"], {"n1": "east/n1", "n1.example.com": "east/n1.example.com"}),
        (["n1.example.com", "n1"], {}),
    ],
)
def test_announced_names(nodes: list[str], wanted: dict[str, str]) -> None:
    assert announced_names(nodes) == wanted


# --- Ethernet

CABLES = ("h1/eth0 leaf-1/swp1", "h2/eth0 leaf-1/swp2", "h3/eth0 leaf-2/swp1", "h4/eth0 leaf-2/swp2")


def heard(nodes: frozenset[str], **agents: str) -> Topology:
    """What switches hear of hosts that run lldpd. `agents`: the node of each host with an agent."""
    wiring = Wiring(CABLES, [*agents, "leaf-1", "leaf-2"], named=("h1", "h2", "h3", "h4"))
    inputs = wiring.inputs()
    lldp = {agents[host]: ports for host, ports in inputs.lldp.items()}
    return infer(replace(inputs, lldp=lldp), InferOptions(cluster_nodes=nodes))


def test_switches_hear_the_names_of_nodes_without_prefix() -> None:
    nodes = frozenset({"east/h1", "east/h2", "west/h3", "h4"})
    topology = heard(nodes, h1="east/h1")
    assert tiers(topology)[0] == {frozenset({"east/h1", "east/h2"}), frozenset({"west/h3", "h4"})}
    assert topology.nodes_without_evidence == ()


@pytest.mark.parametrize("other", ["west/h2", "west/h2.west.example.com"])
def test_a_name_of_two_nodes_that_a_switch_hears_is_neither(other: str) -> None:
    nodes = frozenset({"east/h1", "east/h2", other, "west/h3", "west/h4"})
    topology = heard(nodes)
    assert set(topology.nodes_without_evidence) == {"east/h2", other}
    notes = " ".join(x.note for x in topology.links)
    assert "it announces the name h2, which nodes of several clusters have" in notes


def test_the_address_of_a_port_decides_between_nodes_of_one_name() -> None:
    nodes = frozenset({"east/h1", "east/h2", "west/h2", "west/h3", "west/h4"})
    topology = heard(nodes, h2="west/h2")
    assert tiers(topology)[0] == {frozenset({"east/h1", "west/h2"}), frozenset({"west/h3", "west/h4"})}
    assert topology.nodes_without_evidence == ("east/h2",)
