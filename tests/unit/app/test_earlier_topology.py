"""What a collector goes on from: what it followed, its own disk, or what the cluster tells."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hyperscout_collector.app.publication.earlier_topology import published_before
from hyperscout_collector.app.settings.settings import CollectorSettings, load_settings
from hyperscout_kubernetes.client import Kube, Object
from hyperscout_kubernetes.errors import ForbiddenError, KubeError, NotFoundError, UnreachableError
from hyperscout_placer.cluster.forest import Forest
from hyperscout_publish.clusters.cut import cut_to
from hyperscout_runtime.errors import StartError
from hyperscout_topology.topology import Topology
from support.kube_objects import hypernode_object
from support.topologies import leaves

PUBLISHED = [
    hypernode_object("l1", "n1", "n2", tier_name="leaf"),
    hypernode_object("l2", "n3", tier_name="leaf"),
    hypernode_object("core", "l1", "l2", tier=2, tier_name="core"),
]
SAME = replace(leaves(("n1", "n2"), ("n3",)), generation=7)
OLDER = replace(leaves(("n1",), ("n3",)), generation=7)
SHARED = {"leader_election": True, "store": "postgresql:///topology"}
FOLLOWED = replace(leaves(("n1", "n2", "n4"), ("n3",)), generation=5)


class FakeApi:
    """Lists what is published, after so many errors."""

    def __init__(self, hypernodes: Sequence[Object] = PUBLISHED, *errors: KubeError) -> None:
        self.hypernodes = hypernodes
        self.errors = list(errors)

    async def list(self, path: str, query: Any = None) -> tuple[Sequence[Object], str]:
        if self.errors:
            raise self.errors.pop(0)
        nodes = [{"metadata": {"name": f"n{i}"}} for i in range(1, 4)]
        return (nodes if path.endswith("/nodes") else self.hypernodes), "1"


def settings(tmp_path: Path, **more: Any) -> CollectorSettings:
    return load_settings(flags={"data_dir": tmp_path, "kubernetes": "publish", **more})


async def no_sleep(_delay_s: float) -> None:
    return None


def members(topology: Topology | None) -> list[tuple[str, ...]] | None:
    return None if topology is None else [h.nodes for h in topology.hypernodes if h.tier == 1]


@pytest.mark.parametrize(
    ("more", "api", "followed", "saved", "expected", "generation"),
    [
        pytest.param({}, FakeApi(), None, None, [("n1", "n2"), ("n3",)], 0, id="the cluster tells"),
        pytest.param({}, FakeApi([]), None, None, None, 0, id="nothing is published"),
        pytest.param(
            {}, FakeApi([], NotFoundError("")), None, None, None, 0, id="HyperNodes are not defined"
        ),
        pytest.param({}, FakeApi(), None, OLDER, [("n1",), ("n3",)], 7, id="alone: the own disk"),
        pytest.param({"kubernetes": "off"}, FakeApi(), None, None, None, 0, id="without Kubernetes"),
        pytest.param(
            {"leader_election": True}, FakeApi(), None, OLDER, [("n1", "n2"), ("n3",)], 7, id="led long ago"
        ),
        pytest.param(SHARED, FakeApi(), FOLLOWED, OLDER, [("n1",), ("n3",)], 7, id="the store is newer"),
        pytest.param(
            SHARED,
            FakeApi(),
            replace(FOLLOWED, generation=8),
            OLDER,
            [("n1", "n2", "n4"), ("n3",)],
            8,
            id="published, but not stored yet",
        ),
        pytest.param(
            SHARED,
            FakeApi(),
            None,
            OLDER,
            [("n1", "n2"), ("n3",)],
            7,
            id="not stored, but in the cluster",
        ),
        pytest.param(
            {"leader_election": True},
            FakeApi(),
            FOLLOWED,
            OLDER,
            [("n1", "n2", "n4"), ("n3",)],
            7,
            id="followed",
        ),
        pytest.param(
            {},
            FakeApi(PUBLISHED, UnreachableError("")),
            None,
            None,
            [("n1", "n2"), ("n3",)],
            0,
            id="asked again",
        ),
    ],
)
async def test_what_counts(
    tmp_path: Path,
    more: Any,
    api: FakeApi,
    followed: Topology | None,
    saved: Topology | None,
    expected: list[tuple[str, ...]] | None,
    generation: int,
) -> None:
    found = await published_before(
        settings(tmp_path, **more), cast(Kube, api), followed, saved, sleep=no_sleep
    )
    assert members(found) == expected
    assert found is None or found.generation == generation


async def test_the_own_disk_knows_the_cables_of_the_very_tree(tmp_path: Path) -> None:
    api = cast(Kube, FakeApi())
    assert await published_before(settings(tmp_path, leader_election=True), api, None, SAME) is SAME


@pytest.mark.parametrize(
    ("error", "waits"), [(ForbiddenError("not allowed"), 0), (UnreachableError("away", 3.0), 9)]
)
async def test_not_without_what_is_published(tmp_path: Path, error: KubeError, waits: int) -> None:
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    api = cast(Kube, FakeApi(PUBLISHED, *[error] * 10))
    with pytest.raises(StartError, match=str(error)):
        await published_before(settings(tmp_path), api, None, None, sleep=sleep)
    assert slept == [3.0] * waits


EAST = [
    hypernode_object("l1", "n9", tier_name="leaf"),
    hypernode_object("l3", "n1", tier_name="leaf"),
    hypernode_object("pod", "l1", "l3", tier=2, tier_name="pod"),
]
OWN = [
    hypernode_object("l2", "n2", "n3", tier_name="leaf"),
    hypernode_object("pod", "l2", tier=2, tier_name="pod"),
]
WEST = [hypernode_object("pod", "n1", "n2", tier_name="pod")]  # the leaves have one node each


async def several(
    tmp_path: Path, saved: Topology | None, own: Sequence[Object] = OWN, **others: FakeApi
) -> Topology | None:
    listed = tuple(f"{name}={tmp_path}" for name in others)
    given = settings(tmp_path, leader_election=True, clusters=listed)
    clusters = {name: cast("Kube", one) for name, one in others.items()}
    return await published_before(given, cast("Kube", FakeApi(own)), None, saved, clusters, sleep=no_sleep)


async def test_the_trees_of_several_clusters_are_parts_of_one(tmp_path: Path) -> None:
    """A cluster's tree lacks the lowest tiers where they have one node each."""
    joined = await several(tmp_path, None, east=FakeApi(EAST), west=FakeApi(WEST))
    assert joined is not None
    first, second = (h for h in joined.hypernodes if h.name.startswith("tier-1-"))
    assert {h.name: (h.tier, h.parent, h.nodes) for h in joined.hypernodes} == {
        first.name: (1, "pod", first.nodes),
        second.name: (1, "pod", second.nodes),
        "l1": (1, "pod", ("east/n9",)),
        "l2": (1, "pod", ("n2", "n3")),
        "l3": (1, "pod", ("east/n1",)),
        "pod": (2, None, ("east/n1", "east/n9", "n2", "n3", "west/n1", "west/n2")),
    }
    assert {first.nodes, second.nodes} == {("west/n1",), ("west/n2",)}
    assert Forest.of(joined).top == 2
    for cluster, published in (("west", WEST), ("", OWN)):
        assert [(h.name, h.tier) for h in cut_to(joined, cluster).hypernodes] == [
            (h["metadata"]["name"], h["spec"]["tier"]) for h in published
        ]


