"""Objects with anything in them: a gang, or an error that says so; never another one."""

import copy
from random import Random
from typing import Any

import pytest
from hyperscout_gates.state.gang import GangError
from hyperscout_gates.workloads.membership import membership, paths_of
from hyperscout_gates.workloads.node_resources import FreeResources, kept_pod
from hyperscout_gates.workloads.workloads import gang_of
from hyperscout_kubernetes.nodes import kept
from hyperscout_placer.cluster.request import size
from hyperscout_placer.demands.eligible import demands_key
from hypothesis import given
from hypothesis import strategies as st
from support.examples import slow_after
from support.operator_workloads import (
    clique_pods,
    grouped_pods,
    pod_clique_set,
    pod_group,
    ray_cluster,
    ray_group,
    ray_pods,
    scaling_group,
    volcano_job,
    volcano_pods,
    volcano_task,
)
from support.workloads import (
    Object,
    ThreeTiers,
    admitted_pod,
    job,
    job_pods,
    jobset,
    jobset_pods,
    leader_worker_pods,
    leader_worker_set,
    may_run,
    mpi_launcher,
    mpi_pods,
    mpijob,
    plain_pods,
    replicated_job,
    seated,
    template,
    training_job,
    training_pods,
)

CONSTRAINTS = {"groups": "2:1,4:2", "mode": "hard", "highest_tier_allowed": "3", "spread": "4:2"}
CASES: dict[str, tuple[list[Object], Object | None]] = {
    "job": (list(job_pods("t", 4)), job("t", 4, **CONSTRAINTS)),
    "jobset": (
        [*jobset_pods("j", "a", 1, 4), *jobset_pods("j", "b", 2, 2)],
        jobset("j", replicated_job("a", 1, 4), replicated_job("b", 2, 2, after="a"), **CONSTRAINTS),
    ),
    "mpi": ([*mpi_pods("m", 4), mpi_launcher("m")], mpijob("m", 4, **CONSTRAINTS)),
    "pytorch": (
        list(training_pods("PyTorchJob", "p", "worker", 4)),
        training_job("PyTorchJob", "p", "pytorchReplicaSpecs", {"Worker": (4, template())}, **CONSTRAINTS),
    ),
    "lws": (list(leader_worker_pods("s", 0, 4)), leader_worker_set("s", 2, 4, **CONSTRAINTS)),
    "ray": (
        [*ray_pods("r", "headgroup", 1), *ray_pods("r", "g", 2, 2)],
        ray_cluster("r", ray_group("g", 2, 2), mode="hard"),
    ),
    "volcano": (
        list(volcano_pods("v", "a", 4)),
        volcano_job("v", volcano_task("a", 4), volcano_task("b", 1, "a"), mode="soft"),
    ),
    "grove": (
        [*clique_pods("i", "i-0", "i-0-a", 2), *clique_pods("i", "i-0", "i-0-g-0-b", 2)],
        pod_clique_set("i", {"a": 2, "b": 2}, scaling_group("g", 2, 1, "b"), mode="hard"),
    ),
    "pod group": (list(grouped_pods("g", "a", "b", "c", "d")), pod_group("g", 4, **CONSTRAINTS)),
    "plain": (list(plain_pods("g", 4, "a", "b", "c", "d")), None),
}

