"""Which publishers the settings ask for, and settings of theirs that cannot be meant."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.build.publishers import build_publishers
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_kubernetes.errors import ForbiddenError
from hyperscout_publish.publisher.base import PublishError
from hyperscout_runtime.settings import SettingsError
from hyperscout_topology.topology import Topology
from support.fake_kube import FakeKube
from support.kube_objects import hypernode_object
from support.waiting import TIMEOUT_S

DEVICES = ("resource-slices", "device-taints")
OF_NODES = ("kubernetes", "node-labels", "taints", "node-conditions", "slinky")
OF_A_CLUSTER = (*OF_NODES, *DEVICES)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"node_labels": "on"}, "node_labels: set kubernetes too"),
        ({"taints": "dry-run", "kueue_topology": "x"}, "taints, kueue_topology: set kubernetes too"),
        ({"node_conditions": "on"}, "node_conditions: set kubernetes too"),
        ({"node_label_keys": ["example.com/rack"]}, "expected KEY=TIER"),
        ({"dra": "on", "dra_taints": "on"}, "dra, dra_taints: set kubernetes too"),
        ({"deployment": "collector"}, "deployment: set kubernetes too"),
        ({"gates_on_degradation": "move"}, "gates_on_degradation: set gates too"),
        ({"gates_defragment_every_s": 10}, "gates_defragment_every_s: set gates too"),
        ({"gates_pod_labels": True}, "gates_pod_labels: set gates too"),
        ({"node_labels": "nfd"}, "node_labels: set kubernetes too"),
        (
            {
                "kubernetes": "publish",
                "node_labels": "nfd",
                "node_label_keys": ["topology.kubernetes.io/rack=leaf"],
            },
            "node-feature-discovery sets no label topology.kubernetes.io/rack",
        ),
        ({"slinky_config_map": "slurm/topology"}, "slinky_config_map: set kubernetes too"),
        ({"kubernetes": "publish", "slinky_config_map": "a/b/c"}, "'a/b/c': expected NAMESPACE/NAME"),
        ({"kubernetes": "publish", "slinky_config_map": "../x"}, "'../x': expected NAMESPACE/NAME"),
        ({"kubernetes": "publish", "kueue_topology": "Wires!"}, "'Wires!': expected a Kubernetes name"),
        ({"kubernetes": "publish", "taint_share": 1.5}, "taint_share"),
        ({"slurm_hook": "scontrol reconfigure"}, "set slurm_tree_file"),
        (
            {"slurm_tree_file": "/x", "slurm_hook": "scontrol 'reconfigure"},
            "slurm_hook: No closing quotation",
        ),
        ({"slurm_tree_file": "/x", "slurm_block_file": "/x"}, "expected different files"),
        ({"slurm_tree_file": "/x", "slurm_live": "scontrol"}, "slurm_live: set slurm_hook and exactly one"),
        (
            {"slurm_tree_file": "/x", "slurm_yaml_file": "/y", "slurm_hook": "x", "slurm_live": "scontrol"},
            "slurm_live: set slurm_hook and exactly one",
        ),
        ({"slurm_block_sizes": [18, 40]}, "slurm_block_sizes: 40: expected ascending sizes, each 18 times"),
        ({"clusters": ["east"]}, "expected NAME=FILE"),
        ({"clusters": ["switch=/x"]}, "other than 'switch', 'fabric' and 'any'"),
        ({"clusters": ["East=/x"]}, "expected a DNS label"),
        ({"clusters": ["east=/x", "east=/y"]}, "east: expected one kubeconfig for each cluster"),
        (
            {"clusters": ["east=/x"], "kubernetes": "publish", "gates": "on"},
            "gates: they know the free resources of one",
        ),
        ({"clusters": ["east=/x"], "deployment": "collector"}, "deployment: set kubernetes too"),
    ],
)
def test_what_cannot_be_meant_is_said(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(None, settings)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, []),
        ({"slurm_yaml_file": "/x/topology.yaml"}, ["slurm-files"]),
        ({"slurm_yaml_file": "/x/topology.yaml", "slurm_block_sizes": [18, 72]}, ["slurm-files"]),
        ({"kubernetes": "publish"}, list(OF_A_CLUSTER)),
        ({"kubernetes": "dry-run"}, ["kubernetes", "node-labels"]),
        ({"kubernetes": "dry-run", "dra": "on", "dra_taints": "on"}, ["kubernetes", "node-labels", *DEVICES]),
        ({"kubernetes": "dry-run", "taints": "on"}, ["kubernetes", "node-labels", "taints"]),
        (
            {"kubernetes": "dry-run", "node_conditions": "on"},
            ["kubernetes", "node-labels", "node-conditions"],
        ),
        (
            {"kubernetes": "dry-run", "slinky_config_map": "slurm/topology"},
            ["kubernetes", "node-labels", "slinky"],
        ),
        (
            {"kubernetes": "publish", "node_labels": "nfd", "lease_namespace": "hyperscout"},
            [*OF_NODES, "node-features", *DEVICES],
        ),
        ({"kubernetes": "publish", "kueue_topology": "wires"}, [*OF_NODES, "kueue", *DEVICES]),
    ],
)
async def test_publishers_by_settings(settings: dict[str, Any], names: list[str]) -> None:
    loaded = load_settings(None, settings)
    kube = FakeKube().kube() if loaded.kubernetes != "off" else None
    found = build_publishers(Context(loaded, kube))
    assert [publisher.name for publisher in found.publishers] == names


@pytest.mark.parametrize(("mode", "warned"), [("off", True), ("dry-run", False), ("on", False)])
async def test_label_keys_without_labels_are_warned_of(
    mode: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"kubernetes": "publish", "node_labels": mode, "node_label_keys": ["example.com/rack=leaf"]}
    build_publishers(Context(load_settings(None, given), FakeKube().kube()))
    assert ("node_label_keys: node_labels is off" in caplog.text) is warned


@pytest.mark.parametrize(
    ("kubernetes", "names"),
    [
        ("off", [f"east/{name}" for name in OF_A_CLUSTER]),
        ("publish", [*OF_A_CLUSTER, *(f"east/{name}" for name in OF_A_CLUSTER)]),
    ],
)
async def test_each_cluster_has_publishers_and_watches_of_its_own(kubernetes: str, names: list[str]) -> None:
    given = {"kubernetes": kubernetes, "clusters": ["east=/x"], "taints": "on", "node_labels": "on"}
    kube = FakeKube().kube() if kubernetes != "off" else None
    found = build_publishers(Context(load_settings(None, given), kube, {"east": FakeKube().kube()}))
    assert [publisher.name for publisher in found.publishers] == names
    assert len(found.services) == 3 * len(found.nodes)
    assert list(found.nodes) == ([""] if kube is not None else []) + ["east"]


@pytest.mark.parametrize(
    ("key", "is_read"), [("topology.kubernetes.io/zone", True), ("nvidia.com/gpu.clique", True), ("x", False)]
)
async def test_a_label_that_is_read_is_a_change_of_the_cluster(key: str, is_read: bool) -> None:
    given = {
        "kubernetes": "publish",
        "cloud_labels": ["kubernetes"],
        "nvlink_labels": ["nvidia.com/gpu.clique"],
    }
    fake = FakeKube()
    fake.add_node("n1")
    context = Context(load_settings(None, given), fake.kube())
    nodes = build_publishers(context).nodes[""]
    fake.follow(nodes)
    changes: list[None] = []
    context.signals.cluster_changed.subscribe(lambda: changes.append(None))
    fake.add_node("n1", {key: "1"})
    fake.follow(nodes)
    assert bool(changes) is is_read


async def test_another_cluster_is_read_before_anything_is_published_there() -> None:
    fake = FakeKube()

    def forbidden(method: str, path: str) -> None:
        raise ForbiddenError(f"{method} {path}: status 403")

    fake.before = forbidden
    given = {"kubernetes": "off", "clusters": ["east=/x"]}
    found = build_publishers(Context(load_settings(None, given), None, {"east": fake.kube()}))
    for publisher in found.publishers:
        with pytest.raises(PublishError, match="the published HyperNodes cannot be read"):
            await publisher.publish(Topology(1))


@pytest.mark.parametrize(("kubernetes", "writes"), [("publish", True), ("dry-run", False)])
async def test_a_dry_run_writes_no_event_on_the_deployment(kubernetes: str, writes: bool) -> None:
    given = {"kubernetes": kubernetes, "deployment": "collector", "lease_namespace": "ns"}
    found = build_publishers(Context(load_settings(None, given), FakeKube().kube()))
    assert (found.warn is not None) is writes


@pytest.mark.parametrize(
    ("kubernetes", "gates", "warned"),
    [("dry-run", "on", True), ("dry-run", "dry-run", False), ("publish", "on", False)],
)
async def test_gates_that_a_dry_run_keeps_closed(
    kubernetes: str, gates: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    build_publishers(
        Context(load_settings(None, {"kubernetes": kubernetes, "gates": gates}), FakeKube().kube())
    )
    assert ("gates: kubernetes is dry-run" in caplog.text) is warned


async def test_nodes_that_change_wake_those_that_write_to_nodes_once() -> None:
    woken: list[str] = []
    done = asyncio.Event()
    fake = FakeKube()
    context = Context(load_settings(None, {"kubernetes": "publish"}), fake.kube())
    context.signals.cluster_changed.subscribe(lambda: woken.append("inference"))
    found = build_publishers(context)
    for publisher in found.publishers:
        publisher.wake.subscribe(partial(woken.append, publisher.name))
    found.publishers[len(OF_NODES) - 1].wake.subscribe(done.set)
    nodes = found.publishers[1]._nodes  # type: ignore[attr-defined]
    fake.add_node("n1")
    fake.add_node("n2")
    fake.follow(nodes)
    async with asyncio.timeout(TIMEOUT_S):
        await done.wait()
    assert woken == ["inference", "inference", *OF_NODES[1:]]


async def test_a_hypernode_that_appears_wakes_what_may_mark_it() -> None:
    woken: list[str] = []
    done = asyncio.Event()
    found = build_publishers(Context(load_settings(None, {"kubernetes": "publish"}), FakeKube().kube()))
    for publisher in found.publishers[1:]:
        publisher.wake.subscribe(partial(woken.append, publisher.name))
    found.publishers[len(OF_NODES) - 1].wake.subscribe(done.set)
    found.publishers[0].hypernodes.learn(hypernode_object("leaf"))  # type: ignore[attr-defined]
    async with asyncio.timeout(TIMEOUT_S):
        await done.wait()
    assert woken == [*OF_NODES[1:]]


def test_files_for_slurm_are_paths() -> None:
    assert load_settings(None, {"slurm_tree_file": "/etc/slurm/topology.conf"}).slurm_tree_file == Path(
        "/etc/slurm/topology.conf"
    )
