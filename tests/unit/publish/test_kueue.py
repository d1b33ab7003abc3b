"""The Kueue Topology: its levels, and the care with which it is replaced."""

from collections.abc import Sequence
from typing import Any

import pytest
from hyperscout_kubernetes.errors import ForbiddenError
from hyperscout_publish.nodes.kueue import KueuePublisher, levels
from hyperscout_publish.publisher.base import PublishError
from hyperscout_topology.topology import HyperNode, Topology
from support.fake_kube import FakeKube, failing
from support.topologies import pods, two_leaves

LEAF, POD, CORE, HOST = (
    *(f"hyperscout.io/{tier}" for tier in ("leaf", "pod", "core")),
    "kubernetes.io/hostname",
)
PATH = "/apis/kueue.x-k8s.io/v1beta1/topologies/wires"
FLAVORS = "/apis/kueue.x-k8s.io/v1beta1/resourceflavors"


def cluster(*versions: tuple[str, Sequence[str]]) -> FakeKube:
    """A server that serves these resources in these versions."""
    fake = FakeKube()
    served = versions or (("v1beta1", ("topologies", "resourceflavors")),)
    fake.put("/apis/kueue.x-k8s.io", {"metadata": {}, "versions": [{"version": v} for v, _ in served]})
    for version, resources in served:
        found: dict[str, Any] = {"metadata": {}, "resources": [{"name": name} for name in resources]}
        fake.put(f"/apis/kueue.x-k8s.io/{version}", found)
    return fake


def publisher(fake: FakeKube, said: list[str] | None = None) -> KueuePublisher:
    say = [].append if said is None else said.append
    return KueuePublisher(fake.kube(), "wires", say, dry_run=said is not None)


def keys(fake: FakeKube, path: str = PATH) -> list[str]:
    return [level["nodeLabel"] for level in fake.objects[path]["spec"]["levels"]]


@pytest.mark.parametrize(
    ("topology", "expected"),
    [(pods(1, 1), [CORE, POD, LEAF, HOST]), (two_leaves(), [CORE, LEAF, HOST]), (Topology(1), [])],
)
def test_levels(topology: Topology, expected: list[str]) -> None:
    assert levels(topology) == expected


def test_there_are_never_too_many() -> None:
    """Of a tree deeper than the schema takes, the widest levels go."""
    nodes = ("n1",)
    rows = [
        HyperNode(
            f"h{i}", i, f"core-{i}", f"h{i + 1}" if i < 20 else None, (f"h{i - 1}",) * (i > 1), nodes, ()
        )
        for i in range(1, 21)
    ]
    found = levels(Topology(1, tuple(rows)))
    assert len(found) == 16
    assert found[-2:] == ["hyperscout.io/core-1", HOST]


