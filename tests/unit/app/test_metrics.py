"""What is published, as figures: every node in its domains, faults by tier, and nothing without a bound."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hyperscout_collector.app.metrics.ingest import bounded
from hyperscout_collector.app.metrics.topology import TopologyMetrics
from hyperscout_topology.topology import (
    ANOMALY_KINDS,
    Condition,
    HyperNode,
    Link,
    LinkTable,
    Measured,
    Tier,
    Topology,
)
from prometheus_client.parser import text_string_to_metric_families
from support.builders import anomaly, hypernode
from support.topologies import leaves

NODES = ("n1", 'n"2\\', "n3")  # names come from devices, and may hold anything


def degradable(name: str, nodes: tuple[str, ...], degraded: str, **more: Any) -> HyperNode:
    """A HyperNode that is ready; `degraded`: the status of its condition Degraded."""
    conditions = (Condition("Ready", "True", "", ""), Condition("Degraded", degraded, "", ""))
    return hypernode(name, nodes, conditions=conditions, **more)


TOPOLOGY = Topology(
    7,
    hypernodes=(
        replace(
            degradable("a", NODES[:2], "True", parent="top", tier_name="t1"), latency_us=Measured(2.0, 5.0, 3)
        ),
        degradable("b", NODES[2:], "False", parent="top", tier_name="t1"),
        degradable("top", NODES, "False", tier=2, tier_name="t2"),
    ),
    links=[Link("a", "1", "b", str(i), f"ib{i % 3}", ()) for i in range(7)],
    anomalies=(
        anomaly("MissingLink", hypernode="a"),
        anomaly("MissingLink", tier=None),
        anomaly("SlowLink", hypernode="a"),
        anomaly("UnknownHost", tier=None),
    ),
    tiers=(Tier(1, "t1", Measured(2.0, 5.0, 3), Measured(400.0, 380.0, 3)),),
)


def samples(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """By name and values of labels, in the order of their names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for one in family.samples:
            values = tuple(value for _, value in sorted(one.labels.items()))
            found.setdefault(one.name.removeprefix("hyperscout_"), {})[values] = one.value
    return found


FOUND = samples(TopologyMetrics().text(TOPOLOGY))


def test_every_node_is_in_one_domain_of_each_tier() -> None:
    assert FOUND["node_info"] == {
        (domain, node, tier): 1
        for domain, tier, nodes in (("a", "1", NODES[:2]), ("b", "1", NODES[2:]), ("top", "2", NODES))
        for node in nodes
    }


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("hypernodes", ("1",), 2),
        ("hypernodes_in_condition", ("Degraded", "1"), 1),
        ("hypernodes_in_condition", ("Ready", "2"), 1),
        ("hypernodes_in_condition", ("Stale", "1"), 0),
        ("hypernode_nodes", ("a", "top", "1", "t1"), 2),
        ("hypernode_nodes", ("top", "", "2", "t2"), 3),
        ("hypernode_condition", ("Degraded", "a", "1"), 1),
        ("hypernode_condition", ("Degraded", "b", "1"), 0),
        ("hypernode_anomalies", ("a", "MissingLink", "1"), 1),
        ("hypernode_latency_seconds", ("a", "worst", "1"), 5e-6),
        ("latency_seconds", ("median", "1"), 2e-6),
        ("bandwidth_bytes_per_second", ("worst", "1"), 380e9 / 8),
        ("links", ("ib0",), 3),
        ("link_faults", ("down", "1"), 1),
        ("link_faults", ("down", "none"), 1),
        ("link_faults", ("slow", "1"), 1),
        ("link_faults", ("erroring", "2"), 0),
        ("anomalies", ("MissingLink",), 2),
        ("anomalies", ("Overlap",), 0),
    ],
)
def test_figures(name: str, labels: tuple[str, ...], value: float) -> None:
    assert FOUND[f"collector_{name}"][labels] == pytest.approx(value)


def test_nothing_is_published_yet() -> None:
    found = samples(TopologyMetrics().text(Topology(0)))
    assert found["collector_anomalies"] == {(kind,): 0 for kind in ANOMALY_KINDS}
    assert "node_info" not in found


def test_links_in_columns_are_counted_alike_and_fabrics_have_a_bound() -> None:
    links = [Link("a", "1", "b", str(i), f"f{i:02}", ()) for i in range(40)] + [*TOPOLOGY.links]
    plain = samples(TopologyMetrics().text(replace(TOPOLOGY, links=links)))["collector_links"]
    assert (
        samples(TopologyMetrics().text(replace(TOPOLOGY, links=LinkTable.of(links))))["collector_links"]
        == plain
    )
    assert (len(plain), sum(plain.values())) == (33, 47)
    assert plain["ib0",] == 3, "the largest are told apart"


def test_nodes_are_counted_by_cluster_if_there_are_several() -> None:
    assert "collector_cluster_nodes" not in FOUND
    several = leaves(("n1", "east/n1"), ("east/n2", "west/n1"))
    found = samples(TopologyMetrics().text(several))["collector_cluster_nodes"]
    assert found == {("",): 1, ("east",): 2, ("west",): 1}


def test_the_text_is_made_once_a_generation() -> None:
    metrics = TopologyMetrics()
    first = metrics.text(TOPOLOGY)
    assert metrics.text(TOPOLOGY) is first
    assert metrics.text(replace(TOPOLOGY, generation=8)) is not first


def test_there_is_a_fault_for_each_kind_of_broken_link() -> None:
    def kinds() -> Iterator[str]:
        yield from (kind for kind in ANOMALY_KINDS if re.search("Link|Miswired", kind))

    for kind in kinds():
        found = samples(
            TopologyMetrics().text(replace(TOPOLOGY, anomalies=(anomaly(kind, tier=2, hypernode="top"),)))
        )
        assert sum(found["collector_link_faults"].values()) == 1


def test_probe_names_cannot_flood_the_metrics() -> None:
    evidence = {(f"probe-{i}", "data"): 1 + (i < 5) for i in range(1000)}
    found = bounded(evidence)
    assert len(found) == 33
    assert sum(found.values()) == sum(evidence.values())
    assert found["probe-0", "data"] == 2
