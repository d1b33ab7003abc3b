"""NodeFeatures: one for each node with labels, only what differs, and none of other owners."""

import copy
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hyperscout_publish.hypernodes.overlap import OverlapPolicy
from hyperscout_publish.hypernodes.wanted import NOTHING_HELD, Held
from hyperscout_publish.nodes.label_keys import key_templates
from hyperscout_publish.nodes.node_features import NODE_NAME, NodeFeaturesPublisher, is_denied
from hyperscout_publish.publisher.base import PublishError
from hyperscout_topology.topology import Topology
from support.fake_kube import FakeKube
from support.topologies import leaves, towers, two_leaves

LEAF, CORE = "hyperscout.io/leaf", "hyperscout.io/core"
FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/net/nodefeatures"
OURS = {"app.kubernetes.io/managed-by": "hyperscout"}


@pytest.fixture
def fake() -> FakeKube:
    fake = FakeKube()
    for name in ("n01", "n02", "n03", "n04"):
        fake.add_node(name)
    return fake


def publisher(
    fake: FakeKube,
    *entries: str,
    said: list[str] | None = None,
    held: Held = NOTHING_HELD,
    overlap: OverlapPolicy = "keep",
    single_hosts: bool = True,
) -> NodeFeaturesPublisher:
    async def found(topology: Topology) -> Held:
        return held

    made = NodeFeaturesPublisher(
        fake.kube(),
        fake.nodes(),
        "net",
        [].append if said is None else said.append,
        templates=key_templates(entries),
        held=found,
        overlap=overlap,
        single_hosts=single_hosts,
        dry_run=said is not None,
        rng=Random(1),
    )
    follow(fake, made)
    return made


def follow(fake: FakeKube, features: NodeFeaturesPublisher) -> None:
    """Let the watch catch up."""
    there = {
        x["metadata"]["name"]: x
        for path, x in fake.objects.items()
        if path.startswith(FEATURES) and OURS.items() <= x["metadata"].get("labels", {}).items()
    }
    for known in list(features.features):
        if known["metadata"]["name"] not in there:
            features.features.forget(known["metadata"]["name"])
    for found in there.values():
        features.features.learn(copy.deepcopy(found))
    features.features.synced.set()


def spec(fake: FakeKube, node: str) -> dict[str, str]:
    return dict(fake.objects[f"{FEATURES}/hyperscout-{node}"]["spec"]["labels"])


def count(fake: FakeKube) -> int:
    return sum(path.startswith(FEATURES) for path in fake.objects)


async def test_each_node_has_one_with_its_labels(fake: FakeKube) -> None:
    features = publisher(fake, "example.com/rack=leaf")
    await features.publish(two_leaves())
    assert spec(fake, "n03") == {LEAF: "leaf-b", CORE: "core", "example.com/rack": "leaf-b"}
    found = fake.objects[f"{FEATURES}/hyperscout-n03"]
    assert (found["apiVersion"], found["kind"]) == ("nfd.k8s-sigs.io/v1alpha1", "NodeFeature")
    assert found["metadata"]["labels"] == OURS | {NODE_NAME: "n03"}
    assert fake.labels("n03") == {}, "the node itself is NFD's"
    fake.writes.clear()
    await features.publish(two_leaves())
    await publisher(fake, "example.com/rack=leaf").publish(two_leaves())
    assert fake.writes == []


async def test_an_accelerator_domain_of_one_host_may_give_no_label(fake: FakeKube) -> None:
    topology = replace_nodes(towers("nvlink", "leaf", "pod"))
    for single_hosts in (True, False):
        await publisher(fake, single_hosts=single_hosts).publish(topology)
        assert ("hyperscout.io/nvlink" in spec(fake, "n03")) == single_hosts
        assert spec(fake, "n01")["hyperscout.io/nvlink"] == "near"


def replace_nodes(topology: Topology) -> Topology:
    """The topology with the names that nodes have here: n01 for n1."""
    renamed = (replace(h, nodes=tuple(f"n0{n[1:]}" for n in h.nodes)) for h in topology.hypernodes)
    return replace(topology, hypernodes=tuple(renamed))


async def test_a_node_that_moves_changes_its_own_alone(fake: FakeKube) -> None:
    await publisher(fake, "example.com/rack=leaf").publish(leaves(("n01", "n02"), ("n03",)))
    fake.writes.clear()
    await publisher(fake).publish(leaves(("n01",), ("n02", "n03")))
    assert spec(fake, "n02") == {LEAF: "l2", CORE: "core"}
    assert "example.com/rack" not in spec(fake, "n01")
    assert [method for method, _, _ in fake.writes] == ["PATCH"] * 3


async def test_a_node_without_a_domain_and_one_that_is_gone_have_none(fake: FakeKube) -> None:
    await publisher(fake).publish(two_leaves())
    assert count(fake) == 4
    del fake.objects["/api/v1/nodes/n04"]
    await publisher(fake).publish(leaves(("n01",), ("n03",)))
    assert count(fake) == 2
    await publisher(fake).publish(Topology(9))
    assert count(fake) == 0


