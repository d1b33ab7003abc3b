"""Explain: the lowest common HyperNode, a shortest path through switches, what is wrong on it."""

from dataclasses import replace

import pytest
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.serve.grpc.explain import UnknownNodeError, explain
from hyperscout_collector.serve.grpc.measured import MeasuredBy
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult, NcclResult, NcclRun
from hyperscout_topology.topology import Anomaly, Endpoint, Link, LinkTable
from support.builders import anomaly
from support.topologies import SINCE_NS, measured, two_leaves


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
    assert explain(two_leaves(), "n01", "n04", []).text.splitlines() == [
        "n01 and n04 are core neighbours: both are in core, tier 2.",
        "A shortest path has 4 cables:",
        "  n01 mlx5_0 1 -> leaf-a 1",
        "  leaf-a 9 -> spine 1",
        "  spine 2 -> leaf-b 9",
        "  leaf-b 2 -> n04 mlx5_0 1",
        "There are no anomalies on this path.",
    ]
    assert "n09 is in no HyperNode." in explain(two_leaves(), "n01", "n09", []).text


def test_what_is_wrong_on_the_way_is_said_and_nothing_else() -> None:
    def found(kind: str, device: str, port: str | None) -> Anomaly:
        return anomaly(kind, Endpoint(device, device, port), message=f"{kind} {device} {port}")

    topology = replace(
        two_leaves(),
        anomalies=(
            found("SlowLink", "s1", "9"),  # on the way
            found("SlowLink", "s1", "8"),  # another port of the same switch
            found("ErroringLink", "a01", "7"),  # of the node itself
            found("MissingSwitch", "s9", None),  # a whole device of the path
            found("MissingSwitch", "s8", None),
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


def test_what_was_measured_is_said_of_the_domain_its_tier_and_the_pair() -> None:
    def result(peer: str, received: int, gbps: float = 0.0) -> LatencyResult:
        return LatencyResult(peer, "eth1", "udp", SINCE_NS, 16, received, 4.1, 4.5, 0.25, gbps)

    def run(peer: str, *sizes: tuple[int, float, float]) -> NcclRun:
        results = tuple(NcclResult("all_reduce", size, us, 40.0, gbytes) for size, us, gbytes in sizes)
        return NcclRun(peer, "libnccl", SINCE_NS, "2.28.3", 2, results)

    facts = [
        MeasuredBy("n01", LatencyPort("eth0", results=(result("n02", 16, 390.25), result("n03", 16)))),
        MeasuredBy("n02", LatencyPort("eth1", results=(result("n01", 0),))),  # nothing came back
        MeasuredBy("n01", run("n02", (1 << 30, 9000.0, 48.5), (8, 12.5, 0.0), (1 << 20, 50.0, 20.0))),
        MeasuredBy("n01", run("n02", (1 << 20, 50.0, 20.0))),  # shows neither latency nor bandwidth
        MeasuredBy("n01", run("", (8, 3.0, 0.0))),  # within the node
    ]
    figures = "median 4.25 us, p99 9.5 us, 128 samples, newest 2026-01-01T00:00:00Z"
    said = explain(measured(), "n01", "n02", [], facts).text.splitlines()
    assert said[4:-1] == [
        "leaf-a is inferred from latency alone, confidence 0.93.",
        f"Measured in leaf-a: latency {figures}.",
        f"Measured in tier 1 as a whole: latency {figures}.",
        (
            "Measured in tier 1 as a whole: bandwidth median 4.25 Gbit/s, p1 9.5 Gbit/s, 128 samples, "
            "newest 2026-01-01T00:00:00Z."
        ),
        (
            "n01 eth0 measured n02 eth1: 4.1 us (median 4.5 us, jitter 0.25 us, 16 of 16 answered, udp, "
            "2026-01-01T00:00:00Z), 390 Gbit/s."
        ),
        (
            "n01 ran NCCL all_reduce with n02: 12.5 us at 8 B, 388 Gbit/s at 1 GiB "
            "(libnccl, NCCL 2.28.3, 2 ranks, 2026-01-01T00:00:00Z)."
        ),
    ]
    across = explain(measured(), "n01", "n04", [], facts).text.splitlines()
    assert [x for x in across if "Measured" in x] == [
        "Measured in core: latency median 7 us, p99 7.5 us, 2 samples."  # its tier has no other domain
    ]
    assert "Measured" not in explain(measured(), "n01", "n01", [], facts).text


def test_without_wires_no_path_is_missed() -> None:
    opaque = replace(measured(), links=())
    assert "No evidence shows" not in explain(opaque, "n01", "n02", []).text
    assert "No evidence shows" in explain(opaque, "n01", "n04", []).text
