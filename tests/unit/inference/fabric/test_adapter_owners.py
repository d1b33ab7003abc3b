"""Which node an adapter belongs to where agents disagree, and whose report of a port that is down counts."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

import pytest
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_inference.fabric.adapter_owners import reporters
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import SimFabric
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.topology import Anomaly, Topology
from support.inference import disagreements, tiers, truth

FABRIC = shapes.clos2(3, 4, 2)
FACTORY = replace(
    FABRIC,
    adapters=tuple(
        replace(x, description="MT4129 ConnectX7   Mellanox Technologies") for x in FABRIC.adapters
    ),
)
LIAR, OWNER, OTHER, LAST = (FABRIC.hosts[i] for i in (0, 5, 9, -1))
GUIDS = {x.host: x.guid for x in FABRIC.adapters}
CLUSTER = InferOptions(cluster_nodes=frozenset(FABRIC.hosts))
Ports = Mapping[str, tuple[InfinibandPort, ...]]


def described(fabric: SimFabric, host: str, name: str) -> SimFabric:
    """The description of a host's adapter names another host."""
    return replace(
        fabric,
        adapters=tuple(
            replace(x, description=f"{name} {x.device}") if x.host == host else x for x in fabric.adapters
        ),
    )


def own(fabric: SimFabric, *hosts: str) -> dict[str, tuple[InfinibandPort, ...]]:
    cable_of = {c.a: c for c in fabric.cables}
    return {
        host: tuple(port_facts(x, cable_of.get(x.guid)) for x in fabric.adapters_of()[host])
        for host in hosts or fabric.hosts
    }


def renamed(ports: tuple[InfinibandPort, ...]) -> tuple[InfinibandPort, ...]:
    """As a second adapter of the host that reports them."""
    return tuple(replace(port, device="mlx5_9") for port in ports)


def lying(fabric: SimFabric, *victims: str, liar: str = LIAR) -> dict[str, tuple[InfinibandPort, ...]]:
    """All agents report, and one reports the adapters of others, too."""
    ports = own(fabric)
    return {**ports, liar: ports[liar] + tuple(x for v in victims for x in renamed(ports[v]))}


def seen(fabric: SimFabric, ports: Ports, at_ns: int = 1, **more: object) -> FabricInputs:
    sweep = SweepSeen(parse(sweep_text(fabric)), observed_at_ns=at_ns)
    return replace(FabricInputs(sweeps=(sweep,), infiniband=ports), **more)  # type: ignore[arg-type]


def owner_of(topology: Topology, host: str = OWNER) -> str:
    (node,) = [x.node for x in topology.adapters if x.id == f"{GUIDS[host]:016x}"]
    return node


HONEST = infer(seen(FACTORY, own(FACTORY)))


@pytest.mark.parametrize("liar", [LIAR, LAST], ids=["first", "last"])
@pytest.mark.parametrize(
    ("fabric", "previous", "node_map"),
    [
        (FABRIC, None, {}),
        (FACTORY, HONEST, {}),
        (FACTORY, None, FABRIC.node_map()),
    ],
    ids=["sweep", "history", "node map"],
)
def test_the_claim_that_a_witness_supports_counts(
    liar: str, fabric: SimFabric, previous: Topology | None, node_map: dict[int, str]
) -> None:
    victims = [host for host in fabric.hosts if host != liar]
    found = infer(seen(fabric, lying(fabric, *victims, liar=liar), node_map=node_map), previous=previous)
    assert tiers(found) == truth(FABRIC)
    (named,) = disagreements(found)
    assert named.subject.name == liar
    assert set(named.nodes) == set(fabric.hosts)
    assert f"{liar} reports 11 adapters of other nodes as its own" in named.message
    (home,) = [h for h in found.hypernodes if h.tier == 1 and liar in h.nodes]
    assert named.hypernode == home.name


def test_other_domains_keep_their_conditions() -> None:
    found = infer(seen(FACTORY, lying(FACTORY, OWNER, OTHER, liar=LAST)), previous=HONEST)
    before = {h.name: h.conditions for h in HONEST.hypernodes if LAST not in h.nodes}
    assert {h.name: h.conditions for h in found.hypernodes if LAST not in h.nodes} == before


def test_without_a_witness_only_the_disputed_adapter_is_held() -> None:
    found = infer(seen(FACTORY, lying(FACTORY, OWNER)), CLUSTER)
    assert owner_of(found) == f"{GUIDS[OWNER]:016x}"
    assert [x.subject.name for x in disagreements(found)] == sorted([LIAR, OWNER])
    assert [x.kind for x in found.anomalies if x not in disagreements(found)] == []
    others = [x for x in found.adapters if x.id != f"{GUIDS[OWNER]:016x}"]
    assert {(x.id, x.node) for x in others} == {(x.id, x.node) for x in HONEST.adapters if x.node != OWNER}
    assert tiers(found) == truth(FABRIC, without=[OWNER])
    later = infer(seen(FACTORY, own(FACTORY)), CLUSTER, found)
    assert tiers(later) == truth(FABRIC)
    assert disagreements(later) == []


def test_two_claimants_of_an_adapter_of_a_third_leave_it_there() -> None:
    ports = own(FACTORY, *(h for h in FACTORY.hosts if h != OWNER))
    stolen = renamed(own(FACTORY, OWNER)[OWNER])
    ports |= {LIAR: ports[LIAR] + stolen, OTHER: ports[OTHER] + stolen}
    found = infer(seen(FACTORY, ports), previous=HONEST)
    assert owner_of(found) == OWNER
    assert [x.subject.name for x in disagreements(found)] == [LIAR, OTHER]


