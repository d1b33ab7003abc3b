"""Free resources of nodes: after any changes in any order they equal a new count."""

import json
import sys
from random import Random
from typing import Any

import pytest
from hyperscout_gates.workloads.node_resources import FreeResources, kept_pod
from hyperscout_kubernetes.nodes import kept
from hyperscout_placer.cluster.quantity import needs
from hypothesis import given
from hypothesis import strategies as st
from support.kube_objects import node
from support.workloads import GPU, admitted_pod, job_pods, spec

Object = dict[str, Any]
GI = 2**30


def kept_node(name: str, **more: Any) -> Object:
    amounts = {"cpu": "8", "memory": "256Gi", "pods": "110", GPU: "8", "hugepages-2Mi": "0", "junk": "x"}
    spec = {"unschedulable": more.get("cordoned", False)}
    allocatable = amounts | more.get("allocatable", {})
    return kept(node(name, ready=more.get("ready", "True"), spec=spec, allocatable=allocatable))


def bound(name: str, node_name: str, phase: str = "Running", **more: Any) -> Object:
    found = admitted_pod(name, spec(gate=False, nodeName=node_name, **more))
    found["status"]["phase"] = phase
    return kept_pod(found)


FREE = {"cpu": 8000, "memory": 256 * GI, "pods": 110, GPU: 8, "workers": 1}


def test_pods_take_what_they_request_and_give_it_back() -> None:
    room = FreeResources()
    assert room.of("n1") is None
    assert room.node(None, kept_node("n1")) == {"n1"}
    assert room.of("n1") == FREE
    one, two = bound("a", "n1", gpus=2), bound("b", "n1", gpus=0)
    assert room.pod(None, two) == {"n1"}
    less = {"cpu": 4000, "memory": 192 * GI, "pods": 109, GPU: 8, "workers": 1}
    assert room.of("n1") == less
    assert room.pod(None, one) == {"n1"}
    assert room.of("n1") == {"cpu": 0, "memory": 128 * GI, "pods": 108, GPU: 6, "workers": 0}
    assert room.pod(one, bound("a", "n1", "Succeeded", gpus=2)) == {"n1"}
    assert room.of("n1") == less
    assert room.pod(bound("a", "n1", "Succeeded", gpus=2), None) == set()
    assert room.pod(two, bound("b", "n1", "Failed", gpus=0)) == {"n1"}
    assert room.of("n1") == FREE


def test_a_change_that_moves_nothing_names_no_node() -> None:
    room = FreeResources()
    room.node(None, kept_node("n1"))
    waiting = kept_pod(admitted_pod("a"))
    assert room.pod(None, waiting) == set()
    assert room.pod(waiting, bound("a", "n1", "Pending")) == {"n1"}
    assert room.pod(bound("a", "n1", "Pending"), bound("a", "n1", "Running")) == set()
    assert room.node(kept_node("n1"), kept_node("n1")) == set()
    assert room.node(None, None) == set()


@pytest.mark.parametrize("more", [{"cordoned": True}, {"ready": "False"}, {"ready": "Unknown"}])
def test_a_node_that_takes_no_work_has_no_free_capacity(more: Object) -> None:
    room = FreeResources()
    room.node(None, kept_node("n1"))
    assert room.node(kept_node("n1"), kept_node("n1", **more)) == {"n1"}
    assert room.of("n1") == {}
    room.pod(None, bound("a", "n1", gpus=1))
    assert room.node(kept_node("n1", **more), kept_node("n1")) == {"n1"}
    assert room.of("n1") == {"cpu": 4000, "memory": 192 * GI, "pods": 109, GPU: 7, "workers": 0}


def test_nodes_and_pods_may_come_in_any_order() -> None:
    room = FreeResources()
    assert room.pod(None, bound("a", "n1", gpus=1)) == set()  # of a node that is not known
    assert room.of("n1") is None
    assert room.all() == {}
    assert room.node(None, kept_node("n1")) == {"n1"}
    assert room.of("n1") == {"cpu": 4000, "memory": 192 * GI, "pods": 109, GPU: 7, "workers": 0}
    assert room.node(kept_node("n1"), None) == {"n1"}
    assert room.of("n1") is None
    assert room.node(kept_node("n1"), None) == set()
    assert room.pod(bound("a", "n1", gpus=1), None) == set()
    assert room.node(None, kept_node("n1")) == {"n1"}
    assert room.all() == {"n1": FREE}


def test_more_than_there_is_leaves_nothing() -> None:
    room = FreeResources()
    room.node(None, kept_node("n1", allocatable={"cpu": "1", GPU: "4"}))
    room.pod(None, bound("a", "n1", gpus=8))
    free = room.of("n1")
    assert free is not None
    assert (free["cpu"], free[GPU]) == (0, 0)


def test_a_pod_whose_needs_cannot_be_read_is_a_pod() -> None:
    room = FreeResources()
    room.node(None, kept_node("n1"))
    broken = bound("a", "n1", cpu="much")
    assert broken["needs"] is None
    room.pod(None, broken)
    assert room.of("n1") == FREE | {"pods": 109}


