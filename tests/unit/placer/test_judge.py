"""The judge of placements, and the brute force, on cases that a person can check."""

from dataclasses import replace

import pytest
from hyperscout_placer.cluster.answer import Cost, Placement, Refusal
from hyperscout_placer.cluster.request import Group, Request, Spread, Workers
from support.placer_instances import Instance
from support.placer_oracle import Free, brute_place, verify

# Two pods of two leaves of two nodes, two workers each; one link of b2 and one of leaf-b are degraded.
TREE = {
    "leaf-a": (1, "pod-1", ("a1", "a2")),
    "leaf-b": (1, "pod-1", ("b1", "b2")),
    "leaf-c": (1, "pod-2", ("c1", "c2")),
    "leaf-d": (1, "pod-2", ("d1", "d2")),
    "pod-1": (2, None, ()),
    "pod-2": (2, None, ()),
}
FREE = {node: {"workers": 2} for node in ("a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2")}
CASE = Instance(0, TREE, FREE, Request(Group(1, (Workers(1),))), {"b2": 1, "leaf-b": 1}, frozenset({"d2"}))
PAIRS = Group(1, (Group(2, (Workers(2),), tier=1),), tier=2)


def room(**changes: object) -> Free:
    case = replace(CASE, **changes)
    return Free(case.forest(), case.free)


def test_brute_force_finds_what_a_person_would() -> None:
    found = brute_place(room(), Request(PAIRS))
    assert found == Placement(
        ("c1", "c1", "c2", "c2"), 1, "leaf-c", Cost(1, (), 2, 0, (0, 0), (2,), 1, (0,))
    ), "pod-2 has less left than pod-1, as d2 is down"
    # Two leaves hold six: c and d, though d2 is down, for b is degraded. Seven need pod-1 with its faults.
    six, seven = (brute_place(room(), Request(Group(1, (Workers(n),)))) for n in (6, 7))
    assert isinstance(six, Placement)
    assert isinstance(seven, Placement)
    assert six.cost == Cost(2, (2,), 3, 0, (0, 0, 0), whole=1)
    assert seven.cost == Cost(2, (2,), 4, 2, (1, 1, 1), whole=3)
    assert brute_place(room(), Request(Group(1, (Workers(9),)))) == Refusal(
        2, reason="brute force found no place"
    )
    across = brute_place(room(), Request(Group(1, (Workers(9),)), mode="soft"))
    assert isinstance(across, Placement)
    assert across.tier is None
    all_but_b = Cost(3, (2, 3), 5, 0, (5, 5, 1, 1), whole=3)
    assert across.cost == all_but_b, "all of a and c, and d1: b is degraded"


def test_brute_force_keeps_what_is_preferred_only_where_it_costs_no_tier() -> None:
    preference = Spread(1, 0, required=False)
    two, three = (brute_place(room(), Request(Group(1, (Workers(n),), spread=preference))) for n in (2, 3))
    assert isinstance(two, Placement)
    assert isinstance(three, Placement)
    assert (two.cost.top, two.cost.nodes, two.relaxed) == (1, 2, ())
    assert (three.cost.top, three.cost.nodes) == (1, 2)
    assert three.relaxed


GOOD = Placement(("a1", "a1", "a2", "a2"), 1, "leaf-a", Cost(1, (), 2, 0, (0, 0), (4,), 1, (0,)))
APART = Placement(("a1", "a2", "b1", "b1"), 2, "pod-1", Cost(2, (2,), 3, 1, (4, 4, 2), (), 3, (1,)))
SPREAD = replace(PAIRS, parts=(Group(2, (Workers(2),), tier=1, spread=Spread(1, 0)),))
PREFERRED = replace(PAIRS, parts=(Group(2, (Workers(2),), tier=1, spread=Spread(1, 0, required=False)),))
OVER = Placement(("a1", "a1", "c1", "c1"), None, None, Cost(3, (2, 2), 2, 0, (10, 10, 4, 0)))
NEAR = replace(PAIRS, tier=1)


