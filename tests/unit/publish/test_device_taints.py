"""DeviceTaintRules over an API server in memory: one NIC is tainted, of whichever driver it is."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_kubernetes.reflector import Reflector
from hyperscout_publish.devices.device_taints import DeviceTaintsPublisher, taint_rule
from hyperscout_publish.devices.slices import COLLECTION, DeviceRef, kept, new_slice
from hyperscout_publish.nodes.node_writes import Mode
from hyperscout_publish.nodes.taint_policy import TaintSettings
from hyperscout_publish.publisher.base import PublishError
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Endpoint, Topology
from support.builders import anomaly
from support.fake_kube import FakeKube
from support.nics import node_nics, rdma, two_rails

GROUP = "/apis/resource.k8s.io"
SINCE_NS = 1_767_225_600 * NS
OURS = DeviceRef("nic.hyperscout.io", "n1", "pci-0000-01-00-0")
NICS = {"n1": (rdma(0), rdma(1)), "n2": (rdma(2), rdma(3))}
THEIRS = DeviceRef("dra.net", "n1", "theirs")


def down(*nics: int, confidence: float = 0.95) -> Topology:
    """The links of these NICs are gone."""
    found = tuple(
        anomaly(
            "MissingLink",
            Endpoint(f"{0x10 + n:016x}", f"n{n // 2 + 1}", "1"),
            Endpoint(f"s{n % 2}", f"leaf-{n % 2}", "1"),
            hypernode="leaf",
            since_ns=SINCE_NS,
            confidence=confidence,
        )
        for n in nics
    )
    return replace(two_rails(), anomalies=found)


class Cluster:
    """Both nodes have a slice; `now_s`: seconds after the links went down."""

    def __init__(
        self,
        mode: Mode = "on",
        *,
        versions: Sequence[str] = ("v1", "v1beta2"),
        nics: Mapping[str, Sequence[InfinibandPort]] = NICS,
    ) -> None:
        self.fake, self.said, self.now_s = FakeKube(), list[str](), 30
        self.fake.put(GROUP, {"metadata": {}, "versions": [{"version": v} for v in versions]})
        for version in versions:
            served = "devicetaintrules" if version != "v1" else "resourceslices"
            found: dict[str, Any] = {"metadata": {}, "resources": [{"name": served}]}
            self.fake.put(f"{GROUP}/{version}", found)
        self.path = f"{GROUP}/{versions[-1]}/devicetaintrules"
        slices = Reflector(self.fake.kube(), COLLECTION, keep=kept, changed=lambda *_: None, rng=Random(1))
        for node in ("n1", "n2"):
            names = [f"pci-0000-0{n}-00-0" for n in ((1, 2) if node == "n1" else (3, 4))]
            one = new_slice(node, "uid", [{"name": name} for name in names])
            slices.learn(self.fake.put(f"{COLLECTION}/{node}", one))
        slices.synced.set()
        self.slices = slices
        self.publisher = DeviceTaintsPublisher(
            self.fake.kube(),
            mode,
            TaintSettings(0.5, after_s=30, clear_after_s=300),
            self.said.append,
            node_nics(nics),
            slices,
            clock_ns=lambda: SINCE_NS + self.now_s * NS,
        )

    @property
    def rules(self) -> list[Any]:
        return [x["spec"] for p, x in self.fake.objects.items() if p.startswith(f"{self.path}/")]


async def test_one_nic_is_tainted_late_and_cleared_later() -> None:
    cluster = Cluster()
    cluster.now_s = 29
    await cluster.publisher.publish(down(0))
    assert cluster.rules == []
    loop = asyncio.get_running_loop()
    assert loop.time() < (cluster.publisher.alarm.at_s or 0.0) <= loop.time() + 1.0, "it wakes by itself"
    cluster.now_s = 30
    await cluster.publisher.publish(down(0))
    rule = {
        "deviceSelector": {"driver": "nic.hyperscout.io", "pool": "n1", "device": "pci-0000-01-00-0"},
        "taint": {"key": "hyperscout.io/degraded", "effect": "NoSchedule"},
    }
    assert cluster.rules == [rule]
    await cluster.publisher.publish(down(0))
    assert len(cluster.fake.writes) == 1
    cluster.now_s = 100
    await cluster.publisher.publish(two_rails())
    cluster.now_s = 399
    await cluster.publisher.publish(two_rails())
    assert cluster.rules == [rule]
    cluster.now_s = 400
    await cluster.publisher.publish(two_rails())
    assert cluster.rules == []


async def test_a_port_that_its_host_names_taints_the_nic() -> None:
    (gone,) = down(0).anomalies
    topology = replace(down(0), anomalies=(replace(gone, subject=Endpoint("n1", "n1", "mlx5_0"), peer=None),))
    cluster = Cluster()
    await cluster.publisher.publish(topology)
    assert [x["deviceSelector"] for x in cluster.rules] == [OURS._asdict()]


async def test_a_doubtful_link_taints_nothing() -> None:
    cluster = Cluster()
    await cluster.publisher.publish(down(0, confidence=0.5))
    assert cluster.rules == []


async def test_a_node_that_reports_the_nic_of_another_taints_none_of_its_own() -> None:
    cluster = Cluster(nics={"n1": (rdma(0), rdma(1)), "n2": (rdma(2), rdma(0))})
    await cluster.publisher.publish(down(0))
    assert [x["deviceSelector"] for x in cluster.rules] == [OURS._asdict()]


async def test_a_nic_that_another_driver_publishes_is_tainted_there() -> None:
    cluster = Cluster()
    spec = {
        "driver": THEIRS.driver,
        "nodeName": "n1",
        "pool": {"name": THEIRS.pool},
        "devices": [{"name": THEIRS.device, "attributes": {"dra.net/rdmaDevice": {"string": "mlx5_0"}}}],
    }
    one = cluster.fake.put(f"{COLLECTION}/theirs", {"metadata": {"name": "theirs"}, "spec": spec})
    cluster.slices.learn(one)
    await cluster.publisher.publish(down(0))
    assert [x["deviceSelector"] for x in cluster.rules] == [THEIRS._asdict()]


async def test_a_nic_that_no_driver_publishes_is_not_tainted() -> None:
    cluster = Cluster()
    cluster.slices.forget("n1-nic.hyperscout.io")
    await cluster.publisher.publish(down(0))
    assert cluster.rules == []
    assert cluster.publisher.notice is None, "the slice of another node has NICs"
    cluster.slices.forget("n2-nic.hyperscout.io")
    await cluster.publisher.publish(down(0))
    assert "none can be tainted: set dra: on" in (cluster.publisher.notice or "")


async def test_at_most_a_share_is_tainted() -> None:
    cluster = Cluster()
    await cluster.publisher.publish(down(0, 1, 2))
    assert len(cluster.rules) == 2
    assert cluster.publisher.notice == (
        "at most 2 of 4 NICs may be tainted (taint_share): nic.hyperscout.io/n2/pci-0000-03-00-0 is "
        "degraded but not tainted"
    )


async def test_a_watch_that_fails_is_reported() -> None:
    cluster = Cluster()
    cluster.slices.problem = "GET resourceslices: forbidden"
    await cluster.publisher.publish(two_rails())
    assert cluster.publisher.notice == "GET resourceslices: forbidden"


async def test_a_device_in_a_second_slice_of_our_driver_is_not_tainted() -> None:
    cluster = Cluster()
    one = new_slice("n1", "uid", [{"name": OURS.device}])
    one["metadata"]["name"] = "n1-zz"
    cluster.slices.forget("n1-nic.hyperscout.io")
    cluster.slices.learn(cluster.fake.put(f"{COLLECTION}/n1-zz", one))
    await cluster.publisher.publish(down(0))
    assert cluster.rules == []


async def test_rules_of_others_stay() -> None:
    cluster = Cluster()
    theirs = taint_rule("resource.k8s.io/v1beta2", OURS)
    theirs["metadata"] = {"name": "of-an-admin", "labels": {}}
    cluster.fake.put(f"{cluster.path}/of-an-admin", theirs)
    await cluster.publisher.publish(down(0))
    cluster.now_s = 1000
    await cluster.publisher.publish(two_rails())
    cluster.now_s = 2000
    await cluster.publisher.publish(two_rails())
    assert [x for x in cluster.fake.objects if x.startswith(f"{cluster.path}/")] == [
        f"{cluster.path}/of-an-admin"
    ]


async def test_a_rule_that_was_deleted_by_hand_comes_back() -> None:
    cluster, woken = Cluster(), list[bool]()
    cluster.publisher.wake.subscribe(lambda: woken.append(True))
    await cluster.publisher.publish(down(0))
    (path,) = (x for x in cluster.fake.objects if x.startswith(f"{cluster.path}/"))
    del cluster.fake.objects[path]
    assert not cluster.publisher.recheck.is_due
    cluster.publisher.recheck.expire()
    assert woken
    await cluster.publisher.publish(down(0))
    assert path in cluster.fake.objects


@pytest.mark.parametrize(
    "change",
    [
        {"taint": {"key": "of-another", "effect": "NoSchedule"}},
        {"taint": {"key": "hyperscout.io/degraded", "effect": "NoExecute"}},
        {"deviceSelector": {"driver": "gpu.example.com", "pool": "n1", "device": "gpu"}},
        {"deviceSelector": OURS._asdict() | {"deviceClassName": "none"}},
    ],
)
async def test_a_rule_that_was_changed_is_corrected(change: Mapping[str, Any]) -> None:
    cluster = Cluster()
    await cluster.publisher.publish(down(0))
    (path,) = (x for x in cluster.fake.objects if x.startswith(f"{cluster.path}/"))
    rule = cluster.fake.objects[path]
    cluster.fake.put(path, rule | {"spec": rule["spec"] | change})
    await cluster.publisher.publish(down(0))
    assert cluster.rules == [taint_rule("resource.k8s.io/v1beta2", OURS)["spec"]]
    cluster.fake.objects[path]["spec"]["taint"]["timeAdded"] = "2026-01-01T00:00:00Z"
    before = len(cluster.fake.writes)
    await cluster.publisher.publish(down(0))
    assert len(cluster.fake.writes) == before, "the API server adds the time"


async def test_a_changed_rule_of_a_nic_that_is_well_goes_at_its_time() -> None:
    cluster = Cluster()
    await cluster.publisher.publish(down(0))
    (path,) = (x for x in cluster.fake.objects if x.startswith(f"{cluster.path}/"))
    await cluster.publisher.publish(two_rails())
    for now_s in (100, 400):
        cluster.now_s = now_s
        rule = cluster.fake.objects[path]
        taint = {"key": "of-another", "effect": "NoSchedule"}
        cluster.fake.put(path, rule | {"spec": rule["spec"] | {"taint": taint}})
        await cluster.publisher.publish(two_rails())
        assert len(cluster.rules) == (now_s == 100)


async def test_a_dry_run_says_what_it_would_replace() -> None:
    cluster = Cluster("dry-run")
    rule = taint_rule("resource.k8s.io/v1beta2", OURS)
    rule["metadata"]["name"] = "copied"
    cluster.fake.put(f"{cluster.path}/copied", rule)
    await cluster.publisher.publish(two_rails())
    assert cluster.fake.writes == []
    assert cluster.said == [
        "would change taints of devices: 1\nDeviceTaintRule copied: delete (it was changed)\n"
    ]


async def test_a_name_that_is_taken_is_reported() -> None:
    cluster = Cluster()
    rule = taint_rule("resource.k8s.io/v1beta2", OURS)
    rule["metadata"]["labels"] = {}
    cluster.fake.put(f"{cluster.path}/{rule['metadata']['name']}", rule)
    with pytest.raises(PublishError, match="is of another owner: delete it"):
        await cluster.publisher.publish(down(0))


@pytest.mark.parametrize("versions", [("v1",), ()])
async def test_a_cluster_without_rules_is_told_how_to_get_them(versions: Sequence[str]) -> None:
    cluster = Cluster(versions=versions or ("v1",))
    if not versions:
        del cluster.fake.objects[GROUP]
    with pytest.raises(PublishError, match="enable it with the feature gate DRADeviceTaintRules"):
        await cluster.publisher.publish(down(0))


async def test_a_dry_run_writes_nothing() -> None:
    cluster = Cluster("dry-run")
    await cluster.publisher.publish(down(0))
    assert cluster.fake.writes == []
    assert cluster.said == [
        (
            "would change taints of devices: 1\n"
            "nic.hyperscout.io/n1/pci-0000-01-00-0: taint (MissingLink: n1/p1 -> leaf-0/p1)\n"
        )
    ]


async def test_off_removes_the_rules_of_earlier_runs() -> None:
    on, off = Cluster(), Cluster("off")
    await on.publisher.publish(down(0))
    copied = taint_rule("resource.k8s.io/v1beta2", OURS)
    copied["metadata"]["name"] = "copied"
    on.fake.put(f"{on.path}/copied", copied)
    off.fake.objects = on.fake.objects
    await off.publisher.publish(down(0))
    assert on.rules == []


async def test_off_without_the_right_to_delete_asks_for_nothing_else() -> None:
    cluster = Cluster("off")
    cluster.fake.allows = False
    asked: list[str] = []
    cluster.fake.before = lambda method, path: asked.append(path)
    for _ in range(2):
        await cluster.publisher.publish(down(0))
    assert asked == ["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"]
