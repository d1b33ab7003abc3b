"""Explain: the lowest common HyperNode, a shortest path through switches, what is wrong on it."""

from dataclasses import replace

import pytest
from hyperscout_collector.api.explain import UnknownNodeError, explain
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.topology import Anomaly, Endpoint, Link, LinkTable
from support.topologies import two_leaves


@pytest.mark.parametrize(
    ("a", "b", "tier", "hypernode", "path"),
    [
        ("n01", "n02", 1, "leaf-a", ["a01-s1", "a02-s1"]),
        ("n01", "n04", 2, "core", ["a01-s1", "s1-s9", "s2-s9", "a04-s2"]),
        ("n04", "n01", 2, "core", ["a04-s2", "s2-s9", "s1-s9", "a01-s1"]),
        ("n01", "n03", 2, "core", []),  # n03's cable is out
        ("n01", "n01", 1, "leaf-a", []),
        ("n01", "n09", 0, "", []),  # expected, and no fabric knows it
    ],
)
def test_paths_and_tiers(a: str, b: str, tier: int, hypernode: str, path: list[str]) -> None:
    answer = explain(two_leaves(), a, b, [])
    assert (answer.tier, answer.hypernode) == (tier, hypernode)
    assert [f"{link.a.device}-{link.b.device}" for link in answer.path] == path
    assert list(answer.hypernodes_a)[-1:] == ["core"]


def test_the_text_says_the_same() -> None:
    path = "n01 mlx5_0 1 -> leaf-a 1 = leaf-a 9 -> spine 1 = spine 2 -> leaf-b 9 = leaf-b 2 -> n04 mlx5_0 1"
    assert explain(two_leaves(), "n01", "n04", []).text.splitlines() == [
        "n01 and n04 are core neighbours: both are in core, tier 2.",
        f"A shortest path has 4 cables: {path}.",
        "Nothing is wrong on the way.",
    ]
    assert "n09 is in no HyperNode." in explain(two_leaves(), "n01", "n09", []).text


def test_what_is_wrong_on_the_way_is_said_and_nothing_else() -> None:
    def anomaly(kind: str, device: str, port: str | None) -> Anomaly:
        return Anomaly(kind, Endpoint(device, device, port), None, 1, (), 0.9, f"{kind} {device} {port}")

    topology = replace(
        two_leaves(),
        anomalies=(
            anomaly("SlowLink", "s1", "9"),  # on the way
            anomaly("SlowLink", "s1", "8"),  # another port of the same switch
            anomaly("ErroringLink", "a01", "7"),  # of the node itself
            anomaly("MissingSwitch", "s9", None),  # a whole device of the path
            anomaly("MissingSwitch", "s8", None),
        ),
    )
    found = {(a.subject.device, a.subject.port) for a in explain(topology, "n01", "n04", []).anomalies}
    assert found == {("s1", "9"), ("a01", "7"), ("s9", "")}
    assert {a.subject.device for a in explain(topology, "n01", "n02", []).anomalies} == {"a01"}


def test_hosts_do_not_forward() -> None:
    topology = two_leaves()
    detour = LinkTable.of([*topology.links[:3], Link("a02", "2", "s2", "7", "ib", ())])
    assert list(explain(replace(topology, links=detour), "n01", "n04", []).path) == []


def test_evidence_is_named() -> None:
    keys = [Key("n02", "lldp", "eth0"), Key("n01", "infiniband", "mlx5_0/1")]
    found = [key.node for key in explain(two_leaves(), "n01", "n02", keys).evidence]
    assert found == ["n01", "n02"]


@pytest.mark.parametrize("nodes", [("n01", "nowhere"), ("nowhere", "n01"), ("", "")])
def test_an_unknown_node_is_said(nodes: tuple[str, str]) -> None:
    with pytest.raises(UnknownNodeError, match="get nodes"):
        explain(two_leaves(), *nodes, [])
