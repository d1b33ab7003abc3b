"""Workloads of operators, with the labels that their operators write, become gangs: a table for each kind."""

import tracemalloc
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from hyperscout_gates.control.pods import keep
from hyperscout_gates.state.gang import GROUPS, MIN_COUNT, Gang, GangError
from hyperscout_gates.workloads.kinds import KINDS
from hyperscout_gates.workloads.membership import Owner, membership, paths_of
from hyperscout_gates.workloads.node_resources import kept_pod
from hyperscout_gates.workloads.workloads import gang_of
from hyperscout_placer.cluster.request import Workers, size
from support.kube_objects import Object
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
    ThreeTiers,
    job,
    job_pods,
    jobset,
    jobset_pods,
    leader_worker_pods,
    mpi_launcher,
    mpi_pods,
    owned_by,
    replicated_job,
    seated,
    template,
    training_job,
    training_pods,
)


class Case(NamedTuple):
    """`names`: the pods in the order of their ranks. `ready`: how many pods the first stage has."""

    owner: Object
    pods: list[Object]
    key: str
    names: list[str]
    ready: int


def case(owner: Object, pods: Iterable[Object], key: str, names: str, ready: int = 0) -> Case:
    return Case(owner, list(pods), key, names.split(), ready or len(names.split()))