async def test_what_another_client_changed_is_put_right(fake: FakeKube) -> None:
    features = publisher(fake)
    await features.publish(two_leaves())
    woken: list[None] = []
    features.wake.subscribe(lambda: woken.append(None))
    path = f"{FEATURES}/hyperscout-n01"
    wrong: dict[str, Any] = {"metadata": {"labels": {NODE_NAME: "n02"}}, "spec": {"labels": {"x": "y"}}}
    await fake.write("PATCH", path, wrong)
    follow(fake, features)
    assert woken
    await features.publish(two_leaves())
    assert spec(fake, "n01") == {LEAF: "leaf-a", CORE: "core"}
    assert fake.objects[path]["metadata"]["labels"][NODE_NAME] == "n01"


async def test_an_object_of_another_owner_stays_and_does_not_stop_the_others(fake: FakeKube) -> None:
    theirs = {"metadata": {"name": "hyperscout-n01"}, "spec": {"labels": {"x": "y"}}}
    fake.put(f"{FEATURES}/hyperscout-n01", theirs)
    with pytest.raises(PublishError, match="1 of 4 NodeFeatures"):
        await publisher(fake).publish(two_leaves())
    assert spec(fake, "n01") == {"x": "y"}
    assert spec(fake, "n04")[LEAF] == "leaf-b"


async def test_an_object_that_another_owner_put_in_its_place_is_not_deleted(fake: FakeKube) -> None:
    features = publisher(fake)
    await features.publish(two_leaves())
    path = f"{FEATURES}/hyperscout-n01"
    theirs = fake.put(path, {"metadata": {"name": "hyperscout-n01"}, "spec": {"labels": {"x": "y"}}})
    with pytest.raises(PublishError, match="the object has been modified"):
        await features.publish(replace(two_leaves(), hypernodes=()))
    assert fake.objects[path] == theirs


async def test_an_object_with_another_name_is_none_of_ours(fake: FakeKube) -> None:
    fake.put(f"{FEATURES}/foo", {"metadata": {"name": "foo", "labels": OURS}})
    fake.put(f"{FEATURES}/hyperscout-foo", {"metadata": {"name": "hyperscout-foo"}})
    features = publisher(fake)
    await features.publish(two_leaves())
    follow(fake, features)
    assert count(fake) == 6


async def test_a_watch_that_fails_is_a_notice(fake: FakeKube) -> None:
    features = publisher(fake)
    features.features.problem = "GET nodefeatures: forbidden"
    await features.publish(two_leaves())
    assert features.notice == "GET nodefeatures: forbidden"


@pytest.mark.parametrize(("overlap", "kept"), [("keep", True), ("yield", False)])
async def test_labels_follow_what_other_owners_hold_back(
    fake: FakeKube, overlap: OverlapPolicy, kept: bool
) -> None:
    await publisher(fake).publish(two_leaves())
    await publisher(fake, held=Held(frozenset({"leaf-b"})), overlap=overlap).publish(two_leaves())
    there = f"{FEATURES}/hyperscout-n03" in fake.objects and LEAF in spec(fake, "n03")
    assert there is kept


async def test_a_dry_run_writes_nothing(fake: FakeKube) -> None:
    said: list[str] = []
    await publisher(fake, said=said).publish(two_leaves())
    assert fake.writes == []
    assert said[0].splitlines()[:2] == [
        "would change NodeFeatures: 4",
        f"n01: {LEAF}: leaf-a (new), {CORE}: core (new)",
    ]


async def test_a_name_that_no_label_can_hold_has_none(fake: FakeKube) -> None:
    long = "n" * 64
    fake.add_node(long)
    await publisher(fake).publish(leaves((long, "n01")))
    assert count(fake) == 1


async def test_without_nfd_the_problem_names_what_to_do(
    fake: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyperscout_publish.nodes.node_writes._FIRST_LIST_S", 0.0)
    made = publisher(fake)
    made.features.synced.clear()
    made.features.problem, made.features.is_unknown = "GET nodefeatures: not found", True
    with pytest.raises(
        PublishError, match=r"in namespace net are not known: GET nodefeatures: not found: install node-feat"
    ):
        await made.publish(two_leaves())


@pytest.mark.parametrize(
    ("key", "denied"),
    [
        ("kubernetes.io/x", True),
        ("topology.kubernetes.io/rack", True),
        ("feature.node.kubernetes.io/leaf", False),
        ("net.feature.node.kubernetes.io/leaf", False),
        ("hyperscout.io/leaf", False),
        ("notkubernetes.io/x", False),
        ("x", False),
    ],
)
def test_keys_that_nfd_denies(key: str, denied: bool) -> None:
    assert is_denied(key) is denied