async def test_trees_of_different_times_make_no_cycle(tmp_path: Path) -> None:
    one, other = (
        [
            hypernode_object(low, "n1", "n2", tier_name="leaf"),
            hypernode_object(high, low, tier=2, tier_name="pod"),
        ]
        for low, high in (("a", "b"), ("b", "a"))
    )
    joined = await several(tmp_path, None, one, east=FakeApi(other))
    assert joined is not None
    places = {h.name: (h.tier, h.parent) for h in joined.hypernodes if h.name in ("a", "b")}
    assert places == {"a": (1, "b"), "b": (2, None)}


async def test_the_saved_topology_counts_if_all_clusters_have_it(tmp_path: Path) -> None:
    east = [
        hypernode_object("l1", "n1", "n9", tier_name="leaf"),
        hypernode_object("pod", "l1", tier=2, tier_name="pod"),
    ]
    joined = await several(tmp_path, None, east=FakeApi(east))
    assert joined is not None
    saved = replace(joined, generation=7, foreign_endpoints=("storage",))
    assert await several(tmp_path, saved, east=FakeApi(east)) is saved
    other = await several(tmp_path, saved, east=FakeApi(east[:1]))
    assert other is not None
    assert (other.generation, other.foreign_endpoints) == (7, ())


async def test_a_cluster_that_is_away_keeps_its_saved_part(tmp_path: Path) -> None:
    east = [hypernode_object("l9", "n1", "n9", tier_name="leaf"), hypernode_object("pod", "l9", tier=2)]
    east[1]["spec"]["tierName"] = "pod"
    joined = await several(tmp_path, None, east=FakeApi(east))
    assert joined is not None
    saved = replace(joined, generation=7)
    away = [UnreachableError("away")] * 10
    assert await several(tmp_path, saved, east=FakeApi(east, *away)) is saved
    grown = [hypernode_object("l2", "n1", "n2", "n3", tier_name="leaf"), OWN[1]]
    found = await several(tmp_path, saved, grown, east=FakeApi(east, *away))
    assert found is not None
    assert {h.name: h.nodes for h in found.hypernodes} == {
        "l2": ("n1", "n2", "n3"),
        "l9": ("east/n1", "east/n9"),
        "pod": ("east/n1", "east/n9", "n1", "n2", "n3"),
    }
    once = await several(tmp_path, None, east=FakeApi(east, UnreachableError("away")))
    assert once == joined, "it is asked again"


class Rendezvous(FakeApi):
    """Answers when all clusters have been asked."""

    def __init__(self, barrier: asyncio.Barrier) -> None:
        super().__init__(OWN)
        self.barrier = barrier

    async def list(self, path: str, query: Any = None) -> tuple[Sequence[Object], str]:
        await self.barrier.wait()
        return await super().list(path, query)


async def test_clusters_are_asked_at_the_same_time(tmp_path: Path) -> None:
    barrier = asyncio.Barrier(2)
    found = await several(tmp_path, None, east=Rendezvous(barrier), west=Rendezvous(barrier))
    assert found is not None
    assert "west/n2" in found.hypernodes[0].nodes
