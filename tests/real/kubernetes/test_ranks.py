"""Ranks reach pods in a real cluster: API server, kube-scheduler, Job controller, kwok's kubelets.

The pages' manifests are posted as they are. Workloads of operators are objects of generated definitions, with
pods that have the labels of the operators.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hyperscout_gates.control.pods import COORDINATOR, RANK, RANKS
from hyperscout_gates.workloads.kinds import KINDS
from kube.api import ApiError
from kube.control_plane import REPOSITORY, ControlPlane, Options
from support.chart import define_others
from support.gates import PODS, Seen, clear, collectors_account, controller, gang_pod, make_namespace
from support.kube_objects import Object
from support.kubernetes import Cluster
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
from support.real import require_real
from support.topologies import leaves
from support.workloads import (
    jobset,
    jobset_pods,
    leader_worker_pods,
    leader_worker_set,
    replicated_job,
)

require_real("kubernetes")

LEAVES = (("a1", "a2", "a3", "a4"), ("b1", "b2", "b3", "b4"))
TOPOLOGY = leaves(*LEAVES)
_BUILT_IN = ("batch", "scheduling.k8s.io")
_DEFINED = tuple(
    (kind.group, kind.versions[0].partition("/")[2], kind.kind, kind.plural, "Namespaced")
    for kind in KINDS
    if kind.group not in _BUILT_IN
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    options = Options(
        scheduler="",
        kwok=True,
        controller_manager=True,
        gates=("GenericWorkload=true", "GangScheduling=true"),
        runtime_config=("scheduling.k8s.io/v1alpha2=true",),
    )
    with ControlPlane(tmp_path_factory.mktemp("ranks"), options) as found:
        kube = Cluster(found)
        make_namespace(kube)
        define_others(kube, list(dict.fromkeys(_DEFINED)))
        yield found


@pytest.fixture(scope="module")
def me(plane: ControlPlane) -> Path:
    """The collector's account, with what the chart gives it and nothing else."""
    return collectors_account(Cluster(plane))


@pytest.fixture
def kube(plane: ControlPlane) -> Iterator[Cluster]:
    found = Cluster(plane)
    clear(found)
    found.nodes([name for leaf in LEAVES for name in leaf])
    yield found
    clear(found)


def manifests(page: str, heading: str) -> list[Object]:
    """The objects of a section of a page."""
    text = (REPOSITORY / "docs" / page).read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert blocks, f"{page}: no YAML in {heading}"
    return [found for block in blocks for found in yaml.safe_load_all(block)]


def learned(found: Iterable[Object]) -> dict[str, tuple[str, ...]]:
    """By the pods' names: what the annotations say."""
    keys = (RANK, RANKS, COORDINATOR)
    metadata = [pod["metadata"] for pod in found]
    return {of["name"]: tuple(of["annotations"].get(key, "") for key in keys) for of in metadata}


@pytest.mark.parametrize(("heading", "name"), [("torchrun", "train"), ("JAX", "jax")])
async def test_the_pages_manifest_tells_each_pod_its_rank(
    kube: Cluster, me: Path, heading: str, name: str
) -> None:
    seen = Seen(kube)
    async with controller(me, TOPOLOGY):
        for found in manifests("ranks.md", heading):
            kube.apply(found)
        nodes = await seen.until("it is bound", lambda: seen.nodes(name, 4))
        assert set(nodes) in map(set, LEAVES)
        ranks = learned(seen.live(name))
        assert sorted(ranks.values()) == [(str(i), "4", f"{name}-0.{name}.default.svc") for i in range(4)]
        for found in seen.live(name):
            read = [e["valueFrom"] for e in found["spec"]["containers"][0]["env"] if "valueFrom" in e]
            fields = {source["fieldRef"]["fieldPath"] for source in read}
            assert fields >= {f"metadata.annotations['{key}']" for key in (RANK, RANKS, COORDINATOR)}
            assert found["spec"]["hostname"] == f"{name}-{ranks[found['metadata']['name']][0]}"
    kube.api.ask("DELETE", f"/api/v1/namespaces/default/services/{name}")


def post(kube: Cluster, owner: Object, pods: Iterable[Object], **spec: Any) -> None:
    """Post a workload and its pods, as their operators would."""
    group, _, version = owner["apiVersion"].partition("/")
    (plural,) = {x.plural for x in KINDS if (x.group, x.kind) == (group, owner["kind"])}
    name = owner["metadata"]["name"]
    owner["metadata"] = {"name": name}
    collection = f"/apis/{group}/{version}/namespaces/default/{plural}"
    uid = kube.api.ask("POST", collection, owner)["metadata"]["uid"]
    for found in pods:
        of = found["metadata"]
        labels = of.get("labels", {})
        labels = {key: uid if value == f"uid-{name}" else value for key, value in labels.items()}
        body = gang_pod(of["name"], labels, **spec)
        if "subdomain" in spec:
            body["spec"]["hostname"] = body["metadata"]["name"]
        if "schedulingGroup" in found["spec"]:
            body["spec"]["schedulingGroup"] = found["spec"]["schedulingGroup"]
        # An owner that is not there would let the garbage collector delete the pod.
        for reference in of.get("ownerReferences", ()):
            if (reference["apiVersion"], reference["kind"]) == (owner["apiVersion"], owner["kind"]):
                body["metadata"]["ownerReferences"] = [reference | {"uid": uid}]
        kube.api.ask("POST", PODS, body)


