"""The order of writes: whatever the trees, no moment in between breaks what a consumer relies on."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hyperscout_publish.hypernodes.plan import (
    Create,
    Delete,
    LetGo,
    Member,
    Present,
    Update,
    Write,
    WritePlan,
    members_of,
    next_writes,
    present,
)
from hyperscout_publish.hypernodes.wanted import KIND, OWNER_LABELS, Wanted
from hypothesis import given
from hypothesis import strategies as st

World = dict[str, Present]


def leaf(name: str, *nodes: str, tier: int = 1, tier_name: str = "leaf") -> Wanted:
    return Wanted(name, tier, tier_name, (), nodes, len(nodes))


def above(name: str, tier: int, *children: str, count: int = 1) -> Wanted:
    return Wanted(name, tier, f"t{tier}", children, (), count)


def of(*tree: Wanted) -> dict[str, Wanted]:
    return {w.name: w for w in tree}


def as_present(w: Wanted, *, ours: bool = True) -> Present:
    return Present(w.name, ours, w.tier, w.tier_name, members_of(w.members()), str(w.count))


def world(*tree: Wanted) -> World:
    return {w.name: as_present(w) for w in tree}


def broken(there: Mapping[str, Present], *, nodes_once: bool = True) -> list[str]:
    """What a scheduler would trip over, in this very moment."""
    found = []
    parents: dict[str, list[str]] = {}
    holders: dict[str, list[str]] = {}
    for p in there.values():
        for m in p.members:
            if m.kind == KIND:
                parents.setdefault(m.value, []).append(p.name)
                if m.value not in there:
                    found.append(f"{p.name} names {m.value}, which is not there")
                elif there[m.value].tier >= p.tier:
                    found.append(f"{p.name} is not above {m.value}")
            else:
                holders.setdefault(m.value, []).append(p.name)
    found += [f"{name} has parents {above}" for name, above in parents.items() if len(above) > 1]
    if nodes_once:
        found += [f"{node} is in {held}" for node, held in holders.items() if len(held) > 1]
    return found


def apply(there: World, write: Write) -> None:
    match write:
        case Create(w):
            assert w.name not in there
            there[w.name] = as_present(w)
        case Update(w):
            assert there[w.name].ours
            there[w.name] = as_present(w)
        case LetGo(name, left):
            assert left < there[name].members
            there[name] = replace(there[name], members=left)
        case Delete(name):
            assert there[name].ours
            del there[name]


def carry_out(there: World, wanted: dict[str, Wanted], rng: Random, *, fails: float = 0.0) -> list[Write]:
    """Until nothing is left to do, in any order within a plan, some writes failing at first."""
    done: list[Write] = []
    for _ in range(60 + 4 * (len(there) + len(wanted))):
        plan = next_writes(there, wanted)
        if not plan.writes:
            return done
        for write in rng.sample(plan.writes, len(plan.writes)):
            if rng.random() < fails:
                continue
            apply(there, write)
            done.append(write)
            assert not broken(there), write
    raise AssertionError(f"no end: {next_writes(there, wanted)}")


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Wanted]:
    """A forest of one depth over some of twelve nodes; names are few, so that two trees share them."""
    rng = Random(draw(st.integers(0, 2**32)))
    nodes = [f"n{i}" for i in range(12) if rng.random() < 0.8]
    rng.shuffle(nodes)
    depth = rng.randint(1, 3)
    names = [f"h{i}" for i in range(14)]
    rng.shuffle(names)
    tiers = sorted(rng.sample(range(1, 7), depth))
    level = []
    found: list[Wanted] = []
    while nodes:
        take = [nodes.pop() for _ in range(min(rng.randint(1, 4), len(nodes)))]
        level.append(Wanted(names.pop(), tiers[0], f"t{tiers[0]}", (), tuple(sorted(take)), len(take)))
    found += level
    for tier in tiers[1:]:
        below, level = level, []
        while below:
            take = [below.pop() for _ in range(min(rng.randint(1, 3), len(below)))]
            children = tuple(sorted(w.name for w in take))
            level.append(Wanted(names.pop() if names else f"x{len(found)}-{len(level)}", tier, f"t{tier}",
                                children, (), sum(w.count for w in take)))  # fmt: skip
        found += level
    return of(*found)


@given(trees(), trees(), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.5]))
def test_any_tree_becomes_any_other_without_a_broken_moment(
    before: dict[str, Wanted], after: dict[str, Wanted], rng: Random, fails: float
) -> None:
    there = world(*before.values())
    carry_out(there, after, rng, fails=fails)
    assert there == world(*after.values())
    assert next_writes(there, after) == WritePlan(())


@given(trees(), trees(), trees(), st.randoms(use_true_random=False))
def test_a_change_of_mind_half_way_is_as_good(
    before: dict[str, Wanted], between: dict[str, Wanted], after: dict[str, Wanted], rng: Random
) -> None:
    there = world(*before.values())
    for _ in range(rng.randint(0, 4)):
        for write in next_writes(there, between).writes[: rng.randint(1, 3)]:
            apply(there, write)
            assert not broken(there)
    carry_out(there, after, rng)
    assert there == world(*after.values())


@given(trees(), trees(), st.randoms(use_true_random=False))
def test_a_hypernode_of_another_owner_is_never_changed(
    before: dict[str, Wanted], after: dict[str, Wanted], rng: Random
) -> None:
    there = world(*before.values())
    foreign = {
        name: replace(p, ours=False, nodes_annotation="") for name, p in there.items() if rng.random() < 0.3
    }
    there.update(foreign)
    for _ in range(100):
        plan = next_writes(there, after)
        if not plan.writes:
            break
        for write in rng.sample(plan.writes, len(plan.writes)):
            apply(there, write)
            assert not broken(there, nodes_once=False), write
    else:
        raise AssertionError("no end")
    assert {name: there[name] for name in foreign} == foreign
    unmade = {n for n, w in after.items() if there.get(n) != as_present(w)}
    assert plan.stuck.keys() == unmade | {n for n, p in there.items() if p.ours and n not in after}


def test_a_steady_state_writes_nothing() -> None:
    tree = of(leaf("a", "n1"), leaf("b", "n2"), above("top", 2, "a", "b"))
    assert next_writes(world(*tree.values()), tree) == WritePlan(())


def test_leaves_are_created_before_their_parents() -> None:
    tree = of(above("top", 3, "mid"), above("mid", 2, "a"), leaf("a", "n1"))
    done = carry_out({}, tree, Random(0))
    assert [w.wanted.name for w in done if isinstance(w, Create)] == ["a", "mid", "top"]


def test_a_tree_is_torn_down_from_the_root() -> None:
    there = world(above("top", 3, "mid"), above("mid", 2, "a", "b"), leaf("a", "n1"), leaf("b", "n2"))
    done = carry_out(there, {}, Random(0))
    assert [w.name for w in done if isinstance(w, Delete)][:2] == ["top", "mid"]
    assert not there


def test_a_moved_child_leaves_its_old_parent_first() -> None:
    there = world(
        leaf("a", "n1"), leaf("b", "n2"), leaf("c", "n3"), above("p", 2, "a", "b"), above("q", 2, "c")
    )
    after = of(leaf("a", "n1"), leaf("b", "n2"), leaf("c", "n3"), above("p", 2, "a"), above("q", 2, "b", "c"))
    done = carry_out(there, after, Random(0))
    assert [type(w) for w in done] == [Update, Update]
    assert [w.wanted.name for w in done if isinstance(w, Update)] == ["p", "q"]


def test_two_that_swap_let_go_first() -> None:
    there = world(leaf("a", "n1", "n2"), leaf("b", "n3", "n4"))
    after = of(leaf("a", "n1", "n3"), leaf("b", "n2", "n4"))
    done = carry_out(there, after, Random(0))
    assert [type(w) for w in done] == [LetGo, LetGo, Update, Update]


def test_the_old_root_goes_last() -> None:
    there = world(leaf("a", "n1"), leaf("b", "n2"), above("old", 2, "a", "b"))
    after = of(leaf("a", "n1"), leaf("b", "n2"), above("new", 2, "a", "b"))
    done = carry_out(there, after, Random(0))
    assert [type(w) for w in done] == [LetGo, Create, Delete]


def test_a_tier_in_between_raises_those_above_first() -> None:
    there = world(leaf("a", "n1"), above("top", 2, "a"))
    after = of(leaf("a", "n1", tier=2), above("top", 3, "a"))
    done = carry_out(there, after, Random(0))
    assert [w.wanted.name for w in done if isinstance(w, Update)] == ["top", "a"]


def test_what_another_owner_s_hypernode_names_is_not_deleted() -> None:
    there = world(leaf("a", "n1")) | {"theirs": as_present(above("theirs", 2, "a"), ours=False)}
    plan = next_writes(there, {})
    assert plan == WritePlan((), {"a": "it is to be deleted, but is still a member of theirs"})


@pytest.mark.parametrize(
    ("labels", "ours"),
    [
        (dict(OWNER_LABELS), True),
        ({**OWNER_LABELS, "more": "x"}, True),
        ({"app.kubernetes.io/managed-by": "hyperscout"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_whose_an_object_is(labels: dict[str, str] | None, ours: bool) -> None:
    found = {"metadata": {"name": "a", "labels": labels}, "spec": {"tier": 1}}
    assert present(found) == Present("a", ours, 1, "", frozenset())


def test_odd_selectors_of_an_edited_one_are_members_too() -> None:
    regex = {"type": "Node", "selector": {"regexMatch": {"pattern": ".*"}}}
    found = {"metadata": {"name": "a", "labels": dict(OWNER_LABELS)}, "spec": {"tier": 1, "members": [regex]}}
    assert present(found).members == {Member("Node", "regexMatch", '{"regexMatch": {"pattern": ".*"}}')}
    assert next_writes({"a": present(found)}, of(leaf("a", "n1"))).writes == (Update(leaf("a", "n1")),)
