"""Requests and placements between messages, values and JSON."""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, Parse
from google.protobuf.message import DecodeError
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_placer.book.failed_nodes import FailedNode
from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.cluster.allreduce import HopSpeed, Predicted
from hyperscout_placer.cluster.answer import Cost, Placement, Refusal
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Group, Range, Request, RequestError, Spread, Workers
from hyperscout_placer.cluster.speeds import default_speeds
from hyperscout_placer.messages.changes import defragment_message, improve_message, repair_message
from hyperscout_placer.messages.placements import (
    explanation_message,
    failed_of,
    held_message,
    placement_json,
    placement_message,
    placement_of,
)
from hyperscout_placer.messages.requests import request_message, request_of, stored_request
from hyperscout_placer.repair.defrag import MovePlan
from hyperscout_placer.repair.repair import Improvement, Move, Repair
from hyperscout_placer.solve.explain import Candidate, Explanation
from hypothesis import given
from hypothesis import strategies as st
from support.placing import REQUESTS, group, part, request
from support.topologies import two_leaves

FOREST = Forest.of(two_leaves())
SPEEDS = default_speeds(FOREST)
GPU = (("nvidia.com/gpu", 1),)


MEANT: dict[str, tuple[pb.PlaceRequest, Request]] = {
    "workers": (request(4), Request(Group(1, (Workers(4),)))),
    "soft, with a tier by name": (
        request(4, mode=pb.PLACEMENT_MODE_SOFT, highest_tier_allowed="leaf"),
        Request(Group(1, (Workers(4),), tier=1), "soft"),
    ),
    "a tier by number": (request(4, highest_tier_allowed="2"), Request(Group(1, (Workers(4),), tier=2))),
    "quantities": (
        request(1, resources={"nvidia.com/gpu": "8", "cpu": "1500m", "memory": "1Ki"}),
        Request(Group(1, (Workers(1, (("cpu", 1500), ("memory", 1024), ("nvidia.com/gpu", 8))),))),
    ),
    "of nothing there is enough": (
        request(1, resources={"nvidia.com/gpu": "1", "cpu": "0"}),
        Request(Group(1, (Workers(1, GPU),))),
    ),
    "a leader": (
        pb.PlaceRequest(parts=[part(1, role="leader"), part(7)]),
        Request(Group(1, (Workers(1, role="leader"), Workers(7)))),
    ),
    "groups in groups": (
        pb.PlaceRequest(parts=[group(2, group(2, part(2), tier="leaf"), tier="core")]),
        Request(Group(1, (Group(2, (Group(2, (Workers(2),), 1),), 2),))),
    ),
    "spread over nodes and leaves": (
        pb.PlaceRequest(
            parts=[group(1, part(2), spread=pb.Spread(most=1, tier="node", preferred=True))],
            spread=pb.Spread(most=2, tier="leaf"),
        ),
        Request(
            Group(1, (Group(1, (Workers(2),), spread=Spread(1, 0, required=False)),), spread=Spread(2, 1))
        ),
    ),
    "elastic": (
        pb.PlaceRequest(
            parts=[
                pb.Part(workers=pb.Workers(count=4, min_count=2)),
                pb.Part(group=pb.Group(count=3, min_count=1, parts=[part(2)])),
            ]
        ),
        Request(Group(1, (Workers(4, elastic=Range(2, 4)), Group(3, (Workers(2),), elastic=Range(1, 3))))),
    ),
    "any cluster": (
        request(1, clusters=["any"]),
        Request(Group(1, (Workers(1),))),  # of the only cluster that has nodes
    ),
    "to avoid": (
        request(1, avoid=["n01", "leaf-b"], use_down=True),
        Request(Group(1, (Workers(1),)), avoid=frozenset({"n01", "leaf-b"}), use_down=True),
    ),
}


@pytest.mark.parametrize("case", MEANT)
def test_a_request_is_what_was_meant(case: str) -> None:
    message, wanted = MEANT[case]
    assert request_of(message, FOREST) == wanted


