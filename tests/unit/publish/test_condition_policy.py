"""The conditions of nodes: which facts make a node not ready, degraded or unknown, and what is said."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hyperscout_publish.nodes.condition_policy import HEALTHY, STALE, UNSEEN, FabricState, fabric_states
from hyperscout_topology.health import SURE
from hyperscout_topology.topology import Anomaly, Condition, Endpoint, Link, LinkTable, Topology
from support.topologies import HOST, LEAF, SECOND, SPINE, healthy_leaves, on_leaf_b

DOWN, SLOW = on_leaf_b("MissingLink", HOST), on_leaf_b("SlowLink", SECOND)
LOST = on_leaf_b("MissingSwitch", Endpoint("s3", "rail-2"), None)


def cabled(*anomalies: Anomaly, ports: Sequence[str] = ("2", "3", "4"), isolated: bool = False) -> Topology:
    """`two_leaves`, in which n03 has a cable at these ports."""
    mine = [Link("a03", port, "s2", f"3{port}", "ib", ("ibnetdiscover",)) for port in ports]
    lacking = ("n03", "n09") if isolated else ("n09",)
    return replace(
        healthy_leaves(),
        links=LinkTable.of([*healthy_leaves().links, *mine]),
        anomalies=anomalies,
        nodes_without_evidence=lacking,
    )


def stale(*nodes: str) -> Topology:
    """The healthy leaves with nodes of leaf-b that are stale."""
    a, b, core = healthy_leaves().hypernodes
    b = replace(b, conditions=(Condition("Stale", "True", "EvidenceStale", "", nodes=nodes),))
    return replace(healthy_leaves(), hypernodes=(a, b, core))


def test_every_node_has_a_state() -> None:
    healthy = dict.fromkeys(("n01", "n02", "n03", "n04"), HEALTHY)
    assert fabric_states(healthy_leaves()) == healthy | {"n09": UNSEEN}
    assert fabric_states(stale("n04")) == healthy | {"n04": STALE, "n09": UNSEEN}


@pytest.mark.parametrize(
    ("name", "topology", "expected"),
    [
        ("one of four down", cabled(DOWN), "False True LinksDown"),
        ("held back, as it is in the table again", cabled(DOWN, ports="1234"), "False True LinksDown"),
        ("the only one down", cabled(DOWN, ports=()), "False False LinksDown"),
        ("one of three slow", cabled(SLOW), "True True SlowLinks"),
        ("all slow", cabled(SLOW, ports="2"), "False False SlowLinks"),
        ("erroring and slow", cabled(SLOW, on_leaf_b("ErroringLink", SECOND)), "True True LinksErroring"),
        ("one down, the other slow", cabled(DOWN, SLOW, ports="2"), "False False LinksDown"),
        ("a rail is lost", cabled(LOST), "True True SwitchMissing"),
        ("the only switch is lost", cabled(LOST, ports=(), isolated=True), "False False SwitchMissing"),
        ("slow by measurement, no cable known", cabled(SLOW, ports=()), "True True SlowLinks"),
        ("ambiguous", cabled(on_leaf_b("MissingLink", HOST, confidence=SURE)), "True False LinksHealthy"),
        ("an ambiguous switch", cabled(replace(LOST, confidence=SURE)), "True False LinksHealthy"),
        ("an uplink", cabled(on_leaf_b("MissingLink", LEAF, SPINE)), "True False LinksHealthy"),
        ("a spine", cabled(replace(LOST, hypernode="core")), "True False LinksHealthy"),
        ("miswired", cabled(on_leaf_b("Miswired", HOST)), "True False LinksHealthy"),
        ("silent", stale("n03"), "Unknown Unknown EvidenceStale"),
        ("unseen now", cabled(isolated=True), "Unknown Unknown NoEvidence"),
        ("silent and accused", replace(stale("n03"), anomalies=(DOWN,)), "False False LinksDown"),
    ],
)  # fmt: skip
def test_what_makes_a_node_bad(name: str, topology: Topology, expected: str) -> None:
    """`expected`: FabricReady, FabricDegraded and the reason."""
    state = fabric_states(topology)["n03"]
    assert f"{state.ready} {state.degraded} {state.reason}" == expected


def test_the_only_leaf_is_lost_with_its_links() -> None:
    state = fabric_states(replace(cabled(LOST), links=LinkTable.of(())))["n03"]
    assert (state.ready, state.degraded) == ("False", "False")


def test_a_lost_leaf_concerns_all_its_nodes_and_no_others() -> None:
    found = fabric_states(cabled(LOST))
    assert [node for node, state in found.items() if state.is_bad] == ["n03", "n04"]


def test_in_a_part_without_leaves_a_lost_leaf_concerns_no_node() -> None:
    """As in a cluster that has one node below each leaf."""
    whole = cabled(LOST)
    core = replace(whole.hypernodes[2], name="leaf-b", children=(), switches=("s9",))
    assert set(fabric_states(replace(whole, hypernodes=(core,))).values()) == {HEALTHY, UNSEEN}


@pytest.mark.parametrize(
    ("anomalies", "message"),
    [
        ([DOWN], "1 of 4 links down: n03/p1 -> leaf-b/p1"),
        ([on_leaf_b("MissingLink", LEAF, HOST)], "1 of 4 links down: leaf-b/p1 -> n03/p1"),
        ([DOWN, SLOW], "1 of 4 links down: n03/p1 -> leaf-b/p1; 1 of 4 links slow: n03/p2 -> leaf-b/p1"),
        ([LOST, SLOW], "1 switch missing: rail-2; 1 of 4 links slow: n03/p2 -> leaf-b/p1"),
        (
            [on_leaf_b("SlowLink", Endpoint("n03", "n03"), None, sources=("latency",))],
            "1 link slow: n03",
        ),
        (
            [on_leaf_b("MissingLink", Endpoint("a03", "n03", f"{10 - p}")) for p in range(4)],
            "4 of 7 links down: n03/p7 -> leaf-b/p1, n03/p8 -> leaf-b/p1, n03/p9 -> leaf-b/p1 and 1 more",
        ),
    ],
)
def test_the_message_names_the_links(anomalies: list[Anomaly], message: str) -> None:
    assert fabric_states(cabled(*anomalies))["n03"].message == message


def test_times_and_counters_change_no_state() -> None:
    later = replace(DOWN, since_ns=DOWN.since_ns + 1, flaps=3, changed_ns=7, message="12 errors a second")
    assert fabric_states(cabled(later)) == fabric_states(cabled(DOWN))


@pytest.mark.parametrize(
    ("state", "is_bad"),
    [
        (HEALTHY, False),
        (STALE, False),
        (UNSEEN, False),
        (FabricState("True", "True", "SlowLinks", ""), True),
        (FabricState("False", "False", "LinksDown", ""), True),
    ],
)
def test_what_is_unknown_is_not_bad(state: FabricState, is_bad: bool) -> None:
    assert state.is_bad is is_bad
