"""Nodes' labels from a real API server, through the collector's node watch, to HyperNodes in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
from hyperscout.v1.placement_pb2_grpc import PlacementServiceStub
from hyperscout_collector.app.build.collector import Collector
from support.collectors import collector_settings
from support.kubernetes import Cluster
from support.placing import request
from support.waiting import until, until_awaited

AWS = "topology.k8s.aws/network-node-layer-"


def layers(spine: str, leaf: str) -> dict[str, str]:
    return {f"{AWS}1": "nn-all", f"{AWS}2": spine, f"{AWS}3": leaf}


def published(kube: Cluster) -> list[tuple[int, tuple[str, ...], str]]:
    """Tier, nodes, and where it comes from."""
    found = kube.api.items("/apis/topology.volcano.sh/v1alpha1/hypernodes")
    by_name = {item["metadata"]["name"]: item for item in found}

    def nodes(item: Any) -> list[str]:
        names: list[str] = []
        for member in item["spec"]["members"]:
            name = member["selector"]["exactMatch"]["name"]
            names += [name] if member["type"] == "Node" else nodes(by_name[name])
        return names

    return sorted(
        (
            item["spec"]["tier"],
            tuple(sorted(nodes(item))),
            item["metadata"]["annotations"]["hyperscout.io/source"],
        )
        for item in found
    )


async def until_published(kube: Cluster, condition: Callable[[list[Any]], bool]) -> None:
    await until(lambda: condition(published(kube)), "the expected HyperNodes", pause_s=0.1)


async def test_where_a_cloud_says_its_nodes_are(kube: Cluster, tmp_path: Path) -> None:
    for name, spine, leaf in (("a", "s1", "l1"), ("b", "s1", "l1"), ("c", "s1", "l2"), ("d", "s2", "l3")):
        kube.nodes([name], layers(spine, leaf))
    kube.nodes(["gateway"], {"topology.kubernetes.io/zone": "z"})
    settings = collector_settings(
        tmp_path, kubernetes="publish", kubeconfig=kube.kubeconfig, cloud_labels=("aws",)
    )
    async with Collector(settings) as collector:
        await until_published(
            kube,
            lambda found: (
                found
                == [
                    (1, ("a", "b"), "labels"),
                    (1, ("c",), "labels"),
                    (1, ("d",), "labels"),
                    (2, ("a", "b", "c"), "labels"),
                    (2, ("d",), "labels"),
                    (3, ("a", "b", "c", "d"), "labels"),
                ]
            ),
        )
        assert collector.watchers.current.topology.nodes_without_evidence == ("gateway",)
        await kube.kubectl_async("label", "--overwrite", "node", "b", f"{AWS}3=l2")
        await until_published(
            kube, lambda found: (1, ("b", "c"), "labels") in found and (1, ("a",), "labels") in found
        )


async def test_nvlink_domains_that_labels_name(kube: Cluster, tmp_path: Path) -> None:
    clique = "nvidia.com/gpu.clique"
    racks = {
        name: "a1b2c3d4-0000-4000-8000-00000000000f." + rack
        for name, rack in zip("abcd", "1122", strict=True)
    }
    for name, value in racks.items():
        kube.nodes([name], layers("s1", "l1") | {clique: value})
    settings = collector_settings(
        tmp_path,
        kubernetes="publish",
        kubeconfig=kube.kubeconfig,
        cloud_labels=("aws",),
        nvlink_labels=(clique,),
    )
    async with Collector(settings):
        await until_published(
            kube,
            lambda found: (
                found
                == [
                    (1, ("a", "b"), "nvlink"),
                    (1, ("c", "d"), "nvlink"),
                    (2, ("a", "b", "c", "d"), "labels"),
                ]
            ),
        )
        await kube.kubectl_async("label", "--overwrite", "node", "b", f"{clique}={racks['c']}")
        await until_published(kube, lambda found: (1, ("b", "c", "d"), "nvlink") in found)


async def test_requests_select_nodes_by_the_labels_of_the_cluster(kube: Cluster, tmp_path: Path) -> None:
    for name, leaf in (("a", "l1"), ("b", "l1"), ("c", "l2"), ("d", "l2")):
        kube.nodes([name], layers("s1", leaf) | {"gpu": "h100" if name in "ac" else "a100"})
    settings = collector_settings(
        tmp_path, kubernetes="publish", kubeconfig=kube.kubeconfig, cloud_labels=("aws",)
    )
    async with (
        Collector(settings) as collector,
        grpc.aio.insecure_channel(collector.address) as channel,
    ):
        service = PlacementServiceStub(channel)
        await until_published(kube, lambda found: (1, ("c", "d"), "labels") in found)

        async def placed(**labels: str) -> list[str]:
            asked = request(2, dry_run=True)
            asked.parts[0].workers.node_selector.update(labels)
            answer = (await service.Place(asked)).placement
            return [one.node for one in answer.assignments]

        async def until_placed(expected: list[str]) -> None:
            async def is_placed() -> bool:
                return await placed(gpu="h100") == expected

            await until_awaited(is_placed, f"a gang on {expected}", pause_s=0.1)

        await until_placed(["a", "c"])
        assert await placed(gpu="b200") == []
        await kube.kubectl_async("label", "--overwrite", "node", "b", "gpu=h100")
        await until_placed(["a", "b"])  # in one leaf
        await kube.kubectl_async("taint", "node", "b", "spot=yes:NoSchedule")
        await until_placed(["a", "c"])
