"""Workloads of each kind and their pods become gangs."""

from random import Random
from typing import Any

import pytest
from hyperscout_gates.control import pods as placed
from hyperscout_gates.degradation.hook import HOOK
from hyperscout_gates.state.events import Pod
from hyperscout_gates.state.gang import GANG_LABEL, GATE, ROLE_LABEL, SIZE_LABEL, Gang, GangError
from hyperscout_gates.state.gang_state import Members
from hyperscout_gates.workloads.membership import Owner, membership, paths_of
from hyperscout_gates.workloads.node_resources import kept_pod
from hyperscout_gates.workloads.objects import is_gated
from hyperscout_gates.workloads.workloads import gang_of
from hyperscout_placer.cluster.forest import Forest, Tiers
from hyperscout_placer.cluster.numa_zones import in_one_zone
from hyperscout_placer.cluster.request import Group, Spread, Workers, ends, size
from support.kube_objects import node_affinity
from support.topologies import leaves
from support.workloads import (
    GPU,
    Object,
    ThreeTiers,
    admitted_pod,
    job,
    job_pods,
    jobset,
    jobset_pods,
    leader_worker_pods,
    leader_worker_set,
    mpi_launcher,
    mpi_pods,
    mpijob,
    owned_by,
    plain_pods,
    replicated_job,
    seated,
    spec,
    template,
    training_job,
    training_pods,
)

GI = 2**30
FULL = (("cpu", 4000), ("memory", 64 * GI), (GPU, 8), ("pods", 1))
SMALL = (("cpu", 1000), ("memory", 64 * GI), ("pods", 1))


def the_gang(pods: Any, owner: Object | None = None) -> Gang:
    """The same from whole pods and from kept ones, in any order."""
    pods = list(pods)
    found = gang_of(pods, owner, ThreeTiers())
    mixed = [kept_pod(one) for one in pods]
    Random(1).shuffle(mixed)
    kept = gang_of(mixed, owner, ThreeTiers())
    assert (kept.request, dict(kept.ranks), kept.ready) == (found.request, dict(found.ranks), found.ready)
    assert size(found.request.gang) == len(found.ranks)
    assert sorted(found.ranks.values()) == list(range(len(found.ranks)))
    return found


def ranked(gang: Gang, pods: Any, taken: dict[str, int] | None = None) -> dict[str, int]:
    """Ranks by the pods' names; the same in any order."""
    pods = list(pods)
    found = seated(gang, pods, taken)
    Random(2).shuffle(pods)
    assert seated(gang, pods, taken) == found
    assert len(set(found.values())) == len(found)
    return {uid.removeprefix("uid-"): rank for uid, rank in found.items()}


def test_an_indexed_job_is_ranked_by_completion_index() -> None:
    pods = list(job_pods("train", 12))
    gang = the_gang(pods, job("train", 12))
    assert (gang.key, gang.kind, gang.uid) == ("ml/Job/train", "Job", "uid-train")
    assert gang.request.gang == Group(1, (Workers(12, FULL),))
    assert gang.request.mode == "soft"
    assert gang.ready == 12
    assert ranked(gang, pods) == {f"train-{i}-x{i}y": i for i in range(12)}
    assert set(gang.templates) == {"worker"}


def test_a_job_that_is_not_indexed_takes_ranks_by_name_and_keeps_them() -> None:
    pods = list(job_pods("train", 3, indexed=False))
    gang = the_gang(pods, job("train", 3, indexed=False))
    assert {membership(one).slot for one in pods} == {"worker"}
    assert ranked(gang, pods) == {"train-z0q": 0, "train-z1q": 1, "train-z2q": 2}
    # One was made again under another name: it gets the rank that is free.
    again = [admitted_pod("train-zz", ownerReferences=owned_by("batch/v1", "Job", "train"))]
    taken = {"uid-train-z0q": 0, "uid-train-z2q": 2}
    assert ranked(gang, again, taken) == {"train-z0q": 0, "train-z2q": 2, "train-zz": 1}


@pytest.mark.parametrize(
    ("parallelism", "completions", "indexed", "pods"),
    [(4, 16, True, 4), (4, 16, False, 4), (16, 4, True, 4), (16, 4, False, 4), (4, None, False, 4)],
)
def test_the_gang_of_a_job_is_what_runs_at_once(
    parallelism: int, completions: int | None, indexed: bool, pods: int
) -> None:
    owner = job("train", parallelism, completions, indexed=indexed)
    gang = the_gang(job_pods("train", 2, indexed=indexed), owner)
    assert (len(gang.ranks), gang.ready) == (pods, pods)


