"""Pods as they are kept and seen, and the patch that opens a gate: what it keeps, and what it guards."""

import json
from typing import Any

import pytest
from hyperscout_gates.control.pods import (
    COORDINATOR,
    NICS,
    NUMA_ZONE,
    PLACED,
    RANK,
    RANKS,
    Mark,
    deletion,
    is_ours,
    keep,
    labels_at,
    mark_of,
    seen,
)
from hyperscout_gates.degradation.hook import HOOK, Hook
from hyperscout_gates.state.events import Pod
from hyperscout_gates.state.gang import GATE, GangError
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.numa_zones import Zone
from hyperscout_placer.demands.eligible import demands_key
from hypothesis import given
from hypothesis import strategies as st
from support.kube_objects import Object, pod
from support.topologies import towers
from support.workloads import opened

NOW_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j1", "controller": True}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
INDEX = "batch.kubernetes.io/job-completion-index"


def train_pod(
    *, gated: bool = True, annotations: Object | None = None, status: Object | None = None, **spec: Any
) -> Object:
    """Worker 3 of the Job train; `gated`: by hyperscout's gate and another one."""
    gates = [{"name": "example.com/other"}, {"name": GATE}] if gated else []
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    return pod(
        "train-3-x",
        {"schedulingGates": gates, "containers": containers, **spec},
        status=status,
        namespace="ns",
        uid="u1",
        resourceVersion="7",
        creationTimestamp="2026-01-01T00:00:00Z",
        labels={INDEX: "3"},
        ownerReferences=[JOB],
        annotations=annotations or {},
    )


def placed(pod_uid: str = "u1", **more: Any) -> dict[str, str]:
    return {
        PLACED: json.dumps({"pod": pod_uid, "rank": 3, "node": "n1", "time": "2026-01-01T00:01:00Z"} | more)
    }


@pytest.mark.parametrize(
    ("value", "more", "hook"),
    [
        (None, {}, None),
        ("none", {}, Hook()),
        ("8080/", {}, Hook("http://10.1.2.3:8080/")),
        ("65535/a/b-c_d.e~f", {}, Hook("http://10.1.2.3:65535/a/b-c_d.e~f")),
        ("8080/x", {"podIP": "fd00::1"}, Hook("http://[fd00::1]:8080/x")),
        ("8080", {}, "expected PORT/PATH"),
        ("0/x", {}, "expected PORT/PATH"),
        ("65536/x", {}, "expected PORT/PATH"),
        ("example.com:80/x", {}, "expected PORT/PATH"),
        ("80/x?y", {}, "expected PORT/PATH"),
        ("80/x\r\nHost: y", {}, "expected PORT/PATH"),
        ("٨٠/x", {}, "expected PORT/PATH"),
        (80, {}, "expected PORT/PATH"),
        ("80/" + 201 * "x", {}, "expected PORT/PATH"),
        ("80/x", {"podIP": None}, "the pod has no address yet"),
        ("80/x", {"podIP": "metadata.internal"}, "the pod has no address yet"),
        ("80/x", {"podIP": "127.0.0.1"}, "127.0.0.1 is not an address of a pod"),
        ("80/x", {"podIP": "169.254.169.254"}, "169.254.169.254 is not an address of a pod"),
        ("80/x", {"podIP": "::"}, ":: is not an address of a pod"),
        ("80/x", {"podIP": "::ffff:127.0.0.1"}, "is not an address of a pod"),
        ("80/x", {"hostNetwork": True}, "the pod is in the network of its node"),
    ],
)
def test_the_checkpoint_hook(value: Any, more: dict[str, Any], hook: Hook | str | None) -> None:
    annotations = placed() | ({} if value is None else {HOOK: value})
    network = {"hostNetwork": True} if more.get("hostNetwork") else {}
    status = {"phase": "Running", "podIP": more.get("podIP", "10.1.2.3")}
    found = keep(train_pod(gated=False, annotations=annotations, status=status, **network))["gate"]["hook"]
    if isinstance(hook, str):
        assert found.url == ""
        assert hook in found.problem
    else:
        assert found == hook


TERM = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100"]}]}
FIELD = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}