@pytest.mark.parametrize(
    ("gang", "placement", "words"),
    [
        pytest.param(PAIRS, GOOD, "", id="right"),
        pytest.param(PAIRS, APART, "", id="right, if not the best"),
        pytest.param(PAIRS, replace(GOOD, nodes=GOOD.nodes[:3]), "3 nodes for 4 ranks", id="a rank short"),
        pytest.param(PAIRS, replace(GOOD, nodes=(*GOOD.nodes[:3], "x")), "no such nodes", id="unknown"),
        pytest.param(PAIRS, replace(GOOD, nodes=("a1",) * 3 + ("a2",)), "a1: 3 workers of 2", id="too many"),
        pytest.param(PAIRS, replace(GOOD, nodes=("d1", "d1", "d2", "d2")), "d2 is down", id="down"),
        pytest.param(PAIRS, OVER, "top tier 3, allowed is 2", id="above what is allowed"),
        pytest.param(NEAR, APART, "top tier 2, allowed is 1", id="above the gang's tier"),
        pytest.param(
            PAIRS, replace(APART, nodes=("a1", "b1", "b1", "b2")), "not in one domain of tier 1", id="group"
        ),
        pytest.param(SPREAD, GOOD, "gang 0.0 0: 2 workers in domain 0 of tier 0, not 1", id="spread"),
        pytest.param(
            PREFERRED, GOOD, "2 workers in domain 0", id="preferred, and not said that it is not kept"
        ),
        pytest.param(PREFERRED, replace(GOOD, relaxed=("no",)), "", id="preferred, and said"),
        pytest.param(
            PAIRS, replace(GOOD, relaxed=("no",)), "nothing is only preferred", id="nothing to relax"
        ),
        pytest.param(
            PAIRS, replace(APART, nodes=("b1", "b1", "a1", "a2")), "ranks do not", id="groups by tree"
        ),
        pytest.param(
            PAIRS, replace(APART, nodes=("a2", "a1", "b1", "b1")), "ranks do not", id="ranks by tree"
        ),
        pytest.param(PAIRS, replace(GOOD, cost=replace(GOOD.cost, nodes=1)), "cost is", id="nodes"),
        pytest.param(PAIRS, replace(APART, cost=replace(APART.cost, degraded=0)), "cost is", id="degraded"),
        pytest.param(PAIRS, replace(APART, cost=replace(APART.cost, domains=(1,))), "cost is", id="domains"),
        pytest.param(
            PAIRS, replace(APART, cost=replace(APART.cost, fragmentation=(4, 4, 1))), "cost is", id="left"
        ),
        pytest.param(PAIRS, replace(GOOD, hypernode="leaf-b"), "held by", id="holder"),
        pytest.param(PAIRS, replace(GOOD, tier=2), "held by", id="tier"),
        pytest.param(PAIRS, replace(GOOD, bound=APART.cost), "exact, but", id="exact with another bound"),
        pytest.param(PAIRS, replace(GOOD, exact=False), "bound None", id="no bound"),
        pytest.param(PAIRS, replace(GOOD, exact=False, bound=APART.cost), "bound", id="bound above the cost"),
        pytest.param(PAIRS, replace(APART, exact=False, bound=GOOD.cost), "", id="bound below the cost"),
    ],
)
def test_the_judge_sees(gang: Group, placement: Placement, words: str) -> None:
    wrong = verify(room(), Request(gang), placement)
    assert not wrong if not words else any(words in one for one in wrong), wrong


def test_the_judge_sees_masks_and_what_is_avoided() -> None:
    case = replace(CASE, allowed={"worker": frozenset({"a1"})})
    forest = case.forest()
    masked = verify(Free(forest, FREE), Request(PAIRS), GOOD, case.masks(forest))
    assert any("a2 is down, avoided or masked" in one for one in masked)
    for name in ("a2", "leaf-a", "pod-1"):
        avoiding = Request(PAIRS, avoid=frozenset({name}))
        assert any("a2 is down, avoided or masked" in one for one in verify(room(), avoiding, GOOD)), name
    down = Placement(("d1", "d1", "d2", "d2"), 1, "leaf-d", Cost(1, (), 2, 1, (0, 0), (4,), 1, (0,)))
    assert not verify(room(), Request(PAIRS, use_down=True), down)


def test_the_judge_counts_what_several_kinds_take_together() -> None:
    both = Group(1, (Workers(1, role="leader"), Workers(2)))
    full = Placement(("a1", "a1", "a1"), 1, "leaf-a", Cost(1, (), 1, 0, (1, -1), (5,), 1))
    assert verify(room(), Request(both), full) == ["a1: 3 workers of 2"]
    fits = Placement(("a2", "a1", "a1"), 1, "leaf-a", Cost(1, (), 2, 0, (1, 1), (5,), 1))
    assert not verify(room(), Request(both), fits)