def test_later_indexes_of_a_job_take_the_ranks_of_those_that_ended() -> None:
    gang = the_gang(job_pods("train", 4), job("train", 4, 16))
    later = list(job_pods("train", 8))
    taken = {"uid-train-1-x1y": 1, "uid-train-2-x2y": 2}
    assert ranked(gang, later[4:], taken) == {
        "train-1-x1y": 1,
        "train-2-x2y": 2,
        "train-4-x4y": 0,
        "train-5-x5y": 3,
    }


def test_a_pod_waits_for_its_own_rank() -> None:
    """A predecessor with the same index may still be there."""
    gang = the_gang(job_pods("train", 2), job("train", 2))
    assert ranked(gang, list(job_pods("train", 1)), {"old": 0}) == {"old": 0}


def test_a_jobset_is_one_gang_of_all_its_jobs() -> None:
    owner = jobset("llm", replicated_job("driver", 1, 1, gpus=0, cpu="1"), replicated_job("pipe", 2, 4))
    pods = [*jobset_pods("llm", "driver", 1, 1, gpus=0, cpu="1"), *jobset_pods("llm", "pipe", 2, 4)]
    gang = the_gang(pods, owner)
    assert (gang.key, gang.uid, gang.ready) == ("ml/JobSet/llm", "uid-llm", 9)
    assert gang.request.gang.parts == (Workers(1, SMALL, "driver"), Workers(8, FULL, "pipe"))
    assert gang.ranks["driver/0/0"] == 0
    assert [gang.ranks[f"pipe/{k}/{i}"] for k in range(2) for i in range(4)] == list(range(1, 9))
    assert ranked(gang, pods)["llm-pipe-1-2-ab2"] == 7
    assert set(gang.templates) == {"driver", "pipe"}
    assert membership(pods[0]).owner == Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "ml", "llm")
    assert next(paths_of(Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "ml", "llm"))) == (
        "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/llm"
    )
    assert (membership(pods[3]).key, membership(pods[3]).run, membership(pods[-1]).slot) == (
        "ml/JobSet/llm",
        "uid-llm",
        "pipe/1/3",
    )


@pytest.mark.parametrize("gate", [True, False])
def test_a_jobset_in_order_reserves_for_all_when_the_first_is_there(gate: bool) -> None:
    """Whether the gates are in the templates, or an admission policy adds them."""
    jobs = [replicated_job("a", 1, 2, gate=gate), replicated_job("b", 3, 2, gate=gate, cpu="2")]
    owner = jobset("llm", *jobs, body={"startupPolicy": {"startupPolicyOrder": "InOrder"}})
    gang = the_gang(jobset_pods("llm", "a", 1, 2), owner)
    assert (len(gang.ranks), gang.ready) == (8, 2)
    assert gang.request.gang.parts[1] == Workers(6, (("cpu", 2000), *FULL[1:]), "b")
    owner = jobset("llm", *jobs, body={"startupPolicy": {"startupPolicyOrder": "AnyOrder"}})
    assert the_gang(jobset_pods("llm", "a", 1, 2), owner).ready == 8


def test_a_jobset_with_dependencies_is_staged_and_only_what_is_gated_counts() -> None:
    jobs = [
        replicated_job("fetch", 1, 1, gate=False),
        replicated_job("a", 1, 2, after="fetch"),
        replicated_job("b", 1, 3, after="a"),
        replicated_job("c", 1, 4, after="b"),
    ]
    gang = the_gang(jobset_pods("llm", "a", 1, 2), jobset("llm", *jobs))
    assert "fetch/0/0" not in gang.ranks
    assert (len(gang.ranks), gang.ready) == (9, 2)
    # Without a gate anywhere all are held, by an admission policy.
    for one in jobs:
        one["template"]["spec"]["template"]["spec"].pop("schedulingGates", None)
    gang = the_gang(jobset_pods("llm", "fetch", 1, 1), jobset("llm", *jobs))
    assert (len(gang.ranks), gang.ready) == (10, 1)


def test_a_chain_of_dependencies_may_run_through_jobs_that_are_not_held() -> None:
    jobs = [
        replicated_job("a", 1, 2),
        replicated_job("check", 1, 1, after="a", gate=False),
        replicated_job("b", 1, 3, after="check"),
    ]
    gang = the_gang(jobset_pods("llm", "a", 1, 2), jobset("llm", *jobs))
    assert (len(gang.ranks), gang.ready) == (5, 2)