@pytest.mark.parametrize("case", MEANT)
def test_a_request_comes_back_from_its_message_and_its_json(case: str) -> None:
    _, wanted = MEANT[case]
    message = request_message(wanted, "train")
    assert message.gang == "train"
    assert request_of(message, FOREST) == wanted
    assert stored_request(pb.PlaceRequest.FromString(message.SerializeToString())) == wanted
    again = Parse('{"parts": [{"workers": {"count": 2}}], "highestTierAllowed": "leaf"}', pb.PlaceRequest())
    assert request_of(again, FOREST) == Request(Group(1, (Workers(2),), tier=1))


REFUSED = {
    "nothing": (pb.PlaceRequest(), "parts: 0: expected 1 to 64"),
    "too many parts": (pb.PlaceRequest(parts=[part(1)] * 65), "parts: at most 64"),
    "too many parts within": (
        pb.PlaceRequest(parts=[group(1, *[part(1)] * 65)]),
        "parts[0].group.parts: at most 64",
    ),
    "too many parts in all": (
        pb.PlaceRequest(parts=[group(1, *[part(1)] * 63)] * 4 + [part(1)]),
        "parts: more than 256 in total",
    ),
    "too many resources to be read": (
        request(1, resources={f"r{i}": "no quantity" for i in range(33)}),
        "parts[0].workers.resources: 33 of them: at most 32",
    ),
    "neither": (pb.PlaceRequest(parts=[part(1), pb.Part()]), "parts[1]: expected workers or a group"),
    "no worker": (pb.PlaceRequest(parts=[part(1), part(0)]), "parts[1].workers.count: 0: expected 1 to"),
    "no worker within": (
        pb.PlaceRequest(parts=[part(1), group(2, part(1), part(0))]),
        "parts[1].group.parts[1].workers.count: 0",
    ),
    "no group": (pb.PlaceRequest(parts=[group(0, part(1))]), "parts[0].group.count: 0"),
    "too many in all": (pb.PlaceRequest(parts=[group(1000, part(1001))]), "parts: 1001000 workers"),
    "tier of a group": (
        pb.PlaceRequest(parts=[group(1, part(1), tier="rack")]),
        "parts[0].group.tier: no tier 'rack': the tiers are 0 (node), 1 (leaf), 2 (core)",
    ),
    "a group above its gang": (
        pb.PlaceRequest(parts=[group(1, part(1), tier="core")], highest_tier_allowed="leaf"),
        "parts[0].group.tier: 2: above the group around it",
    ),
    "tier of a spread": (request(1, spread=pb.Spread(most=1, tier="x")), "spread.tier: no tier 'x'"),
    "spread no lower": (
        request(1, spread=pb.Spread(most=1, tier="leaf"), highest_tier_allowed="leaf"),
        "spread.tier: 1: expected 0 to 0",
    ),
    "spread within": (
        pb.PlaceRequest(parts=[group(1, part(1), spread=pb.Spread(most=0, tier="node"))]),
        "parts[0].group.spread.most: 0",
    ),
    "a need of nothing": (
        request(1, resources={"cpu": "0"}),
        "parts[0].workers.resources: expected at least one resource",
    ),
    "a minimum above the count": (
        pb.PlaceRequest(parts=[group(1, pb.Part(workers=pb.Workers(count=2, min_count=3)))]),
        "parts[0].group.parts[0].workers.min_count: 3: expected 1 to 2",
    ),
    "quantity": (request(1, resources={"cpu": "1 2"}), "parts[0].workers.resources['cpu']: "),
    "negative": (request(1, resources={"cpu": "-1"}), "parts[0].workers.resources['cpu']: "),
    "resource without a name": (request(1, resources={"": "1"}), "parts[0].workers.resources['']: "),
    "long resource": (request(1, resources={"x" * 318: "1"}), "parts[0].workers.resources['xxx"),
    "too many resources": (
        request(1, resources={f"a/{i}": "1" for i in range(33)}),
        "parts[0].workers.resources: 33 of them",
    ),
    "long role": (pb.PlaceRequest(parts=[part(1, role="r" * 64)]), "parts[0].workers.role: 64 characters"),
    "unknown name to avoid": (
        request(1, avoid=["n01", "leaf-a", "n1"]),
        "avoid[2]: 'n1': unknown: expected",
    ),
    "mode": (request(1, mode=3), "mode: 3: expected hard or soft"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_names_the_field_as_the_message_calls_it(case: str) -> None:
    message, words = REFUSED[case]
    with pytest.raises(RequestError) as caught:
        request_of(message, FOREST)
    assert str(caught.value).startswith(words), str(caught.value)


def test_long_names_are_not_echoed_whole() -> None:
    for message in (request(1, avoid=["x" * 10_000]), request(1, highest_tier_allowed="x" * 10_000)):
        with pytest.raises(RequestError) as caught:
            request_of(message, FOREST)
        assert len(str(caught.value)) < 600


def test_groups_may_not_be_nested_without_end() -> None:
    one = part(1)
    for _ in range(40):
        one = group(1, one)
    with pytest.raises(RequestError, match="more than 32 deep"):
        request_of(pb.PlaceRequest(parts=[one]), FOREST)


# Any bytes, and any message that protobuf can carry: a request, or one named error.


@given(message=REQUESTS)
def test_any_message_is_a_request_or_says_why_not(message: pb.PlaceRequest) -> None:
    try:
        found = request_of(message, FOREST)
    except RequestError:
        return
    assert stored_request(request_message(found)) == found


@given(junk=st.binary(max_size=200))
def test_any_bytes_are_a_request_or_say_why_not(junk: bytes) -> None:
    try:
        request_of(pb.PlaceRequest.FromString(junk), FOREST)
    except (DecodeError, RequestError):
        return


# What is answered

ASKED = Request(Group(1, (Workers(1, role="leader"), Workers(2))))
COST = Cost(2, (2,), 3, 1, (1, 1, 0), (4, 2), 1, (1, 0), unpreferred=30)
REST_OF_COST = {"above": [4, 2], "whole": 1, "widths": [1, 0], "unpreferred": 30}
PLACED = Placement(("n01", "n02", "n03"), 2, "core", COST, exact=False, bound=Cost(2, (1,), 3, 0, (1,)))
PREDICTED = Predicted(0.5, 0.25, 1 << 30, (HopSpeed(1, "leaf", 2.5, "measured", 32.0, "read"),))


def test_a_placement_as_json() -> None:
    message = placement_message("train", ASKED, PLACED, FOREST, PREDICTED)
    assert placement_json(message) == {
        "placed": True,
        "tier": 2,
        "hypernode": "core",
        "assignments": [
            {"rank": 0, "node": "n01", "role": "leader"},
            {"rank": 1, "node": "n02", "role": "worker"},
            {"rank": 2, "node": "n03", "role": "worker"},
        ],
        "domains": {"1": 2, "2": 1},
        "nodes": 3,
        "cost": {"top": 2, "domains": [2], "nodes": 3, "degraded": 1, "fragmentation": [1, 1, 0]}
        | REST_OF_COST,
        "exact": False,
        "predicted": {
            "ringS": 0.5,
            "treeS": 0.25,
            "messageBytes": 1 << 30,
            "measured": False,
            "sources": "latency measured, bandwidth read",
            "hops": [
                {
                    "tier": 1,
                    "tierName": "leaf",
                    "latencyUs": 2.5,
                    "latencySource": "measured",
                    "bandwidthGbps": 32.0,
                    "bandwidthSource": "read",
                }
            ],
        },
        "reason": "",
        "bound": {"top": 2, "domains": [1], "nodes": 3, "degraded": 0, "fragmentation": [1]}
        | {"above": [], "whole": 0, "widths": [], "unpreferred": 0},
        "gang": "train",
    }
    assert list(placement_json(message))[:4] == ["placed", "tier", "hypernode", "assignments"]


def test_an_elastic_gang_as_json_and_back() -> None:
    asked = Request(
        Group(1, (Workers(1, role="leader"), Group(3, (Workers(1),), elastic=Range(1, 3)), Workers(2)))
    )
    placed = replace(PLACED, nodes=("n01", "n02", "n03", "n04", "n01"), counts=(2,))
    message = placement_message("train", asked, placed, FOREST)
    assert placement_json(message)["elastic"] == [
        {"count": 2, "minCount": 1, "maxCount": 3, "size": 1, "role": ""}
    ]
    assert placement_of(message).counts == (2,)
    rigid = placement_json(placement_message("train", ASKED, PLACED, FOREST))
    assert not rigid.keys() & {"elastic", "minWorkers", "maxWorkers"}


@pytest.mark.parametrize(
    ("least_groups", "groups", "workers", "limits"),
    [(3, 3, 2, (3, 6)), (3, 3, 1, (3, 6)), (1, 3, 2, (1, 6)), (1, 2, 1, (1, 6))],
)
def test_limits_of_an_elastic_part_in_a_repeated_group(
    least_groups: int, groups: int, workers: int, limits: tuple[int, int]
) -> None:
    """The limits of the whole gang do not depend on how many were placed."""
    inner = Workers(2, elastic=Range(1, 2))
    outer = Group(3, (inner,), 1, elastic=Range(least_groups, 3) if least_groups < 3 else None)
    counts = (workers,) if least_groups == 3 else (groups, workers)
    placed = replace(PLACED, nodes=("n01",) * (groups * workers), counts=counts)
    message = placement_message("g", Request(Group(1, (outer,))), placed, FOREST)
    assert (message.min_workers, message.max_workers) == limits
    found = placement_json(message)
    assert (found["minWorkers"], found["maxWorkers"]) == limits


def test_a_refusal_as_json() -> None:
    message = placement_message("", ASKED, Refusal(2, reason="3 workers, room for 2"), FOREST)
    assert placement_json(message) == {
        "placed": False,
        "tier": None,
        "hypernode": None,
        "assignments": [],
        "domains": {},
        "nodes": 0,
        "cost": None,
        "exact": True,
        "predicted": None,
        "reason": "3 workers, room for 2",
    }
    assert placement_message("", ASKED, Refusal(2, proven=False), FOREST).exact is False


def test_what_is_held_as_json() -> None:
    held = Reservation("train", "api", ASKED, PLACED, 1_767_225_600_000_000_000, 1_767_225_660_000_000_000)
    found = placement_json(held_message(held, 2))
    assert (found["holder"], found["reservedAt"], found["expiresAt"]) == (
        "api",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:01:00Z",
    )
    for_ever = Reservation("train", "Job", ASKED, PLACED, 1)
    assert {"expiresAt", "failedNodes"}.isdisjoint(placement_json(held_message(for_ever, 2)))


def test_failed_nodes_as_json_and_back() -> None:
    at_ns = 1_767_225_600_000_000_000
    failed = (FailedNode("n03", at_ns), FailedNode("n04", at_ns, at_ns + 60_000_000_000))
    message = held_message(Reservation("train", "api", ASKED, PLACED, 1, failed=failed), 2)
    assert placement_json(message)["failedNodes"] == [
        {"node": "n03", "reportedAt": "2026-01-01T00:00:00Z", "downAt": None},
        {"node": "n04", "reportedAt": "2026-01-01T00:00:00Z", "downAt": "2026-01-01T00:01:00Z"},
    ]
    assert failed_of(message) == failed


DOMAINS: dict[str, tuple[Cost, dict[int, int]]] = {
    "in a leaf": (Cost(1, (), 1, 0, (0, 0)), {1: 1, 2: 1}),
    "in the core": (COST, {1: 2, 2: 1}),
    "over islands": (Cost(3, (2, 5), 9, 0, ()), {1: 5, 2: 2}),
}


@pytest.mark.parametrize("case", DOMAINS)
def test_domains_used_are_told_of_every_tier(case: str) -> None:
    cost, wanted = DOMAINS[case]
    tier, name = (cost.top, "x") if cost.top < 3 else (None, None)
    message = placement_message("", ASKED, Placement(("n01",) * 3, tier, name, cost), FOREST)
    assert dict(message.domains) == wanted
    assert message.HasField("tier") == (tier is not None)
    assert message.HasField("hypernode") == (name is not None)


def test_a_placement_comes_back() -> None:
    relaxed = Placement(("n01", "n02", "n03"), None, None, COST, relaxed=("no spread", "nor that"))
    for placement in (PLACED, relaxed):
        message = placement_message("g", ASKED, placement, FOREST)
        back = placement_of(pb.Placement.FromString(message.SerializeToString()))
        assert (back.nodes, back.tier, back.hypernode) == (
            placement.nodes,
            placement.tier,
            placement.hypernode,
        )
        assert (back.cost, back.exact, back.bound) == (placement.cost, placement.exact, placement.bound)
        assert "; ".join(back.relaxed) == "; ".join(placement.relaxed)


MOVES = (Move(1, "n02", "n04"),)
REFUSAL = Refusal(2, reason="none is free")


def shown(message: Any) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True)


def test_repairs_improvements_and_plans() -> None:
    held = Reservation("g", "api", ASKED, PLACED, 1, failed=(FailedNode("n02", 1),))
    repaired = shown(repair_message(held, Repair(MOVES, PLACED, kept_tier=True), FOREST, SPEEDS))
    assert repaired["moves"] == [{"rank": 1, "source": "n02", "target": "n04"}]
    assert (repaired["kept_tier"], repaired["placement"]["placed"]) == (True, True)
    refused = repair_message(held, REFUSAL, FOREST, SPEEDS)
    assert [x.node for x in refused.placement.failed_nodes] == ["n02"]
    assert repaired["placement"]["failed_nodes"][0]["node"] == "n02"
    assert (refused.placement.placed, refused.placement.reason, list(refused.moves)) == (
        False,
        "none is free",
        [],
    )
    assert shown(improve_message(held, None, FOREST, SPEEDS)) == {}
    improvement = Improvement(MOVES, COST, PLACED, "more", "less")
    better = shown(improve_message(held, improvement, FOREST, SPEEDS))
    assert (better["better"], better["gain"], better["price"]) == (True, "more", "less")
    assert better["moves"] == repaired["moves"]
    plan = shown(defragment_message("g", ASKED, MovePlan((("other", MOVES),), PLACED, 1), FOREST, SPEEDS))
    assert plan["gangs"] == [{"gang": "other", "moves": repaired["moves"]}]
    assert plan["moved"] == 1
    none = defragment_message("g", ASKED, REFUSAL, FOREST, SPEEDS)
    assert (none.placement.placed, none.placement.reason) == (False, "none is free")


def test_an_explanation() -> None:
    candidates = (
        Candidate("core", 2, 4, COST, PREDICTED, ""),
        Candidate("leaf-a", 1, 2, None, None, "2 of 3 workers fit"),
    )
    message = explanation_message(
        "g", ASKED, Explanation(PLACED, candidates, 7, PREDICTED, "so it is"), FOREST
    )
    assert (message.considered, message.text, message.placement.predicted.ring_s) == (7, "so it is", 0.5)
    first, second = message.candidates
    assert (first.hypernode, first.tier, first.free, first.why) == ("core", 2, 4, "")
    assert (first.cost.top, first.predicted.tree_s) == (2, 0.25)
    assert not second.HasField("cost")
    assert not second.HasField("predicted")
    assert second.why == "2 of 3 workers fit"
