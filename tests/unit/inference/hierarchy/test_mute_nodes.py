"""A node whose evidence a new leader does not have: what only this node could show is not missing."""

from dataclasses import replace
from typing import Any

import pytest
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from support.switched import Wiring, clos, is_switch
from support.unharmed import check_others_stay

# h21 alone is on the leaves of its unit.
CABLES = [
    x
    for x in clos(units=2, hosts=2, spines=2, rails=2)
    if not x.startswith(("leaf-2a/swp2 ", "leaf-2b/swp2 "))
]
HOSTS = ["h11", "h12", "h21"]
NODES = InferOptions(cluster_nodes=frozenset(HOSTS))
BY_HOSTS = Wiring(CABLES, agents=HOSTS)


def without(inputs: FabricInputs, node: str) -> FabricInputs:
    return replace(inputs, lldp={host: ports for host, ports in inputs.lldp.items() if host != node})


def test_switches_that_only_this_node_could_see_are_not_missing() -> None:
    before = infer(BY_HOSTS.inputs(), NODES)
    after = before
    for _ in range(3):
        after = infer(without(BY_HOSTS.inputs(), "h21"), NODES, after)
        assert after.anomalies == ()
        check_others_stay(before, after, ())
        assert {c.status for h in after.hypernodes for c in h.conditions if c.type == "Degraded"} == {"False"}
        assert after.switches == before.switches
        assert len(after.links) == len(before.links)
        assert {x.note for x in after.links if "h21" in (x.a_device, x.b_device)} == {
            "not confirmed now: neither end has reported; `hyperscout status` lists the agents"
        }
    back = infer(BY_HOSTS.inputs(), NODES, after)
    assert list(back.links) == list(before.links)
    gone = infer(BY_HOSTS.without("leaf-2a/swp1 h21/eth0").inputs(), NODES, after)
    assert [x.kind for x in gone.anomalies] == ["MissingSwitch"]


def test_a_switch_at_an_unreported_link_is_not_missing() -> None:
    """Of two hosts on a leaf one is silent, and the other one reports its cable as gone."""
    before = infer(BY_HOSTS.inputs(), NODES)
    inputs = without(BY_HOSTS.without("leaf-1a/swp1 h11/eth0").inputs(), "h12")
    assert [x.kind for x in infer(inputs, NODES, before).anomalies] == ["MissingLink"]


def test_a_link_that_was_missing_stays_missing() -> None:
    before = infer(BY_HOSTS.inputs(), NODES)
    pulled = BY_HOSTS.without("leaf-1a/swp1 h11/eth0").inputs()
    missing = infer(pulled, NODES, before)
    after = infer(without(pulled, "h11"), NODES, missing)
    assert after.anomalies == missing.anomalies


@pytest.mark.parametrize("reports", ["leaf-2a", "spine-1"])
def test_no_switch_says_whether_a_silent_host_has_power(reports: str) -> None:
    """While the host's agent reported, its cables stayed published, too."""
    wiring = replace(BY_HOSTS, agents=[*HOSTS, reports])
    before = infer(wiring.inputs(), NODES)
    off = [text for text in CABLES if "h21" in text]
    after = infer(without(wiring.without(*off).inputs(), "h21"), NODES, before)
    assert not after.anomalies
    assert len(after.links) == len(before.links)


def test_a_port_that_another_host_has_now() -> None:
    """The node was replaced, and its object is still in the cluster."""
    before = infer(BY_HOSTS.inputs(), NODES)
    moved = [text.replace("h21/eth", "h12/eth1") for text in CABLES]
    inputs = without(Wiring(moved, agents=HOSTS).inputs(), "h21")
    after = infer(inputs, NODES, before)
    ends = [end for x in after.links for end in ((x.a_device, x.a_port), (x.b_device, x.b_port))]
    assert len(set(ends)) == len(ends)


@pytest.mark.parametrize("more", [{"answering": frozenset({"h21"})}, {"labels": {"h21": ("zone", "rack")}}])
def test_a_node_with_evidence_of_another_kind(more: dict[str, Any]) -> None:
    """Neither measurements nor a cloud's labels tell of cables."""
    before = infer(BY_HOSTS.inputs(), NODES)
    inputs = replace(without(BY_HOSTS.inputs(), "h21"), **more)
    assert {x.kind for x in infer(inputs, NODES, before).anomalies} <= {"SourcesDisagree"}


def test_a_node_that_left_the_cluster_takes_its_links_along() -> None:
    before = infer(BY_HOSTS.inputs(), NODES)
    nodes = InferOptions(cluster_nodes=frozenset(HOSTS) - {"h21"})
    after = infer(without(BY_HOSTS.inputs(), "h21"), nodes, before)
    assert not [x for x in after.links if "h21" in (x.a_device, x.b_device)]
    assert all(is_switch(x.name) for x in after.switches)
