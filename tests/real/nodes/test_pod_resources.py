"""What the probe reads from a real kubelet with two NUMA zones, and which user may read it."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hyperscout.v1.finding_pb2 import DeviceResource
from hyperscout_agent.probes.pod_resources import PodResourcesProbe
from lab.cluster import Lab
from lab.inside import CommandError
from support.device_plugin import device_plugin
from support.kubelet_answers import GPU
from support.real import require_real
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
        lab.add_node("node1")
        lab.await_ready(["node1"])
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
