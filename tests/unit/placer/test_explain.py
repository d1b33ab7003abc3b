"""Explanations: why each candidate lost, in words, and that `place` says the same."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hyperscout_placer.cluster.allreduce import predict
from hyperscout_placer.cluster.answer import Cost, Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, Mask
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Request, Spread, Workers
from hyperscout_placer.cluster.speeds import TierSpeed
from hyperscout_placer.solve.explain import ALL_ISLANDS, NOT_AT_ONCE, Candidate, explain, say_why
from hyperscout_placer.solve.place import highest, place
from hyperscout_topology.topology import Endpoint, Switch, Topology
from support.builders import anomaly, gang, worker_capacity
from support.placer_instances import random_instance
from support.topologies import leaves, pods

SPEEDS = [
    *(TierSpeed(us, gbps, "measured", "measured") for us, gbps in ((1, 800), (2, 400), (3, 200))),
    TierSpeed(4, 100),
    TierSpeed(50, 1),
]


def degraded(topology: Topology, **links: int) -> Topology:
    """HyperNodes, `_` for `-`, with so many links between their switches erroring."""
    found = [
        anomaly("ErroringLink", Endpoint("s", "s", f"{i}"), Endpoint("t", "t"), hypernode=name)
        for name, count in ((n.replace("_", "-"), c) for n, c in links.items())
        for i in range(count)
    ]
    return replace(topology, anomalies=tuple(found), switches=(Switch("s", "s", 1), Switch("t", "t", 2)))


def told(capacity: Capacity, request: Request, limit: int = 10) -> list[tuple[str, str]]:
    answer = place(capacity, request)
    found = explain(capacity, request, answer, {}, limit=limit, speeds=SPEEDS)
    return [(x.hypernode, x.why) for x in found.candidates]


def of_leaves(*free: tuple[int, ...], **links: int) -> Capacity:
    """Leaves l1, l2 ... of so many nodes, each with so much room."""
    names = [tuple(f"n{i}{j}" for j in range(len(leaf))) for i, leaf in enumerate(free)]
    room = {n: f for leaf, row in zip(names, free, strict=True) for n, f in zip(leaf, row, strict=True)}
    return worker_capacity(Forest.of(degraded(leaves(*names), **links)), room)


def test_the_first_part_of_the_cost_that_differs_is_why() -> None:
    capacity = of_leaves((1, 1, 1), (2, 1, 1), (2, 2), (1, 1, 1, 1), (1, 1), (2, 2), l3=1)
    assert told(capacity, gang(Workers(3))) == [
        ("l2", ""),
        ("l6", "leaves capacity for 1 more worker on its nodes instead of none"),
        ("l3", "1 degraded link instead of none"),
        ("l1", "3 nodes instead of 2"),
        ("l4", "3 nodes instead of 2"),
    ]


def test_names_decide_between_equals() -> None:
    assert told(of_leaves((1, 1), (1, 1)), gang(Workers(2))) == [
        ("l1", ""),
        ("l2", "equal, but later in the order of names"),
    ]


FOREST = Forest.of(pods(2, 2))
BEST = Cost(3, (2, 3), 4, 0, (5, 4, 1, 0))


@pytest.mark.parametrize(
    ("cost", "why"),
    [
        (Cost(4, (2, 2, 3), 4, 0, (5, 5, 4, 1, 0)), "needs tier 4 (all islands) instead of 3"),
        (replace(BEST, domains=(3, 3)), "3 pod domains instead of 2"),
        (replace(BEST, domains=(2, 5)), "5 leaf domains instead of 3"),
        (replace(BEST, nodes=6), "6 nodes instead of 4"),
        (replace(BEST, degraded=1), "1 degraded link instead of none"),
        (replace(BEST, degraded=2), "2 degraded links instead of none"),
        (
            replace(BEST, fragmentation=(14, 4, 1, 0)),
            "leaves capacity for 14 more workers in it instead of 5",
        ),
        (
            replace(BEST, fragmentation=(5, 5, 1, 0)),
            "leaves capacity for 5 more workers in its pod domains instead of 4",
        ),
        (
            replace(BEST, fragmentation=(5, 4, 2, 0)),
            "leaves capacity for 2 more workers in its leaf domains instead of 1",
        ),
        (
            replace(BEST, fragmentation=(5, 4, 1, 1)),
            "leaves capacity for 1 more worker on its nodes instead of none",
        ),
        (BEST, "equal, but later in the order of names"),
    ],
)
def test_why(cost: Cost, why: str) -> None:
    assert say_why(FOREST, cost, BEST) == why


FREE = {f"n{i:04}": int(i not in (0, 1, 5)) for i in range(16)}  # leaves of 2, 3 | 4, 4


def test_other_domains_of_its_tier_and_lower_ones_that_come_close() -> None:
    capacity = worker_capacity(Forest.of(pods(2, 2, 2)), {**FREE, "n0016": 1, "n0020": 1, "n0021": 1})
    request = gang(Workers(5))
    answer = place(capacity, request)
    assert isinstance(answer, Placement)
    found = explain(capacity, request, answer, {}, speeds=SPEEDS)
    assert [(x.hypernode, x.tier, x.free, x.why) for x in found.candidates] == [
        ("pod0", 2, 5, ""),
        ("pod1", 2, 8, "leaves capacity for 3 more workers in it instead of none"),
        ("pod1-l00", 1, 4, "fits 4 of the 5 workers"),
        ("pod1-l01", 1, 4, "fits 4 of the 5 workers"),
        ("pod0-l01", 1, 3, "fits 3 of the 5 workers"),
    ]
    assert found.considered == 3 + 6
    assert found.answer is answer
    assert found.candidates[0].cost == answer.cost
    assert found.predicted == found.candidates[0].predicted
    assert found.predicted == predict(capacity.forest, SPEEDS, answer.nodes)
    assert found.candidates[1].predicted is not None
    assert found.text == (
        "5 workers on 5 nodes in pod0, tier 2 (pod): 2 leaf domains. "
        "No lower tier holds it: of tier 1 (leaf) pod1-l00 fits 4 of the 5 workers. "
        "1 of the 2 others of tier 2 (pod) might hold it; the next best, pod1: leaves capacity for 3 more "
        "workers in it instead of none. Nothing is better by tier, domains, nodes, degraded links, "
        "capacity left. "
        "An all-reduce of 1 GiB takes 68.7 ms in a ring, 85.9 ms in a tree (as measured)."
    )


def test_at_most_so_many_and_the_best_of_them() -> None:
    capacity = of_leaves(*((1,) * n for n in (9, 8, 7, 6, 5, 4, 3, 3)))
    assert told(capacity, gang(Workers(3)), limit=3) == [
        ("l7", ""),
        ("l8", "equal, but later in the order of names"),
        ("l6", "leaves capacity for 1 more worker in it instead of none"),
    ]
    assert told(capacity, gang(Workers(3)), limit=1) == [("l7", "")]
    assert told(capacity, gang(Workers(3)), limit=0) == [("l7", "")]


@pytest.mark.parametrize(
    ("free", "links", "best"),
    [
        ([(3,), (2, 2), (1, 1, 3)], {}, ("l3", "leaves capacity for 2 more workers in it instead of none")),
        (
            [(1, 2), (1, 2), (1, 2, 1)],
            {"l2": 1},
            ("l3", "leaves capacity for 1 more worker in it instead of none"),
        ),
    ],
)
def test_the_most_promising_is_tried_first(
    free: list[tuple[int, ...]], links: dict[str, int], best: tuple[str, str]
) -> None:
    assert told(of_leaves(*free, **links), gang(Workers(3)), limit=2) == [("l1", ""), best]


def test_some_are_kept_for_lower_tiers() -> None:
    capacity = worker_capacity(Forest.of(pods(2, 2, 2, 2)))
    assert [name for name, _ in told(capacity, gang(Workers(5)), limit=3)] == ["pod0", "pod1", "pod0-l00"]


def test_across_islands() -> None:
    two = leaves(("a", "b"), ("c",))
    islands = Forest.of(replace(two, hypernodes=tuple(replace(h, parent=None) for h in two.hypernodes[:2])))
    capacity = worker_capacity(islands)
    request = gang(Workers(3), mode="soft")
    found = explain(capacity, request, place(capacity, request), {})
    assert [(x.hypernode, x.tier, x.free, x.why) for x in found.candidates] == [
        (ALL_ISLANDS, 2, 3, ""),
        ("l1", 1, 2, "fits 2 of the 3 workers"),
        ("l2", 1, 1, "fits 1 of the 3 workers"),
    ]
    assert found.text.startswith(
        "3 workers on 3 nodes across islands: 2 leaf domains. No lower tier holds it: of "
    )
    assert found.text.endswith("(latency and bandwidth assumed).")


def test_the_only_domain_and_the_only_worker() -> None:
    capacity = worker_capacity(Forest.of(leaves(("a", "b"))))
    request = gang(Workers(1))
    found = explain(capacity, request, place(capacity, request), {})
    assert found.text == (
        "1 worker on 1 node in l1, tier 1 (leaf). It is the only one of tier 1 (leaf). "
        "Nothing is better by tier, domains, nodes, degraded links, capacity left."
    )


def test_domains_where_all_seems_to_fit() -> None:
    room = {"a": {"gpu": 4}, "b": {"gpu": 4}, "c": {"gpu": 6}, "d": {"gpu": 4}}
    capacity = Capacity(Forest.of(leaves(("a", "b"), ("c", "d"))), room)
    roles = (Workers(2, (("gpu", 3),), "leader"), Workers(1, (("gpu", 2),)))
    assert told(capacity, gang(*roles)) == [("l2", ""), ("l1", NOT_AT_ONCE)]


def test_what_is_preferred_counts_before_costs() -> None:
    capacity = of_leaves((1, 1, 1, 1), (4,))
    request = gang(Workers(3), spread=Spread(1, 0, required=False))
    assert told(capacity, request) == [("l1", ""), ("l2", "meets fewer preferences")]
    capacity = of_leaves((3,), (4,))
    answer = place(capacity, request)
    assert isinstance(answer, Placement)
    assert answer.relaxed
    assert answer.relaxed[0][1:] in explain(capacity, request, answer, {}).text


def test_masks_and_avoided_domains_stay_out() -> None:
    capacity = of_leaves((1, 1), (1, 1), (1, 1))
    request = gang(Workers(2), avoid=frozenset({"l2"}))
    masks = {"worker": Mask("not n00", np.arange(6) > 0)}
    found = explain(capacity, request, place(capacity, request, masks), masks)
    assert [(x.hypernode, x.free) for x in found.candidates] == [("l3", 2)]
    capacity = of_leaves((3,), (3, 2, 1))
    masks = {"worker": Mask("not n10", np.arange(4) != 1)}
    every = explain(capacity, gang(Workers(3)), place(capacity, gang(Workers(3)), masks), masks)
    assert [x.why for x in every.candidates] == ["", "2 nodes instead of 1"]
    assert found.text.count("None of the 2 others of tier 1 (leaf) holds it") == 1


def test_refusals_tell_what_comes_closest() -> None:
    capacity = of_leaves((1, 1), (1, 1, 1), (1,))
    request = gang(Workers(4), tier=1)
    answer = Refusal(1, reason="there is too little")
    found = explain(capacity, request, answer, {}, limit=2)
    assert found.candidates == (
        Candidate("l2", 1, 3, None, None, "fits 3 of the 4 workers"),
        Candidate("l1", 1, 2, None, None, "fits 2 of the 4 workers"),
    )
    assert (found.considered, found.predicted) == (3, None)
    assert found.text == (
        "Not placed: there is too little. Closest of tier 1 (leaf): l2 fits 3 of the 4 workers; "
        "l1 fits 2 of the 4 workers."
    )
    gpus = Capacity(Forest.of(leaves(("a", "b"))), {"a": {"gpu": 4}, "b": {"gpu": 4}})
    roles = gang(Workers(2, (("gpu", 3),), "leader"), Workers(1, (("gpu", 2),)))
    assert explain(gpus, roles, Refusal(2), {}).candidates == (
        Candidate("core", 2, 2, None, None, NOT_AT_ONCE),
    )
    bare = worker_capacity(Forest.of(Topology(1)), {})
    assert explain(bare, gang(Workers(1)), Refusal(0), {}).candidates == ()


def test_it_leaves_the_capacity_as_it_was() -> None:
    capacity = of_leaves(*[(1, 1)] * 50)
    fit = capacity.fit(Workers(2))
    assert len(told(capacity, gang(Workers(2)), limit=50)) == 50
    assert capacity.fit(Workers(2)) is fit


@pytest.mark.parametrize("seed", range(120))
def test_random_explanations_agree_with_place(seed: int) -> None:
    instance = random_instance(seed)
    capacity = instance.capacity()
    request, masks = instance.request, instance.masks(capacity.forest)
    answer = place(capacity, request, masks)
    found = explain(capacity, request, answer, masks)
    assert found.text
    assert len(found.candidates) <= 10
    if isinstance(answer, Refusal):
        assert all(x.cost is None and x.predicted is None for x in found.candidates)
        assert all(
            x.tier == min(highest(capacity.forest, request), capacity.forest.top) for x in found.candidates
        )
        return
    chosen, *others = found.candidates
    assert (chosen.cost, chosen.why) == (answer.cost, "")
    assert chosen.hypernode == (answer.hypernode or ALL_ISLANDS)
    assert all(x.why for x in others)
    assert len({(x.hypernode, x.tier) for x in found.candidates}) == len(found.candidates) <= found.considered
    held = [x for x in others if x.cost is not None]
    assert held == others[: len(held)]
    assert all(a.cost <= b.cost for a, b in pairwise(held) if a.cost and b.cost)
    for x in held:
        assert x.tier == answer.cost.top
        assert x.cost is not None
        assert x.cost >= answer.cost or x.why == "meets fewer preferences"