async def test_it_is_created_once_and_is_ours() -> None:
    fake = cluster()
    kueue = publisher(fake)
    await kueue.publish(two_leaves())
    assert keys(fake) == [CORE, LEAF, HOST]
    assert fake.objects[PATH]["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "hyperscout"}
    await kueue.publish(two_leaves())
    assert len(fake.writes) == 1
    await publisher(fake).publish(two_leaves())
    assert len(fake.writes) == 1, "a restart finds it right"


async def test_a_deleted_object_is_found_missing_after_a_while() -> None:
    fake = cluster()
    kueue = publisher(fake)
    await kueue.publish(two_leaves())
    woken: list[bool] = []
    kueue.wake.subscribe(lambda: woken.append(True))
    del fake.objects[PATH]
    kueue.recheck.expire()
    assert woken
    await kueue.publish(two_leaves())
    assert PATH in fake.objects


async def test_the_newest_version_that_has_topologies_is_used() -> None:
    fake = cluster(
        ("v9", ("topologies",)),
        ("v1beta2", ("clusterqueues",)),
        ("v1beta1", ("x",)),
        ("v1alpha1", ("topologies",)),
    )
    await publisher(fake).publish(two_leaves())
    path = PATH.replace("v1beta1", "v1alpha1")
    assert fake.objects[path]["apiVersion"] == "kueue.x-k8s.io/v1alpha1"


@pytest.mark.parametrize("fake", [FakeKube(), cluster(("v1beta1", ("clusterqueues",)))])
async def test_without_kueue_the_problem_is_clear_and_tried_again(fake: FakeKube) -> None:
    with pytest.raises(PublishError, match=r"no Topology of kueue\.x-k8s\.io: install Kueue") as caught:
        await publisher(fake).publish(two_leaves())
    assert caught.value.retry


async def test_other_levels_replace_it_while_no_flavor_uses_it() -> None:
    fake = cluster()
    fake.put(f"{FLAVORS}/other", {"metadata": {"name": "other"}, "spec": {"topologyName": "default"}})
    fake.put(f"{FLAVORS}/plain", {"metadata": {"name": "plain"}, "spec": {}})
    fake.put(f"{FLAVORS}/bare", {"metadata": {"name": "bare"}})  # as Kueue's own examples have it
    kueue = publisher(fake)
    await kueue.publish(two_leaves())
    first = fake.objects[PATH]["metadata"]["uid"]
    await kueue.publish(pods(1, 1))
    assert keys(fake) == [CORE, POD, LEAF, HOST]
    assert fake.objects[PATH]["metadata"]["uid"] != first


async def test_one_that_is_used_stays_and_the_problem_names_the_users() -> None:
    fake = cluster()
    kueue = publisher(fake)
    await kueue.publish(two_leaves())
    fake.put(f"{FLAVORS}/gpu", {"metadata": {"name": "gpu"}, "spec": {"topologyName": "wires"}})
    with pytest.raises(PublishError, match=r"no ResourceFlavor refers to it \(gpu now\)"):
        await kueue.publish(pods(1, 1))
    assert keys(fake) == [CORE, LEAF, HOST]
    del fake.objects[f"{FLAVORS}/gpu"]
    await kueue.publish(pods(1, 1))
    assert keys(fake) == [CORE, POD, LEAF, HOST]


async def test_a_topology_of_another_owner_is_never_changed() -> None:
    fake = cluster()
    level = {"levels": [{"nodeLabel": "rack"}]}
    fake.put(PATH, {"metadata": {"name": "wires"}, "spec": level})
    with pytest.raises(PublishError, match="does not manage Topology wires with levels rack"):
        await publisher(fake).publish(two_leaves())
    assert keys(fake) == ["rack"]
    assert fake.writes == []


async def test_a_topology_of_another_owner_with_the_right_levels_is_no_error() -> None:
    fake = cluster()
    level = {"levels": [{"nodeLabel": key} for key in (CORE, LEAF, HOST)]}
    fake.put(PATH, {"metadata": {"name": "wires"}, "spec": level})
    await publisher(fake).publish(two_leaves())
    assert fake.writes == []


async def test_one_that_is_going_is_waited_for() -> None:
    fake = cluster()
    await publisher(fake).publish(two_leaves())
    fake.objects[PATH]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(PublishError, match="being deleted"):
        await publisher(fake).publish(pods(1, 1))


async def test_a_deletion_that_a_finalizer_delays_is_looked_at_again() -> None:
    fake = cluster()
    await publisher(fake).publish(two_leaves())
    kept = dict(fake.objects[PATH])

    def before(method: str, path: str) -> None:
        if method == "POST":
            fake.objects[PATH] = kept

    fake.before = before
    with pytest.raises(PublishError, match="the publisher retries"):
        await publisher(fake).publish(pods(1, 1))


async def test_no_hierarchy_leaves_it_alone_and_an_error_is_said() -> None:
    fake = cluster()
    kueue = publisher(fake)
    await kueue.publish(Topology(1))
    assert fake.writes == []
    fake.before = failing(ForbiddenError("403: cannot create topologies"), method="POST")
    with pytest.raises(PublishError, match="cannot create topologies"):
        await kueue.publish(two_leaves())


async def test_a_dry_run_says_what_it_would_do() -> None:
    fake = cluster()
    said: list[str] = []
    kueue = publisher(fake, said)
    await kueue.publish(two_leaves())
    await kueue.publish(two_leaves())
    assert said == [f"would change Topology: 1\nwires: create with levels {CORE}, {LEAF}, {HOST}\n"]
    assert fake.writes == []
