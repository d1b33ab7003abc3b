"""Requests of gangs for nodes, and their reservations: with the real placer, in memory."""

from dataclasses import replace
from typing import Any

import pytest
from hyperscout_gates.control.placement_requests import PlacementRequests
from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang import Gang
from hyperscout_gates.state.gang_plan import GangPlan
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.cluster.request import Group, Request, Workers
from hyperscout_topology.topology import Endpoint
from support.builders import anomaly
from support.kube_objects import preferred_affinity
from support.placing import free_of
from support.topologies import leaves

GPU = "nvidia.com/gpu"
TOPOLOGY = leaves(("a1", "a2", "a3"), ("b1", "b2", "b3"))
NODES = ("a1", "a2", "a3", "b1", "b2", "b3")


class Cluster:
    """Nodes as kept, each with 8 GPUs."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {
            name: {
                "metadata": {"name": name, "labels": {}},
                "spec": {"unschedulable": False, "taints": []},
                "ready": {"status": "True", "reason": ""},
            }
            for name in NODES
        }
        self.placements = Placements(clock_ns=lambda: 5, timer=lambda: 0.0)
        self.placements.set_unused({name: {GPU: 8} for name in NODES})
        self.asking = PlacementRequests(self.placements, self.nodes.get, lambda: 5)

    def publish(self) -> "Cluster":
        self.placements.set_topology(TOPOLOGY)
        return self

    def free(self) -> dict[str, int]:
        return {node: room.get(GPU, 0) for node, room in free_of(self.placements).items()}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster().publish()


def gang(count: int, spec: Any = None, tier: int | None = 1) -> Gang:
    request = Request(Group(1, (Workers(count, ((GPU, 8),)),), tier))
    ranks = {f"worker/{i}": i for i in range(count)}
    return Gang("ns/Job/a", "Job", "ns", "a", "u", request, ranks, {"worker": spec or {}}, count)


def placed(cluster: Cluster, of: Gang, *avoid: str) -> tuple[str, ...]:
    answer = cluster.asking.place("ns/Job/a", e.Place(of, frozenset(avoid)))
    assert isinstance(answer, e.Placed), answer
    return answer.placement.nodes


def plan(cluster: Cluster, of: Gang) -> GangPlan:
    held = cluster.placements.get("ns/Job/a")
    assert held is not None
    return GangPlan(of.key, of.uid, of.kind, "d", of.request, held.placement)


def test_without_a_topology_a_gang_waits() -> None:
    answer = Cluster().asking.place("x", e.Place(gang(1), frozenset()))
    assert answer == e.NotPlaced("nothing can be placed yet: no topology has been published")


def test_what_pods_demand_and_what_is_to_be_avoided_counts(cluster: Cluster) -> None:
    cluster.nodes["a1"]["spec"]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    cluster.nodes["b1"]["ready"]["status"] = "False"
    answer = cluster.asking.place("x", e.Place(gang(3), frozenset()))
    assert isinstance(answer, e.NotPlaced)
    assert "3 workers" in answer.reason
    assert placed(cluster, gang(2), "b2") == ("a2", "a3")
    # Nodes change, and what is remembered of them with them.
    cluster.nodes["b1"]["ready"]["status"] = "True"
    cluster.asking.node_changed(None, cluster.nodes["a1"])
    other = cluster.asking.place("y", e.Place(gang(3), frozenset({"gone"})))
    assert isinstance(other, e.Placed)
    assert other.placement.nodes == ("b1", "b2", "b3")


def test_a_dry_run_holds_nothing(cluster: Cluster) -> None:
    answer = cluster.asking.place("x", e.Place(gang(2), frozenset()), dry_run=True)
    assert isinstance(answer, e.Placed)
    assert list(cluster.placements) == []


def test_only_the_ranks_that_were_asked_for_move(cluster: Cluster) -> None:
    of = gang(2)
    assert placed(cluster, of) == ("a1", "a2")
    cluster.asking.update("ns/Job/a", e.Arrive((0, 1)))
    for node in ("a1", "a2"):
        cluster.placements.set_unused_of(node, {GPU: 0})
    answer = cluster.asking.repair("ns/Job/a", e.Repair(of, plan(cluster, of), (1,), frozenset({"a2"})))
    assert isinstance(answer, e.Placed)
    assert answer.placement.nodes == ("a1", "a3")
    held = cluster.placements.get("ns/Job/a")
    assert held is not None
    assert (held.placement.nodes, held.arrived) == (("a1", "a3"), {0})
    assert cluster.free()["a3"] == 0


def test_pods_that_run_are_never_moved(cluster: Cluster) -> None:
    """Only as a whole could the gang go to the other leaf."""
    of = gang(3)
    assert placed(cluster, of) == ("a1", "a2", "a3")
    before = plan(cluster, of)
    answer = cluster.asking.repair("ns/Job/a", e.Repair(of, before, (1,), frozenset({"a2"})))
    assert isinstance(answer, e.NotPlaced)
    assert "pods that run would have to move too" in answer.reason
    assert plan(cluster, of) == before


def test_ranks_without_a_node_find_one(cluster: Cluster) -> None:
    """Of a plan that was made from the pods that run."""
    of = gang(3)
    placed(cluster, of)
    found = plan(cluster, of)
    placement = found.placement
    cluster.placements.release("ns/Job/a")
    holes = replace(found, placement=replace(placement, nodes=("a1", "", "")))
    cluster.placements.set_unused_of("a1", {GPU: 0})
    cluster.asking.update("", e.Hold(holes, frozenset({0})))
    answer = cluster.asking.repair("ns/Job/a", e.Repair(of, holes, (1, 2), frozenset()))
    assert isinstance(answer, e.Placed)
    assert answer.placement.nodes == ("a1", "a2", "a3")


def test_a_pod_that_arrives_is_held_for_no_more_and_one_that_departs_is_again(cluster: Cluster) -> None:
    of = gang(2)
    placed(cluster, of)
    assert cluster.free()["a1"] == 0
    cluster.asking.update("ns/Job/a", e.Arrive((0,)))
    assert cluster.free()["a1"] == 8, "the room there counts the pod from now on"
    cluster.asking.update("ns/Job/a", e.Depart(plan(cluster, of), (0,)))
    assert cluster.free()["a1"] == 0
    cluster.asking.update("ns/Job/a", e.Release())
    assert set(cluster.free().values()) == {8}
    cluster.asking.update("ns/Job/a", e.Release())
    cluster.asking.update("ns/Job/a", e.Arrive((0,)))


def test_a_name_that_is_taken_gets_the_run_beside_it(cluster: Cluster) -> None:
    assert cluster.asking.name_for("ns/Job/a", "0123456789") == "ns/Job/a"
    placed(cluster, gang(1))
    assert cluster.asking.name_for("ns/Job/a", "0123456789") == "ns/Job/a@01234567"


def test_a_gang_that_only_fits_one_node_waits(cluster: Cluster) -> None:
    of = gang(2, {"nodeSelector": {"kubernetes.io/hostname": "a1"}})
    cluster.nodes["a1"]["metadata"]["labels"] = {"kubernetes.io/hostname": "a1"}
    answer = cluster.asking.place("ns/Job/a", e.Place(of, frozenset()))
    assert isinstance(answer, e.NotPlaced)


def test_a_node_that_a_taint_of_ours_keeps_out_is_named(cluster: Cluster) -> None:
    """The taint is there because a link of the node is down, which alone keeps it out as well."""
    link = Endpoint("a2", "a2", "eth0")
    cluster.placements.set_topology(replace(TOPOLOGY, anomalies=(anomaly("MissingLink", link),)))
    cluster.nodes["a2"]["spec"]["taints"] = [{"key": "hyperscout.io/degraded", "effect": "NoSchedule"}]
    cluster.placements.set_unused_of("b1", {GPU: 0})
    answer = cluster.asking.place("ns/Job/a", e.Place(gang(3), frozenset()))
    assert isinstance(answer, e.NotPlaced)
    assert "1 more without the taint of a2 (hyperscout.io/degraded:NoSchedule)" in answer.reason
    assert "must be freed" not in answer.reason


def test_pods_are_on_the_nodes_that_they_prefer(cluster: Cluster) -> None:
    for name in ("a3", "b2", "b3"):
        cluster.nodes[name]["metadata"]["labels"] = {"disk": "nvme"}
    nvme = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    assert placed(cluster, gang(2, preferred_affinity((5, nvme)))) == ("b2", "b3")
    held = cluster.placements.held("ns/Job/a")
    assert held.placement.cost.unpreferred == 0


def test_what_a_request_of_the_api_demands_counts_for_moves(cluster: Cluster) -> None:
    cluster.nodes["b1"]["metadata"]["labels"] = {"gpu": "h100"}
    request = replace(gang(1).request, demands=(("worker", '{"nodeSelector": {"gpu": "h100"}}'),))
    masks = cluster.asking.masks_for({}, request)
    assert masks["worker"].allowed.tolist() == [name == "b1" for name in NODES]
    assert cluster.asking.masks_for({}, gang(1).request) == {}


def test_a_gang_is_repaired_after_the_tiers_above_it_are_gone(cluster: Cluster) -> None:
    of = gang(2)
    assert placed(cluster, of) == ("a1", "a2")
    before = plan(cluster, of)
    high = replace(before, request=replace(of.request, gang=replace(of.request.gang, tier=3)))
    answer = cluster.asking.repair("ns/Job/a", e.Repair(of, high, (1,), frozenset({"a2"})))
    assert isinstance(answer, e.Placed)
    assert answer.placement.nodes == ("a1", "a3")
