"""Requests name tiers that do not exist, or exist no more."""

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_placer.book.failed_nodes import FailedNode
from hyperscout_placer.book.reservation import Reservation, avoiding_failed
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest, ForestError, Tiers
from hyperscout_placer.cluster.request import Group, Request, RequestError, Workers, checked
from hyperscout_placer.messages.requests import request_of
from hyperscout_placer.repair.repair import Repair, repair
from hyperscout_placer.solve.explain import explain
from hyperscout_placer.solve.place import place
from hyperscout_topology.names import tier_level, tier_name
from support.topologies import leaves, pods

NO_PODS = Forest.of(leaves(("a", "b"), ("c", "d")))  # its tiers are 1 (leaf) and 2 (core)
ALL = Forest.of(pods(2, 2, nodes=2))  # leaf, pod, core
PLACED = "there is no tier pod: tier 2 (core) is used, the lowest above it"
LOW = "there is no tier nvlink: tier 1 (leaf) is used, the lowest above it"
HIGH = "there is no tier 7: tier 2 (core) is used, the highest"


@pytest.mark.parametrize("level", [*range(12), 9999])
def test_names_of_tiers_have_a_level(level: int) -> None:
    assert tier_level(tier_name(level)) == level


@pytest.mark.parametrize("name", ["", "rack", "core-0", "core-3", "core-04", "core-", "core-12345", "Leaf"])
def test_other_names_have_none(name: str) -> None:
    assert tier_level(name) is None


@pytest.mark.parametrize(
    ("text", "at_most", "over"),
    [
        ("node", 0, 0),
        ("leaf", 1, 1),
        ("nvlink", 1, 1),  # below the lowest
        ("pod", 2, 2),
        ("core", 2, 2),
        ("core-4", 2, 3),
        ("2", 2, 2),
        ("3", 2, 3),
        ("00003", 2, 3),
        ("99999999999", 2, 3),
    ],
)
def test_the_lowest_tier_at_or_above(text: str, at_most: int, over: int) -> None:
    tiers = Tiers(NO_PODS)
    exists = text in ("node", "leaf", "core", "2")
    assert (tiers.at_most(text), len(tiers.replaced)) == (at_most, not exists)
    assert (tiers.at_most(text), len(tiers.replaced)) == (at_most, not exists)  # said once
    assert Tiers(NO_PODS).over(text) == over


@pytest.mark.parametrize("text", ["rack", "", "-1", "1.0", "two", "³"])
def test_what_no_hierarchy_has_is_an_error(text: str) -> None:
    for read in (Tiers(NO_PODS).at_most, Tiers(NO_PODS).over, Tiers(ALL).at_most):
        with pytest.raises(ForestError, match="no tier"):
            read(text)


def asked(forest: Forest, workers: int = 2, **fields: Any) -> Request:
    fields.setdefault("parts", [{"workers": {"count": workers}}])
    return request_of(ParseDict(fields, pb.PlaceRequest()), forest)


def answer(forest: Forest, request: Request) -> Placement | Refusal:
    capacity = Capacity(forest, {node: {"workers": 1} for node in forest.nodes})
    found = place(capacity, request)
    text = explain(capacity, request, found, {}).text
    assert all(said.lower() in text.lower() for said in request.replaced)
    return found


def groups(**fields: Any) -> list[dict[str, Any]]:
    return [{"group": {"count": 2, "parts": [{"workers": {"count": 2}}], **fields}}]


@pytest.mark.parametrize(
    ("fields", "tier", "said"),
    [
        ({"workers": 3, "highestTierAllowed": "pod"}, 2, (PLACED,)),
        ({"workers": 3, "highestTierAllowed": "7"}, 2, (HIGH,)),
        ({"workers": 2, "highestTierAllowed": "pod"}, 1, (PLACED,)),
        ({"workers": 3, "highestTierAllowed": "core"}, 2, ()),
        ({"parts": groups(tier="pod")}, 2, (PLACED,)),
        ({"parts": groups(tier="7")}, 2, (HIGH,)),
        ({"parts": groups(tier="nvlink")}, 2, (LOW,)),
        ({"parts": groups(preferred="nvlink", tier="pod")}, 2, None),
        ({"workers": 2, "spread": {"most": 1, "tier": "nvlink"}}, 2, None),
        ({"workers": 4, "even": "nvlink"}, 2, None),
    ],
)
def test_the_answer_says_which_tier_is_used(
    fields: dict[str, Any], tier: int, said: tuple[str, ...] | None
) -> None:
    request = asked(NO_PODS, **fields)
    found = answer(NO_PODS, request)
    assert isinstance(found, Placement)
    assert found.tier == tier
    assert found.relaxed == request.replaced
    assert said is None or said == request.replaced
    assert request == asked(NO_PODS, **fields)


def test_nothing_is_said_where_all_tiers_exist() -> None:
    request = asked(ALL, parts=groups(tier="leaf", preferred="node"), highestTierAllowed="pod", even="leaf")
    found = answer(ALL, replace(request, gang=replace(request.gang, even=None)))
    assert isinstance(found, Placement)
    assert request.replaced == ()
    assert len(found.relaxed) == 1  # the preferred node


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"spread": {"most": 1, "tier": "core-4"}}, "spread.tier: 3: expected 0 to 2"),
        ({"spread": {"most": 1, "tier": "9"}}, "there is no tier 9, nor one above it"),
        ({"even": "9"}, "even: 3: the hierarchy has tiers 0 (node) to 2"),
        # The tier of the spread is now that of the group.
        ({"parts": groups(tier="core", spread={"most": 1, "tier": "pod"})}, PLACED),
        ({"workers": 9, "highestTierAllowed": "pod"}, PLACED),
    ],
)
def test_what_is_impossible_without_the_tier_is_refused(fields: dict[str, Any], reason: str) -> None:
    found = answer(NO_PODS, asked(NO_PODS, **fields))
    assert isinstance(found, Refusal)
    assert found.proven
    assert reason in found.reason
    assert all(said in found.reason for said in asked(NO_PODS, **fields).replaced)


@pytest.mark.parametrize(
    "fields",
    [
        {"parts": [{"workers": {"count": 0}}], "highestTierAllowed": "pod"},
        {"parts": [{"workers": {"count": 1, "resources": {"cpu": "x"}}}], "highestTierAllowed": "pod"},
        {"parts": groups(tier="core"), "highestTierAllowed": "leaf"},
        {"highestTierAllowed": "rack"},
        {"avoid": ["nothing"], "highestTierAllowed": "pod"},
    ],
)
def test_what_no_hierarchy_makes_valid_is_an_error(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        asked(NO_PODS, **fields)


def test_a_running_gang_is_repaired_when_the_highest_tier_is_gone() -> None:
    """Its request was made for three tiers."""
    request = Request(Group(1, (Group(2, (Workers(1),), 3, preferred=2),), 3))
    held = Reservation("a", "api", request, Placement(("a", "c"), 2, "core", None, True), 1)  # type: ignore[arg-type]
    held_failed = Reservation("a", "api", request, held.placement, 1, failed=(FailedNode("c", 1),))
    with pytest.raises(RequestError):
        checked(request, NO_PODS.top)
    now = avoiding_failed(held_failed, NO_PODS)
    assert (now.gang.tier, now.avoid) == (2, {"c"})
    capacity = Capacity(NO_PODS, {"b": {"workers": 1}})
    found = repair(capacity, now, ("a", "c"), frozenset({"c"}), {})
    assert isinstance(found, Repair)
    assert found.placement.nodes == ("a", "b")
