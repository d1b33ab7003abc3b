"""Workloads of KubeRay, Volcano and Grove, and PodGroups, with their pods: as their operators write them."""

from collections.abc import Iterator
from typing import Any

from hyperscout_gates.state.gang import GATE

from support.workloads import Object, admitted_pod, owned_by, spec, template, workload


def ray_cluster(name: str, *groups: Object, head: Object | None = None, **more: Any) -> Object:
    body = {
        "rayVersion": "2.46.0",
        "headGroupSpec": {"rayStartParams": {}, "template": head or template(gpus=0, cpu="1")},
        "workerGroupSpecs": list(groups),
    } | more.pop("body", {})
    return workload("ray.io/v1", "RayCluster", name, body, **more)


def ray_group(name: str, replicas: int, hosts: int = 1, **more: Any) -> Object:
    """As the API server completes it: with the limits of its CRD."""
    limits = {"minReplicas": more.pop("least", 0), "maxReplicas": more.pop("most", 2**31 - 1)}
    body = {"groupName": name, "replicas": replicas, "numOfHosts": hosts, "rayStartParams": {}} | limits
    return body | more.pop("body", {}) | {"template": template(**more)}


def ray_pods(
    name: str, group: str, replicas: int, hosts: int = 1, *, numbered: bool = True
) -> Iterator[Object]:
    """Pods of a group; "headgroup" is the head. `numbered`: by an operator with RayMultiHostIndexing."""
    is_head = group == "headgroup"
    for k in range(replicas):
        for host in range(hosts):
            labels = {
                "app.kubernetes.io/created-by": "kuberay-operator",
                "app.kubernetes.io/name": "kuberay",
                "ray.io/cluster": name,
                "ray.io/group": group,
                "ray.io/identifier": f"{name}-{'head' if is_head else 'worker'}",
                "ray.io/is-ray-node": "yes",
                "ray.io/node-type": "head" if is_head else "worker",
            }
            if numbered and not is_head:
                labels["ray.io/worker-group-replica-index"] = str(k)
                if hosts > 1:
                    labels["ray.io/worker-group-replica-name"] = f"{group}-{k}abcd"
                    labels["ray.io/replica-host-index"] = str(host)
            yield admitted_pod(
                f"{name}-head-q{k}" if is_head else f"{name}-{group}-worker-{k}x{host}",
                spec(gpus=0, cpu="1") if is_head else None,
                labels=labels,
                ownerReferences=owned_by("ray.io/v1", "RayCluster", name),
            )


def volcano_job(name: str, *tasks: Object, **more: Any) -> Object:
    body = {"minAvailable": 1, "queue": "default", "schedulerName": "volcano", "tasks": list(tasks)}
    return workload("batch.volcano.sh/v1alpha1", "Job", name, body, **more)


def volcano_task(name: str, replicas: int, *after: str, **more: Any) -> Object:
    found: Object = {"name": name, "replicas": replicas, "minAvailable": replicas, "maxRetry": 3}
    if after:
        found["dependsOn"] = {"name": list(after), "iteration": "all"}
    return found | {"template": template(**more)}


def volcano_pods(name: str, task: str, replicas: int, **more: Any) -> Iterator[Object]:
    for i in range(replicas):
        keys = {
            "volcano.sh/job-name": name,
            "volcano.sh/queue-name": "default",
            "volcano.sh/task-index": str(i),
            "volcano.sh/task-spec": task,
        }
        yield admitted_pod(
            f"{name}-{task}-{i}",
            spec(**more),
            labels=keys | {"volcano.sh/job-namespace": "ml"},
            annotations=keys | {"scheduling.k8s.io/group-name": f"{name}-uid-{name}"},
            ownerReferences=owned_by("batch.volcano.sh/v1alpha1", "Job", name),
        )


def pod_clique_set(name: str, cliques: dict[str, int], *groups: Object, **more: Any) -> Object:
    """Grove's. `cliques`: replicas by name. Its operator does not keep gates of the pod spec."""
    listed = [
        {
            "name": clique,
            "spec": {
                "roleName": clique,
                "podSpec": spec(gate=False),
                "replicas": replicas,
                "minAvailable": 1,
            },
        }
        for clique, replicas in cliques.items()
    ]
    body: Object = {"replicas": 1, "template": {"cliques": listed, "terminationDelay": "4h0m0s"}}
    if groups:
        body["template"]["podCliqueScalingGroups"] = list(groups)
    return workload("grove.io/v1alpha1", "PodCliqueSet", name, body, **more)


def scaling_group(name: str, replicas: int, least: int, *cliques: str) -> Object:
    return {"name": name, "cliqueNames": list(cliques), "replicas": replicas, "minAvailable": least}


def clique_pods(name: str, pod_gang: str, clique: str, replicas: int) -> Iterator[Object]:
    """Pods of a PodClique, which has the name `clique`, in a PodGang of the PodCliqueSet `name`."""
    for i in range(replicas):
        yield admitted_pod(
            f"{clique}-r{i}nd",
            spec(schedulingGates=[{"name": "grove.io/podgang-pending-creation"}, {"name": GATE}]),
            labels={
                "app.kubernetes.io/managed-by": "grove-operator",
                "app.kubernetes.io/part-of": name,
                "grove.io/pod-template-hash": "5b9c",
                "grove.io/podclique": clique,
                "grove.io/podclique-pod-index": str(i),
                "grove.io/podcliqueset-replica-index": "0",
                "grove.io/podgang": pod_gang,
            },
            ownerReferences=owned_by("grove.io/v1alpha1", "PodClique", clique),
        )


def pod_group(name: str, least: int, **more: Any) -> Object:
    """That of scheduling.k8s.io."""
    body = more.pop("body", {"schedulingPolicy": {"gang": {"minCount": least}}})
    return workload("scheduling.k8s.io/v1alpha2", "PodGroup", name, body, **more)


def grouped_pods(group: str, *names: str, **more: Any) -> Iterator[Object]:
    owner = more.pop("owner", None)
    for name in names:
        yield admitted_pod(
            name,
            spec(schedulingGroup={"podGroupName": group}, **more),
            **({"ownerReferences": owner} if owner else {}),
        )