RAY = ray_cluster("r", ray_group("gpu", 2), ray_group("host", 1, 2, cpu="2"))
GROVE = pod_clique_set(
    "inf",
    {"router": 1, "lead": 1, "work": 2, "late": 1},
    scaling_group("sg", 3, 2, "lead", "work"),
    highest_tier_allowed="leaf",
)
CASES = {
    "ray, numbered pods": case(
        RAY,
        [*ray_pods("r", "gpu", 2), *ray_pods("r", "host", 1, 2), *ray_pods("r", "headgroup", 1)],
        "ml/RayCluster/r",
        "r-head-q0 r-gpu-worker-0x0 r-gpu-worker-1x0 r-host-worker-0x0 r-host-worker-0x1",
    ),
    "ray, pods without numbers": case(
        RAY,
        [
            *ray_pods("r", "headgroup", 1),
            *ray_pods("r", "host", 1, 2, numbered=False),
            *ray_pods("r", "gpu", 2, numbered=False),
        ],
        "ml/RayCluster/r",
        "r-head-q0 r-gpu-worker-0x0 r-gpu-worker-1x0 r-host-worker-0x0 r-host-worker-0x1",
    ),
    "ray, replicas within their limits": case(
        ray_cluster("r", ray_group("a", 0, least=1), ray_group("b", 9, most=2), ray_group("c", 0)),
        [*ray_pods("r", "headgroup", 1), *ray_pods("r", "a", 1), *ray_pods("r", "b", 2)],
        "ml/RayCluster/r",
        "r-head-q0 r-a-worker-0x0 r-b-worker-0x0 r-b-worker-1x0",
    ),
    "ray, a suspended group": case(
        ray_cluster("r", ray_group("a", 2, body={"suspend": True}), ray_group("b", 1)),
        [*ray_pods("r", "headgroup", 1), *ray_pods("r", "b", 1)],
        "ml/RayCluster/r",
        "r-head-q0 r-b-worker-0x0",
    ),
    "volcano": case(
        volcano_job("v", volcano_task("master", 1, cpu="1"), volcano_task("worker", 3)),
        [*volcano_pods("v", "worker", 3), *volcano_pods("v", "master", 1, cpu="1")],
        "ml/VolcanoJob/v",
        "v-master-0 v-worker-0 v-worker-1 v-worker-2",
    ),
    "volcano, a task that waits for another": case(
        volcano_job("v", volcano_task("worker", 2), volcano_task("mpimaster", 1, "worker", cpu="1")),
        volcano_pods("v", "worker", 2),
        "ml/VolcanoJob/v",
        "v-worker-0 v-worker-1",
        2,
    ),
    "grove, the gang of a replica": case(
        GROVE,
        [
            *clique_pods("inf", "inf-0", "inf-0-late", 1),
            *clique_pods("inf", "inf-0", "inf-0-sg-0-lead", 1),
            *clique_pods("inf", "inf-0", "inf-0-sg-0-work", 2),
            *clique_pods("inf", "inf-0", "inf-0-sg-1-lead", 1),
            *clique_pods("inf", "inf-0", "inf-0-sg-1-work", 2),
            *clique_pods("inf", "inf-0", "inf-0-router", 1),
        ],
        "ml/PodCliqueSet/inf-0",
        "inf-0-router-r0nd inf-0-sg-0-lead-r0nd inf-0-sg-0-work-r0nd inf-0-sg-0-work-r1nd "
        "inf-0-sg-1-lead-r0nd inf-0-sg-1-work-r0nd inf-0-sg-1-work-r1nd inf-0-late-r0nd",
    ),
    "grove, a further replica of a scaling group": case(
        GROVE,
        [
            *clique_pods("inf", "inf-0-sg-0", "inf-0-sg-2-work", 2),
            *clique_pods("inf", "inf-0-sg-0", "inf-0-sg-2-lead", 1),
        ],
        "ml/PodCliqueSet/inf-0-sg-0",
        "inf-0-sg-2-lead-r0nd inf-0-sg-2-work-r0nd inf-0-sg-2-work-r1nd",
    ),
    "a PodGroup of pods without a controller": case(
        pod_group("g", 3), grouped_pods("g", "w-9", "w-10", "w-11"), "ml/PodGroup/g", "w-9 w-10 w-11"
    ),
    "a PodGroup of a controller that is not known": case(
        pod_group("g", 2),
        grouped_pods("g", "a", "b", owner=owned_by("spark.apache.org/v1", "SparkApplication", "s")),
        "ml/PodGroup/g",
        "a b",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_workload_is_a_gang_with_these_ranks(name: str) -> None:
    owner, pods, key, names, ready = CASES[name]
    gang = gang_of(pods, owner, ThreeTiers())
    assert (gang.key, gang.ready) == (key, ready)
    assert gang.request == gang_of([kept_pod(x) for x in pods], owner, ThreeTiers()).request
    assert size(gang.request.gang) == len(gang.ranks)
    ranks = seated(gang, pods)
    assert sorted(ranks, key=lambda uid: ranks[uid]) == [f"uid-{x}" for x in names]
    assert sorted(ranks.values()) == list(range(len(names)))


@pytest.mark.parametrize("name", CASES)
def test_a_pod_that_runs_stays_in_its_gang(name: str) -> None:
    """Of a pod that has a node, little is kept."""
    for found in CASES[name].pods:
        before = membership(found)
        bound = found | {"spec": found["spec"] | {"nodeName": "n1"}}
        assert membership(keep(bound)) == before


def test_constraints_of_a_workload_hold_for_its_gang() -> None:
    assert gang_of(CASES["grove, the gang of a replica"].pods, GROVE, ThreeTiers()).request.gang.tier == 1


def test_the_later_stage_of_a_volcano_job_has_nodes_too() -> None:
    owner, pods, *_ = CASES["volcano, a task that waits for another"]
    gang = gang_of(pods, owner, ThreeTiers())
    parts = gang.request.gang.parts
    assert [part.count for part in parts if isinstance(part, Workers)] == [2, 1]
    later = list(volcano_pods("v", "mpimaster", 1, cpu="1"))
    assert seated(gang, later) == {"uid-v-mpimaster-0": 2}


def test_pods_beyond_the_least_number_of_a_pod_group_are_in_the_gang_too() -> None:
    pods = list(grouped_pods("g", "a", "b", "c"))
    gang = gang_of(pods, pod_group("g", 2), ThreeTiers())
    assert seated(gang, pods) == {"uid-a": 0, "uid-b": 1, "uid-c": 2}
    assert limits(gang) == (2, 3)
    more = gang_of(pods[2:], pod_group("g", 2), ThreeTiers(), running=4)
    assert (limits(more), len(more.ranks)) == ((2, 5), 5)


def limits(gang: Gang) -> tuple[int, int] | None:
    """The least and the greatest number of its pods; None = it is not elastic."""
    last = gang.request.gang.parts[-1]
    if last.elastic is None:
        return None
    rest = size(gang.request.gang) - size(last)
    one = size(last) // last.count
    return rest + last.elastic.least * one, rest + last.elastic.most * one


def volcano_limits(job: int | None, *tasks: tuple[int, int | None]) -> tuple[int, int] | None:
    """`tasks`: replicas and minAvailable."""
    owner = volcano_job("v", *(volcano_task(f"t{i}", replicas) for i, (replicas, _) in enumerate(tasks)))
    spec = owner["spec"]
    del spec["minAvailable"]
    if job is not None:
        spec["minAvailable"] = job
    for task, (_, least) in zip(spec["tasks"], tasks, strict=True):
        del task["minAvailable"]
        if least is not None:
            task["minAvailable"] = least
    return limits(gang_of(list(volcano_pods("v", "t0", 1)), owner, ThreeTiers()))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (volcano_limits(None, (4, None)), None),
        (volcano_limits(3, (4, None)), (3, 4)),
        (volcano_limits(4, (4, None)), None),
        (volcano_limits(3, (4, 4)), (3, 4)),  # as Volcano's webhook completes it
        (volcano_limits(None, (4, 2)), (2, 4)),
        (volcano_limits(3, (2, None), (4, None)), (3, 6)),
        (volcano_limits(1, (2, None), (4, None)), (3, 6)),  # ranks 0 to 1 are those of the first task
        (volcano_limits(3, (2, 1), (4, 3)), (3, 6)),
        (volcano_limits(4, (2, 1), (4, 3)), (5, 6)),
        (volcano_limits(6, (2, 1), (4, 3)), None),
        (volcano_limits(None, (2, 1), (4, None)), None),
    ],
)
def test_the_last_task_of_a_volcano_job_is_elastic(
    found: tuple[int, int] | None, expected: tuple[int, int] | None
) -> None:
    assert found == expected


