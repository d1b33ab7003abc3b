"""What the probe reads from a real kubelet with two NUMA zones, and which user may read it."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import DeviceResource
from hyperscout_agent.probes.pod_resources import PodResourcesProbe
from lab.cluster import Lab
from lab.inside import CommandError, Program
from lab.machines import GATEWAY
from support.device_plugin import device_plugin
from support.kubelet_answers import GPU
from support.real import ROOT, require_real
from support.waiting import eventually

require_real("lab")

KUBELET = "var/lib/kubelet"
SOCKET = f"/{KUBELET}/pod-resources/kubelet.sock"
DEVICES = {f"gpu-{zone}-{i}": zone for zone in (0, 1) for i in range(4)}
PATIENCE_S = 60.0
_PAUSE_S = 0.2  # between two requests to the kubelet
NO_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: node1
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  containers:
  - name: worker
    image: lab.local/busybox:1
    args: [-c, "exec sleep 1000000"]
    resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab"), say=lambda _: None, two_zones=True) as lab:
        lab.add_nodes(["node1", "node2"])
        lab.await_ready(["node1", "node2"])
        # The API server refuses pods until a controller has made their account.
        lab.run(["sh", "-c", "until kubectl get serviceaccount default; do sleep 0.2; done"])
        yield lab


async def come_true(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(_PAUSE_S)


async def used_by_zone(probe: PodResourcesProbe) -> list[int]:
    """How many devices of zone 0 and zone 1 are in use; [] while the device plugin is not registered."""
    samples = (await probe.observe()).samples
    if GPU not in samples:
        return []
    found = samples[GPU].payload
    assert isinstance(found, DeviceResource)
    zones = {device.id: list(device.numa_nodes) for device in found.devices}
    if zones != {name: [zone] for name, zone in DEVICES.items()}:
        return []
    return [sum(device.in_use for device in found.devices if device.numa_nodes[0] == z) for z in (0, 1)]


async def test_devices_zones_and_use(lab: Lab) -> None:
    root = lab.nodes["node1"].root
    probe = PodResourcesProbe(root / SOCKET.lstrip("/"))

    async def kubectl(*words: str, stdin: str = "") -> str:
        return await asyncio.to_thread(lab.kubectl, *words, stdin=stdin)

    async def phase(name: str) -> str:
        return await kubectl("get", "pod", name, "-o", "jsonpath={.status.phase} {.status.reason}")

    async def none_is_used() -> bool:
        return await used_by_zone(probe) == [0, 0]

    async def both_are_used() -> bool:
        return await used_by_zone(probe) == [3, 3]

    async with device_plugin(root / KUBELET / "device-plugins", GPU, DEVICES):
        await come_true(none_is_used)
        for name in ("first", "second"):
            await kubectl("apply", "-f", "-", stdin=POD.format(name=name, gpus=3))
        await come_true(both_are_used)
        # Two GPUs are free, and not in one zone.
        await kubectl("apply", "-f", "-", stdin=POD.format(name="third", gpus=2))

        async def is_rejected() -> bool:
            return await phase("third") == "Failed TopologyAffinityError"

        await come_true(is_rejected)
        await kubectl("delete", "pod", "first", "--grace-period=1")

        async def one_zone_is_free() -> bool:
            return sorted(await used_by_zone(probe)) == [0, 3]

        await come_true(one_zone_is_free)


def connects(lab: Lab, who: list[str], path: str) -> None:
    """Connect to a socket on the node as this user. Raises CommandError."""
    python = os.path.realpath(sys.executable)
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({path!r})"
    lab.nodes["node1"].run([*who, python, "-I", "-S", "-c", code])


AGENT = ["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", *NO_CAPABILITIES[1:]]


async def test_only_root_reads_it_and_the_relay_needs_no_capability(lab: Lab, tmp_path: Path) -> None:
    machine = lab.nodes["node1"]
    with pytest.raises(CommandError, match="PermissionError"):
        connects(lab, AGENT, SOCKET)
    connects(lab, NO_CAPABILITIES, SOCKET)
    # As an emptyDir of a pod with this fsGroup.
    machine.run(["install", "-d", "-m", "2775", "-g", "10001", "/run/hyperscout"])
    path = "/run/hyperscout/pod-resources.sock"
    relay = machine.popen(
        [*NO_CAPABILITIES, sys.executable, "-m", "hyperscout_agent.pod_resources.relay", "--socket", path],
        tmp_path / "relay.log",
    )
    try:
        seen = machine.root / path.lstrip("/")
        await eventually(seen.is_socket)
        connects(lab, AGENT, path)
        await PodResourcesProbe(seen).observe()
    finally:
        relay.terminate()
    assert (tmp_path / "relay.log").read_text() == ""


# The gate makes the pods a gang; the worker says which devices it got.
JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  annotations: {{hyperscout.io/numa: single}}
spec:
  completions: 1
  parallelism: 1
  completionMode: Indexed
  template:
    spec:
      schedulingGates: [{{name: hyperscout.io/topology}}]
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      restartPolicy: Never
      containers:
      - name: worker
        image: lab.local/busybox:1
        args: [-c, "echo $DEVICES; exec sleep 1000000"]
        resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
"""
COLLECTOR = f"{GATEWAY}:50051"


