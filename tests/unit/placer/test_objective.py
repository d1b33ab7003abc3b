"""The last lines of the objective, in cases that a person can check."""

import pytest
from hyperscout_placer.cluster.allreduce import predict
from hyperscout_placer.cluster.answer import Placement
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Packing, Request, Workers
from hyperscout_placer.cluster.speeds import default_speeds
from hyperscout_placer.solve.explain import explain
from hyperscout_placer.solve.place import place
from hyperscout_topology.topology import HyperNode, Topology
from support.builders import hypernode
from support.placer_oracle import verify

Free = dict[str, int | dict[str, int]]


def cluster(*pods: tuple[str, ...]) -> Forest:
    """Each pod has leaves, written as their nodes: cluster(("ab", "cd"), ("ef",))."""
    found: list[HyperNode] = []
    for p, leaves in enumerate(pods):
        names = tuple(f"leaf-{p}{i}" for i in range(len(leaves)))
        found += [hypernode(name, tuple(x), parent=f"pod-{p}") for name, x in zip(names, leaves, strict=True)]
        found.append(hypernode(f"pod-{p}", tuple("".join(leaves)), tier=2, children=names, parent="core"))
    every = tuple("".join("".join(leaves) for leaves in pods))
    found.append(hypernode("core", every, tier=3, children=tuple(f"pod-{p}" for p in range(len(pods)))))
    return Forest.of(Topology(1, tuple(found)))


def placed(forest: Forest, free: Free, *parts: Group | Workers) -> Placement:
    room = {node: {"workers": x} if isinstance(x, int) else x for node, x in free.items()}
    capacity, request = Capacity(forest, room), Request(Group(1, parts))
    answer = place(capacity, request)
    assert isinstance(answer, Placement)
    assert answer.exact
    assert not verify(capacity, request, answer)
    return answer


@pytest.mark.parametrize("names", [("ab", "cd"), ("cd", "ab")])
def test_an_empty_pod_is_not_broken(names: tuple[str, str]) -> None:
    """Whichever is first by name: the pod where a leaf is taken."""
    empty = [x for leaf in names for x in leaf]
    forest = cluster(tuple(names), ("ef", "gh"))
    assert set(placed(forest, dict.fromkeys([*empty, "g", "h"], 1), Workers(2)).nodes) == {"g", "h"}
    assert set(placed(forest, dict.fromkeys([*empty[:2], *"efgh"], 1), Workers(2)).nodes) == set(empty[:2])


def test_a_fuller_leaf_comes_before_a_fuller_pod() -> None:
    forest = cluster(("ab",), ("cd", "ef"))
    free: Free = {"a": 2, "b": 2, "c": 2, "d": 1, "e": 2, "f": 2}
    assert placed(forest, free, Workers(3)).hypernode == "leaf-10"


def test_a_half_used_leaf_comes_before_an_empty_one() -> None:
    forest = cluster(("ab", "cdef"))
    assert placed(forest, {"a": 1, "b": 1, "d": 1, "e": 1}, Workers(2)).nodes == ("d", "e")


def test_leaders_are_with_their_workers() -> None:
    """Whether leaders need the same as workers or something else."""
    forest = cluster(("abcd",))
    speeds = default_speeds(forest)
    alike = placed(forest, dict.fromkeys("abcd", 8), Group(4, (Workers(1, role="leader"), Workers(7))))
    other = {"cpu": 4, "gpu": 7}
    group = Group(4, (Workers(1, (("cpu", 1),), "leader"), Workers(7, (("gpu", 1),))))
    apart = placed(forest, dict.fromkeys("abcd", other), group)
    for answer in (alike, apart):
        assert "".join(answer.nodes) == "a" * 8 + "b" * 8 + "c" * 8 + "d" * 8
        assert answer.cost.widths == (0,)
        assert predict(forest, speeds, answer.nodes).ring_s < 0.045


def test_leaders_are_among_workers_where_not_every_group_can_be_whole() -> None:
    forest = cluster(("abcdef",))
    free: Free = {node: {"cpu": 4, "gpu": 7 if node < "e" else 4} for node in "abcdef"}
    group = Group(5, (Workers(1, (("cpu", 1),), "leader"), Workers(7, (("gpu", 1),))))
    answer = placed(forest, free, group)
    leaders = [answer.nodes[rank] for rank in range(0, 40, 8)]
    assert len(set(leaders)) >= 4


def test_a_group_without_a_tier_is_in_one_leaf_if_that_costs_nothing() -> None:
    forest = cluster(("abcde", "fghi", "jklm"))
    free = dict.fromkeys("abcdefghijklm", 1)
    answer = placed(forest, free, Group(2, (Workers(4),)))
    assert answer.nodes == tuple("fghijklm")
    assert answer.cost.widths == (1,)
    nested = placed(forest, free, Group(2, (Group(2, (Workers(2),)),)))
    assert nested.cost.widths == (1, 1)


@pytest.mark.parametrize(
    ("workers", "avoid", "compact", "fragments"),
    [
        (4, "", "aabb", "aabb"),  # no other leaf holds four
        (3, "", "ddd", "mnn"),  # the leaf of m has three places, that of a nine
        (4, "abcmn", "ddde", "efij"),  # the leaf of d has three places, the others have two each
        (2, "abcdmn", "ef", "ef"),
    ],
)
def test_fragments_come_before_few_domains_and_nodes(
    workers: int, avoid: str, compact: str, fragments: str
) -> None:
    forest = cluster(("abcd", "efgh", "ijkl"), ("mn",))
    free = {**dict.fromkeys("abcn", 2), "d": 3, **dict.fromkeys("efijm", 1)}
    capacity = Capacity(forest, {node: {"workers": x} for node, x in free.items()})
    packings: tuple[tuple[Packing, str], ...] = ("compact", compact), ("fragments", fragments)
    for packing, nodes in packings:
        request = Request(Group(1, (Workers(workers),)), avoid=frozenset(avoid), packing=packing)
        answer = place(capacity, request)
        assert isinstance(answer, Placement)
        assert ("".join(answer.nodes), answer.exact) == (nodes, True)
        assert not verify(capacity, request, answer)
        words = "domains, nodes, degraded links", "capacity left"
        order = ", ".join(words if packing == "compact" else words[::-1])
        assert f"Nothing is better by tier, {order}" in explain(capacity, request, answer, {}).text