@pytest.mark.parametrize(("least", "expected"), [(None, None), (4, (4, 5)), (1, (2, 5)), (9, (5, 5))])
def test_the_workers_of_a_training_job_are_elastic(
    least: int | None, expected: tuple[int, int] | None
) -> None:
    replicas = {"Master": (1, template()), "Worker": (4, template())}
    owner = training_job("PyTorchJob", "p", "pytorchReplicaSpecs", replicas)
    if least is not None:
        owner["spec"]["runPolicy"]["schedulingPolicy"] = {"minAvailable": least}
    assert (
        limits(gang_of(list(training_pods("PyTorchJob", "p", "worker", 1)), owner, ThreeTiers())) == expected
    )


KUEUE = "kueue.x-k8s.io/job-min-parallelism"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, None),
        ({KUEUE: "3"}, (3, 8)),
        ({MIN_COUNT: "3"}, (3, 8)),
        ({MIN_COUNT: "8"}, (8, 8)),
        ({KUEUE: "3", MIN_COUNT: "5"}, (5, 8)),
        ({MIN_COUNT: "3", GROUPS: "2:1"}, (4, 8)),  # whole groups
        ({MIN_COUNT: "9"}, "annotation hyperscout.io/min-count: '9': expected 1 to 8"),
        ({KUEUE: "9"}, (8, 8)),  # the Job was scaled down
        ({KUEUE: "few"}, "annotation kueue.x-k8s.io/job-min-parallelism: 'few': expected a number"),
    ],
)
def test_the_minimum_of_a_job(annotations: dict[str, str], expected: tuple[int, int] | str | None) -> None:
    owner = job("x", 8)
    owner["metadata"]["annotations"] = annotations
    if isinstance(expected, str):
        with pytest.raises(GangError, match=expected):
            gang_of(list(job_pods("x", 8)), owner, ThreeTiers())
    else:
        gang = gang_of(list(job_pods("x", 8)), owner, ThreeTiers())
        assert (limits(gang), gang.ready) == (expected, 8)
        assert gang.least == min(8, int(annotations.get(MIN_COUNT, annotations.get(KUEUE, "8"))))


