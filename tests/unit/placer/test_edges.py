"""Numbers as large as they may be, trees as odd: what the engine must neither believe nor choke on."""

import numpy as np
import pytest
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest, ForestError
from hyperscout_placer.cluster.request import Group, Request, Spread, Workers
from hyperscout_placer.solve.costs import Packing
from hyperscout_placer.solve.place import place
from hyperscout_topology.topology import HyperNode, Topology
from support.builders import hypernode, worker_capacity

MOST = 2**62 - 1
ONE = Workers(1)


def forest(*leaves: HyperNode) -> Forest:
    return Forest.of(Topology(1, leaves or (hypernode("leaf", ("a", "b")),)))


@pytest.mark.parametrize("kinds", [3, 4, 5])
def test_together_they_ask_for_more_than_a_number_holds(kinds: int) -> None:
    """Each alone fills the node; the sum of what all need does not fit into 64 bits."""
    gang = Group(1, tuple(Workers(1, (("memory", MOST),), role=f"role-{i}") for i in range(kinds)))
    assert isinstance(place(Capacity(forest(), {"a": {"memory": MOST}}), Request(gang)), Refusal)


def test_largest_amounts_on_nodes_of_their_own() -> None:
    gang = Group(1, (Workers(1, (("memory", MOST),), "x"), Workers(1, (("memory", MOST),), "y")))
    answer = place(Capacity(forest(), {"a": {"memory": MOST}, "b": {"memory": MOST}}), Request(gang))
    assert isinstance(answer, Placement)
    assert answer.nodes == ("a", "b")


def test_what_is_given_back_is_never_more_than_can_be_said() -> None:
    capacity = Capacity(forest(), {"a": {"memory": MOST}})
    kind = Workers(1, (("memory", 2**61),))
    assert capacity.fit(kind).nodes.tolist() == [1, 0]
    for _ in range(4):
        capacity.give(["a", "a"], [kind, kind])
    assert capacity.free_of("a") == {"memory": MOST}
    assert capacity.fit(kind).nodes.tolist() == [1, 0]


def test_workers_that_need_nothing_follow_too() -> None:
    capacity = worker_capacity(forest())
    nothing = Workers(1, (("cpu", 0),))
    fits = capacity.fit(nothing).nodes.tolist()
    capacity.set_free("a", {"workers": 0})
    assert capacity.fit(nothing).nodes.tolist() == fits


@pytest.mark.parametrize("parent", ["leaf", "absent"])
def test_the_highest_tier_has_no_parent(parent: str) -> None:
    with pytest.raises(ForestError, match=f"HyperNode leaf: parent {parent}, but it is in the highest tier"):
        forest(hypernode("leaf", ("a", "b"), parent=parent))


def test_a_cycle_of_parents() -> None:
    pod = hypernode("pod", ("a", "b"), parent="leaf", children=("leaf",))
    with pytest.raises(ForestError, match="HyperNode pod: parent leaf"):
        forest(hypernode("leaf", ("a", "b"), parent="pod"), pod)


def test_a_name_that_a_node_and_a_hypernode_have_means_both() -> None:
    tree = forest(hypernode("a", ("a", "b")), hypernode("c", ("c", "d")), hypernode("d", ("e",)))
    assert tree.below(frozenset({"d", "absent"})).tolist() == [False, False, False, True, True]
    answer = place(worker_capacity(tree), Request(Group(1, (ONE,)), avoid=frozenset({"a", "d"})))
    assert isinstance(answer, Placement)
    assert answer.nodes == ("c",)
    assert not tree.below(frozenset()).any()


@pytest.mark.parametrize(
    ("most", "nodes"),
    [
        pytest.param(4, "a0 a2 b0 b2 a1 a3 b1 b3", id="dealt out where runs would break it"),
        pytest.param(8, "a0 a1 a2 a3 b0 b1 b2 b3", id="runs where they keep it"),
    ],
)
def test_groups_that_are_spread_are_as_near_as_their_spread_lets_them(most: int, nodes: str) -> None:
    leaves = [hypernode(name, [f"{name}{i}" for i in range(4)], parent="pod") for name in "ab"]
    pod = hypernode("pod", leaves[0].nodes + leaves[1].nodes, children=("a", "b"))
    gang = Group(1, (Group(2, (Workers(4),), 2, Spread(most // 2, 1)),))
    answer = place(worker_capacity(forest(*leaves, pod)), Request(gang))
    assert isinstance(answer, Placement)
    assert " ".join(answer.nodes) == nodes


def test_what_is_kept_of_nodes_that_are_down_is_not_told_of_others() -> None:
    tree = forest()
    tree.down[0] = True
    capacity = worker_capacity(tree)
    for _ in range(2):
        assert capacity.fit(ONE).nodes.tolist() == [0, 1]
        assert capacity.fit(ONE, use_down=True).nodes.tolist() == [1, 1]


def test_kinds_that_were_asked_for_lately_are_kept() -> None:
    capacity = worker_capacity(forest())
    first = capacity.fit(ONE)
    for i in range(2, 60):
        capacity.fit(Workers(1, (("workers", i),)))
        assert capacity.fit(ONE) is first


def test_a_word_of_a_cost_leaves_room_for_a_sum() -> None:
    packing = Packing([2**40, 2**21, 7], range(3))
    assert packing.words == 2
    assert packing.unpack(np.array([5, (6 << 3) + 7])) == (5, 6, 7)