def test_an_mpijob_does_not_wait_for_its_launcher() -> None:
    pods = list(mpi_pods("bert", 4))
    gang = the_gang(pods, mpijob("bert", 4))
    assert gang.request.gang.parts == (Workers(4, FULL, "worker"), Workers(1, SMALL, "launcher"))
    assert (gang.ready, gang.ranks["worker/0"], gang.ranks["launcher/0"]) == (4, 0, 4)
    launcher = mpi_launcher("bert")
    assert membership(launcher).key == membership(pods[0]).key == "ml/MPIJob/bert"
    assert membership(launcher).owner == Owner("kubeflow.org/v2beta1", "MPIJob", "ml", "bert")
    assert (membership(launcher).run, membership(pods[0]).run) == ("", "uid-bert")
    assert ranked(the_gang([*pods, launcher], mpijob("bert", 4)), [*pods, launcher]) == {
        "bert-worker-0": 0,
        "bert-worker-1": 1,
        "bert-worker-2": 2,
        "bert-worker-3": 3,
        "bert-launcher-h7k2p": 4,
    }


@pytest.mark.parametrize("first", [0, 1])
def test_a_launcher_that_works_has_rank_0(first: int) -> None:
    """Whether its operator counts the workers from 0 or from 1."""
    owner = mpijob("bert", 3, launcher=template(), body={"runLauncherAsWorker": True})
    pods = [*mpi_pods("bert", 3, first=first), mpi_launcher("bert", spec())]
    gang = the_gang(pods, owner)
    assert gang.request.gang.parts == (Workers(1, FULL, "launcher"), Workers(3, FULL, "worker"))
    names = [f"bert-worker-{first + i}" for i in range(3)]
    assert ranked(gang, pods) == {"bert-launcher-h7k2p": 0, names[0]: 1, names[1]: 2, names[2]: 3}
    assert gang.ready == 3


def test_only_roles_with_the_gate_are_in_the_gang() -> None:
    gang = the_gang(mpi_pods("bert", 4), mpijob("bert", 4, launcher=template(gpus=0, gate=False)))
    assert gang.request.gang.parts == (Workers(4, FULL),)


def test_a_role_whose_pods_are_gated_is_in_the_gang_whatever_its_template_says() -> None:
    launcher = template(gpus=0, cpu="1", gate=False)
    pods = [*mpi_pods("bert", 4), mpi_launcher("bert")]
    assert len(the_gang(pods, mpijob("bert", 4, launcher=launcher)).ranks) == 5


def test_a_pytorchjob_has_its_master_first() -> None:
    replicas = {"Worker": (3, template()), "Master": (1, template())}
    owner = training_job("PyTorchJob", "gpt", "pytorchReplicaSpecs", replicas)
    pods = [
        *training_pods("PyTorchJob", "gpt", "worker", 3),
        *training_pods("PyTorchJob", "gpt", "master", 1),
    ]
    gang = the_gang(pods, owner)
    assert gang.request.gang.parts == (Workers(1, FULL, "master"), Workers(3, FULL, "worker"))
    assert ranked(gang, pods) == {"gpt-master-0": 0, "gpt-worker-0": 1, "gpt-worker-1": 2, "gpt-worker-2": 3}
    assert membership(pods[0]).owner == Owner("kubeflow.org/v1", "PyTorchJob", "ml", "gpt")
    assert (gang.ready, membership(pods[0]).run) == (4, "uid-gpt")


def test_a_tfjob_has_roles_of_their_own() -> None:
    replicas = {"PS": (2, template(gpus=0, cpu="8")), "Worker": (4, template()), "Chief": (1, template())}
    owner = training_job("TFJob", "tf", "tfReplicaSpecs", replicas)
    gang = the_gang(training_pods("TFJob", "tf", "worker", 4), owner)
    small = (("cpu", 8000), ("memory", 64 * GI), ("pods", 1))
    assert gang.request.gang.parts == (
        Workers(1, FULL, "chief"),
        Workers(2, small, "ps"),
        Workers(4, FULL, "worker"),
    )
    assert gang.ready == 7


def test_roles_without_pods_are_left_out_and_the_master_is_first() -> None:
    replicas = {"Evaluator": (2, template()), "Master": (1, template()), "Launcher": (0, template())}
    owner = training_job("TFJob", "tf", "tfReplicaSpecs", replicas)
    gang = the_gang(training_pods("TFJob", "tf", "evaluator", 2), owner)
    assert dict(gang.ranks) == {"master/0": 0, "evaluator/0": 1, "evaluator/1": 2}


