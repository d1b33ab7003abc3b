"""Workloads and their pods, as API servers with the controllers of each kind hold them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hyperscout_gates.control.pods import keep, opening, seen
from hyperscout_gates.state.events import Open, Pod
from hyperscout_gates.state.gang import GATE, Gang
from hyperscout_gates.state.gang_state import Members
from hyperscout_gates.workloads.membership import membership
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.numa_zones import Zone
from hyperscout_placer.demands.eligible import mask_for
from hyperscout_topology.topology import Topology

from support.builders import hypernode
from support.kube_objects import Object, pod

GPU = "nvidia.com/gpu"


class ThreeTiers:
    """A hierarchy of three tiers."""

    top = 3
    replaced: tuple[str, ...] = ()

    def at_most(self, text: str) -> int:
        names = {"0": 0, "node": 0, "1": 1, "leaf": 1, "2": 2, "pod": 2, "3": 3, "core": 3}
        if text not in names:
            raise ValueError(f"no tier {text!r}: there are 1 (leaf), 2 (pod), 3 (core)")
        return names[text]

    over = at_most


def may_run(pod_spec: Object, node: Object) -> bool:
    """Whether the mask of a cluster with only this node (in stored form) allows the pod there."""
    name = node["metadata"]["name"]
    only = Forest.of(Topology(1, (hypernode("leaf", (name,)),)))
    return bool(mask_for(pod_spec, {name: node}.get, only).allowed[0])


def opened(
    found: Object,
    rank: int,
    node: str,
    now_ns: int,
    ranks: int = 1,
    told: str = "",
    zone: Zone | None = None,
    **labels: str,
) -> Object:
    """The patch that opens the gate of a pod. `told`: where rank 0 is."""
    kept = keep(found)
    return opening(kept, Open(seen(kept), rank, node, ranks, told, zone), now_ns, labels)


def seated(gang: Gang, pods: Iterable[Object], taken: Mapping[str, int] | None = None) -> dict[str, int]:
    """Ranks by uid, as the state machine gives them. `taken`: ranks of pods with an open gate."""
    members = Members()
    for uid, rank in (taken or {}).items():
        members.put(Pod(uid, "ml", uid, gated=False, rank=rank))
    for found in pods:
        metadata = found["metadata"]
        members.put(Pod(str(metadata.get("uid")), "ml", metadata["name"], membership(found).slot))
    members.seat(gang, len(gang.ranks), {}, set())
    return {**(taken or {}), **members.seats}


def spec(gpus: int = 8, cpu: str = "4", gate: bool = True, **more: Any) -> Object:
    resources: Object = {"requests": {"cpu": cpu, "memory": "64Gi"}}
    if gpus:
        resources["requests"][GPU] = str(gpus)
        resources["limits"] = {GPU: str(gpus)}
    found: Object = {
        "containers": [{"name": "main", "image": "registry.example/train:1", "resources": resources}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "schedulerName": "default-scheduler",
    }
    if gate:
        found["schedulingGates"] = [{"name": GATE}]
    return found | more


def template(**more: Any) -> Object:
    labels, annotations = more.pop("labels", {}), more.pop("annotations", {})
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec(**more)}


def admitted_pod(name: str, pod_spec: Object | None = None, **metadata: Any) -> Object:
    """A pod with the tolerations that admission gives every pod."""
    metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "resourceVersion": "7"} | metadata
    tolerations = [
        {
            "effect": "NoExecute",
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ]
    status = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
    }
    body = pod(**metadata, status=status)
    body["spec"] = {"tolerations": tolerations} | (pod_spec if pod_spec is not None else spec())
    return body


def owned_by(api_version: str, kind: str, name: str, uid: str = "") -> list[Object]:
    return [
        {
            "apiVersion": api_version,
            "kind": kind,
            "name": name,
            "uid": uid or f"uid-{name}",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def workload(api_version: str, kind: str, name: str, body: Object, **annotations: str) -> Object:
    named = {f"hyperscout.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "annotations": named}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": body}


def job(
    name: str, parallelism: int, completions: int | None = None, *, indexed: bool = True, **more: Any
) -> Object:
    body: Object = {"parallelism": parallelism, "template": template(), "backoffLimit": 6}
    if completions is not None or indexed:
        body["completions"] = parallelism if completions is None else completions
    body["completionMode"] = "Indexed" if indexed else "NonIndexed"
    return workload("batch/v1", "Job", name, body, **more)


def job_pods(name: str, count: int, *, indexed: bool = True, **more: Any) -> Iterator[Object]:
    for i in range(count):
        labels = {
            "batch.kubernetes.io/controller-uid": f"uid-{name}",
            "batch.kubernetes.io/job-name": name,
            "controller-uid": f"uid-{name}",
            "job-name": name,
        }
        annotations = dict(more.get("annotations", {}))
        if indexed:
            labels["batch.kubernetes.io/job-completion-index"] = str(i)
            annotations["batch.kubernetes.io/job-completion-index"] = str(i)
        yield admitted_pod(
            f"{name}-{i}-x{i}y" if indexed else f"{name}-z{i}q",
            more.get("spec"),
            generateName=f"{name}-",
            labels=labels | more.get("labels", {}),
            annotations=annotations,
            ownerReferences=owned_by("batch/v1", "Job", name),
        )


def jobset(name: str, *replicated: Object, **more: Any) -> Object:
    body = {"replicatedJobs": list(replicated), **more.pop("body", {})}
    return workload("jobset.x-k8s.io/v1alpha2", "JobSet", name, body, **more)


def replicated_job(name: str, replicas: int, parallelism: int, **more: Any) -> Object:
    after = more.pop("after", None)
    found: Object = {
        "name": name,
        "groupName": "default",
        "replicas": replicas,
        "template": {
            "spec": {
                "parallelism": parallelism,
                "completions": parallelism,
                "completionMode": "Indexed",
                "template": template(**more),
            }
        },
    }
    if after:
        found["dependsOn"] = [{"name": after, "status": "Ready"}]
    return found


def jobset_pods(name: str, role: str, replicas: int, parallelism: int, **more: Any) -> Iterator[Object]:
    for k in range(replicas):
        child = f"{name}-{role}-{k}"
        for i in range(parallelism):
            labels = {
                "batch.kubernetes.io/job-completion-index": str(i),
                "batch.kubernetes.io/job-name": child,
                "jobset.sigs.k8s.io/global-replicas": "3",
                "jobset.sigs.k8s.io/job-global-index": str(k),
                "jobset.sigs.k8s.io/job-index": str(k),
                "jobset.sigs.k8s.io/job-key": f"0123abcd{k}",
                "jobset.sigs.k8s.io/jobset-name": name,
                "jobset.sigs.k8s.io/jobset-uid": f"uid-{name}",
                "jobset.sigs.k8s.io/replicatedjob-name": role,
                "jobset.sigs.k8s.io/replicatedjob-replicas": str(replicas),
                "jobset.sigs.k8s.io/restart-attempt": "0",
            }
            yield admitted_pod(
                f"{child}-{i}-ab{i}",
                spec(**more),
                labels=labels,
                ownerReferences=owned_by("batch/v1", "Job", child),
            )


def mpijob(name: str, workers: int, *, launcher: Object | None = None, **more: Any) -> Object:
    body = {
        "slotsPerWorker": 8,
        "runPolicy": {"cleanPodPolicy": "Running"},
        "mpiImplementation": "OpenMPI",
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": launcher or template(gpus=0, cpu="1")},
            "Worker": {"replicas": workers, "template": template()},
        },
    } | more.pop("body", {})
    return workload("kubeflow.org/v2beta1", "MPIJob", name, body, **more)


def mpi_pods(name: str, workers: int, *, first: int = 0) -> Iterator[Object]:
    labels = {
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/operator-name": "mpi-operator",
    }
    for i in range(first, first + workers):
        yield admitted_pod(
            f"{name}-worker-{i}",
            labels=labels
            | {"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": str(i)},
            ownerReferences=owned_by("kubeflow.org/v2beta1", "MPIJob", name),
        )


def mpi_launcher(name: str, pod_spec: Object | None = None) -> Object:
    """The pod of the Job that the operator makes."""
    return admitted_pod(
        f"{name}-launcher-h7k2p",
        pod_spec or spec(gpus=0, cpu="1"),
        labels={
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/operator-name": "mpi-operator",
            "training.kubeflow.org/job-role": "launcher",
            "batch.kubernetes.io/job-name": f"{name}-launcher",
            "job-name": f"{name}-launcher",
        },
        ownerReferences=owned_by("batch/v1", "Job", f"{name}-launcher"),
    )


def training_job(
    kind: str, name: str, field: str, replicas: dict[str, tuple[int, Object]], **more: Any
) -> Object:
    specs = {
        role: {"replicas": number, "restartPolicy": "OnFailure", "template": of}
        for role, (number, of) in replicas.items()
    }
    return workload("kubeflow.org/v1", kind, name, {field: specs, "runPolicy": {"suspend": False}}, **more)


def training_pods(kind: str, name: str, role: str, number: int, **more: Any) -> Iterator[Object]:
    for i in range(number):
        yield admitted_pod(
            f"{name}-{role}-{i}",
            spec(**more),
            labels={
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/operator-name": f"{kind.lower()}-controller",
                "training.kubeflow.org/replica-index": str(i),
                "training.kubeflow.org/replica-type": role,
            }
            | ({"training.kubeflow.org/job-role": "master"} if role == "master" else {}),
            ownerReferences=owned_by("kubeflow.org/v1", kind, name),
        )


def leader_worker_set(name: str, replicas: int, size: int, **more: Any) -> Object:
    of: Object = {"size": size, "workerTemplate": template(), "restartPolicy": "RecreateGroupOnPodRestart"}
    if "leader" in more:
        of["leaderTemplate"] = more.pop("leader")
    body = {
        "replicas": replicas,
        "leaderWorkerTemplate": of,
        "startupPolicy": more.pop("startup", "LeaderCreated"),
    }
    return workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, body, **more)


def leader_worker_pods(name: str, group: int, size: int, *, leader: Object | None = None) -> Iterator[Object]:
    for i in range(size):
        leads = i == 0
        yield admitted_pod(
            f"{name}-{group}" if leads else f"{name}-{group}-{i}",
            leader if leads else None,
            labels={
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/group-index": str(group),
                "leaderworkerset.sigs.k8s.io/worker-index": str(i),
                "leaderworkerset.sigs.k8s.io/group-key": f"{group:040x}",
                "leaderworkerset.sigs.k8s.io/template-revision-hash": "66bd",
                "apps.kubernetes.io/pod-index": str(group if leads else i),
            },
            annotations={"leaderworkerset.sigs.k8s.io/size": str(size)},
            ownerReferences=owned_by("apps/v1", "StatefulSet", name if leads else f"{name}-{group}"),
        )


def plain_pods(gang: str, size: int, *names: str, **more: Any) -> Iterator[Object]:
    labels = {"hyperscout.io/gang": gang, "hyperscout.io/gang-size": str(size)} | more.pop("labels", {})
    owner = more.pop("owner", None)
    for name in names:
        yield admitted_pod(
            name, spec(**more), labels=dict(labels), **({"ownerReferences": owner} if owner else {})
        )