def run_agents_and_collector(lab: Lab, folder: Path) -> list[Program]:
    """A collector with gates beside the API server, and an agent on each node. All end with the lab."""
    settings = {
        "listen": COLLECTOR,
        "http_listen": "127.0.0.1:50052",
        "rest_listen": "",
        "insecure": True,
        "authenticate": "none",
        "data_dir": str(folder / "data"),
        "kubernetes": "publish",
        "kubeconfig": str(lab.kubeconfig),
        "leader_election": False,
        "cloud_labels": [["example.com/hall", "example.com/rack"]],
        "gates": "on",
        "gates_namespace": "gangs",
    }
    config = folder / "collector.yaml"
    config.write_text(json.dumps(settings))
    hyperscout = [sys.executable, "-m", "hyperscout_cli.main"]
    found = [lab.popen([*hyperscout, "collector", "--config", config], folder / "collector.log")]
    for name, machine in lab.nodes.items():
        own = {
            "node": name,
            "collectors": [COLLECTOR],
            "insecure": True,
            "lldp": {"enabled": False},
            "pod_resources": {"enabled": True},
        }
        config = folder / f"agent-{name}.yaml"
        config.write_text(json.dumps(own))
        found.append(machine.popen([*hyperscout, "agent", "--config", config], folder / f"{name}.log"))
    return found


async def test_a_worker_lands_in_the_zone_of_its_plan(lab: Lab, tmp_path: Path) -> None:
    root = lab.nodes["node1"].root

    async def kubectl(*words: str, stdin: str = "", check: bool = True) -> str:
        return await asyncio.to_thread(lab.kubectl, *words, stdin=stdin, check=check)

    async def job_runs(name: str, gpus: int) -> tuple[str, list[int]]:
        """Start a worker. Returns its zone by the plan, and the zones of its devices by the kubelet."""
        await kubectl("apply", "-f", "-", stdin=JOB.format(name=name, gpus=gpus))
        pods = f"job-name={name}"

        async def devices() -> bool:
            return "gpu-" in await kubectl("logs", "-l", pods, check=False)

        await come_true(devices)
        zone = "{.items[0].metadata.annotations.hyperscout\\.io/numa-zone}"
        planned = await kubectl("get", "pods", "-l", pods, "-o", f"jsonpath={zone}")
        got = (await kubectl("logs", "-l", pods)).strip().split(",")
        assert len(got) == gpus
        return planned, sorted({DEVICES[one] for one in got})

    await kubectl("apply", "-f", str(ROOT / "deploy" / "crd" / "hypernodes.yaml"))
    await kubectl("create", "namespace", "gangs")
    await kubectl("label", "nodes", "--all", "example.com/hall=h1", "example.com/rack=r1")
    await kubectl("delete", "pods", "--all", "--grace-period=1")
    programs = run_agents_and_collector(lab, tmp_path)
    try:
        async with device_plugin(root / KUBELET / "device-plugins", GPU, DEVICES):
            assert await job_runs("small", 3) == ("0", [0])
            # One GPU of zone 0 is free, and all of zone 1.
            assert await job_runs("large", 4) == ("1", [1])
            # What is left is one GPU in zone 0.
            await kubectl("apply", "-f", "-", stdin=JOB.format(name="third", gpus=2))

            async def says_why() -> bool:
                text = await kubectl("describe", "job", "third")
                return "NUMA zone of 2 nvidia.com/gpu" in text

            await come_true(says_why)
    finally:
        for program in programs:
            program.terminate()