@pytest.mark.parametrize(
    "affinity",
    [
        {},
        {"podAntiAffinity": {"x": []}},
        {"nodeAffinity": PREFERRED},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}}},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM, FIELD]}, **PREFERRED}},
    ],
)
def test_what_a_running_pod_demands_is_known_without_its_pin(affinity: Object) -> None:
    demands = {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]}
    demands |= {"affinity": affinity} if affinity else {}
    waits = train_pod(annotations={HOOK: "none"}, **demands)
    assert keep(waits)["gate"]["demands"] == demands
    patch = opened(waits, 3, "n1", 1)
    terms = patch["spec"]["affinity"]["nodeAffinity"][REQUIRED]
    nodes = affinity.get("nodeAffinity", {}) | {REQUIRED: terms}
    runs = train_pod(
        gated=False,
        annotations={HOOK: "none"} | patch["metadata"]["annotations"],
        nodeName="n1",
        **demands | {"affinity": affinity | {"nodeAffinity": nodes}},
    )
    found = keep(runs)["gate"]["demands"]
    assert demands_key(found) == demands_key(demands)
    assert keep(train_pod(gated=False, annotations=placed()))["gate"]["demands"] is None


def test_a_gated_pod() -> None:
    assert seen(keep(train_pod())) == Pod(
        "u1", "ns", "train-3-x", "worker/3", gated=True, created_s=NOW_S, version="7"
    )


def test_one_that_was_opened() -> None:
    found = seen(keep(train_pod(gated=False, annotations=placed())))
    assert (found.gated, found.rank, found.pin, found.node, found.is_open) == (False, 3, "n1", "", True)


def test_of_one_that_runs_the_gang_is_known_and_its_version_is_not() -> None:
    """Its status changes often, and none of that matters."""
    running = train_pod(gated=False, annotations=placed(), nodeName="n1", status={"phase": "Running"})
    before = keep(running)
    running["metadata"]["resourceVersion"] = "8"
    running["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert keep(running) == before
    assert (seen(before).node, seen(before).slot, seen(before).version) == ("n1", "worker/3", "")


@pytest.mark.parametrize(
    ("phase", "succeeded", "failed"),
    [("Pending", False, False), ("Succeeded", True, False), ("Failed", False, True)],
)
def test_phases(phase: str, succeeded: bool, failed: bool) -> None:
    found = seen(keep(train_pod(gated=False, annotations=placed(), nodeName="n1", status={"phase": phase})))
    assert (found.succeeded, found.failed) == (succeeded, failed)


def test_others_are_none_of_ours() -> None:
    assert not is_ours(keep(train_pod(gated=False)))
    assert not is_ours(None)


@pytest.mark.parametrize(
    "annotations",
    [
        placed("another"),  # a copy of a pod
        placed(rank=-1),
        placed(rank="3"),
        placed(rank=True),
        placed(node=None),
        {PLACED: "3"},
        {PLACED: "{"},
        {PLACED: "[" * 900},
        {PLACED: " " * 2000},
        {RANK: "3"},
    ],
    ids=str,
)
def test_a_malformed_or_copied_annotation_is_no_mark(annotations: dict[str, str]) -> None:
    assert mark_of(train_pod(annotations=annotations)) is None


@given(st.text(max_size=200))
def test_any_annotation_is_a_mark_or_none(text: str) -> None:
    assert mark_of(train_pod(annotations={PLACED: text})) is None


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "lastTransitionTime": "2026-01-01T00:00:30Z",
}


@pytest.mark.parametrize(
    ("condition", "since_s"),
    [
        # The condition dates from the gate: it counts from when that was opened.
        (UNSCHEDULABLE, NOW_S + 60),
        (UNSCHEDULABLE | {"lastTransitionTime": "2026-01-01T00:02:00Z"}, NOW_S + 120),
        (UNSCHEDULABLE | {"lastTransitionTime": "yesterday"}, NOW_S + 60),
        (UNSCHEDULABLE | {"reason": "SchedulingGated"}, None),
        (UNSCHEDULABLE | {"status": "True"}, None),
        (UNSCHEDULABLE | {"type": "Ready"}, None),
    ],
)
def test_since_when_the_scheduler_finds_no_place(condition: dict[str, str], since_s: float | None) -> None:
    stuck = train_pod(gated=False, annotations=placed(), status={"conditions": [condition]})
    assert seen(keep(stuck)).stuck_since_s == since_s