def test_each_group_of_a_leaderworkerset_is_a_gang() -> None:
    owner = leader_worker_set("serve", 3, 4)
    pods = list(leader_worker_pods("serve", 2, 4))
    gang = the_gang(pods, owner)
    assert (gang.key, gang.uid, gang.ready) == ("ml/LeaderWorkerSet/serve-2", "uid-serve", 4)
    assert gang.request.gang.parts == (Workers(1, FULL, "leader"), Workers(3, FULL, "worker"))
    assert ranked(gang, pods) == {"serve-2": 0, "serve-2-1": 1, "serve-2-2": 2, "serve-2-3": 3}
    assert membership(pods[1]).owner == Owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "ml", "serve")
    with pytest.raises(
        GangError, match="of gang ml/LeaderWorkerSet/serve-1, not of ml/LeaderWorkerSet/serve-0"
    ):
        gang_of([*leader_worker_pods("serve", 0, 2), *leader_worker_pods("serve", 1, 2)], owner, ThreeTiers())


@pytest.mark.parametrize(
    ("startup", "more", "ready"),
    [("LeaderCreated", {}, 4), ("LeaderReady", {}, 1)],
)
def test_workers_that_come_after_their_leader_are_reserved_for(startup: str, more: Any, ready: int) -> None:
    leader = spec(gpus=0, cpu="1")
    owner = leader_worker_set("serve", 1, 4, leader=template(gpus=0, cpu="1"), startup=startup)
    gang = the_gang(leader_worker_pods("serve", 0, 1, leader=leader), owner)
    assert gang.request.gang.parts == (Workers(1, SMALL, "leader"), Workers(3, FULL, "worker"))
    assert gang.ready == ready


def test_with_an_exclusive_topology_workers_come_after_their_leader() -> None:
    owner = leader_worker_set("serve", 1, 4)
    owner["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/exclusive-topology"] = "rack"
    assert the_gang(leader_worker_pods("serve", 0, 1), owner).ready == 1


def test_plain_labels_make_a_gang() -> None:
    pods = list(plain_pods("ring", 4, "w-10", "w-9", "w-2", "v-1"))
    gang = the_gang(pods)
    assert (gang.key, gang.kind, gang.uid, gang.ready) == ("ml/Gang/ring", "Gang", "", 4)
    assert gang.request.gang.parts == (Workers(4, FULL),)
    assert ranked(gang, pods) == {"v-1": 0, "w-2": 1, "w-9": 2, "w-10": 3}
    assert membership(pods[0]).owner is None
    # While some have not come, those that have stand for them; the slots are the same.
    assert the_gang(pods[:2]).ranks == gang.ranks
    assert the_gang(pods[:2]).ready == 4


def test_ranks_follow_names_and_not_creation() -> None:
    gang = the_gang(list(plain_pods("ring", 3, "w-2", "w-9", "w-10")))
    members = Members()
    for age, name in enumerate(("w-10", "w-9", "w-2")):
        members.put(Pod(name, "ml", name, "worker", created_s=float(age)))
    assert members.seat(gang, 3, {}, set()) == []
    assert members.seats == {"w-2": 0, "w-9": 1, "w-10": 2}


def test_plain_labels_go_before_the_owner() -> None:
    pods = list(plain_pods("ring", 2, "a", "b", owner=owned_by("ray.io/v1", "RayCluster", "r")))
    assert the_gang(pods).key == "ml/Gang/ring"
    pods = list(plain_pods("ring", 2, "a", "b", owner=owned_by("batch/v1", "Job", "j")))
    assert membership(pods[0]).owner is None


def test_a_jobset_of_jobs_that_are_not_indexed_has_seats_for_any() -> None:
    pods = [*jobset_pods("llm", "a", 1, 2), *jobset_pods("llm", "b", 2, 2)]
    jobs = [replicated_job("a", 1, 2), replicated_job("b", 2, 2)]
    for one in pods:
        one["metadata"]["labels"].pop("batch.kubernetes.io/job-completion-index")
    for one in jobs:
        one["template"]["spec"]["completionMode"] = "NonIndexed"
    gang = the_gang(pods, jobset("llm", *jobs))
    assert {membership(one).slot for one in pods} == {"a", "b"}
    # Alike, and still two: a pod takes any rank of its own role, by the role's name.
    assert gang.request.gang.parts == (Workers(2, FULL, "a"), Workers(4, FULL, "b"))
    ranks = ranked(gang, pods)
    assert {ranks[name] for name in ranks if "-a-" in name} == {0, 1}
    assert sorted(ranks.values()) == list(range(6))


