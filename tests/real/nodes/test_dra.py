"""A pod with a claim on two NICs, on real kubelets: the node plugin lets it start, without the bad NIC."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hyperscout_agent.dra.plugin import SOCKET_NAME
from hyperscout_formats.kubelet.dra import DRIVER
from hyperscout_publish.devices.device_taints import taint_rule
from hyperscout_publish.devices.nics import nics_of
from hyperscout_publish.devices.places import Place
from hyperscout_publish.devices.slices import DeviceRef, device, new_slice
from lab.cluster import Lab
from lab.inside import Program
from support.dra import allocated, device_class
from support.nics import rdma
from support.real import require_real
from support.waiting import eventually

require_real("lab")

NODES = ("node1", "node2")
REGISTRY = "var/lib/kubelet/plugins_registry"
NO_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
PATIENCE_S = 90.0
POD = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}}}
spec:
  devices:
    requests:
    - name: rail-0
      exactly:
        deviceClassName: nic.hyperscout.io
        selectors: [{{cel: {{expression: 'device.attributes["nic.hyperscout.io"].rail == 0'}}}}]
    - name: rail-1
      exactly:
        deviceClassName: nic.hyperscout.io
        selectors: [{{cel: {{expression: 'device.attributes["nic.hyperscout.io"].rail == 1'}}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  resourceClaims: [{{name: nics, resourceClaimName: {name}}}]
  containers:
  - name: worker
    image: lab.local/busybox:1
    args: [-c, "exec sleep 1000000"]
    resources: {{claims: [{{name: nics}}]}}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab"), say=lambda _: None) as lab:
        lab.add_nodes(list(NODES))
        lab.await_ready(list(NODES))
        # The API server refuses pods until a controller has made their account.
        lab.run(["sh", "-c", "until kubectl get serviceaccount default; do sleep 0.2; done"])
        yield lab


def plugin(lab: Lab, node: str, folder: Path) -> Program:
    """The node plugin, as root without capabilities, like the chart's container."""
    command = [
        *NO_CAPABILITIES,
        sys.executable,
        "-m",
        "hyperscout_agent.dra.plugin",
        "--registry",
        f"/{REGISTRY}",
    ]
    return lab.nodes[node].popen(command, folder / f"{node}.log")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(holds):
            await asyncio.sleep(0.2)


async def test_a_two_rail_claim_runs_without_the_tainted_nic(lab: Lab, tmp_path: Path) -> None:
    def apply(found: object) -> None:
        lab.kubectl("apply", "-f", "-", stdin=found if isinstance(found, str) else json.dumps(found))

    def get(*words: str) -> dict:
        return dict(json.loads(lab.kubectl("get", *words, "-o", "json")))

    def phase(pod: str) -> str:
        return str(get("pod", pod)["status"]["phase"])

    plugins = [plugin(lab, node, tmp_path) for node in NODES]
    try:
        for node in NODES:
            await eventually((lab.nodes[node].root / REGISTRY / SOCKET_NAME).is_socket)
        await until(lambda: all("has registered" in (tmp_path / f"{n}.log").read_text() for n in NODES))
        apply(device_class(DRIVER))
        nics = nics_of([rdma(0), rdma(1)])
        for node in NODES:
            devices = [device(nic, Place(f"leaf-{rail}", rail)) for rail, nic in enumerate(nics)]
            apply(new_slice(node, get("node", node)["metadata"]["uid"], devices))
        apply(taint_rule("resource.k8s.io/v1beta2", DeviceRef(DRIVER, "node1", nics[0].name)))
        apply(POD.format(name="first"))
        await until(lambda: phase("first") == "Running")
        assert get("pod", "first")["spec"]["nodeName"] == "node2"
        assert allocated(get("resourceclaim", "first")) == {
            f"rail-{rail}": ("node2", nic.name) for rail, nic in enumerate(nics)
        }
        lab.kubectl("delete", "pod", "first", "--grace-period=1")
        await until(lambda: "reservedFor" not in get("resourceclaim", "first").get("status", {}))
        lab.kubectl("delete", "resourceclaim", "first")
        # Without the plugin, no pod with a claim starts, and the kubelet deletes the slice of its node.
        plugins[1].terminate()
        await until(
            lambda: (
                not lab.kubectl(
                    "get", "resourceslices", "--field-selector", "spec.nodeName=node2", "-o", "name"
                )
            )
        )
        assert lab.kubectl("get", "resourceslices", "--field-selector", "spec.nodeName=node1", "-o", "name")
    finally:
        for one in plugins:
            one.terminate()
