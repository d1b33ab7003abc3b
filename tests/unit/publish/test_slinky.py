"""Slinky: a ConfigMap without nodes, an annotation of each node, and nothing of other owners."""

from typing import Any

import pytest
import yaml
from hyperscout_kubernetes.errors import ForbiddenError
from hyperscout_kubernetes.nodes import SLINKY_SET, SLINKY_SPEC
from hyperscout_publish.nodes.slinky import SlinkyPublisher, specs
from hyperscout_publish.publisher.base import PublishError
from hyperscout_publish.slurm.text import DEFAULTS, SlurmOptions, slurm_yaml
from hyperscout_topology.topology import Topology
from support.fake_kube import FakeKube, failing
from support.topologies import leaves, pods, two_leaves

CONFIG_MAP = "/api/v1/namespaces/slurm/configmaps/extra"
OTHER_KEYS = {"gres.conf": "AutoDetect=Full\n"}


@pytest.fixture
def fake() -> FakeKube:
    fake = FakeKube()
    fake.put(CONFIG_MAP, {"metadata": {"name": "extra"}, "data": dict(OTHER_KEYS)})
    for name in ("n01", "n02", "n03", "n04", "n09", "other"):
        fake.add_node(name)
    return fake


def publisher(fake: FakeKube, config_map: str = "slurm/extra") -> SlinkyPublisher:
    return SlinkyPublisher(fake.kube(), fake.nodes(), config_map, print)


def file(fake: FakeKube) -> str:
    return str(fake.objects[CONFIG_MAP]["data"]["topology.yaml"])


def annotate(fake: FakeKube, node: str, **values: str) -> None:
    keys = {"spec": SLINKY_SPEC, "ours": SLINKY_SET}
    fake.objects[f"/api/v1/nodes/{node}"]["metadata"]["annotations"] = {
        keys[key]: value for key, value in values.items()
    }


async def test_the_config_map_names_switches_and_blocks_and_no_node(fake: FakeKube) -> None:
    await publisher(fake).publish(two_leaves())
    assert fake.objects[CONFIG_MAP]["data"] == OTHER_KEYS | {"topology.yaml": file(fake)}
    tree, block, flat = yaml.safe_load(file(fake))
    assert tree == {
        "topology": "tree",
        "cluster_default": True,
        "tree": {
            "switches": [
                {"switch": "leaf-a"},
                {"switch": "leaf-b"},
                {"switch": "core", "children": "leaf-a,leaf-b"},
                {"switch": "no-topology"},
            ]
        },
    }
    assert block["block"] == {"block_sizes": [2, 4], "blocks": [{"block": "leaf-a"}, {"block": "leaf-b"}]}
    assert flat["flat"] is True


async def test_each_node_says_its_leaf_and_block(fake: FakeKube) -> None:
    await publisher(fake).publish(two_leaves())
    for node, spec in {
        "n01": "tree:leaf-a,block:leaf-a",
        "n04": "tree:leaf-b,block:leaf-b",
        "n09": "tree:no-topology",
    }.items():
        assert fake.annotations(node) == {SLINKY_SPEC: spec, SLINKY_SET: spec}
    assert fake.annotations("other") == {}
    assert fake.writes[0][1] == CONFIG_MAP, "the switches come before the nodes that name them"


def test_an_annotation_names_a_unit_of_the_file() -> None:
    """Of every tier, of a tree of three."""
    topology = pods(2, 1)
    tree, block, _ = yaml.safe_load("".join(slurm_yaml(topology, SlurmOptions(dynamic=True))))
    leaves_of_file = {row["switch"] for row in tree["tree"]["switches"] if "children" not in row}
    blocks = {row["block"] for row in block["block"]["blocks"]}
    found = specs(topology, DEFAULTS)
    assert len(found) == 12
    for spec in found.values():
        of_tree, of_block = spec.split(",")
        assert of_tree.removeprefix("tree:") in leaves_of_file
        assert of_block.removeprefix("block:") in blocks


async def test_a_node_that_moves_writes_that_node_alone(fake: FakeKube) -> None:
    nodes = fake.nodes()
    slinky = SlinkyPublisher(fake.kube(), nodes, "slurm/extra", print, SlurmOptions(block_sizes=(2,)))
    await slinky.publish(leaves(("n01", "n02"), ("n03",)))
    fake.writes.clear()
    await slinky.publish(leaves(("n01",), ("n02", "n03"), generation=2))
    assert [path for _, path, _ in fake.writes] == ["/api/v1/nodes/n02"]
    fake.writes.clear()
    await slinky.publish(leaves(("n01",), ("n02", "n03"), generation=3))
    assert fake.writes == []