def test_plain_gangs_may_have_roles() -> None:
    head = plain_pods("ray", 3, "ray-head", gpus=0, cpu="1", labels={"hyperscout.io/role": "head"})
    pods = [*head, *plain_pods("ray", 3, "ray-1", "ray-2")]
    gang = the_gang(pods)
    assert gang.request.gang.parts == (Workers(1, SMALL, "head"), Workers(2, FULL, "worker"))
    assert ranked(gang, pods) == {"ray-head": 0, "ray-1": 1, "ray-2": 2}
    alike = [*plain_pods("g", 2, "z", labels={"hyperscout.io/role": "head"}), *plain_pods("g", 2, "a")]
    gang = the_gang(alike)
    assert gang.request.gang.parts == (Workers(1, FULL, "head"), Workers(1, FULL, "worker"))
    assert ranked(gang, alike) == {"z": 0, "a": 1}


@pytest.mark.parametrize(
    "owner",
    [None, owned_by("apps/v1", "ReplicaSet", "web-5f"), owned_by("apps/v1", "StatefulSet", "db")],
)
def test_a_pod_that_serves_for_itself_is_a_gang_of_one(owner: list[Object] | None) -> None:
    one = admitted_pod("web-5f-x", **({"ownerReferences": owner} if owner else {}))
    gang = the_gang([one])
    assert (gang.key, gang.uid, gang.ready) == ("ml/Pod/web-5f-x", "uid-web-5f-x", 1)
    assert ranked(gang, [one]) == {"web-5f-x": 0}


def test_an_owner_that_only_keeps_a_pod_from_being_collected_is_not_its_controller() -> None:
    other = owned_by("ray.io/v1", "RayCluster", "r")[0] | {"controller": False}
    one = admitted_pod("a", ownerReferences=[other, {**other, "controller": None}])
    assert membership(one).key == "ml/Pod/a"
    one = admitted_pod("a", ownerReferences=[other, *owned_by("batch/v1", "Job", "train")])
    assert membership(one).key == "ml/Job/train"


def test_pods_of_an_earlier_run_are_passed_over() -> None:
    old = admitted_pod(
        "train-0-old",
        spec(gpus=4),
        labels={},
        ownerReferences=owned_by("batch/v1", "Job", "train", "uid-before"),
    )
    gang = the_gang([old, *job_pods("train", 2)], job("train", 2))
    assert gang.request.gang.parts == (Workers(2, FULL),)


def test_what_pods_need_is_read_off_them_and_not_off_the_template() -> None:
    """Admission added a sidecar."""
    more = spec()
    more["containers"].append({"name": "mesh", "resources": {"requests": {"cpu": "1"}}})
    gang = the_gang(job_pods("train", 2, spec=more), job("train", 2))
    assert gang.request.gang.parts == (Workers(2, (("cpu", 5000), *FULL[1:])),)


@pytest.mark.parametrize(
    ("annotations", "expected", "mode"),
    [
        ({"mode": "hard"}, Group(1, (Workers(16, FULL),)), "hard"),
        ({"highest_tier_allowed": "2"}, Group(1, (Workers(16, FULL),), 2), "hard"),
        ({"highest_tier_allowed": "pod", "mode": "soft"}, Group(1, (Workers(16, FULL),), 2), "soft"),
        ({"highest_tier_allowed": "node"}, Group(1, (Workers(16, FULL),), 0), "hard"),
        ({"groups": "8:node"}, Group(1, (Group(2, (Workers(8, FULL),), 0),)), "soft"),
        ({"groups": "8:1"}, Group(1, (Group(2, (Workers(8, FULL),), 1),)), "soft"),
        (
            {"groups": "4:leaf, 8:2", "highest_tier_allowed": "core"},
            Group(1, (Group(2, (Group(2, (Workers(4, FULL),), 1),), 2),), 3),
            "hard",
        ),
        (
            {"groups": "8:pod", "prefer_groups": "4:node,8:leaf"},
            Group(
                1,
                (Group(2, (Group(2, (Workers(4, FULL),), None, None, 0),), 2, None, 1),),
            ),
            "soft",
        ),
        ({"even": "leaf"}, Group(1, (Workers(16, FULL),), even=1), "soft"),
        ({"spread": "1:node"}, Group(1, (Workers(16, FULL),), None, Spread(1, 0)), "soft"),
        ({"prefer_spread": "2:leaf"}, Group(1, (Workers(16, FULL),), None, Spread(2, 1, False)), "soft"),
        ({"numa": "single"}, Group(1, (Workers(16, in_one_zone(FULL)),)), "soft"),
    ],
)
def test_constraints_of_the_owner(annotations: dict[str, str], expected: Group, mode: str) -> None:
    gang = the_gang(job_pods("train", 16), job("train", 16, **annotations))
    assert gang.request.gang == expected
    assert gang.request.mode == mode