Case = tuple[Callable[[], Object], Callable[[], Sequence[Object]], list[str]]
# The workload, its pods, and their names in the order of ranks.
CASES: dict[str, Case] = {
    "LeaderWorkerSet": (
        lambda: leader_worker_set("w-serve", 1, 3),
        lambda: [*leader_worker_pods("w-serve", 0, 3)][::-1],
        ["w-serve-0", "w-serve-0-1", "w-serve-0-2"],
    ),
    "JobSet": (
        lambda: jobset("w-llm", replicated_job("driver", 1, 1), replicated_job("worker", 1, 2)),
        lambda: [*jobset_pods("w-llm", "worker", 1, 2), *jobset_pods("w-llm", "driver", 1, 1)],
        ["w-llm-driver-0-0-ab0", "w-llm-worker-0-0-ab0", "w-llm-worker-0-1-ab1"],
    ),
    "RayCluster": (
        lambda: ray_cluster("w-ray", ray_group("gpu", 1, 2)),
        lambda: [*ray_pods("w-ray", "gpu", 1, 2), *ray_pods("w-ray", "headgroup", 1)],
        ["w-ray-head-q0", "w-ray-gpu-worker-0x0", "w-ray-gpu-worker-0x1"],
    ),
    "Volcano's Job": (
        lambda: volcano_job("w-v", volcano_task("master", 1), volcano_task("worker", 2)),
        lambda: [*volcano_pods("w-v", "worker", 2), *volcano_pods("w-v", "master", 1)],
        ["w-v-master-0", "w-v-worker-0", "w-v-worker-1"],
    ),
    "PodCliqueSet": (
        lambda: pod_clique_set(
            "w-inf", {"lead": 1, "work": 1, "late": 1}, scaling_group("g", 1, 1, "lead", "work")
        ),
        lambda: [
            *clique_pods("w-inf", "w-inf-0", "w-inf-0-late", 1),
            *clique_pods("w-inf", "w-inf-0", "w-inf-0-g-0-work", 1),
            *clique_pods("w-inf", "w-inf-0", "w-inf-0-g-0-lead", 1),
        ],
        ["w-inf-0-g-0-lead-r0nd", "w-inf-0-g-0-work-r0nd", "w-inf-0-late-r0nd"],
    ),
    "PodGroup": (
        lambda: pod_group("w-pg", 3),
        lambda: [*grouped_pods("w-pg", "w-pg-10", "w-pg-8", "w-pg-9")],
        ["w-pg-8", "w-pg-9", "w-pg-10"],
    ),
}


@pytest.mark.parametrize("kind", CASES)
async def test_pods_of_a_workload_learn_their_ranks(kube: Cluster, me: Path, kind: str) -> None:
    owner, pods, in_order = CASES[kind]
    seen = Seen(kube)
    async with controller(me, TOPOLOGY) as ours:
        post(kube, owner(), pods(), subdomain="x")
        nodes = await seen.until("it is bound", lambda: seen.nodes("w", 3))
        assert any(set(nodes) <= set(leaf) for leaf in LEAVES)
        where = f"{in_order[0]}.x.default.svc"
        assert learned(seen.live("w")) == {name: (str(i), "3", where) for i, name in enumerate(in_order)}
        (held,) = ours.placements
        at = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in seen.live("w")}
        assert held.placement.nodes == tuple(at[name] for name in in_order)


async def test_pods_may_come_before_their_pod_group(kube: Cluster, me: Path) -> None:
    seen = Seen(kube)
    groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
    async with controller(me, TOPOLOGY):
        for name in ("late-0", "late-1"):
            kube.api.ask("POST", PODS, gang_pod(name, schedulingGroup={"podGroupName": "late"}))
        await seen.until("an Event says why", lambda: [x for x in seen.events("late") if "create it" in x])
        assert seen.gated("late") == 2
        with pytest.raises(ApiError):
            kube.api.ask("GET", f"{groups}/late")
        kube.api.ask("POST", groups, pod_group("late", 2) | {"metadata": {"name": "late"}})
        await seen.until("it is bound", lambda: seen.nodes("late", 2))