def test_the_order_of_evidence_does_not_matter() -> None:
    ports = lying(FACTORY, OWNER, OTHER)
    three = {host: ports[host] for host in (LIAR, OWNER, OTHER)}
    results = [infer(seen(FACTORY, dict(order)), previous=HONEST) for order in permutations(three.items())]
    assert all(x.adapters == results[0].adapters for x in results)
    assert all(x.anomalies == results[0].anomalies for x in results)


# --- one claimant


@pytest.mark.parametrize("old_agent", ["none", "stale", "reports without it"])
def test_an_adapter_moves_to_a_replacement_host(old_agent: str) -> None:
    """Its cable stays in the leaf's port. The new host names it after itself."""
    for fabric in (FACTORY, described(FABRIC, OWNER, "new-host")):
        ports = own(fabric)
        ports["new-host"] = ports.pop(OWNER)
        silent = frozenset[str]()
        if old_agent == "stale":
            ports[OWNER], silent = ports["new-host"], frozenset({OWNER})
        elif old_agent == "reports without it":
            ports[OWNER] = tuple(replace(x, node_guid=77, port_guid=78) for x in ports["new-host"])
        found = infer(seen(fabric, ports, silent=silent), previous=HONEST)
        assert owner_of(found) == "new-host"
        assert disagreements(found) == []


def test_a_host_of_another_name_gets_its_agent() -> None:
    """Descriptions name the host otherwise than its node: that is no other node."""
    nodes = frozenset({*FABRIC.hosts, "node-x"} - {OWNER})
    options = InferOptions(cluster_nodes=nodes)
    before = infer(seen(FABRIC, {}))
    assert owner_of(before) == OWNER
    ports = {"node-x": own(FABRIC)[OWNER]}
    found = infer(seen(FABRIC, ports), options, before)
    assert owner_of(found) == "node-x"
    assert disagreements(found) == []


@pytest.mark.parametrize(
    ("fabric", "node_map"), [(FABRIC, {}), (FACTORY, FABRIC.node_map())], ids=["sweep", "node map"]
)
def test_a_node_without_an_agent_keeps_what_a_witness_says_is_its_own(
    fabric: SimFabric, node_map: dict[int, str]
) -> None:
    before = infer(seen(fabric, {}, node_map=node_map), CLUSTER)
    assert owner_of(before) == OWNER
    ports = {LIAR: own(fabric)[LIAR] + renamed(own(fabric)[OWNER])}
    found = infer(seen(fabric, ports, node_map=node_map), CLUSTER, before)
    assert owner_of(found) == OWNER
    (named,) = disagreements(found)
    assert named.nodes == (LIAR, OWNER)


def test_a_replaced_adapter_and_a_reboot_are_no_dispute() -> None:
    ports = own(FACTORY)
    new = replace(FACTORY.adapters_of()[OWNER][0], guid=0xABC0, port_guid=0xABC1)
    old_guid = GUIDS[OWNER]
    cables = tuple(c._replace(a=0xABC0) if c.a == old_guid else c for c in FACTORY.cables)
    fabric = replace(
        FACTORY, cables=cables, adapters=tuple(new if x.guid == old_guid else x for x in FACTORY.adapters)
    )
    for after in (fabric, FACTORY):
        without = {host: mine for host, mine in ports.items() if host != OWNER}
        rebooting = infer(seen(FACTORY, without), CLUSTER, HONEST)
        assert disagreements(rebooting) == []
        found = infer(seen(after, own(after)), CLUSTER, rebooting)
        assert tiers(found) == truth(FABRIC)
        assert disagreements(found) == []


# --- ports that are down


def down(ports: tuple[InfinibandPort, ...]) -> tuple[InfinibandPort, ...]:
    return tuple(replace(x, state="DOWN", physical_state="Polling") for x in ports)


def missing(topology: Topology) -> list[Anomaly]:
    return [x for x in topology.anomalies if x.kind == "MissingLink"]


@pytest.mark.parametrize("with_owner", [True, False], ids=["owner reports", "owner has no agent"])
def test_only_the_owner_says_that_its_port_is_down(with_owner: bool) -> None:
    ports = own(FABRIC, *(FABRIC.hosts if with_owner else (LIAR,)))
    before = infer(seen(FABRIC, ports), CLUSTER)
    ports[LIAR] += down(renamed(own(FABRIC)[OWNER]))
    times = dict.fromkeys(ports, 2)
    found = infer(seen(FABRIC, ports, infiniband_at_ns=times), CLUSTER, before)
    assert missing(found) == []
    assert list(found.links) == list(before.links)
    ports = own(FABRIC)
    ports[OWNER] = down(ports[OWNER])
    found = infer(seen(FABRIC, ports, infiniband_at_ns={OWNER: 2}), CLUSTER, before)
    assert [x.confidence for x in missing(found)] == [1.0]


def test_no_host_says_that_a_port_of_a_switch_is_down() -> None:
    leaf = FABRIC.switches[0].guid
    uplink = next(c for c in FABRIC.cables if leaf in (c.a, c.b))
    ports = own(FABRIC)
    port = next(p for guid, p in uplink.ends if guid == leaf)
    ports[LIAR] += tuple(replace(x, node_guid=leaf, port=port) for x in down(renamed(ports[LIAR])))
    found = infer(seen(FABRIC, ports, infiniband_at_ns={LIAR: 2}), previous=HONEST)
    assert missing(found) == []


def test_all_reporters_of_a_guid_are_found_in_order() -> None:
    port = own(FABRIC, OWNER)[OWNER][0]
    shared = replace(port, port_guid=0)
    found = reporters({"a": (shared,), "b": (port,), "c": (shared,), "d": (shared,)})
    assert {guid: tuple(nodes) for guid, nodes in found.items()} == {
        port.node_guid: ("a", "b", "c", "d"),
        port.port_guid: ("b",),
        0: ("a", "c", "d"),
    }