def test_a_gang_may_pack_into_fragments() -> None:
    for packing in ("fragments", "compact"):
        assert the_gang(job_pods("t", 4), job("t", 4, packing=packing)).request.packing == packing
    assert the_gang(job_pods("t", 4), job("t", 4)).request.packing == "compact"
    with pytest.raises(GangError, match=r"hyperscout.io/packing: 'loose': write compact or fragments"):
        gang_of(job_pods("t", 4), job("t", 4, packing="loose"), ThreeTiers())


def test_constraints_of_pods_yield_to_those_of_the_owner() -> None:
    constraints = {"hyperscout.io/mode": "hard", "hyperscout.io/groups": "2:1"}
    pods = list(job_pods("train", 4, annotations=constraints))
    gang = the_gang(pods, job("train", 4, mode="soft"))
    assert (gang.request.mode, gang.request.gang.parts) == ("soft", (Group(2, (Workers(2, FULL),), 1),))
    pods[2]["metadata"]["annotations"]["hyperscout.io/mode"] = "other"
    assert the_gang(pods, job("train", 4, mode="soft")).request.mode == "soft"
    with pytest.raises(
        GangError, match=r"hyperscout.io/mode: 'hard': but pod ml/train-2-x2y has 'other': write the"
    ):
        gang_of(pods, job("train", 4), ThreeTiers())


def test_annotations_of_hyperscout_itself_are_known() -> None:
    names = [placed.PLACED, placed.RANK, placed.RANKS, placed.COORDINATOR, placed.NUMA_ZONE, placed.NICS]
    known = dict.fromkeys([*names, HOOK, GANG_LABEL, SIZE_LABEL, ROLE_LABEL, "example.com/mode"], "x")
    assert the_gang(job_pods("train", 4, annotations=known), job("train", 4)).ready == 4


def test_groups_run_across_roles_of_gpus_and_leave_others_alone() -> None:
    tensor = spec(cpu="8")
    owner = jobset(
        "llm",
        replicated_job("driver", 1, 1, gpus=0, cpu="1"),
        replicated_job("first", 1, 6),
        replicated_job("rest", 1, 10, cpu="8"),
        groups="4:1,8:2",
    )
    pods = [*jobset_pods("llm", "first", 1, 6), *jobset_pods("llm", "rest", 1, 10, cpu="8")]
    assert tensor["containers"][0]["resources"]["requests"]["cpu"] == "8"
    gang = the_gang(pods, owner)
    big = (("cpu", 8000), *FULL[1:])
    one, two = Workers(1, FULL, "first"), Workers(1, big, "rest")
    assert gang.request.gang.parts == (
        Workers(1, SMALL, "driver"),
        Group(
            1,
            (
                Group(1, (Workers(4, one.resources, "first"),), 1),
                Group(1, (Workers(2, one.resources, "first"), Workers(2, two.resources, "rest")), 1),
            ),
            2,
        ),
        Group(1, (Group(2, (Workers(4, two.resources, "rest"),), 1),), 2),
    )


def test_groups_that_are_alike_are_told_once() -> None:
    jobs = [replicated_job(name, 1, 2, cpu=cpu) for name, cpu in zip("abcd", "4848", strict=True)]
    big = (("cpu", 8000), *FULL[1:])
    gang = the_gang(jobset_pods("llm", "a", 1, 2), jobset("llm", *jobs, groups="4:1"))
    assert gang.request.gang.parts == (Group(2, (Workers(2, FULL, "a+1"), Workers(2, big, "b+1")), 1),)


