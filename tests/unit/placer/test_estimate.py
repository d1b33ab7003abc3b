"""How much of a gang fits where, counted: small ones by hand, random ones against the placer."""

from dataclasses import replace

import numpy as np
import pytest
from hyperscout_placer.cluster.answer import Placement
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import (
    Group,
    Request,
    Spread,
    Workers,
    ends,
    size,
    without_preferences,
)
from hyperscout_placer.solve.estimate import Estimate
from hyperscout_placer.solve.place import highest, place
from support.builders import worker_capacity
from support.placer_instances import random_instance
from support.topologies import pods

# Two pods of two leaves of two nodes; workers that fit: (3 1) (4 0) | (2 2) (5 1)
FREE = dict(zip((f"n{i:04}" for i in range(8)), (3, 1, 4, 0, 2, 2, 5, 1), strict=True))
ROOM = worker_capacity(Forest.of(pods(2, 2, nodes=2)), FREE)
LEADER = Workers(1, role="leader")


def group(
    *parts: Group | Workers, count: int = 1, tier: int | None = None, spread: Spread | None = None
) -> Group:
    return Group(count, parts, tier, spread)


@pytest.mark.parametrize(
    ("name", "gang", "tier", "fits"),
    [
        ("leaves", group(Workers(99)), 1, [4, 4, 4, 6]),
        ("no more than were asked for", group(Workers(5)), 1, [4, 4, 4, 5]),
        ("pods", group(Workers(99)), 2, [8, 10]),
        ("the root", group(Workers(99)), 3, [18]),
        ("all islands", group(Workers(99)), 4, [18]),
        ("runs of three in a leaf", group(group(Workers(3), count=9, tier=1)), 2, [6, 9]),
        (
            "runs of two in runs of three leaves' worth",
            group(group(group(Workers(2), count=3, tier=1), count=9, tier=2)),
            3,
            [12],
        ),
        ("no group at all", group(group(group(Workers(2), count=2), count=9)), 1, [4, 4, 4, 6]),
        ("a group as wide as its domain", group(group(Workers(2), count=9, tier=2)), 2, [8, 10]),
        ("two to a node", group(Workers(99), spread=Spread(2, 0)), 1, [3, 2, 4, 3]),
        ("four to a leaf", group(Workers(99), spread=Spread(4, 1)), 2, [8, 8]),
        (
            "runs of two, three to a leaf",
            group(group(Workers(2), count=9, tier=1), spread=Spread(3, 1)),
            2,
            [4, 4],
        ),
        ("where one domain is all there is", group(Workers(99), spread=Spread(3, 1)), 1, [3, 3, 3, 3]),
        (
            "each run of two on two nodes",
            group(group(Workers(2), count=9, tier=1, spread=Spread(1, 0))),
            1,
            [2, 0, 4, 2],
        ),
        (
            "each run of four, two to a node",
            group(group(Workers(4), count=9, tier=1, spread=Spread(2, 0))),
            1,
            [0, 0, 4, 0],
        ),
        (
            "a run that cannot be spread",
            group(group(Workers(4), count=9, tier=1, spread=Spread(3, 1))),
            2,
            [0, 0],
        ),
        ("two roles, one kind of room", group(LEADER, Workers(8)), 1, [4, 4, 4, 6]),
        (
            "two roles, spread",
            group(Workers(4), replace(LEADER, count=2), spread=Spread(2, 0)),
            1,
            [3, 2, 4, 3],
        ),
        ("a leader each", group(group(LEADER, Workers(2), count=9, tier=1)), 2, [6, 9]),
        (
            "a leader each, spread",
            group(group(LEADER, Workers(2), tier=1, spread=Spread(2, 0))),
            1,
            [3, 0, 3, 3],
        ),
    ],
)
def test_by_hand(name: str, gang: Group, tier: int, fits: list[int]) -> None:
    estimate = Estimate(ROOM, Request(gang), {}, np.zeros(8, np.bool_))
    assert estimate.workers(gang, tier).tolist() == fits


@pytest.mark.parametrize("seed", range(150))
def test_what_fits_is_never_counted_as_less_and_for_one_kind_not_as_more(seed: int) -> None:
    """Whatever `place` says: the estimate is a bound, with one kind of worker and one spread it is exact."""
    instance = random_instance(seed)
    capacity = instance.capacity()
    masks, request = instance.masks(capacity.forest), instance.request
    answer = place(capacity, request, masks)
    asked = without_preferences(request.gang)
    barred = capacity.forest.below(request.avoid)
    estimate = Estimate(capacity, replace(request, gang=asked), masks, barred)
    top = answer.cost.top if isinstance(answer, Placement) else highest(capacity.forest, request)
    most = int(estimate.workers(asked, top).max()) if top else 0
    exact = len({kind.resources for kind in ends(asked)}) == 1 and len(spreads(asked)) < 2
    if isinstance(answer, Placement):
        assert most == size(asked)
        if top > 1 and exact:
            assert int(estimate.workers(asked, top - 1).max()) < size(asked)
        return
    if exact:
        assert most < size(asked)


def spreads(group: Group) -> list[Spread]:
    found = [group.spread] if group.spread else []
    return found + [x for part in group.parts if isinstance(part, Group) for x in spreads(part)]
