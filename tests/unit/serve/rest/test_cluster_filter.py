"""The filter of lists by cluster."""

from dataclasses import replace
from typing import Any

import pytest
from hyperscout.v1.topology_pb2 import FlapCount, HistoryEvent, ListHistoryResponse
from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_collector.serve.rest.kinds import KINDS, keep_about, passes
from hyperscout_topology import objects
from hyperscout_topology.topology import Adapter, Anomaly, Endpoint, Link, Switch, Topology
from support.topologies import leaves

TREE = leaves(("n1", "east/n1"), ("east/n2", "west/n1"))


def found(kind: str, name: str, **more: Any) -> Anomaly:
    return Anomaly(kind, Endpoint(name, name, ""), None, None, ("lldp",), 1.0, "", **more)


LINKED = Topology(
    1,
    TREE.hypernodes,
    adapters=(Adapter("g1", "n1", "mlx5_0"), Adapter("g2", "east/n1", "mlx5_0")),
    switches=(Switch("sw-l1", "sw-l1", 1), Switch("sw-l2", "sw-l2", 1), Switch("sw-core", "sw-core", 2)),
    anomalies=(
        found("MissingLink", "n1"),
        found("MissingLink", "east/n1"),
        found("EvidenceSetAside", "fabric/ib", nodes=("east/n2", "west/n1")),
        found("ErroringLink", "s2", hypernode="l2"),
    ),
    links=(Link("g1", "1", "s1", "1", "ib", ()), Link("g2", "1", "s1", "2", "ib", ())),
)


@pytest.mark.parametrize(
    ("kind", "clusters", "count"),
    [
        ("nodes", ("east",), 2),
        ("nodes", ("",), 1),
        ("nodes", ("east", "west"), 3),
        ("hypernodes", ("",), 2),
        ("hypernodes", ("east",), 3),
        ("links", ("",), 1),
        ("links", ("east",), 1),
        ("links", ("west",), 0),
        ("switches", ("",), 2),
        ("switches", ("east",), 3),
        ("anomalies", ("",), 1),
        ("anomalies", ("east",), 3),
        ("anomalies", ("west",), 2),
    ],
)
def test_objects_of_clusters(kind: str, clusters: tuple[str, ...], count: int) -> None:
    keeps = passes(KINDS[kind], {"cluster": clusters}, LINKED)
    assert sum(map(keeps, objects.OF_TOPOLOGY[kind](LINKED))) == count


def test_placements_in_a_cluster() -> None:
    keeps = passes(KINDS["placements"], {"cluster": ("east",)}, LINKED)
    assert [keeps({"assignments": [{"node": node}]}) for node in ("east/n1", "n1")] == [True, False]


@pytest.mark.parametrize(("clusters", "kept"), [(("",), {1}), (("east", "west"), {2, 3})])
def test_changes_and_flaps_of_clusters(clusters: tuple[str, ...], kept: set[int]) -> None:
    nodes = {1: "n1", 2: "east/n1", 3: "west/gone"}
    answer = ListHistoryResponse(
        events=[HistoryEvent(id=i, node=node) for i, node in nodes.items()],
        flaps=[FlapCount(changes=i, subject={"name": node}) for i, node in nodes.items()],
    )
    keep_about(answer, LINKED, clusters)
    assert {event.id for event in answer.events} == {flap.changes for flap in answer.flaps} == kept


@pytest.mark.parametrize("clusters", [("any",), ("east", "north")])
def test_a_cluster_without_nodes_is_an_error(clusters: tuple[str, ...]) -> None:
    for kind in KINDS.values():
        with pytest.raises(ProblemError, match='the clusters with nodes are "", east, west') as raised:
            passes(kind, {"cluster": clusters}, LINKED)
        assert (raised.value.status, raised.value.field) == (400, "cluster")
    with pytest.raises(ProblemError, match=f"cluster: no node of cluster '{clusters[-1]}'"):
        keep_about(ListHistoryResponse(), LINKED, clusters)


def test_clusters_of_expected_nodes_and_of_an_empty_topology_are_no_error() -> None:
    expected = replace(LINKED, nodes_without_evidence=("north/n1",))
    for topology, count in ((expected, 1), (Topology(0), 0)):
        keeps = passes(KINDS["nodes"], {"cluster": ("north",)}, topology)
        assert sum(map(keeps, objects.nodes(topology))) == count
