"""A gang never spans clusters, and is placed in the one where it needs the lowest tier."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hyperscout_formats.text.reporters import cluster_of, node_in
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import Trial
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask, narrowed
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Range, Request, Workers, ends
from hyperscout_placer.repair.repair import Repair, improvement, repair
from hyperscout_placer.solve.clusters import place_in_cluster
from hyperscout_placer.solve.elastic import place_elastic
from hyperscout_placer.solve.explain import explain
from hyperscout_placer.solve.place import NO_MASKS
from support.builders import gang
from support.examples import in_blocks, seed_blocks
from support.placer_instances import Instance, random_instance
from support.placer_oracle import Free, brute_place, verify
from support.topologies import leaves

EAST, WEST = "east", "west"
ALL = ("", EAST, WEST)


def shared_by_clusters(case: Instance) -> Instance:
    """The same instance with each node in one of three clusters, and all of them as candidates."""
    rng = random.Random(case.seed)
    names = {node: node_in(rng.choice(ALL), node) for node in case.free}
    case = case.renamed(names)
    return replace(case, request=replace(case.request, clusters=ALL))


def only(cluster: str, forest: Forest, request: Request, masks: Mapping[str, Mask]) -> dict[str, Mask]:
    """The masks, cut down to the nodes of a cluster, for an oracle that knows no clusters."""
    mine = np.array([cluster_of(node) == cluster for node in forest.nodes], np.bool_)
    return narrowed(masks, {kind.role for kind in ends(request.gang)}, Mask(f"in {cluster}", mine))


@seed_blocks(range(40), in_blocks(8, 50)[1:])
def test_the_cluster_of_the_lowest_tier_as_brute_force_finds_it(seeds: range) -> None:
    clusters: Counter[str] = Counter()
    for seed in seeds:
        case = shared_by_clusters(random_instance(seed))
        forest, capacity = case.forest(), case.capacity()
        masks, plain = case.masks(forest), replace(case.request, clusters=())
        cut = {name: only(name, forest, plain, masks) for name in ALL}
        found = {name: brute_place(Free(forest, case.free), plain, cut[name]) for name in ALL}
        answer = place_in_cluster(capacity, case.request, masks)
        tops = {name: x.cost.top for name, x in found.items() if isinstance(x, Placement)}
        if isinstance(answer, Refusal):
            assert not tops, (case, answer)
            continue
        assert {cluster_of(node) for node in answer.nodes} == {answer.cluster}, (case, answer)
        best = min(tops, key=lambda name: (tops[name], ALL.index(name)))
        assert answer.cluster == best, (case, answer)
        expected = found[best]
        assert isinstance(expected, Placement)
        assert replace(answer.cost, widths=()) == replace(expected.cost, widths=()), (case, answer)
        assert not verify(Free(forest, case.free), plain, answer, cut[best]), (case, answer)
        clusters[best] += 1
    assert len(clusters) > 1, "not always the first one"


SHARED = leaves(("east/n1", "n1", "n2", "west/n1"), ("east/n2", "east/n3", "n3", "west/n2"))
NODES = sorted(node for h in SHARED.hypernodes if h.tier == 1 for node in h.nodes)


def capacity(**less: int) -> Capacity:
    return Capacity(Forest.of(SHARED), {node: {"workers": less.get(node, 1)} for node in NODES})


@pytest.mark.parametrize(
    ("workers", "clusters", "nodes"),
    [
        (2, (), {"n1", "n2"}),  # the default is the own cluster
        (3, (), {"n1", "n2", "n3"}),
        (4, (), None),  # eight nodes are free, and no cluster has four of them
        (2, (EAST, WEST), {"east/n2", "east/n3"}),  # one leaf, where west needs both
        (2, ALL, {"n1", "n2"}),  # the own cluster of equal ones
        (1, (WEST, EAST), {"east/n1"}),  # the first by name
        (3, (EAST, WEST), {"east/n1", "east/n2", "east/n3"}),  # west is too small
        (4, ALL, None),
    ],
)
def test_where_a_gang_goes(workers: int, clusters: tuple[str, ...], nodes: set[str] | None) -> None:
    answer = place_in_cluster(capacity(), replace(gang(workers), clusters=clusters))
    assert (set(answer.nodes) if isinstance(answer, Placement) else None) == nodes


def test_more_workers_come_before_a_lower_tier() -> None:
    elastic = Request(Group(1, (Workers(3, elastic=Range(1, 3)),)), clusters=(EAST, WEST))
    answer = place_in_cluster(capacity(), elastic)
    assert isinstance(answer, Placement)
    assert (answer.cluster, len(answer.nodes)) == (EAST, 3)


def test_a_refusal_has_the_reason_of_each_cluster() -> None:
    answer = place_in_cluster(capacity(), replace(gang(3), clusters=("", WEST), avoid=frozenset({"n1"})))
    assert isinstance(answer, Refusal)
    own, west = answer.reason.split("; cluster west: ")
    assert own.startswith("the collector's own cluster: ")
    assert "the gang fits if these nodes are not avoided: n1" in own
    assert "all nodes together fit 2 now" in west
    none = place_in_cluster(capacity(), replace(gang(1), cluster="north"))
    assert isinstance(none, Refusal)


def test_what_is_explained_is_in_the_cluster() -> None:
    request = replace(gang(2), clusters=(EAST, WEST))
    free = capacity()
    found = explain(free, request, place_in_cluster(free, request), {})
    assert [x.free for x in found.candidates] == [2], "workers of east that fit in the leaf"


def test_repair_and_improvement_stay_in_the_cluster() -> None:
    request, workers = replace(gang(2), cluster=EAST), (Workers(1), Workers(1))
    free, running = capacity(), ("east/n2", "east/n3")
    free.take(running, workers)
    answer = repair(free, request, running, frozenset({"east/n2"}), NO_MASKS)
    assert isinstance(answer, Repair)
    assert set(answer.placement.nodes) == {"east/n1", "east/n3"}
    free.take(("east/n1",), workers[:1])
    answer = repair(free, request, running, frozenset({"east/n2"}), NO_MASKS)
    assert isinstance(answer, Refusal), "only nodes of other clusters are free"
    free, running = capacity(), ("west/n1", "west/n2")
    free.take(running, workers)
    assert improvement(free, replace(request, cluster=WEST), running, NO_MASKS) is None, "west has two nodes"


def book() -> Placements:
    placements = Placements(clock_ns=lambda: 1000, timer=lambda: 0.0)
    placements.set_topology(SHARED)
    placements.set_unused({node: {"workers": 1} for node in NODES})
    return placements


def test_a_reservation_has_the_cluster_that_was_chosen() -> None:
    placements = book()
    placements.place("a", replace(gang(2), clusters=(EAST, WEST)), holder="api")
    held = placements.held("a")
    assert (held.request.cluster, held.request.clusters) == (EAST, ())


@pytest.mark.parametrize("quick", [True, False])
async def test_concurrent_requests_take_no_node_twice(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    placements = book()
    if not quick:
        monkeypatch.setattr("hyperscout_placer.book.placements.is_quick", lambda request: False)

    async def in_thread(trial: Callable[[], Trial]) -> Trial:
        found = trial()
        await asyncio.sleep(0)  # another decision starts on the same free resources
        return found

    answers = await asyncio.gather(
        *(
            placements.decide(name, replace(gang(2), clusters=ALL), holder="api", in_thread=in_thread)
            for name in "abc"
        )
    )
    used = [node for answer in answers if isinstance(answer, Placement) for node in answer.nodes]
    assert len(used) == len(set(used)) == 6
    assert sorted(x.cluster for x in answers if isinstance(x, Placement)) == ["", EAST, WEST]


def test_one_cluster_is_placed_as_before() -> None:
    """Without nodes of other clusters nothing is barred."""
    forest = Forest.of(leaves(("n1", "n2"), ("n3",)))
    free = Capacity(forest, {node: {"workers": 1} for node in forest.nodes})
    assert forest.clusters == {}
    assert place_in_cluster(free, gang(3)) == place_elastic(free, gang(3))