async def test_a_restart_writes_nothing(fake: FakeKube) -> None:
    await publisher(fake).publish(two_leaves())
    fake.writes.clear()
    await publisher(fake).publish(two_leaves())
    assert fake.writes == []


async def test_annotations_of_others_stay_and_are_reported(fake: FakeKube) -> None:
    annotate(fake, "n01", spec="topo-switch:s1")
    annotate(fake, "n02", spec="topo-switch:s1", ours="tree:leaf-a,block:leaf-a")
    annotate(fake, "n03", spec="tree:leaf-b,block:leaf-b")
    annotate(fake, "other", spec="topo-switch:s9")
    slinky = publisher(fake)
    await slinky.publish(two_leaves())
    assert fake.annotations("n01") == fake.annotations("n02") == {SLINKY_SPEC: "topo-switch:s1"}
    assert fake.annotations("n03") == {SLINKY_SPEC: "tree:leaf-b,block:leaf-b"}
    assert fake.annotations("other") == {SLINKY_SPEC: "topo-switch:s9"}
    assert (slinky.notice or "").startswith(f"n01, n02: the annotation {SLINKY_SPEC} of another owner stays")


async def test_without_the_setting_own_annotations_go(fake: FakeKube) -> None:
    await publisher(fake).publish(two_leaves())
    annotate(fake, "n01", spec="topo-switch:s1", ours="tree:leaf-a,block:leaf-a")
    before = file(fake)
    await publisher(fake, "").publish(two_leaves())
    assert fake.annotations("n01") == {SLINKY_SPEC: "topo-switch:s1"}
    assert [fake.annotations(node) for node in ("n02", "n03", "n04", "n09")] == [{}] * 4
    assert file(fake) == before, "slurmctld may still read it"


async def test_a_node_that_leaves_the_hierarchy_has_no_annotation(fake: FakeKube) -> None:
    await publisher(fake).publish(leaves(("n01", "n02"), ("n03",)))
    await publisher(fake).publish(leaves(("n01",), ("n03",)))
    assert fake.annotations("n02") == {}


async def test_the_file_is_read_again_after_a_while(fake: FakeKube) -> None:
    slinky = publisher(fake)
    await slinky.publish(two_leaves())
    wanted = file(fake)
    fake.objects[CONFIG_MAP]["data"] = dict(OTHER_KEYS)
    woken: list[None] = []
    slinky.wake.subscribe(lambda: woken.append(None))
    slinky.recheck.expire()
    assert woken
    await slinky.publish(two_leaves())
    assert file(fake) == wanted


async def test_a_config_map_that_is_not_there_is_said_and_no_node_is_written(fake: FakeKube) -> None:
    del fake.objects[CONFIG_MAP]
    with pytest.raises(PublishError, match="there is no ConfigMap slurm/extra: create it") as caught:
        await publisher(fake).publish(two_leaves())
    assert caught.value.retry
    assert fake.writes == []


async def test_a_refused_write_is_a_problem(fake: FakeKube) -> None:
    fake.before = failing(ForbiddenError("cannot patch resource"))
    with pytest.raises(PublishError, match="cannot patch resource"):
        await publisher(fake).publish(two_leaves())


async def test_a_dry_run_writes_nothing(fake: FakeKube) -> None:
    said: list[str] = []
    slinky = SlinkyPublisher(fake.kube(), fake.nodes(), "slurm/extra", said.append, dry_run=True)
    for _ in range(2):
        await slinky.publish(two_leaves())
    assert fake.writes == []
    assert said[0] == "would change ConfigMap slurm/extra: 1\nadd topology.yaml\n"
    assert said[1].splitlines()[:2] == [
        "would change annotations of nodes: 5",
        f"n01: {SLINKY_SPEC}: tree:leaf-a,block:leaf-a",
    ]
    assert len(said) == 2


@pytest.mark.parametrize("topology", [Topology(1), leaves(("506b4b0300aa0001",))])
async def test_without_a_hierarchy_nothing_changes(fake: FakeKube, topology: Any) -> None:
    await publisher(fake).publish(two_leaves())
    fake.writes.clear()
    slinky = publisher(fake)
    await slinky.publish(topology)
    assert fake.writes == []
    assert (slinky.notice or "").startswith("no hierarchy is known")
