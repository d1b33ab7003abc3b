"""The tier 0, a node: for groups, for the whole gang, and on a topology without any tier."""

import pytest
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Request, Spread, Workers
from hyperscout_placer.messages.requests import request_message, request_of
from hyperscout_placer.repair.repair import Repair, repair
from hyperscout_placer.solve.place import place
from hyperscout_topology.topology import Topology
from support.builders import hypernode, worker_capacity
from support.placer_oracle import verify

# Two leaves of three nodes; d, e and f have too little for a group of 4 on one node.
FOREST = Forest.of(
    Topology(
        1,
        (
            hypernode("leaf-1", ("a", "b", "c"), parent="pod"),
            hypernode("leaf-2", ("d", "e", "f"), parent="pod"),
            hypernode("pod", ("a", "b", "c", "d", "e", "f"), tier=2, children=("leaf-1", "leaf-2")),
        ),
    )
)
FREE = {"a": 9, "b": 6, "c": 4, "d": 3, "e": 3, "f": 3}
LEADER, WORKER = Workers(1, (("cpu", 1),), "leader"), Workers(3, (("gpu", 2),))


def nodes(gang: Group, free: dict[str, int] = FREE, **more: object) -> tuple[str, ...] | None:
    capacity, request = worker_capacity(FOREST, free), Request(gang, **more)  # type: ignore[arg-type]
    answer = place(capacity, request)
    if isinstance(answer, Refusal):
        assert answer.proven
        return None
    assert answer.exact
    assert not verify(capacity, request, answer)
    return answer.nodes


@pytest.mark.parametrize(
    ("gang", "found"),
    [
        (Group(1, (Group(4, (Workers(4),), tier=0),)), "aaaaaaaabbbbcccc"),
        (Group(1, (Group(5, (Workers(4),), tier=0),)), None),
        (Group(1, (Group(2, (Group(2, (Workers(2),)),), tier=0), Workers(1))), "aaaaaaaaa"),
        (Group(1, (Group(2, (Workers(4),), tier=0),), spread=Spread(4, 0)), "bbbbcccc"),
        (Group(1, (Workers(9),), tier=0), "aaaaaaaaa"),
        (Group(1, (Workers(10),), tier=0), None),
        (Group(1, (Group(2, (Workers(2),), tier=0),), tier=0), "cccc"),
    ],
)
def test_groups_on_a_node(gang: Group, found: str | None) -> None:
    assert nodes(gang) == (None if found is None else tuple(found))


def test_soft_gangs_are_on_one_node_only_if_they_fit() -> None:
    assert nodes(Group(1, (Workers(9),), tier=0), mode="soft") == ("a",) * 9
    assert nodes(Group(1, (Workers(10),), tier=0), mode="soft") == (*"b" * 6, *"c" * 4)


def test_several_kinds_share_a_node() -> None:
    capacity = Capacity(FOREST, {n: {"cpu": 2, "gpu": 6 + 7 * (n == "b")} for n in "abcd"})
    request = Request(Group(1, (Group(5, (LEADER, WORKER), tier=0),)))
    answer = place(capacity, request)
    assert isinstance(answer, Placement)
    assert not verify(capacity, request, answer)
    assert [answer.nodes[i * 4] for i in range(5)] == ["a", "b", "b", "c", "d"]


def test_a_failed_rank_takes_its_group_along() -> None:
    request = Request(Group(1, (Group(2, (Workers(2),), tier=0),)))
    capacity = worker_capacity(FOREST, {"c": 1, "d": 2})
    found = repair(capacity, request, ["a", "a", "b", "b"], frozenset({"b"}), {})
    assert isinstance(found, Repair)
    assert found.placement.nodes == ("a", "a", "d", "d")
    assert not found.kept_tier or found.placement.tier == 1


def test_messages_name_it() -> None:
    request = Request(Group(1, (Group(2, (Workers(2),), 0),), 1))
    message = request_message(request)
    assert message.parts[0].group.tier == "0"
    message.parts[0].group.tier = "node"
    assert request_of(message, FOREST) == request


@pytest.mark.parametrize(
    "gang", [Group(1, (Workers(2),), 1), Group(1, (Group(1, (Workers(2),), 1, Spread(1, 0)),))]
)
def test_without_a_hierarchy_the_answer_is_a_refusal(gang: Group) -> None:
    forest = Forest.of(Topology(1))
    message = request_message(Request(gang, avoid=frozenset({"a"})))
    answer = place(worker_capacity(forest, {}), request_of(message, forest))
    assert isinstance(answer, Refusal)
    assert answer.reason.startswith("the topology has no HyperNodes")