@pytest.mark.parametrize(
    ("pods", "owner", "says"),
    [
        (job_pods("t", 1), None, "Job ml/t: it is not there, or may not be read"),
        (job_pods("t", 1), job("t", 0), "Job ml/t: it has no pods to place: its counts are 0"),
        (job_pods("t", 1), job("t", "4"), "Job ml/t: spec.parallelism: '4': expected a number"),
        (
            job_pods("t", 1),
            job("t", 4, mode="strict"),
            "Job ml/t: annotation hyperscout.io/mode: 'strict': write hard or soft",
        ),
        (
            job_pods("t", 1),
            job("t", 4, highest_tier_allowed="rack"),
            "Job ml/t: annotation hyperscout.io/highest-tier-allowed: 'rack': no tier 'rack'",
        ),
        (
            job_pods("t", 1),
            job("t", 4, groups="8"),
            "Job ml/t: annotation hyperscout.io/groups: '8': write like 8:node,64:pod",
        ),
        (
            job_pods("t", 1),
            job("t", 4, groups="3:1"),
            "Job ml/t: annotation hyperscout.io/groups: '3:1': 4 pods are not a multiple of the group size",
        ),
        (
            job_pods("t", 1),
            job("t", 12, groups="4:1,6:2"),
            "Job ml/t: annotation hyperscout.io/groups: '4:1,6:2': 6: expected 2 times 4",
        ),
        (
            job_pods("t", 1),
            job("t", 4, groups="0:1"),
            "Job ml/t: annotation hyperscout.io/groups: '0:1': 0: expected 1 to",
        ),
        (
            job_pods("t", 1),
            job("t", 4, groups=",".join(f"{2**i}:1" for i in range(20))),
            "Job ml/t: annotation hyperscout.io/groups",
        ),
        (
            job_pods("t", 1),
            job("t", 4, groups="4:2", highest_tier_allowed="1"),
            "Job ml/t: annotation hyperscout.io/groups: '4:2': 4: tier 2 is above tier 1, the highest",
        ),
        (
            job_pods("t", 1),
            job("t", 4, groups="4:node", prefer_groups="4:leaf"),
            "Job ml/t: annotation hyperscout.io/prefer-groups: '4:leaf': 4: tier leaf is above tier node of",
        ),
        (
            job_pods("t", 1),
            job("t", 4, prefer_group="4:leaf"),
            "Job ml/t: unknown annotation hyperscout.io/prefer-group (did you mean 'prefer-groups'?)",
        ),
        (
            job_pods("t", 1, annotations={"hyperscout.io/xyzzy": "1"}),
            job("t", 4),
            "pod ml/t-0-x0y: unknown annotation hyperscout.io/xyzzy: expected mode, highest-tier-allowed",
        ),
        (
            job_pods("t", 1),
            job("t", 4, prefer_spread="0:leaf"),
            "Job ml/t: annotation hyperscout.io/prefer-spread: '0:leaf': 0: expected 1 to",
        ),
        (
            job_pods("t", 4),
            job("t", 4, prefer_groups="2:leaf,2:pod"),
            "Job ml/t: annotation hyperscout.io/prefer-groups: '2:leaf,2:pod': 2: listed twice",
        ),
        (
            job_pods("t", 4),
            job("t", 4, even="leaf", spread="2:leaf"),
            "Job ml/t: annotation hyperscout.io/even: 'leaf': gang.even: the whole gang has a spread too",
        ),
        (
            job_pods("t", 1),
            job("t", 4, spread="2:pod", highest_tier_allowed="leaf"),
            "Job ml/t: annotation hyperscout.io/spread: '2:pod': gang.spread.tier: 2: expected 0 to 0",
        ),
        (
            job_pods("t", 1),
            job("t", 4, spread="x:leaf"),
            "Job ml/t: annotation hyperscout.io/spread: 'x:leaf': write like 2:leaf",
        ),
        (
            job_pods("t", 1),
            job("t", 4, spread="2:leaf", prefer_spread="1:0"),
            "Job ml/t: annotation hyperscout.io/prefer-spread: '1:0': and hyperscout.io/spread is",
        ),
        (
            job_pods("t", 1),
            job("t", 4, numa="two"),
            "Job ml/t: annotation hyperscout.io/numa: 'two': write single",
        ),
        (
            [admitted_pod("a", labels={"hyperscout.io/gang": "g"})],
            None,
            "pod ml/a: label hyperscout.io/gang-size: '': write how many pods are in hyperscout.io/gang=g",
        ),
        (
            [*plain_pods("g", 2, "a"), *plain_pods("g", 3, "b")],
            None,
            "pod ml/b: label hyperscout.io/gang-size: 3, but pod ml/a of gang g says 2",
        ),
        (
            plain_pods("g", 2, "a", "b", "c"),
            None,
            "gang ml/g: it has 3 pods, and their label hyperscout.io/gang-size says 2: write 3",
        ),
        (
            [*plain_pods("g", 2, "a"), *plain_pods("g", 2, "b", cpu="5")],
            None,
            "Gang ml/g: pods ml/a and ml/b are both worker but differ",
        ),
        (
            [*plain_pods("g", 2, "a"), *plain_pods("g", 2, "b", nodeSelector={"a": "b"})],
            None,
            "Gang ml/g: pods ml/a and ml/b are both worker but differ",
        ),
        (
            plain_pods("g", 1, "a", tolerations=[{"key": str(i), "operator": "Exists"} for i in range(65)]),
            None,
            "Gang ml/g: role worker: 65 tolerations: expected at most 64",
        ),
        (
            plain_pods("g", 1, "a", **node_affinity(*({"matchExpressions": []} for _ in range(65)))),
            None,
            "Gang ml/g: role worker: 65 terms of the required node affinity: expected at most 64",
        ),
        (plain_pods("g", 1, "a", cpu="x"), None, "pod ml/a: spec.containers[0].resources.requests.cpu: 'x'"),
        (
            [admitted_pod("a", ownerReferences=owned_by("spark.apache.org/v1", "SparkApplication", "r"))],
            None,
            "pod ml/a: of SparkApplication r, and hyperscout cannot read the size of this kind",
        ),
        (
            [admitted_pod("a", labels={"jobset.sigs.k8s.io/jobset-name": "j"})],
            None,
            "pod ml/a: label jobset.sigs.k8s.io/replicatedjob-name: missing",
        ),
        (
            [admitted_pod("a", labels={"leaderworkerset.sigs.k8s.io/name": "j"})],
            None,
            "pod ml/a: label leaderworkerset.sigs.k8s.io/group-index: ''",
        ),
        (jobset_pods("j", "a", 1, 1), jobset("j"), "JobSet ml/j: spec.replicatedJobs: expected 1 to 64"),
        (
            jobset_pods("j", "a", 1, 1),
            jobset("j", replicated_job("a", 1, 1), replicated_job("a", 1, 1)),
            "JobSet ml/j: spec.replicatedJobs[1].name: 'a'",
        ),
        (
            jobset_pods("j", "a", 1, 1),
            jobset("j", replicated_job("a", 1000, 10_000)),
            "JobSet ml/j: a: more than 1000000 pods",
        ),
        (
            jobset_pods("j", "b", 1, 1),
            jobset("j", replicated_job("a", 1, 1, cpu="x"), replicated_job("b", 1, 1)),
            "JobSet ml/j: template of a: spec.containers[0]",
        ),
        (
            leader_worker_pods("s", 0, 1),
            leader_worker_set("s", 1, 0),
            "LeaderWorkerSet ml/s: spec.leaderWorkerTemplate.size: 0",
        ),
        (
            training_pods("PyTorchJob", "p", "worker", 1),
            training_job("PyTorchJob", "p", "pytorchReplicaSpecs", {}),
            "PyTorchJob ml/p: spec: expected replica specs",
        ),
        ([], None, "a gang without pods"),
    ],
)
def test_what_is_no_gang_is_refused_by_name(pods: Any, owner: Object | None, says: str) -> None:
    with pytest.raises(GangError) as caught:
        gang_of(list(pods), owner, ThreeTiers())
    assert str(caught.value).startswith(says)


