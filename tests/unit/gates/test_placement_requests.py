"""Requests of gangs for nodes, and their reservations: with the real placer, in memory."""

from dataclasses import replace
from typing import Any

import pytest
from hyperscout_gates.control.placement_requests import PlacementRequests
from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang import Gang, with_ranks
from hyperscout_gates.state.gang_plan import GangPlan
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.cluster.request import Group, Range, Request, Workers
from hyperscout_placer.demands.node_masks import NodeMasks
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
        self.masks = NodeMasks(self.nodes.get)
        self.asking = PlacementRequests(self.placements, self.masks, lambda: 5)

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
    return Gang("ns/Job/a", "Job", "u", request, ranks, {"worker": spec or {}}, count)


def placed(cluster: Cluster, of: Gang, *avoid: str) -> tuple[str, ...]:
    answer = cluster.asking.place("ns/Job/a", e.Place(of, frozenset(avoid)))
    assert isinstance(answer, e.Placed), answer
    return answer.placement.nodes


def plan(cluster: Cluster, of: Gang) -> GangPlan:
    held = cluster.placements.get("ns/Job/a")
    assert held is not None
    return GangPlan(of.key, of.uid, of.kind, of.request, held.placement)


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
    cluster.masks.node_changed(None, cluster.nodes["a1"])
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


def elastic(count: int, tier: int | None = None, spec: Any = None, least: int = 1) -> Gang:
    found = gang(count, spec, tier)
    part = replace(found.request.gang.parts[0], elastic=Range(least, count))
    return replace(found, request=replace(found.request, gang=replace(found.request.gang, parts=(part,))))


def test_an_elastic_gang_grows_near_what_runs_and_shrinks(cluster: Cluster) -> None:
    of = elastic(5, spec={"nodeSelector": {"kind": "gpu"}})
    for name in NODES:
        if name != "a3":
            cluster.nodes[name]["metadata"]["labels"] = {"kind": "gpu"}
    for name in ("a2", "b2", "b3"):
        cluster.placements.set_unused_of(name, {GPU: 0})
    assert placed(cluster, of) == ("a1", "b1")
    cluster.asking.update("ns/Job/a", e.Arrive((0, 1)))
    for name, free in {"a1": 0, "b1": 0, "a2": 8, "b2": 8, "b3": 8}.items():
        cluster.placements.set_unused_of(name, {GPU: free})
    now = replace(plan(cluster, of), request=with_ranks(of.request, 2))
    answer = cluster.asking.grow("ns/Job/a", e.Grow(of, now, 4, frozenset({"b2"})))
    assert isinstance(answer, e.Placed), answer
    assert (answer.placement.nodes, answer.placement.counts) == (("a1", "b1", "a2", "b3"), (4,))
    held = cluster.placements.held("ns/Job/a")
    assert (held.placement.nodes, held.arrived) == (answer.placement.nodes, {0, 1})
    assert "b2" not in held.request.avoid
    assert [name for name, free in cluster.free().items() if free] == ["a3", "b2"]
    grown = replace(now, request=held.request, placement=held.placement)
    full = cluster.asking.grow("ns/Job/a", e.Grow(of, grown, 5, frozenset({"b2"})))
    assert isinstance(full, e.NotPlaced)
    assert full.reason.startswith("4 of 5 workers run: no place for one more worker")
    less = grown.with_ranks(with_ranks(of.request, 3))
    cluster.asking.update("ns/Job/a", e.Shrink(less))
    held = cluster.placements.held("ns/Job/a")
    assert (held.placement.nodes, held.arrived, held.request) == (less.nodes, {0, 1}, less.request)
    assert (held.placement.cost.nodes, cluster.free()["b3"]) == (3, 8)
    # Also where a node is not in the topology any more.
    cluster.placements.set_topology(leaves(("a1", "a2", "a3"), ("b2", "b3")))
    cluster.asking.update("ns/Job/a", e.Shrink(less.with_ranks(with_ranks(of.request, 2))))
    held = cluster.placements.held("ns/Job/a")
    assert (held.placement.nodes, cluster.free()["a2"]) == (("a1", "b1"), 8)
    assert isinstance(cluster.asking.grow("ns/Job/a", e.Grow(of, less, 5, frozenset())), e.NotPlaced)


def test_a_gang_does_not_grow_onto_kept_nodes(cluster: Cluster) -> None:
    of = elastic(4)
    cluster.placements.set_unusable({"a2", "a3", "b1", "b2", "b3"})
    placed(cluster, of)
    cluster.placements.set_unusable(())
    waits = gang(3, tier=1)
    cluster.placements.drain = cluster.asking.drain(e.Place(waits, frozenset()), "leaf-1", 0)
    kept = cluster.placements.drain
    assert kept is not None
    now = replace(plan(cluster, of), request=with_ranks(of.request, 1))
    answer = cluster.asking.grow("ns/Job/a", e.Grow(of, now, 4, frozenset()))
    assert isinstance(answer, e.Placed)
    assert not kept.keeps(answer.placement.nodes[1:])
    assert len(answer.placement.nodes) == 3


def test_a_domain_is_kept_for_the_minimum(cluster: Cluster) -> None:
    kept = cluster.asking.drain(e.Place(elastic(7, tier=1, least=3), frozenset()), None, 0)
    assert kept is not None
    assert kept.workers == 3


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