JUNK = [
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "9" * 30,
    "١",
    [],
    [None],
    [[]],
    ["x"],
    {},
    {"x": 1},
    {"name": 5},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something could be put instead: every field of an object, to any depth."""
    found = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        found += places(one, (*path, key))
    return found


def put(value: Any, path: tuple[Any, ...], junk: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = junk


def read(pods: list[Object], owner: Object | None) -> None:
    try:
        gang = gang_of(pods, owner, ThreeTiers())
        for one in pods:
            if found := membership(one).owner:
                assert next(paths_of(found)).startswith("/apis/")
        taken = seated(gang, pods)
    except GangError:
        return
    assert size(gang.request.gang) == len(gang.ranks)
    assert 1 <= gang.ready <= len(gang.ranks)
    assert len(set(taken.values())) == len(taken)
    assert set(taken.values()) <= set(gang.ranks.values())
    for need in gang.templates.values():
        demands_key(need)


@pytest.mark.parametrize("name", CASES)
def test_whole_ones_are_gangs(name: str) -> None:
    pods, owner = CASES[name]
    assert len(gang_of(pods, owner, ThreeTiers()).ranks) >= 4


@pytest.mark.parametrize("tenth", slow_after(1, range(10)))
@pytest.mark.parametrize("name", CASES)
def test_junk_in_each_field(name: str, tenth: int) -> None:
    """One field at a time, each kind of junk in turn over a tenth of the fields."""
    pods, owner = CASES[name]
    at = [(0, path) for path in places(owner or {})] + [(1, path) for path in places(pods[1])]
    rng = Random(f"{name} {tenth}")
    for which, path in at[tenth::10]:
        for junk in rng.sample(JUNK, 5):
            broken, mine = copy.deepcopy(pods), copy.deepcopy(owner)
            put(mine if which == 0 else broken[1], path, junk)
            read(broken, mine)


_LEAVES = st.sampled_from(JUNK) | st.integers() | st.text(max_size=5)
_KEYS = st.sampled_from(
    [
        "metadata",
        "spec",
        "labels",
        "annotations",
        "name",
        "namespace",
        "uid",
        "ownerReferences",
        "controller",
        "kind",
        "apiVersion",
        "template",
        "parallelism",
        "completions",
        "replicatedJobs",
        "replicas",
        "dependsOn",
        "leaderWorkerTemplate",
        "size",
        "mpiReplicaSpecs",
        "Worker",
        "containers",
        "resources",
        "requests",
        "cpu",
        "hyperscout.io/gang",
        "hyperscout.io/gang-size",
        "hyperscout.io/groups",
        "hyperscout.io/mode",
        "jobset.sigs.k8s.io/jobset-name",
        "jobset.sigs.k8s.io/replicatedjob-name",
        "jobset.sigs.k8s.io/job-index",
        "training.kubeflow.org/job-name",
        "leaderworkerset.sigs.k8s.io/name",
        "grove.io/podgang",
        "app.kubernetes.io/part-of",
        "schedulingGroup",
        "podGroupName",
        "hostname",
        "subdomain",
        "tolerations",
        "nodeSelector",
    ]
)
_ANY = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=30,
)
_OBJECTS = st.dictionaries(_KEYS, _ANY, max_size=5)
_PODS = st.builds(
    lambda labels, annotations, spec, owners: admitted_pod(
        "p", spec, labels=labels, annotations=annotations, ownerReferences=owners
    ),
    st.dictionaries(_KEYS, _LEAVES, max_size=5),
    st.dictionaries(_KEYS, _LEAVES, max_size=3) | _ANY,
    _OBJECTS,
    st.lists(st.dictionaries(_KEYS, _LEAVES, max_size=5), max_size=2) | _ANY,
)


@given(st.lists(_PODS | _OBJECTS, min_size=1, max_size=3), st.none() | _OBJECTS)
def test_any_objects(pods: list[Object], owner: Object | None) -> None:
    read(pods, owner)


@given(_OBJECTS)
def test_any_pod_spec_may_run_or_not(spec: Object) -> None:
    labels = {"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"taints": [{"key": "a"}]}}
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert may_run(spec, kept(labels | ready)) in (True, False)
    assert isinstance(demands_key(spec), str)


@given(_PODS, st.sampled_from([None, "n1", 5, [], ""]), st.sampled_from([None, "Running", "Failed", 7]))
def test_any_pod_is_kept_and_counted(found: Object, node: Any, phase: Any) -> None:
    found["spec"]["nodeName"] = node
    found["status"] = {"phase": phase}
    one, room = kept_pod(found), FreeResources()
    room.pod(None, one)
    room.pod(one, None)
    assert room._nodes == {}
