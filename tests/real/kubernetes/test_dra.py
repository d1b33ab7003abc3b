"""NICs as devices on a real API server, and what the real scheduler makes of claims on them."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hyperscout_sim.agents.player import Player
from hyperscout_sim.fabric.fabric import Cable
from hyperscout_sim.fabric.shapes import rail_optimised
from kube.cleaning import clean, snapshot
from kube.control_plane import REPOSITORY, ControlPlane, Options
from support.chart import render
from support.collector_process import CollectorProcess, collector_process
from support.collectors import playing
from support.dra import (
    DRIVER,
    GATE,
    GPU_DRIVER,
    GROUP,
    RULES,
    RUNTIME_CONFIG,
    SLICES,
    allocated,
    device_class,
    gpu_slice,
)
from support.kubernetes import Cluster
from support.real import require_real
from support.waiting import until_awaited

require_real("kubernetes", "helm")

FABRIC = rail_optimised(1, 2, 2, 1)
NODES = tuple(FABRIC.hosts)
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"
FLAGS = (
    *("--kubernetes", "publish", "--dra", "on", "--dra-taints", "on"),
    *("--taint-share", "0.5", "--taint-after-s", "0.2", "--taint-clear-after-s", "0.5"),
    *("--settle-s", "1", "--hold-down-s", "0.1", "--restart-grace-s", "0"),
)
OPTIONS = Options(gates=(GATE,), runtime_config=(RUNTIME_CONFIG,), controller_manager=True, scheduler="")


def manifests(heading: str) -> list[Any]:
    """The objects in a section of the page."""
    text = (REPOSITORY / "docs/publishers/dra.md").read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert blocks, heading
    return [yaml.safe_load(block) for block in blocks]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("dra"), OPTIONS) as found:
        yield found


@pytest.fixture
def kube(plane: ControlPlane) -> Iterator[Cluster]:
    found = Cluster(plane)
    before = snapshot(found.api)
    found.nodes(NODES)
    (nics,) = (x for x in render({"publish": {"dra": "on"}}) if x["kind"] == "DeviceClass")
    for one in (nics, device_class(GPU_DRIVER)):
        found.apply(one)
    yield found
    clean(found.api, before)


@asynccontextmanager
async def running(kube: Cluster, folder: Path, *more: str) -> AsyncIterator[tuple[CollectorProcess, Player]]:
    flags = ("--kubeconfig", str(kube.kubeconfig), *FLAGS, *more)
    async with collector_process(folder, *flags) as process, playing(process.address, FABRIC) as player:
        yield process, player


def cable_of(host: str, device: str) -> Cable:
    guid = next(x.guid for x in FABRIC.adapters if (x.host, x.device) == (host, device))
    return next(cable for cable in FABRIC.cables if cable.a == guid)


async def until(holds: Any, what: str) -> None:
    await until_awaited(lambda: asyncio.to_thread(holds), what, pause_s=0.1)


def rails(kube: Cluster, driver: str = DRIVER) -> dict[str, dict[int, str]]:
    """By node and rail, the device."""
    found: dict[str, dict[int, str]] = {}
    for one in kube.api.items(SLICES):
        if one["spec"]["driver"] == driver:
            devices = one["spec"].get("devices") or ()
            found[one["spec"]["nodeName"]] = {
                x["attributes"]["rail"]["int"]: x["name"] for x in devices if "rail" in x["attributes"]
            }
    return found


def specs(kube: Cluster) -> dict[str, Any]:
    return {one["metadata"]["name"]: one["spec"] for one in kube.api.items(SLICES)}


async def both_have_rails(kube: Cluster) -> dict[str, dict[int, str]]:
    def holds() -> bool:
        found = rails(kube)
        return set(found) == set(NODES) and all(set(x) == {0, 1} for x in found.values())

    await until(holds, "two rails on both nodes")
    return rails(kube)


def submit(kube: Cluster, name: str, template: str) -> None:
    """A pod with a claim of a template."""
    container = {
        "name": "worker",
        "image": "none.invalid/worker",
        "resources": {"claims": [{"name": "nics"}]},
    }
    spec = {
        "resourceClaims": [{"name": "nics", "resourceClaimTemplateName": template}],
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


async def allocation(kube: Cluster, pod: str) -> Mapping[str, tuple[str, str]]:
    """What the claim of a pod got."""
    found: dict[str, tuple[str, str]] = {}

    def holds() -> bool:
        for claim in kube.api.items(CLAIMS):
            if any(x["name"] == pod for x in claim["metadata"].get("ownerReferences", ())):
                found.update(allocated(claim))
        return bool(found)

    await until(holds, f"the allocation of {pod}")
    return found


async def test_a_two_rail_claim_avoids_the_tainted_nic(kube: Cluster, tmp_path: Path) -> None:
    for one in manifests("Claims"):
        if one["kind"] == "ResourceClaimTemplate":
            kube.apply(one)
    async with running(kube, tmp_path) as (_, player):
        published = await both_have_rails(kube)
        bad, good = NODES
        slices = specs(kube)
        cable = cable_of(bad, "mlx5_0")
        player.cut(cable)
        await until(lambda: kube.api.items(RULES), "a rule")
        (rule,) = kube.api.items(RULES)
        selector = {"driver": DRIVER, "pool": bad, "device": published[bad][0]}
        assert rule["spec"]["deviceSelector"] == selector
        assert not any(
            taint["key"] == "hyperscout.io/degraded"
            for node in kube.api.items("/api/v1/nodes")
            for taint in node["spec"].get("taints", ())
        ), "the node stays usable"
        assert specs(kube) == slices, "a fault changes no slice"
        submit(kube, "first", "two-rails")
        assert await allocation(kube, "first") == {
            f"rail-{rail}": (good, published[good][rail]) for rail in (0, 1)
        }
        submit(kube, "second", "two-rails")
        await until(lambda: unschedulable(kube, "second"), "that no other node has two rails")
        player.restore(cable)
        assert await allocation(kube, "second") == {
            f"rail-{rail}": (bad, published[bad][rail]) for rail in (0, 1)
        }
        await until(lambda: not kube.api.items(RULES), "no rule")


def unschedulable(kube: Cluster, pod: str) -> bool:
    status = kube.api.ask("GET", f"{PODS}/{pod}")["status"]
    return any(c.get("reason") == "Unschedulable" for c in status.get("conditions", ()))


async def test_a_claim_joins_a_nic_and_its_gpu(kube: Cluster, tmp_path: Path) -> None:
    for one in manifests("A NIC with its GPU"):
        kube.apply(one)
    async with running(kube, tmp_path):
        published = await both_have_rails(kube)
        node = NODES[1]
        devices = kube.api.ask("GET", f"{SLICES}/{node}-{DRIVER}")["spec"]["devices"]
        roots = {x["name"]: x["attributes"]["resource.kubernetes.io/pcieRoot"]["string"] for x in devices}
        kube.apply(gpu_slice(node, {"gpu-far": "pci0000:ff", "gpu-near": roots[published[node][1]]}))
        submit(kube, "joined", "gpu-and-nic")
        assert await allocation(kube, "joined") == {
            "gpu": (node, "gpu-near"),
            "nic": (node, published[node][1]),
        }


async def test_a_nic_of_another_driver_is_left_out_and_tainted_there(kube: Cluster, tmp_path: Path) -> None:
    node = NODES[0]
    async with running(kube, tmp_path) as (_, player):
        published = await both_have_rails(kube)
        address = published[node][1].removeprefix("pci-").replace("-", ":", 2).replace("-", ".")
        other = gpu_slice(node, {"theirs": "pci0000:00"})
        other["spec"] |= {"driver": "dra.net"}
        other["metadata"] = {"name": f"{node}-dra.net"}
        other["spec"]["devices"][0]["attributes"] |= {
            "dra.net/pciAddress": {"string": address},
            "dra.net/rdmaDevice": {"string": "mlx5_1"},
        }
        kube.apply(other)
        await until(lambda: set(rails(kube)[node]) == {0}, "one NIC less")
        generation = kube.api.ask("GET", f"{SLICES}/{node}-{DRIVER}")["spec"]["pool"]["generation"]
        assert generation > 1
        player.cut(cable_of(node, "mlx5_1"))
        await until(lambda: kube.api.items(RULES), "a rule")
        (rule,) = kube.api.items(RULES)
        assert rule["spec"]["deviceSelector"] == {"driver": "dra.net", "pool": node, "device": "theirs"}


async def test_what_was_written_goes_with_the_settings(kube: Cluster, tmp_path: Path) -> None:
    async with running(kube, tmp_path / "on"):
        await both_have_rails(kube)
        kube.api.ask("DELETE", f"{SLICES}/{NODES[0]}-{DRIVER}")
        await both_have_rails(kube)  # a kubelet deletes slices when it starts
    kube.apply(gpu_slice(NODES[0], {"gpu": "pci0000:00"}))
    off = [word if word != "on" else "off" for word in FLAGS]
    async with (
        collector_process(tmp_path / "off", "--kubeconfig", str(kube.kubeconfig), *off) as process,
        playing(process.address, FABRIC),
    ):
        await until(lambda: not rails(kube), "no slices")
    assert set(rails(kube, GPU_DRIVER)) == {NODES[0]}