PODS = {
    "Job": next(job_pods("x", 1)),
    "JobSet": next(jobset_pods("x", "a", 1, 1)),
    "LeaderWorkerSet": next(leader_worker_pods("x", 0, 1)),
    "MPIJob": next(mpi_pods("x", 1)),
    "the launcher of an MPIJob": mpi_launcher("x"),
    "PyTorchJob": next(training_pods("PyTorchJob", "x", "worker", 1)),
    "RayCluster": next(ray_pods("x", "gpu", 1)),
    "VolcanoJob": next(volcano_pods("x", "gpu", 1)),
    "PodCliqueSet": next(clique_pods("x", "x-0", "x-0-a", 1)),
    "PodGroup": next(grouped_pods("x", "a")),
    "a Job in a PodGroup": next(job_pods("x", 1, spec={"schedulingGroup": {"podGroupName": "g"}})),
}
PATHS = {
    "Job": ["/apis/batch/v1/namespaces/ml/jobs/x"],
    "JobSet": ["/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/x"],
    "LeaderWorkerSet": ["/apis/leaderworkerset.x-k8s.io/v1/namespaces/ml/leaderworkersets/x"],
    "MPIJob": ["/apis/kubeflow.org/v2beta1/namespaces/ml/mpijobs/x"],
    "the launcher of an MPIJob": ["/apis/kubeflow.org/v2beta1/namespaces/ml/mpijobs/x"],
    "PyTorchJob": ["/apis/kubeflow.org/v1/namespaces/ml/pytorchjobs/x"],
    "RayCluster": ["/apis/ray.io/v1/namespaces/ml/rayclusters/x"],
    "VolcanoJob": ["/apis/batch.volcano.sh/v1alpha1/namespaces/ml/jobs/x"],
    "PodCliqueSet": ["/apis/grove.io/v1alpha1/namespaces/ml/podcliquesets/x"],
    "PodGroup": [
        "/apis/scheduling.k8s.io/v1beta1/namespaces/ml/podgroups/x",
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/ml/podgroups/x",
    ],
    "a Job in a PodGroup": ["/apis/batch/v1/namespaces/ml/jobs/x"],
}


@pytest.mark.parametrize("name", PODS)
def test_the_object_that_defines_the_gang(name: str) -> None:
    owner = membership(PODS[name]).owner
    assert owner is not None
    assert list(paths_of(owner)) == PATHS[name]


def test_a_pod_names_the_version_of_its_controller() -> None:
    found = next(ray_pods("x", "gpu", 1))
    found["metadata"]["ownerReferences"] = owned_by("ray.io/v1alpha1", "RayCluster", "x")
    assert membership(found).owner == Owner("ray.io/v1alpha1", "RayCluster", "ml", "x")


def labelled(found: Object, **labels: str) -> Object:
    metadata = found["metadata"]
    return found | {"metadata": metadata | {"labels": metadata["labels"] | labels}}


@pytest.mark.parametrize("name", ["PyTorchJob", "RayCluster", "VolcanoJob"])
def test_a_controller_of_a_known_kind_counts_before_labels(name: str) -> None:
    found = PODS[name]
    forged = labelled(
        found,
        **{"training.kubeflow.org/operator-name": "mpi-operator", "grove.io/podgang": "i-0"},
    )
    assert membership(forged) == membership(found)


@pytest.mark.parametrize("owner", ["b", "i-0", ""])
def test_a_pod_is_in_no_gang_of_another_pod_clique_set(owner: str) -> None:
    found = next(clique_pods("i", "i-0", "i-0-a", 1))
    with pytest.raises(GangError, match=r"label (grove.io/podgang: 'i-0': expected a gang|app.*missing)"):
        membership(labelled(found, **{"app.kubernetes.io/part-of": owner}))


def test_pods_of_two_owners_are_no_gang() -> None:
    pods = [*clique_pods("i", "i-0-g-0", "i-0-g-1-a", 1), *clique_pods("i-0-g", "i-0-g-0", "i-0-g-0-z", 1)]
    with pytest.raises(GangError, match=r"of PodCliqueSet i, not of i-0-g as the other pods"):
        gang_of(pods, pod_clique_set("i", {"a": 1}, scaling_group("g", 2, 1, "a")), ThreeTiers())


def test_each_kind_has_one_entry() -> None:
    assert len({x.gang_kind for x in KINDS}) == len({(x.group, x.kind) for x in KINDS}) == len(KINDS)


CASED = ("Worker", "worker")


