"""Jobs of the real Job controller, behind the gate: what is on them is what gangs are read from."""

from collections.abc import Callable
from typing import Any

from hyperscout_gates.state.gang import GATE
from hyperscout_gates.workloads.membership import membership, paths_of
from hyperscout_gates.workloads.node_resources import kept_pod
from hyperscout_gates.workloads.objects import is_gated
from hyperscout_gates.workloads.workloads import gang_of
from hyperscout_placer.cluster.forest import Forest, Tiers
from hyperscout_placer.cluster.request import Workers
from kube.control_plane import Options
from support.kubernetes import Cluster
from support.real import require_real
from support.topologies import leaves
from support.waiting import until_seen
from support.workloads import seated

Object = dict[str, Any]

_PODS = "/api/v1/namespaces/default/pods"


def _made(kube: Cluster, count: int) -> list[Object]:
    until_seen(lambda: len(kube.api.items(_PODS)) >= count, f"{count} pods")
    return kube.api.items(_PODS)


def _spec(parallelism: int, mode: str) -> Object:
    container = {
        "name": "c",
        "image": "none.invalid/none",
        "resources": {"limits": {"nvidia.com/gpu": "4"}, "requests": {"cpu": "500m"}},
    }
    return {
        "parallelism": parallelism,
        "completions": parallelism,
        "completionMode": mode,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "schedulingGates": [{"name": GATE}],
                "containers": [container],
            }
        },
    }


def test_jobs_of_the_real_controller_are_gangs(own_kube: Callable[..., Cluster]) -> None:
    require_real("kubernetes", "kube-controller-manager")
    kube = own_kube(Options(controller_manager=True, crd=None))
    for name, mode in (("ranked", "Indexed"), ("any", "NonIndexed")):
        kube.apply(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "annotations": {"hyperscout.io/groups": "3:1"}},
                "spec": _spec(3, mode),
            }
        )
    gangs: dict[str, list[Object]] = {}
    for pod in map(kept_pod, _made(kube, 6)):
        assert is_gated(pod)
        gangs.setdefault(membership(pod).key, []).append(pod)
    assert sorted(gangs) == ["default/Job/any", "default/Job/ranked"]
    for key, pods in gangs.items():
        owner = membership(pods[0]).owner
        assert owner is not None
        job = kube.api.ask("GET", next(paths_of(owner)))
        gang = gang_of(pods, job, Tiers(Forest.of(leaves(("a", "b", "c")))))
        assert (gang.key, gang.uid, gang.ready) == (key, job["metadata"]["uid"], 3)
        assert {membership(pod).run for pod in pods} == {gang.uid}
        (group,) = gang.request.gang.parts
        assert group.parts == (Workers(3, (("cpu", 500), ("nvidia.com/gpu", 4), ("pods", 1))),)
        assert sorted(seated(gang, pods).values()) == [0, 1, 2]
    for pod in gangs["default/Job/any"]:
        assert membership(pod).slot == "worker"
    ranked = gangs["default/Job/ranked"]
    assert {membership(pod).slot for pod in ranked} == {"worker/0", "worker/1", "worker/2"}
    for pod in ranked:
        # The controller names the pods of an Indexed Job <job>-<index>-<random>.
        assert pod["metadata"]["name"].split("-")[1] == membership(pod).slot.partition("/")[2]
