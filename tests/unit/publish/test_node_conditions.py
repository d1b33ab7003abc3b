"""The publisher of node conditions over an API server in memory: only differences, only its own types."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from hyperscout_kubernetes.errors import ForbiddenError, RejectedError
from hyperscout_kubernetes.nodes import DEGRADED, PATH, READY, Nodes
from hyperscout_publish.clusters.publisher import ClusterPart, ClusterPublisher
from hyperscout_publish.nodes.conditions import NodeConditionsPublisher
from hyperscout_publish.nodes.domain_marks import DomainMarks
from hyperscout_publish.nodes.node_writes import Mode
from hyperscout_publish.publisher.base import PublishError
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Adapter, Endpoint, Topology
from support.builders import anomaly
from support.fake_kube import FakeKube, failing
from support.topologies import LEAF, SINCE_NS, SPINE, healthy_leaves, leaves, on_leaf_b, two_leaves

NODES = ("n01", "n02", "n03", "n04", "n09", "cpu-1")
KUBELETS = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
OTHER = {"type": "hyperscout.io/Mine", "status": "True", "reason": "ByHand", "message": ""}
HEALTHY, DOWN = healthy_leaves(), two_leaves()
DOWN_TEXT = "1 of 1 link down: n03/p1 -> leaf-b/p1"


class Setup:
    """A cluster, and a publisher whose clock a test turns. `nodes` follow the writes at once."""

    def __init__(self, mode: Mode = "on", fake: FakeKube | None = None) -> None:
        self.fake = fake or FakeKube()
        if fake is None:
            for name in NODES:
                self.fake.add_node(name)
                self.fake.objects[f"{PATH}/{name}"]["status"] = {"conditions": [KUBELETS, OTHER]}
        self.said: list[str] = []
        self.now_s = 0
        self.nodes: Nodes = self.fake.nodes()
        self.domains: list[tuple[list[str], bool]] = []
        self.publisher = NodeConditionsPublisher(
            self.fake.kube(),
            self.nodes,
            mode,
            self.said.append,
            cast("DomainMarks", self),
            domain_share=0.4,
            clock_ns=lambda: SINCE_NS + self.now_s * NS,
        )

    async def write(self, bad: Mapping[str, str], *, dry_run: bool) -> None:
        self.domains.append((list(bad), dry_run))

    async def publish(self, topology: Topology) -> list[str]:
        """The nodes that were written, in order."""
        before = len(self.fake.writes)
        await self.publisher.publish(topology)
        return [path.removeprefix(f"{PATH}/") for _, path, _ in self.fake.writes[before:]]

    def of(self, name: str) -> dict[str, dict[str, Any]]:
        return {c["type"]: c for c in self.fake.conditions(f"{PATH}/{name}")}

    def statuses(self, name: str) -> str:
        found = self.of(name)
        assert found.pop("Ready") == KUBELETS
        assert found.pop(OTHER["type"]) == OTHER
        return " ".join(found[kind]["status"] for kind in (READY, DEGRADED) if kind in found)


async def test_the_bad_node_is_written_first_and_a_steady_picture_writes_nothing() -> None:
    cluster = Setup()
    assert await cluster.publish(DOWN) == [f"{n}/status" for n in ("n03", "n01", "n02", "n04")]
    assert [cluster.statuses(name) for name in NODES] == [
        *("True False", "True False", "False False", "True False"),
        *("", ""),  # no fabric ever showed them
    ]
    written = {"reason": "LinksDown", "message": DOWN_TEXT}
    written |= dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), "2026-01-01T00:00:00Z")
    assert cluster.of("n03")[READY] == {"type": READY, "status": "False"} | written
    assert cluster.of("n03")[DEGRADED] == {"type": DEGRADED, "status": "False"} | written
    cluster.now_s = 3600
    assert await cluster.publish(DOWN) == []
    assert await cluster.publish(replace(DOWN, generation=8)) == []
    after_restart = Setup(fake=cluster.fake)
    assert await after_restart.publish(DOWN) == []


async def test_only_flips_are_written_and_the_time_is_that_of_the_status() -> None:
    cluster = Setup()
    await cluster.publish(HEALTHY)
    cluster.now_s = 60
    uplink = replace(HEALTHY, anomalies=(on_leaf_b("SlowLink", LEAF, SPINE),))
    assert await cluster.publish(uplink) == []  # of no node
    assert await cluster.publish(DOWN) == ["n03/status"]
    ready, degraded = (cluster.of("n03")[kind] for kind in (READY, DEGRADED))
    assert ready["lastTransitionTime"] == "2026-01-01T00:01:00Z"
    assert (degraded["reason"], degraded["lastTransitionTime"]) == ("LinksDown", "2026-01-01T00:00:00Z")
    cluster.now_s = 120
    erroring = replace(
        DOWN, anomalies=(*DOWN.anomalies, on_leaf_b("ErroringLink", DOWN.anomalies[0].subject))
    )
    assert await cluster.publish(erroring) == ["n03/status"]  # another message
    assert cluster.of("n03")[READY]["lastTransitionTime"] == "2026-01-01T00:01:00Z"
    assert cluster.of("n03")[READY]["lastHeartbeatTime"] == "2026-01-01T00:02:00Z"
    assert await cluster.publish(HEALTHY) == ["n03/status"]
    assert cluster.statuses("n03") == "True False"


async def test_a_node_that_a_fabric_once_showed_becomes_unknown() -> None:
    cluster = Setup()
    await cluster.publish(HEALTHY)
    gone = replace(HEALTHY, nodes_without_evidence=("n02", "n09"))
    assert await cluster.publish(gone) == ["n02/status"]
    assert cluster.statuses("n02") == "Unknown Unknown"
    assert cluster.of("n02")[READY]["reason"] == "NoEvidence"
    elsewhere = Topology(9)  # of other nodes
    assert await cluster.publish(elsewhere) == []


async def test_what_another_client_changes_is_corrected() -> None:
    cluster = Setup()
    await cluster.publish(HEALTHY)
    node = cluster.fake.objects[f"{PATH}/n01"]
    node["status"]["conditions"] = [KUBELETS, OTHER, cluster.of("n01")[READY] | {"status": "False"}]
    cluster.fake.put(f"{PATH}/n01", node)
    cluster.fake.follow(cluster.nodes)
    assert await cluster.publish(HEALTHY) == ["n01/status"]
    assert cluster.statuses("n01") == "True False"


@pytest.mark.parametrize(
    ("mode", "expected"), [("on", (["leaf-b"], False)), ("dry-run", (["leaf-b"], True)), ("off", ([], False))]
)
async def test_domains_with_many_bad_nodes_are_marked(mode: Mode, expected: tuple[list[str], bool]) -> None:
    cluster = Setup(mode)
    for topology in (DOWN, DOWN, HEALTHY):
        await cluster.publish(topology)
    assert cluster.domains == [expected, expected, ([], expected[1])]


async def test_marks_and_conditions_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(bad: Mapping[str, str], *, dry_run: bool) -> None:
        raise PublishError("no mark", retry=False)

    cluster = Setup()
    monkeypatch.setattr(cluster, "write", refused)
    with pytest.raises(PublishError, match="no mark") as caught:
        await cluster.publish(DOWN)
    assert not caught.value.retry
    assert cluster.statuses("n03") == "False False"
    cluster.fake.before = failing(ForbiddenError("no right"))
    with pytest.raises(PublishError, match=r"no right.*; no mark") as caught:
        await cluster.publish(HEALTHY)
    assert caught.value.retry


async def test_a_dry_run_says_it_and_writes_nothing() -> None:
    cluster = Setup("dry-run")
    assert await cluster.publish(DOWN) == []
    assert await cluster.publish(DOWN) == []
    healthy = "FabricReady unset -> True, FabricDegraded unset -> False (LinksHealthy): "
    healthy += "no link of the node is down, slow or erroring"
    assert "".join(cluster.said) == (
        "would change conditions of nodes: 4\n"
        f"n03: FabricReady unset -> False, FabricDegraded unset -> False (LinksDown): {DOWN_TEXT}\n"
        f"n01: {healthy}\nn02: {healthy}\nn04: {healthy}\n"
    )


async def test_switched_off_it_removes_its_own_conditions_and_only_those() -> None:
    cluster = Setup()
    await cluster.publish(DOWN)
    off = Setup("off", cluster.fake)
    assert await off.publish(DOWN) == [f"{n}/status" for n in ("n01", "n02", "n03", "n04")]
    assert [off.statuses(name) for name in NODES] == [""] * 6
    off.fake.before = failing(AssertionError("asked"), method="GET")  # type: ignore[arg-type]
    assert await off.publish(DOWN) == []


async def test_a_role_that_may_not_is_said_once_and_nothing_more_is_tried() -> None:
    cluster = Setup()
    tries: list[str] = []

    def forbidden(method: str, path: str) -> None:
        tries.append(path)
        raise ForbiddenError('403: cannot patch resource "nodes/status"')

    cluster.fake.before = forbidden
    for name in (f"m{i:03}" for i in range(100)):
        cluster.fake.add_node(name)
    cluster.fake.follow(cluster.nodes)
    many = tuple(f"m{i:03}" for i in range(100))
    a, b, core = HEALTHY.hypernodes
    with pytest.raises(PublishError, match=r'cannot patch resource "nodes/status"'):
        await cluster.publish(replace(HEALTHY, hypernodes=(replace(a, nodes=many), b, core)))
    assert len(tries) <= 8  # as many as are written in parallel


async def test_a_refused_node_stops_no_other_and_a_node_that_is_gone_is_none() -> None:
    cluster = Setup()
    del cluster.fake.objects[f"{PATH}/n02"]

    def refuse(method: str, path: str) -> None:
        if path == f"{PATH}/n01/status":
            raise RejectedError("422: no")

    cluster.fake.before = refuse
    with pytest.raises(PublishError, match="1 of 4 nodes: 422: no"):
        await cluster.publish(HEALTHY)
    assert [cluster.statuses(name) for name in ("n03", "n04")] == ["True False"] * 2


@pytest.mark.parametrize(("cluster", "expected"), [("", "True False"), ("east", "False False")])
async def test_each_cluster_gets_the_conditions_of_its_own_nodes(cluster: str, expected: str) -> None:
    down = anomaly("MissingLink", Endpoint("a1", "east/n01", "1"), LEAF, hypernode="l1")
    whole = leaves(("n01", "n02", "east/n01", "east/n02"))
    whole = replace(whole, adapters=(Adapter("a1", "east/n01", "mlx5_0"),), anomalies=(down,))
    one = Setup()
    await ClusterPublisher(one.publisher, ClusterPart(cluster)).publish(whole)
    assert [one.statuses(name) for name in ("n01", "n02", "n03")] == [expected, "True False", ""]
