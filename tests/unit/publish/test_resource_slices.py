"""ResourceSlices with NICs over an API server in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hyperscout_kubernetes.reflector import Reflector
from hyperscout_publish.devices.nics import NodeNics
from hyperscout_publish.devices.resource_slices import ResourceSlicesPublisher
from hyperscout_publish.devices.slices import COLLECTION, kept, slice_name
from hyperscout_publish.nodes.node_writes import Mode
from hyperscout_publish.publisher.base import PublishError
from hyperscout_topology.topology import Condition, Topology
from support.builders import hypernode
from support.fake_kube import FakeKube
from support.nics import node_nics, rdma, two_rails

N1 = f"{COLLECTION}/n1-nic.hyperscout.io"


class Cluster:
    """Nodes n1 and n2, each with a NIC on two rails."""

    def __init__(self, mode: Mode = "on", nics: NodeNics | None = None) -> None:
        self.fake = FakeKube()
        for name in ("n1", "n2"):
            self.fake.add_node(name)
        self.said: list[str] = []
        self.slices = Reflector(
            self.fake.kube(), COLLECTION, keep=kept, changed=lambda *_: None, rng=Random(1)
        )
        self.nics = nics or node_nics({"n1": (rdma(0), rdma(1)), "n2": (rdma(2), rdma(3))})
        self.publisher = ResourceSlicesPublisher(
            self.fake.kube(), self.fake.nodes(), mode, self.said.append, self.nics, self.slices
        )

    async def publish(self, topology: Topology) -> None:
        """Publish after the watch has caught up."""
        there = {p: x for p, x in self.fake.objects.items() if p.startswith(COLLECTION)}
        for one in list(self.slices):
            if f"{COLLECTION}/{one['metadata']['name']}" not in there:
                self.slices.forget(one["metadata"]["name"])
        for one in there.values():
            self.slices.learn(one)
        self.slices.synced.set()
        await self.publisher.publish(topology)

    def devices(self, path: str = N1) -> Mapping[str, Any]:
        return {x["name"]: x["attributes"] for x in self.fake.objects[path]["spec"]["devices"]}

    def elsewhere(self, **attributes: str) -> None:
        """Another driver publishes a device of n1."""
        given = {f"dra.net/{key}": {"string": text} for key, text in attributes.items()}
        spec = {
            "driver": "dra.net",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "theirs", "attributes": given}],
        }
        self.fake.put(f"{COLLECTION}/n1-dra.net", {"metadata": {"name": "n1-dra.net"}, "spec": spec})


async def test_a_node_gets_a_slice_that_goes_with_it() -> None:
    cluster = Cluster()
    await cluster.publish(two_rails())
    found = cluster.fake.objects[N1]
    uid = cluster.fake.objects["/api/v1/nodes/n1"]["metadata"]["uid"]
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}
    ]
    assert {key: found["spec"][key] for key in ("driver", "nodeName", "pool")} == {
        "driver": "nic.hyperscout.io",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
    }
    assert cluster.devices() == {
        f"pci-0000-0{n + 1}-00-0": {
            "resource.kubernetes.io/pciBusID": {"string": f"0000:0{n + 1}:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:0{n}"},
            "resource.kubernetes.io/numaNode": {"int": n % 2},
            "rdmaDevice": {"string": f"mlx5_{n}"},
            "leaf": {"string": f"leaf-{n}"},
            "rail": {"int": n},
        }
        for n in (0, 1)
    }
    assert len(cluster.fake.writes) == 2
    await cluster.publish(two_rails())
    await cluster.publish(replace(two_rails(), generation=9))
    assert len(cluster.fake.writes) == 2, "an unchanged picture writes nothing"


async def test_a_change_raises_the_generation_of_the_pool() -> None:
    cluster = Cluster()
    await cluster.publish(two_rails())
    moved = node_nics({"n1": (rdma(0, numa_node=1),), "n2": (rdma(2), rdma(3))})
    other = Cluster(nics=moved)
    other.fake.objects = cluster.fake.objects
    await other.publish(two_rails())
    spec = other.fake.objects[N1]["spec"]
    assert spec["pool"] == {"name": "n1", "generation": 2, "resourceSliceCount": 1}
    assert [x["attributes"]["resource.kubernetes.io/numaNode"] for x in spec["devices"]] == [{"int": 1}]
    assert [(method, path) for method, path, _ in other.fake.writes] == [("PATCH", N1)]


async def test_a_node_without_nics_has_no_slice() -> None:
    cluster = Cluster()
    await cluster.publish(two_rails())
    other = Cluster(nics=node_nics({"n1": ()}))
    other.fake.objects = cluster.fake.objects
    await other.publish(two_rails())
    assert N1 not in other.fake.objects
    assert N1.replace("n1", "n2") in other.fake.objects, "its agent has not reported yet"


async def test_a_silent_node_keeps_its_slice_and_gets_none() -> None:
    stale = Condition("Stale", "True", "EvidenceStale", "", nodes=("n1",))
    silent = replace(two_rails(), hypernodes=(hypernode("leaf", ("n1", "n2"), conditions=(stale,)),))
    cluster = Cluster()
    await cluster.publish(silent)
    assert N1 not in cluster.fake.objects
    await cluster.publish(two_rails())
    before = cluster.fake.objects[N1]
    await cluster.publish(silent)
    assert cluster.fake.objects[N1] == before
    unseen = replace(two_rails(), nodes_without_evidence=("n1",))
    del cluster.fake.objects[N1]
    await cluster.publish(unseen)
    assert N1 not in cluster.fake.objects


@pytest.mark.parametrize(
    "attributes",
    [
        {"pciBusID": "0000:01:00.0", "mac": "02:00:00:00:00:01"},
        {"pciAddress": "0000:01:00.0", "ifName": "renamed"},
        {"ifName": "ens0"},
        {"rdmaDevice": "mlx5_0"},
    ],
)
async def test_what_another_driver_publishes_is_left_out(attributes: Mapping[str, str]) -> None:
    nics = node_nics({"n1": (rdma(0), rdma(1))}, interfaces={("n1", 0): "ens0"})
    cluster = Cluster(nics=nics)
    cluster.elsewhere(**attributes)
    await cluster.publish(two_rails())
    assert [x["rdmaDevice"] for x in cluster.devices().values()] == [{"string": "mlx5_1"}]
    assert cluster.publisher.notice == "driver dra.net publishes NICs of 1 node (n1), which are left out"
    del cluster.fake.objects[f"{COLLECTION}/n1-dra.net"]
    await cluster.publish(two_rails())
    assert len(cluster.devices()) == 2
    assert cluster.publisher.notice is None


async def test_a_gpu_at_the_address_that_an_agent_reports_is_no_nic() -> None:
    cluster = Cluster()
    cluster.elsewhere(pciBusID="0000:01:00.0", productName="GPU")
    await cluster.publish(two_rails())
    assert len(cluster.devices()) == 2
    assert cluster.publisher.notice is None


async def test_a_dry_run_writes_nothing() -> None:
    cluster = Cluster("dry-run")
    await cluster.publish(two_rails())
    assert cluster.fake.writes == []
    assert cluster.said[0].startswith(
        "would change ResourceSlices: 2\nn1: create with pci-0000-01-00-0, pci-0000-02-00-0\n"
    )


async def test_off_removes_those_of_earlier_runs_and_no_others() -> None:
    cluster = Cluster()
    cluster.elsewhere(pciBusID="0000:01:00.0")
    await cluster.publish(two_rails())
    off = Cluster("off")
    off.fake.objects = cluster.fake.objects
    await off.publish(two_rails())
    assert [p for p in off.fake.objects if p.startswith(COLLECTION)] == [f"{COLLECTION}/n1-dra.net"]


async def test_off_without_the_right_to_delete_asks_for_nothing_else() -> None:
    cluster = Cluster("off")
    cluster.fake.allows = False
    asked: list[str] = []
    cluster.fake.before = lambda method, path: asked.append(path)
    for _ in range(2):
        await cluster.publish(two_rails())
    assert asked == ["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"]


@pytest.mark.parametrize(("driver", "pool"), [("other.example.com", "n1"), ("nic.hyperscout.io", "other")])
async def test_another_slice_with_our_name_is_left_alone_and_named(driver: str, pool: str) -> None:
    cluster = Cluster()
    spec = {"driver": driver, "nodeName": "n1", "pool": {"name": pool}, "devices": []}
    cluster.fake.put(N1, {"metadata": {"name": N1.rpartition("/")[2]}, "spec": spec})
    await cluster.publish(two_rails())
    assert cluster.fake.objects[N1]["spec"] == spec
    assert cluster.publisher.notice == (
        f"1 ResourceSlice of driver {driver} (n1-nic.hyperscout.io) is in the way of hyperscout's: delete it"
    )


async def test_a_second_slice_of_a_node_with_our_driver_is_left_alone_and_named() -> None:
    cluster = Cluster()
    await cluster.publish(two_rails())
    devices = [{"name": "x", "attributes": {}}]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "nic.hyperscout.io", "nodeName": "n1", "pool": pool, "devices": devices}
    cluster.fake.put(f"{COLLECTION}/n1-zz", {"metadata": {"name": "n1-zz"}, "spec": spec})
    for _ in range(2):
        await cluster.publish(two_rails())
    assert len(cluster.fake.writes) == 2, "the picture is the same"
    assert cluster.publisher.notice == (
        "1 ResourceSlice of driver nic.hyperscout.io (n1-zz) is in the way of hyperscout's: delete it"
    )


async def test_the_number_of_slices_in_the_pool_is_corrected() -> None:
    cluster = Cluster()
    await cluster.publish(two_rails())
    cluster.fake.objects[N1]["spec"]["pool"]["resourceSliceCount"] = 2
    cluster.fake.put(N1, cluster.fake.objects[N1])
    await cluster.publish(two_rails())
    pool = {"name": "n1", "generation": 2, "resourceSliceCount": 1}
    assert cluster.fake.objects[N1]["spec"]["pool"] == pool


async def test_a_watch_that_fails_is_reported() -> None:
    cluster = Cluster()
    await cluster.publish(two_rails())
    cluster.slices.problem = "GET resourceslices: forbidden"
    assert cluster.publisher.notice == "GET resourceslices: forbidden"


async def test_an_old_cluster_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperscout_publish.nodes.node_writes._FIRST_LIST_S", 0.0)
    cluster = Cluster()
    cluster.slices.problem, cluster.slices.is_unknown = "GET resourceslices: not found", True
    with pytest.raises(PublishError, match=r"not found: upgrade to Kubernetes 1\.34 or newer, or set"):
        await cluster.publisher.publish(two_rails())


def test_a_slice_of_a_long_name() -> None:
    names = {slice_name(f"{'n' * 240}{i}") for i in range(2)}
    assert len(names) == 2
    assert all(len(name) <= 253 for name in names)


@pytest.mark.parametrize("value", [{}, {"int": 3}, {"version": "1.0.0"}])
def test_other_kinds_of_attributes_identify_nothing(value: Mapping[str, Any]) -> None:
    devices: Sequence[Any] = [{"name": "a", "attributes": {"dra.net/ifName": value}}, {"name": "b"}]
    found = kept(
        {"metadata": {"name": "x"}, "spec": {"driver": "dra.net", "nodeName": "n1", "devices": devices}}
    )
    assert found["ids"] == {}
