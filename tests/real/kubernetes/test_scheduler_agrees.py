"""What is said of nodes and pods against the real kube-scheduler: where a pod may run, how many fit."""

import time
from collections.abc import Callable
from typing import Any

from hyperscout_gates.workloads.node_resources import FreeResources, kept_pod
from hyperscout_kubernetes.nodes import kept
from hyperscout_placer.cluster.quantity import needs
from kube.api import MERGE, all_at_once
from kube.control_plane import Options
from support.kube_objects import node_affinity, pod
from support.kubernetes import Cluster
from support.real import require_real
from support.waiting import TIMEOUT_S
from support.workloads import may_run

Object = dict[str, Any]

_PODS = "/api/v1/namespaces/default/pods"
_NODES = "/api/v1/nodes"

NODES: dict[str, Object] = {
    "plain": {},
    "h100": {"labels": {"gpu": "h100", "gen": "9", "zone": "a"}},
    "b200": {"labels": {"gpu": "b200", "gen": "10", "zone": "b"}},
    "odd": {"labels": {"gpu": "", "gen": "ten", "zone": "c"}},
    "taken": {"labels": {"gpu": "h100"}, "taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]},
    "sick": {
        "labels": {"gpu": "h100"},
        "taints": [{"key": "hyperscout.io/degraded", "effect": "NoSchedule"}],
    },
    "leaving": {
        "labels": {"gpu": "b200"},
        "taints": [{"key": "team", "value": "blue", "effect": "NoExecute"}],
    },
    "disliked": {"taints": [{"key": "team", "value": "red", "effect": "PreferNoSchedule"}]},
    "both": {
        "taints": [
            {"key": "team", "value": "red", "effect": "NoSchedule"},
            {"key": "x", "effect": "NoExecute"},
        ]
    },
    "cordoned": {"labels": {"gpu": "h100", "gen": "1"}, "unschedulable": True},
}


def label(key: str, operator: str, *values: str) -> Object:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def field(operator: str, name: str) -> Object:
    return {"key": "metadata.name", "operator": operator, "values": [name]}


SPECS: list[Object] = [
    {},
    {"nodeSelector": {"gpu": "h100"}},
    {"nodeSelector": {"gpu": ""}},
    {"nodeSelector": {"gpu": "h100", "gen": "9"}},
    node_affinity({"matchExpressions": [label("gpu", "In", "h100", "b200")]}),
    node_affinity({"matchExpressions": [label("gpu", "NotIn", "h100")]}),
    node_affinity({"matchExpressions": [label("zone", "Exists")]}),
    node_affinity({"matchExpressions": [label("zone", "DoesNotExist")]}),
    node_affinity({"matchExpressions": [label("gen", "Gt", "9")]}),
    node_affinity({"matchExpressions": [label("gen", "Lt", "10")]}),
    node_affinity({"matchExpressions": [label("gen", "Gt", "08"), label("zone", "NotIn", "b")]}),
    node_affinity({"matchExpressions": [label("zone", "In", "a")]}, {"matchFields": [field("In", "plain")]}),
    node_affinity({"matchFields": [field("NotIn", "h100")], "matchExpressions": [label("gpu", "Exists")]}),
    node_affinity({}, {"matchExpressions": [label("zone", "In", "c")]}),
    node_affinity({}),
    {"tolerations": [{"operator": "Exists"}]},
    {"tolerations": [{"key": "team", "operator": "Exists"}]},
    {"tolerations": [{"key": "team", "value": "red"}]},
    {
        "tolerations": [
            {"key": "team", "value": "red", "effect": "NoSchedule"},
            {"key": "x", "operator": "Exists"},
        ]
    },
    {"tolerations": [{"key": "team", "operator": "Exists", "effect": "NoExecute"}]},
    {
        "tolerations": [{"key": "hyperscout.io/degraded", "operator": "Exists"}],
        "nodeSelector": {"gpu": "h100"},
    },
    {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
    {"tolerations": [{"key": "x"}], **node_affinity({"matchExpressions": [label("gpu", "DoesNotExist")]})},
]


def _cluster(own_kube: Callable[..., Cluster]) -> Cluster:
    require_real("kubernetes", "kube-scheduler")
    return own_kube(Options(scheduler="", crd=None))


def _settled(kube: Cluster, count: int) -> dict[str, Object]:
    """Pods by name, once the scheduler has said something of each."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        pods = {pod["metadata"]["name"]: pod for pod in kube.api.items(_PODS)}
        waiting = [
            name
            for name, pod in pods.items()
            if not pod["spec"].get("nodeName")
            and not any(c.get("reason") == "Unschedulable" for c in pod["status"].get("conditions", []))
        ]
        if len(pods) == count and not waiting:
            return pods
        assert time.monotonic() < deadline, f"{len(pods)} of {count} pods, still waiting: {waiting[:5]}"
        time.sleep(0.1)


def test_a_pod_may_run_where_the_scheduler_puts_it(own_kube: Callable[..., Cluster]) -> None:
    kube = _cluster(own_kube)
    for name, more in NODES.items():
        kube.nodes([name], more.get("labels"))
        spec = {key: more[key] for key in ("taints", "unschedulable") if key in more}
        kube.api.ask("PATCH", f"{_NODES}/{name}", {"spec": spec}, content=MERGE)
    nodes = {node["metadata"]["name"]: kept(node) for node in kube.api.items(_NODES)}
    # For each node a pod that is for it alone by its label of that name, and is else as the spec says.
    asked: dict[str, tuple[Object, str]] = {}
    for i, spec in enumerate(SPECS):
        for node in NODES:
            selector = {"kubernetes.io/hostname": node, **spec.get("nodeSelector", {})}
            asked[f"p{i}-{node}"] = ({**spec, "nodeSelector": selector}, node)
    all_at_once(
        [
            lambda n=name, s=spec: kube.api.ask("POST", _PODS, pod(n, {"schedulingGates": [], **s}))
            for name, (spec, _) in asked.items()
        ]
    )
    pods = _settled(kube, len(asked))
    wrong = [
        (name, pods[name]["spec"].get("nodeName"))
        for name, (_, node) in asked.items()
        if bool(pods[name]["spec"].get("nodeName")) != may_run(pods[name]["spec"], nodes[node])
    ]
    assert not wrong
    # Of the spec as it was written, too: templates are judged before there are pods.
    assert all(
        may_run(spec, nodes[node]) == bool(pods[name]["spec"].get("nodeName"))
        for name, (spec, node) in asked.items()
    )
    bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods.values())
    assert 0.2 < bound / len(pods) < 0.8  # both answers were seen


def asks(restart: str = "", limits: Object | None = None, **requests: str) -> Object:
    named = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in requests.items()}
    found: Object = {"name": "x", "image": "none.invalid/none", "resources": {"requests": named}}
    if limits:
        found["resources"]["limits"] = limits
    return found | ({"restartPolicy": restart} if restart else {})


def _with_names(spec: Object) -> Object:
    for field_name in ("containers", "initContainers"):
        for i, container in enumerate(spec.get(field_name, [])):
            container["name"] = f"{field_name[:1]}{i}"
    return spec


SHAPES: dict[str, Object] = {
    "plain": {"containers": [asks(cpu="7", memory="40Gi")]},
    "two": {"containers": [asks(cpu="3500m"), asks(cpu="3.5", memory="1G")]},
    "large-init": {"containers": [asks(cpu="1")], "initContainers": [asks(cpu="12"), asks(memory="150Gi")]},
    "sidecar": {
        "containers": [asks(cpu="4")],
        "initContainers": [asks(cpu="9"), asks("Always", cpu="3"), asks(cpu="8"), asks("Always", cpu="2")],
    },
    "gpus": {"containers": [asks(limits={"nvidia.com/gpu": "3"}), asks(cpu="1")]},
    "limits": {"containers": [asks(limits={"cpu": "9", "memory": "1Gi"})]},
    "of-pod": {
        "containers": [asks(cpu="1"), asks(cpu="1", memory="1Gi")],
        "resources": {"requests": {"cpu": "10"}, "limits": {"cpu": "12", "memory": "100Gi"}},
    },
    "nothing": {"containers": [asks()]},
}


def test_as_many_pods_fit_as_the_scheduler_binds(own_kube: Callable[..., Cluster]) -> None:
    """One node for each shape of pod, one pod more than fit there."""
    kube = _cluster(own_kube)
    kube.nodes(list(SHAPES))
    room = FreeResources()
    for name in SHAPES:
        body = {"status": {"allocatable": {"pods": "9", "cpu": "63500m"}}}
        kube.api.ask("PATCH", f"{_NODES}/{name}/status", body, content=MERGE)
        room.node(None, kept(kube.api.ask("GET", f"{_NODES}/{name}")))
    fits: dict[str, int] = {}
    pods: dict[str, Object] = {}
    for name, shape in SHAPES.items():
        spec = _with_names(shape) | {"nodeSelector": {"kubernetes.io/hostname": name}}
        free = room.of(name)
        assert free is not None
        fits[name] = min(free.get(resource, 0) // need for resource, need in needs(spec))
        pods |= {f"{name}-{i}": spec for i in range(fits[name] + 1)}
    assert fits == {
        "plain": 9,
        "two": 9,
        "large-init": 3,
        "sidecar": 5,
        "gpus": 2,
        "limits": 7,
        "of-pod": 6,
        "nothing": 9,
    }
    all_at_once(
        [
            lambda n=n, s=s: kube.api.ask("POST", _PODS, pod(n, {"schedulingGates": [], **s}))
            for n, s in pods.items()
        ]
    )
    settled = _settled(kube, len(pods))
    bound: dict[str, int] = dict.fromkeys(SHAPES, 0)
    for found in settled.values():
        if node := found["spec"].get("nodeName"):
            bound[node] += 1
        room.pod(None, kept_pod(found))
    assert bound == fits
    # And what pods left is what pods of their kind no longer fit in.
    for name in SHAPES:
        spec = settled[f"{name}-0"]["spec"]
        free = room.of(name)
        assert free is not None
        assert min(free.get(resource, 0) // need for resource, need in needs(spec)) == 0