def test_what_is_kept_of_a_pod() -> None:
    waiting = next(job_pods("train", 1))
    found = kept_pod(waiting)
    assert set(found) == {"metadata", "spec", "status", "needs"}
    assert found["needs"] == needs(waiting["spec"])
    assert found["spec"]["containers"] == [{"resources": waiting["spec"]["containers"][0]["resources"]}]
    assert found["metadata"]["ownerReferences"] == waiting["metadata"]["ownerReferences"]
    assert "deletionTimestamp" not in found["metadata"]
    gone = {**waiting, "metadata": {**waiting["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert kept_pod(gone)["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    waiting["spec"]["nodeName"] = "n1"
    found = kept_pod(waiting)
    assert found == {
        "metadata": {"name": "train-0-x0y", "namespace": "ml", "uid": "uid-train-0-x0y"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": ""},
        "needs": needs(waiting["spec"]),
    }
    waiting["status"] = {"phase": "Running"}
    assert kept_pod(waiting) == found, "a pod that starts to run is no change"
    waiting["status"] = {"phase": "Failed"}
    assert kept_pod(waiting) == found | {"status": {"phase": "Failed"}, "needs": None}
    # A kept pod is a pod: kept again, it says the same.
    assert kept_pod(kept_pod(admitted_pod("a"))) == kept_pod(admitted_pod("a"))


def test_a_pod_that_has_its_node_is_a_few_hundred_bytes() -> None:
    """Its own part: what pods of one kind share is there once."""

    def fresh(i: int) -> Object:
        found = admitted_pod(f"worker-{i}", spec(nodeName="n1"))
        return kept_pod(json.loads(json.dumps(found)))

    one, two = fresh(1), fresh(2)
    assert one["needs"] is two["needs"]
    assert one["spec"] is two["spec"]
    assert one["status"] is two["status"]
    own = [
        one,
        one["metadata"],
        one["metadata"]["name"],
        one["metadata"]["uid"],
        one["metadata"]["namespace"],
    ]
    assert sum(map(sys.getsizeof, own)) < 600


_PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])
_NODES = st.sampled_from(["n1", "n2", "n3"])


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("node"), _NODES, st.sampled_from([None, "ready", "cordoned", "small"])),
            st.tuples(
                st.just("pod"),
                st.sampled_from(["a", "b", "c", "d"]),
                st.none() | st.tuples(st.none() | _NODES, _PHASES, st.integers(0, 3), st.integers(0, 1)),
            ),
        ),
        max_size=40,
    )
)
def test_the_free_capacity_equals_a_count(steps: list[Any]) -> None:
    room = FreeResources()
    nodes: dict[str, Object] = {}
    pods: dict[str, Object] = {}
    shown: dict[str, Any] = {}
    for kind, name, what in steps:
        if kind == "node":
            after = None
            if what:
                small = {GPU: "1", "cpu": "3"} if what == "small" else {}
                after = kept_node(name, cordoned=what == "cordoned", allocatable=small)
            changed = room.node(nodes.get(name), after)
            nodes.pop(name, None)
            nodes |= {name: after} if after else {}
        else:
            fresh: Object | None = None
            if what:
                on, phase, gpus, life = what
                raw = admitted_pod(
                    name, spec(gpus=gpus, **({"nodeName": on} if on else {})), uid=f"uid-{name}-{life}"
                )
                raw["status"]["phase"] = phase
                fresh = kept_pod(raw)
            before = pods.get(name)
            changed = room.pod(before, fresh)
            pods.pop(name, None)
            pods |= {name: fresh} if fresh else {}
        counted = _counted(nodes, pods)
        assert room.all() == counted
        for other in ("n1", "n2", "n3"):
            assert room.of(other) == counted.get(other)
            # Whatever is another now was named.
            assert other in changed or shown.get(other) == counted.get(other)
        shown = counted
    for pod_name in list(pods):
        room.pod(pods[pod_name], None)
    for gone in nodes.values():
        room.node(gone, None)
    assert room._nodes == {}  # nothing stays behind


def _counted(nodes: Any, pods: Any) -> dict[str, dict[str, int]]:
    found = {}
    for name, one in nodes.items():
        if one["spec"]["unschedulable"]:
            found[name] = {}
            continue
        small = one["allocatable"][GPU] == "1"
        free = FREE | ({GPU: 1, "cpu": 3000} if small else {})
        here = [
            x["needs"]
            for x in pods.values()
            if x["spec"].get("nodeName") == name and x["status"]["phase"] not in ("Succeeded", "Failed")
        ]
        for need in here:
            for resource, value in need:
                free[resource] -= value
                free["workers"] = 0 if resource == GPU else free["workers"]
        found[name] = {resource: max(value, 0) for resource, value in free.items()}
    return found


def test_the_order_of_events_does_not_matter() -> None:
    rng = Random(5)
    nodes = [kept_node(f"n{i}") for i in range(4)]
    pods = [bound(f"p{i}", f"n{i % 4}", gpus=i % 3) for i in range(20)]
    seen = []
    for _ in range(5):
        room = FreeResources()
        told = [("node", x) for x in nodes] + [("pod", x) for x in pods]
        rng.shuffle(told)
        for kind, found in told:
            (room.node if kind == "node" else room.pod)(None, found)
        seen.append(room.all())
    assert all(x == seen[0] for x in seen)
