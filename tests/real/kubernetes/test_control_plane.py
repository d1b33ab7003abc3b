"""The real API server that other tests stand on: it authenticates, authorises, comes back, and forgets."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kube.api import ApiError
from kube.control_plane import Options
from support.kubernetes import Cluster
from support.nccl_stubs import alive
from support.real import ROOT, require_real
from support.waiting import until_seen

HYPERNODE = """
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {name: leaf-1}
spec: {tier: 1, members: [{type: Node, selector: {exactMatch: {name: node-1}}}]}
"""
LISTS_NODES = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}


def names(kube: Cluster, path: str) -> set[str]:
    return {meta["name"] for meta in kube.api.names(path)}


def test_kubectl_drives_it(kube: Cluster) -> None:
    kube.apply(HYPERNODE)
    assert "leaf-1" in kube.kubectl("get", "hn")
    assert kube.get("hn", "leaf-1")["spec"]["tier"] == 1
    with pytest.raises(RuntimeError, match="not found"):
        kube.kubectl("get", "hn", "absent")


async def test_kubectl_drives_it_beside_other_work_and_watches(kube: Cluster) -> None:
    async with kube.watching("get", "hn", "-w", "--no-headers") as lines:
        kube.apply(HYPERNODE)
        assert (await lines.readline()).startswith(b"leaf-1")
    assert "leaf-1" in await kube.kubectl_async("get", "hn")


def test_a_token_is_for_its_audience_and_knows_its_node(kube: Cluster) -> None:
    kube.nodes(["node-1"])
    pod = kube.pod_on("node-1", "agent")
    token = kube.token("agent", audience="hyperscout", pod=pod)
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["aud"] == ["hyperscout"]
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    for audience, good in (("hyperscout", True), ("another", False), ("", False)):
        spec = {"token": token, "audiences": [audience] if audience else []}
        status = kube.api.ask("POST", path, {"spec": spec})["status"]
        assert status.get("authenticated", False) is good, audience
        if good:
            assert status["user"]["extra"]["authentication.kubernetes.io/node-name"] == ["node-1"]


def test_a_service_account_may_do_what_a_role_says(kube: Cluster) -> None:
    kubeconfig = kube.kubeconfig_of("reader")
    refused = kube.run("kubectl", "get", "nodes", kubeconfig=kubeconfig)
    assert refused.code
    assert 'User "system:serviceaccount:default:reader" cannot list' in refused.err
    kube.grant("reader", [LISTS_NODES])
    give_up_s = time.monotonic() + 90  # the authoriser hears of a role a moment later
    while (ran := kube.run("kubectl", "get", "nodes", kubeconfig=kubeconfig)).code:
        assert time.monotonic() < give_up_s, ran.err


def test_nodes_are_ready_until_told_otherwise(kube: Cluster) -> None:
    kube.nodes([f"node-{i:04}" for i in range(50)], {"zone": "a"})
    kube.set_ready("node-0001", False)
    kube.cordon("node-0002")
    kube.label("node-0003", zone=None)
    kube.delete_node("node-0004")
    said = {
        line.split()[0]: line.split()[1] for line in kube.kubectl("get", "nodes", "--no-headers").splitlines()
    }
    assert len(said) == 49
    assert said.pop("node-0001") == "NotReady"
    assert said.pop("node-0002") == "Ready,SchedulingDisabled"
    assert set(said.values()) == {"Ready"}
    assert len(kube.get("nodes", "-l", "zone=a")) == 48


def test_writes_are_counted_also_those_that_change_nothing(kube: Cluster) -> None:
    before = kube.writes("hypernodes")
    kube.apply(HYPERNODE)
    kube.apply(HYPERNODE)
    kube.kubectl("get", "hn")
    assert kube.writes("hypernodes") == before + 2


LITTER = """
apiVersion: v1
kind: Namespace
metadata: {name: litter}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: stays-put, namespace: litter, finalizers: [example.com/never]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: litter}
rules: []
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Thing, plural: things}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""


@pytest.mark.parametrize("again", [False, True])
def test_whatever_a_test_leaves_is_gone_before_the_next(kube: Cluster, again: bool) -> None:
    assert "litter" not in names(kube, "/api/v1/namespaces")
    assert "litter" not in names(kube, "/apis/rbac.authorization.k8s.io/v1/clusterroles")
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert names(kube, crds) == {"hypernodes.topology.volcano.sh"}
    assert not kube.hypernodes()
    assert not names(kube, "/api/v1/nodes")
    columns = kube.api.ask("GET", f"{crds}/hypernodes.topology.volcano.sh")["spec"]["versions"][0]
    assert columns["additionalPrinterColumns"]
    if again:
        return
    kube.apply(LITTER)
    kube.apply(HYPERNODE)
    kube.nodes(["node-1"])
    kube.pod_on("node-1", "left-over", "litter")
    kube.kubectl("wait", "--for=condition=established", "crd/things.example.com")
    kube.apply(
        "{apiVersion: example.com/v1, kind: Thing, metadata: {name: x, finalizers: [example.com/never]}}"
    )
    patch = '[{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}]'
    kube.kubectl("patch", "crd", "hypernodes.topology.volcano.sh", "--type=json", "-p", patch)


@pytest.mark.parametrize("again", [False, True])
def test_a_definition_that_a_test_deletes_is_back_for_the_next(kube: Cluster, again: bool) -> None:
    assert "No resources found" in kube.run("kubectl", "get", "hn").err
    if not again:
        kube.apply(HYPERNODE)
        kube.kubectl("delete", "crd", "hypernodes.topology.volcano.sh")


def test_it_is_killed_stopped_and_comes_back_with_its_data(own_kube: Callable[..., Cluster]) -> None:
    kube = own_kube()
    kube.apply(HYPERNODE)
    plane = kube.plane
    plane.kill_apiserver()
    with pytest.raises(ApiError, match="refused"):
        kube.hypernodes()
    plane.start_apiserver()
    plane.await_ready()
    assert set(kube.hypernodes()) == {"leaf-1"}
    plane.pause_apiserver()
    with pytest.raises(ApiError, match="timed out"):
        kube.api.text("GET", "/readyz", timeout_s=0.2)
    plane.resume_apiserver()
    plane.await_ready()


def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    require_real("kubernetes")
    code = (
        "import sys, time; from pathlib import Path; from kube.control_plane import ControlPlane\n"
        "with ControlPlane(Path(sys.argv[1])) as plane:\n"
        "    print(*(p.pid for p in plane.programs), flush=True); time.sleep(600)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
    until_seen(lambda: not any(map(alive, pids)), "the end of both")


def test_a_pod_is_placed_by_the_real_scheduler_and_run_by_kwok(own_kube: Callable[..., Cluster]) -> None:
    require_real("kube-scheduler", "kube-controller-manager", "kwok")
    kube = own_kube(Options(controller_manager=True, scheduler="", kwok=True))
    kube.nodes(["node-1"])
    container = {"name": "c", "image": "none.invalid/none"}
    kube.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    )
    kube.kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=120s")
    assert kube.get("pod", "p")["spec"]["nodeName"] == "node-1"