@pytest.mark.parametrize(
    ("pods", "owner", "says"),
    [
        (
            ray_pods("r", "gpu", 1),
            ray_cluster("r", ray_group("gpu", 1), body={"enableInTreeAutoscaling": True}),
            "RayCluster ml/r: spec.enableInTreeAutoscaling: true: Ray changes the number of its pods",
        ),
        (
            ray_pods("r", "a", 1),
            ray_cluster("r", ray_group("a", 1), ray_group("a", 1)),
            "RayCluster ml/r: spec.workerGroupSpecs[1].groupName: 'a': expected a name that is used once",
        ),
        (
            ray_pods("r", "a", 1),
            ray_cluster("r", ray_group("a", 1000, 10_000)),
            "RayCluster ml/r: a: more than 1000000 pods with the roles before it: lower the counts",
        ),
        (
            volcano_pods("v", "a", 1),
            volcano_job("v"),
            "VolcanoJob ml/v: spec.tasks: expected 1 to 64 of them",
        ),
        (
            volcano_pods("v", "a", 1),
            volcano_job("v", volcano_task("a", 1), volcano_task("a", 1)),
            "VolcanoJob ml/v: spec.tasks[1].name: 'a': expected a name that is used once",
        ),
        (
            clique_pods("inf", "inf-0", "inf-0-a", 1),
            pod_clique_set("inf", {"a": 1}, scaling_group("g", 1, 1, "b")),
            "PodCliqueSet ml/inf: spec.template.podCliqueScalingGroups[0].cliqueNames: 'b': there is no such",
        ),
        (
            clique_pods("inf", "inf-0-g-1", "inf-0-g-2-a", 1),
            pod_clique_set("inf", {"a": 1}),
            "PodCliqueSet ml/inf: spec.template.podCliqueScalingGroups: none has the PodGang 'g-1'",
        ),
        (
            clique_pods("inf", "other-0", "other-0-a", 1),
            pod_clique_set("inf", {"a": 1}),
            "pod ml/other-0-a-r0nd: label grove.io/podgang: 'other-0': expected a gang of PodCliqueSet inf",
        ),
        *[
            (
                clique_pods("i", "i-0", "i-0-b", 1),
                pod_clique_set("i", {"a": 2, "b": 2}, *groups),
                f"PodCliqueSet ml/i: spec.template.podCliqueScalingGroups[{at}].cliqueNames: 'a': expected a",
            )
            for at, groups in (
                (0, [scaling_group("g", 2, 1, "a", "a")]),
                (1, [scaling_group("g", 2, 1, "a", "b"), scaling_group("h", 2, 1, "a")]),
            )
        ],
        (
            clique_pods("i", "i-0", "i-0-b", 1),
            pod_clique_set("i", {"a": 2, "g-0-a": 1}, scaling_group("g", 2, 1, "a")),
            "PodCliqueSet ml/i: two of its roles are called 'i-0-g-0-a': rename one",
        ),
        (
            training_pods("PyTorchJob", "p", "worker", 1),
            training_job("PyTorchJob", "p", "pytorchReplicaSpecs", dict.fromkeys(CASED, (2, template()))),
            "PyTorchJob ml/p: two of its roles are called 'worker': rename one",
        ),
        (
            grouped_pods("g", "a"),
            pod_group("g", 0, body={"schedulingPolicy": {"basic": {}}}),
            "PodGroup ml/g: spec.schedulingPolicy.gang: missing, so its pods are no gang: make a PodGroup",
        ),
        (grouped_pods("g", "a"), pod_group("g", 0), "PodGroup ml/g: it has no pods to place"),
    ],
)
def test_what_is_no_gang_is_refused_by_name(pods: Any, owner: Object, says: str) -> None:
    with pytest.raises(GangError) as caught:
        gang_of(list(pods), owner, ThreeTiers())
    assert str(caught.value).startswith(says)


MANY = [f"a{i}" for i in range(64)]
MOST = 1_000_000
TOO_LARGE = {
    "volcano": (volcano_pods("x", "a0", 1), volcano_job("x", *[volcano_task(a, MOST) for a in MANY])),
    "ray": (ray_pods("x", "headgroup", 1), ray_cluster("x", *[ray_group(a, MOST) for a in MANY])),
    "jobset": (jobset_pods("x", "a0", 1, 1), jobset("x", *[replicated_job(a, MOST, MOST) for a in MANY])),
    "training": (
        training_pods("PyTorchJob", "x", "a0", 1),
        training_job("PyTorchJob", "x", "pytorchReplicaSpecs", {a: (MOST, template()) for a in MANY}),
    ),
    "grove": (
        clique_pods("x", "x-0", "x-0-g-0-a0", 1),
        pod_clique_set("x", dict.fromkeys(MANY, MOST), scaling_group("g", 64, 64, *MANY)),
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_gang_that_is_too_large_is_refused_before_its_slots_are_built(name: str) -> None:
    found, owner = TOO_LARGE[name]
    pods = list(found)
    tracemalloc.start()
    try:
        with pytest.raises(GangError, match="more than 1000000 pods"):
            gang_of(pods, owner, ThreeTiers())
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