def terms_of(patch: Any) -> Any:
    affinity = patch["spec"]["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def pin(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def test_the_patch_drops_our_gate_pins_the_node_and_writes_it_down() -> None:
    before = train_pod()
    patch = opened(before, 3, "n1", (int(NOW_S) + 60) * 10**9)
    assert patch["spec"]["schedulingGates"] == [{"$patch": "delete", "name": GATE}]
    assert terms_of(patch) == [{"matchFields": [pin("n1")]}]
    assert patch["metadata"]["uid"] == "u1"
    assert "resourceVersion" not in patch["metadata"], "a status that changes meanwhile is no conflict"
    annotations = patch["metadata"]["annotations"]
    assert (annotations[RANK], annotations[RANKS]) == ("3", "1")
    assert COORDINATOR not in annotations
    assert mark_of(train_pod(gated=False, annotations=annotations)) == Mark(3, "n1", NOW_S + 60)


def test_the_patch_says_where_rank_0_is() -> None:
    patch = opened(train_pod(), 3, "n1", int(NOW_S) * 10**9, 8, "train-0.train.ns.svc")
    annotations = patch["metadata"]["annotations"]
    assert (annotations[RANKS], annotations[COORDINATOR]) == ("8", "train-0.train.ns.svc")


@pytest.mark.parametrize("node", ["", "n1"])
@pytest.mark.parametrize(
    ("spec", "host"),
    [
        ({}, ""),
        ({"hostname": "train-3"}, ""),
        ({"hostname": "train-3", "subdomain": "train"}, "train-3.train.ns.svc"),
        ({"subdomain": "train"}, ""),  # no record in DNS
        ({"hostname": "train-3", "subdomain": "train", "hostNetwork": False}, "train-3.train.ns.svc"),
        ({"subdomain": "train", "hostNetwork": True}, None),
        ({"hostname": 5, "subdomain": ["x"]}, ""),
    ],
)
def test_the_name_by_which_other_pods_reach_a_pod(spec: Object, host: str | None, node: str) -> None:
    found = train_pod(gated=not node, annotations=placed(), **spec, **({"nodeName": node} if node else {}))
    assert seen(keep(found)).host == host


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        (Zone(1, ("mlx5_2", "mlx5_3")), {NUMA_ZONE: "1", NICS: "mlx5_2,mlx5_3"}),
        (Zone(0), {NUMA_ZONE: "0", NICS: ""}),
        (Zone(None), {}),
        (None, {}),
    ],
)
def test_the_patch_names_the_numa_zone_of_the_plan(zone: Zone | None, expected: dict[str, str]) -> None:
    annotations = opened(train_pod(), 3, "n1", 10**9, zone=zone)["metadata"]["annotations"]
    assert {key: annotations[key] for key in (NUMA_ZONE, NICS) if key in annotations} == expected


def test_labels_are_part_of_the_patch_and_those_of_the_pod_stay() -> None:
    assert "labels" not in opened(train_pod(), 3, "n1", 10**9)["metadata"]
    patch = opened(train_pod(), 3, "n1", 10**9, **{"hyperscout.io/leaf": "l1"})
    assert patch["metadata"]["labels"] == {"hyperscout.io/leaf": "l1"}


@pytest.mark.parametrize(
    ("node", "labels"),
    [
        ("n1", {"hyperscout.io/nvlink": "near", "hyperscout.io/leaf": "leaf"}),
        ("n3", {"hyperscout.io/leaf": "leaf"}),  # alone in its NVLink domain
        ("unknown", {}),
    ],
)
def test_the_labels_of_a_pod_on_a_node(node: str, labels: dict[str, str]) -> None:
    assert labels_at(Forest.of(towers("nvlink", "leaf", "pod")), node) == labels
    found = labels_at(Forest.of(towers("ascend", "leaf", "pod")), node)
    assert found == {key.replace("nvlink", "ascend"): name for key, name in labels.items()}


def test_the_pin_is_added_to_every_term_that_is_there() -> None:
    terms = [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    patch = opened(train_pod(affinity={"nodeAffinity": required}), 3, "n1", int(NOW_S) * 10**9)
    assert terms_of(patch) == [
        terms[0] | {"matchFields": [pin("n1")]},
        {"matchFields": [*terms[1]["matchFields"], pin("n1")]},
    ]
    assert patch["metadata"]["resourceVersion"] == "7", (
        "a term that another client adds meanwhile would be lost"
    )


def test_only_what_was_seen_is_deleted() -> None:
    found = seen(keep(train_pod(gated=False, annotations=placed())))
    assert deletion(found)["preconditions"] == {"uid": "u1", "resourceVersion": "7"}


def test_a_pod_of_an_unknown_controller_is_no_member() -> None:
    odd = train_pod()
    odd["metadata"]["ownerReferences"] = [JOB | {"kind": "Unheard", "apiVersion": "example.com/v1"}]
    with pytest.raises(GangError):
        seen(keep(odd))


def test_a_pod_with_an_owner_reference_is_owned() -> None:
    alone = train_pod()
    del alone["metadata"]["ownerReferences"]
    assert not seen(keep(alone)).owned
    assert seen(keep(train_pod())).owned
