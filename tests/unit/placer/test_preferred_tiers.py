"""Preferred tiers of groups: kept if the gang needs no higher tier, else as low as possible, and said."""

import pytest
from hyperscout_placer.cluster.answer import Placement
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Request, RequestError, Spread, Workers, checked
from hyperscout_placer.messages.requests import request_message, request_of
from hyperscout_placer.solve.place import place
from hyperscout_topology.topology import Topology
from support.builders import hypernode, worker_capacity
from support.placer_oracle import verify

FOREST = Forest.of(
    Topology(
        1,
        (
            hypernode("leaf-1", tuple("abc"), parent="pod-1"),
            hypernode("leaf-2", tuple("def"), parent="pod-1"),
            hypernode("leaf-3", tuple("ghi"), parent="pod-2"),
            hypernode("leaf-4", tuple("jkl"), parent="pod-2"),
            hypernode("pod-1", tuple("abcdef"), tier=2, children=("leaf-1", "leaf-2"), parent="core"),
            hypernode("pod-2", tuple("ghijkl"), tier=2, children=("leaf-3", "leaf-4"), parent="core"),
            hypernode("core", tuple("abcdefghijkl"), tier=3, children=("pod-1", "pod-2")),
        ),
    )
)
EACH = dict.fromkeys("abcdefghijkl", 1)


def pairs(count: int, tier: int | None = None, preferred: int | None = 1, workers: int = 2) -> Group:
    return Group(count, (Workers(workers),), tier, preferred=preferred)


@pytest.mark.parametrize(
    ("free", "parts", "nodes", "relaxed"),
    [
        # Fewest nodes would be a, b and d: the preference costs a node more, but no tier.
        (EACH | {"a": 3, "d": 3}, (pairs(2, None, 0, 3),), "aaaddd", ()),
        (EACH, (pairs(2),), "abde", ()),
        (EACH, (pairs(2, None, 1, 3),), "abcdef", ()),
        (
            {"a": 1, "b": 1, "d": 1, "e": 1},
            (pairs(2, None, 0),),
            "abde",
            ("the preferred tier 0 (node) of groups of 2 is impossible",),
        ),
        (
            {"a": 1, "d": 1, "g": 1, "j": 1},
            (pairs(2),),
            "adgj",
            ("the preferred tier 1 (leaf) of groups of 2 is impossible",),
        ),
    ],
)
def test_as_low_as_possible(
    free: dict[str, int], parts: tuple[Group, ...], nodes: str, relaxed: tuple[str, ...]
) -> None:
    capacity, request = worker_capacity(FOREST, free), Request(Group(1, parts))
    answer = place(capacity, request)
    assert isinstance(answer, Placement)
    assert answer.exact
    assert ("".join(answer.nodes), answer.relaxed) == (nodes, relaxed)
    assert not verify(capacity, request, answer)


def test_the_gang_is_not_raised_for_it() -> None:
    """Two leaves of one pod hold three pairs, but only with one of them apart."""
    free = dict.fromkeys("abcdef", 1) | {"g": 2, "j": 4}
    answer = place(worker_capacity(FOREST, free), Request(Group(1, (pairs(3),))))
    assert isinstance(answer, Placement)
    assert (answer.tier, answer.hypernode) == (2, "pod-2")
    answer = place(worker_capacity(FOREST, free | {"g": 1, "j": 1}), Request(Group(1, (pairs(3),))))
    assert isinstance(answer, Placement)
    assert (answer.tier, answer.hypernode, bool(answer.relaxed)) == (2, "pod-1", True)


def test_earlier_groups_come_first_and_spreads_last() -> None:
    group = Group(1, (Workers(2),), preferred=0, spread=Spread(1, 0, required=False))
    answer = place(worker_capacity(FOREST, {"a": 2, "b": 1}), Request(Group(1, (group,))))
    assert isinstance(answer, Placement)
    assert (answer.nodes, answer.relaxed) == (
        ("a", "a"),
        ("the preferred spread is impossible at this tier",),
    )


def test_messages_carry_it() -> None:
    request = Request(Group(1, (pairs(2, 2, 0),)))
    message = request_message(request)
    assert request_of(message, FOREST) == request
    message.parts[0].group.preferred = "rack"
    with pytest.raises(RequestError, match=r"parts\[0\].group.preferred: no tier 'rack'"):
        request_of(message, FOREST)
    with pytest.raises(RequestError, match=r"gang.parts\[0\].preferred: tier 2: expected at most tier"):
        checked(Request(Group(1, (pairs(2, 1, 2),))), 3)