def test_the_gate_is_found_among_others() -> None:
    assert is_gated(admitted_pod("a"))
    others = admitted_pod(
        "a", spec(gate=False, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}, {"name": GATE}])
    )
    assert is_gated(others)
    assert not is_gated(admitted_pod("a", spec(gate=False)))
    assert not is_gated(
        admitted_pod("a", spec(gate=False, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]))
    )


def test_the_role_of_each_rank_stays_its_own_where_needs_are_equal() -> None:
    pods = [*jobset_pods("j", "a", 1, 2), *jobset_pods("j", "b", 1, 3)]
    jobs = [replicated_job("a", 1, 2), replicated_job("b", 1, 3)]
    apart = (Workers(2, FULL, "a"), Workers(3, FULL, "b"))
    assert the_gang(pods, jobset("j", *jobs)).request.gang.parts == apart
    in_groups = the_gang(pods, jobset("j", *jobs, groups="5:1")).request.gang
    assert [kind.role for kind in ends(in_groups)] == ["b+1"]
    many = [replicated_job(f"r{i}", 1, 1) for i in range(64)]
    roles = [
        kind.role for kind in ends(the_gang(jobset_pods("j", "r0", 1, 1), jobset("j", *many)).request.gang)
    ]
    assert roles == [f"r{i}" for i in range(64)]


def test_a_tier_that_is_gone_is_replaced_by_the_lowest_above_it() -> None:
    no_pods = Forest.of(leaves(("a", "b"), ("c", "d")))  # its tiers are leaf and core
    owner = job("t", 4, highest_tier_allowed="pod", groups="2:nvlink")
    gang = gang_of(list(job_pods("t", 4)), owner, Tiers(no_pods))
    assert gang.request.gang == Group(1, (Group(2, (Workers(2, FULL),), 1),), 2)
    assert gang.request.replaced == (
        "there is no tier pod: tier 2 (core) is used, the lowest above it",
        "there is no tier nvlink: tier 1 (leaf) is used, the lowest above it",
    )
    # A spread over the tier of the gang itself is impossible.
    owner = job("t", 4, highest_tier_allowed="pod", spread="2:pod")
    with pytest.raises(GangError, match=r"'2:pod': gang\.spread\.tier: 2: .*; there is no tier pod: tier 2"):
        gang_of(list(job_pods("t", 4)), owner, Tiers(no_pods))
