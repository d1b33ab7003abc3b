"""The book of placements: what is held is taken from what is free, and given back to the last piece."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hyperscout_placer.book import free_capacity
from hyperscout_placer.book.drain import choose
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.book.reservation import (
    HeldError,
    NoReservationError,
    NoRoomError,
    NotReadyError,
    PlacementsError,
    Reservation,
    TooManyError,
    Trial,
)
from hyperscout_placer.cluster.answer import Cost, Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity, CapacityError, Mask
from hyperscout_placer.cluster.request import Group, Request, RequestError, Workers, ends, ranks
from hyperscout_placer.repair.repair import Move
from hyperscout_topology.topology import Topology
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.builders import gang
from support.placing import free_of
from support.topologies import leaves
from support.waiting import TIMEOUT_S, until

NODES = ("n1", "n2", "n3", "n4")
GPU = "nvidia.com/gpu"


TWO_LEAVES = leaves(NODES[:2], NODES[2:])


def book(now_ns: Callable[[], int] = lambda: 1000, **fields: Any) -> Placements:
    """Of four nodes with room for one worker each."""
    placements = Placements(clock_ns=now_ns, **{"timer": lambda: 0.0, **fields})
    placements.set_topology(TWO_LEAVES)
    placements.set_unused({node: {"workers": 1} for node in NODES})
    return placements


def placed(answer: Placement | Refusal) -> Placement:
    assert isinstance(answer, Placement)
    return answer


def free_nodes(placements: Placements) -> set[str]:
    return {node for node, free in free_of(placements).items() if free}


def test_what_is_placed_is_held_and_released() -> None:
    placements, told = book(), []
    placements.changed.subscribe(lambda name, held: told.append((name, held and held.placement.nodes)))
    placements.changed.subscribe(lambda name, held: told.append(("again", name)))
    found = placed(placements.place("a", gang(2), holder="api", expires_ns=77))
    assert (found.nodes, found.tier) == (("n1", "n2"), 1)
    held = placements.get("a")
    assert held == Reservation("a", "api", gang(2), found, 1000, 77)
    assert (free_nodes(placements), len(placements), placements.ranks) == ({"n3", "n4"}, 1, 2)
    assert placed(placements.place("b", gang(1), holder="Job")).nodes == ("n3",)
    assert [held.gang for held in placements] == ["a", "b"]
    placements.release("a")
    assert (free_nodes(placements), placements.ranks) == ({"n1", "n2", "n4"}, 1)
    assert told[::2] == [("a", ("n1", "n2")), ("b", ("n3",)), ("a", None)]
    assert told[1::2] == [("again", "a"), ("again", "b"), ("again", "a")]


def test_a_host_that_only_a_guid_identifies_is_no_target() -> None:
    unnamed = "0002c9030005f340"
    placements = book()
    placements.set_topology(leaves((unnamed, "n1")))
    placements.set_default_unused({"workers": 1})
    assert isinstance(placements.place("a", gang(2), holder="api"), Refusal)
    assert placed(placements.place("a", gang(1), holder="api")).nodes == ("n1",)
    assert isinstance(placements.place("b", gang(1), holder="api"), Refusal)


def test_a_dry_run_and_a_refusal_hold_nothing() -> None:
    took: list[float] = []
    times = iter([1.0, 1.5, 2.0, 4.0, 5.0, 5.25])
    placements = book(timer=lambda: next(times), decided=took.append)
    assert isinstance(placements.place("", gang(2), holder="api", dry_run=True), Placement)
    assert isinstance(placements.place("a", gang(5), holder="api"), Refusal)
    assert (free_nodes(placements), list(placements)) == (set(NODES), [])
    placements.place("b", gang(1), holder="api")
    assert placements.decisions == {"fits": 1, "refused": 1, "reserved": 1}
    assert took == [0.5, 2.0, 0.25]


def test_a_trial_is_on_what_was_free_then() -> None:
    placements = book()
    capacity, trial = placements.trial(gang(4))
    placements.place("a", gang(1), holder="api")
    found = trial()
    assert isinstance(found.answer, Placement)
    assert capacity is not placements.capacity
    placements.tried(found)
    assert placements.decisions == {"reserved": 1, "fits": 1}
    assert free_nodes(placements) == {"n2", "n3", "n4"}


# What may take long is decided in a thread


def leader_and(count: int) -> Request:
    """Two kinds of workers: the time that takes has no bound."""
    return Request(Group(1, (Workers(1, (("workers", 1),), role="leader"), Workers(count, ((GPU, 1),)))))


def mixed_book() -> Placements:
    placements = book()
    placements.set_unused({node: {"workers": 1, GPU: 1} for node in NODES})
    return placements


async def test_what_is_quick_is_decided_at_once() -> None:
    async def never(trial: Callable[[], Trial]) -> Trial:
        raise AssertionError

    placements = book()
    found = await placements.decide("a", gang(2), holder="api", expires_ns=5, in_thread=never)
    assert placed(found).nodes == ("n1", "n2")
    assert placements.held("a").expires_ns == 5
    with pytest.raises(AssertionError):
        await placements.decide("b", leader_and(1), holder="api", in_thread=never)
    sizes = Request(Group(1, (Group(1, (Workers(2),), 1), Group(1, (Workers(1),), 1))))
    with pytest.raises(AssertionError):  # of one kind, but in groups of several sizes
        await placements.decide("b", sizes, holder="api", in_thread=never)


async def test_what_was_decided_in_a_thread_is_held() -> None:
    in_thread = asyncio.to_thread
    placements = mixed_book()
    found = await placements.decide(
        "a", leader_and(1), holder="api", expires_ns=7, in_thread=asyncio.to_thread
    )
    assert placements.held("a") == Reservation("a", "api", leader_and(1), placed(found), 1000, 7)
    assert all(free_of(placements)[node] == {} for node in placed(found).nodes)
    assert isinstance(await placements.decide("b", leader_and(9), holder="api", in_thread=in_thread), Refusal)
    assert placements.decisions == {"reserved": 1, "refused": 1}


async def test_what_does_not_fit_any_more_is_decided_anew() -> None:
    placements, seen = mixed_book(), []

    async def slowly(trial: Callable[[], Trial]) -> Trial:
        found = trial()
        seen.append(placed(found.answer).nodes)
        if len(seen) == 1:  # another gang takes its nodes meanwhile
            placements.set_unusable(seen[0])
        return found

    found = await placements.decide("a", leader_and(1), holder="api", in_thread=slowly)
    assert len(seen) == 2
    assert not {*seen[0]} & {*placed(found).nodes}


async def test_another_topology_meanwhile_is_another_decision() -> None:
    placements, seen = mixed_book(), []
    masks = {"leader": Mask("m", np.ones(4, np.bool_))}

    async def slowly(trial: Callable[[], Trial]) -> Trial:
        found = trial()
        seen.append(found)
        placements.set_topology(leaves(NODES, generation=1 + len(seen)))
        return found

    with pytest.raises(NoRoomError, match="faster than a place is found"):
        await placements.decide("a", leader_and(1), holder="api", in_thread=slowly)
    assert len(seen) == 3
    seen.clear()
    with pytest.raises(NoRoomError):
        await placements.decide("a", leader_and(1), holder="api", masks=masks, in_thread=slowly)
    assert len(seen) == 1  # masks are of a topology
    assert list(placements) == []
    assert free_of(placements) == {node: {"workers": 1, GPU: 1} for node in NODES}


async def test_of_two_of_one_name_one_is_held() -> None:
    placements = mixed_book()
    placements.set_unused({node: {"cpu": 9, GPU: 9} for node in NODES})  # for both
    asked = Request(Group(1, (Workers(1, (("cpu", 1),), role="leader"), Workers(1, ((GPU, 1),)))))
    calls = [placements.decide("a", asked, holder="api", in_thread=asyncio.to_thread) for _ in range(2)]
    first, second = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted((type(first).__name__, type(second).__name__)) == ["HeldError", "Placement"]
    assert placements.ranks == 2


NAMES = {"none": "", "spaces": "a b", "control characters": "a\n", "too long": "x" * 401}


@pytest.mark.parametrize("case", NAMES)
def test_names_are_checked_before_anything_is_held(case: str) -> None:
    placements = book()
    with pytest.raises(RequestError, match=r"^gang: "):
        placements.place(NAMES[case], gang(1), holder="api")
    assert free_nodes(placements) == set(NODES)


def test_errors_say_what_to_do_and_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    placements = book()
    placements.place("a", gang(1), holder="api")
    with pytest.raises(HeldError, match="already holds 1 node: release it"):
        placements.place("a", gang(1), holder="api")
    with pytest.raises(RequestError, match="tier"):
        placements.place("b", Request(Group(1, (Workers(1),), tier=9)), holder="api")
    monkeypatch.setattr("hyperscout_placer.book.reservation.MAX_RANKS", 3)
    with pytest.raises(TooManyError, match="1 workers already hold nodes, the limit is 3"):
        placements.place("b", gang(3), holder="api")
    monkeypatch.setattr("hyperscout_placer.book.reservation.MAX_GANGS", 1)
    with pytest.raises(TooManyError, match="1 gangs"):
        placements.place("b", gang(1), holder="api")
    assert isinstance(placements.place("b", gang(1), holder="api", dry_run=True), Placement)
    for act in (placements.release, placements.held):
        with pytest.raises(NoReservationError, match="'b'"):
            act("b")
    with pytest.raises(NoReservationError):
        placements.arrive("b", [0])
    with pytest.raises(NoReservationError):
        placements.move("b", [], placements.held("a").placement)
    assert (free_nodes(placements), placements.ranks) == ({"n2", "n3", "n4"}, 1)


def test_a_defect_of_the_engine_holds_nothing() -> None:
    def broken(capacity: Capacity, request: Request, masks: Mapping[str, Mask]) -> Placement:
        raise ZeroDivisionError

    placements = book(engine=broken)
    with pytest.raises(ZeroDivisionError):
        placements.place("a", gang(1), holder="api")
    assert (free_nodes(placements), list(placements), placements.ranks) == (set(NODES), [], 0)


def test_nothing_is_placed_before_everything_is_known() -> None:
    placements = Placements(clock_ns=lambda: 0, timer=lambda: 0.0)
    for step, words in (
        (lambda: None, "no topology has been published"),
        (lambda: placements.set_topology(Topology(0)), "no topology has been published"),
        (lambda: placements.set_topology(TWO_LEAVES), "the free resources of the nodes are unknown"),
    ):
        step()
        with pytest.raises(NotReadyError, match=words):
            placements.place("a", gang(1), holder="api")
    placements.set_default_unused({"workers": 2})
    assert placed(placements.place("a", gang(2), holder="api")).nodes == ("n1", "n1")


def test_a_topology_that_is_no_tree_is_refused_by_name() -> None:
    placements = book()
    placements.place("a", gang(1), holder="api")
    placements.set_topology(leaves(("n1", "n2"), ("n2", "n3")))
    for _ in range(2):
        with pytest.raises(NotReadyError, match=r"published topology.*l2.*n2"):
            placements.place("b", gang(1), holder="api")
    assert placements.problem is not None
    placements.set_topology(TWO_LEAVES)
    assert placements.problem is None
    assert free_nodes(placements) == {"n2", "n3", "n4"}


def test_what_is_held_outlives_topologies() -> None:
    placements = book()
    placements.place("a", gang(2), holder="api")
    placements.set_topology(leaves(("n2", "n3"), ("n4", "n5")))
    assert free_nodes(placements) == {"n3", "n4"}  # the room on n5 is not known
    placements.place("b", gang(1), holder="api")
    placements.set_topology(leaves(("n4", "n5")))
    placements.release("a")
    assert free_nodes(placements) == {"n4"}
    placements.set_topology(TWO_LEAVES)
    assert free_nodes(placements) == {"n1", "n2", "n4"}
    placements.release("b")
    assert free_nodes(placements) == set(NODES)


def test_a_free_capacity_below_the_held_amount_counts_as_none() -> None:
    placements = book()
    placements.set_unused({node: {GPU: 8} for node in NODES})
    placements.place("a", gang(2, resources={GPU: 4}), holder="api")
    placements.set_unused_of("n1", {GPU: 6})
    assert free_of(placements)["n1"] == {}
    placements.set_unused_of("n1", None)
    assert free_of(placements)["n1"] == {}
    placements.release("a")
    assert free_of(placements)["n1"] == {}
    placements.set_unused_of("n1", {GPU: 8})
    assert free_of(placements)["n1"] == {GPU: 8}


@pytest.mark.parametrize("amount", [-1, 2**62, True, 1.5, "4"])
def test_an_impossible_free_capacity_is_refused_with_node_and_resource(amount: Any) -> None:
    placements = book()
    before = free_of(placements)
    with pytest.raises(CapacityError, match=r"n2: cpu: "):
        placements.set_unused({"n1": {"cpu": 1}, "n2": {"cpu": amount}})
    with pytest.raises(CapacityError, match=r"n2: cpu: "):
        placements.set_unused_of("n2", {"cpu": amount})
    assert free_of(placements) == before


def test_whole_nodes_and_devices_do_not_share_a_node() -> None:
    placements = book()
    placements.set_unused({node: {"workers": 1, GPU: 8, "cpu": 64_000} for node in NODES})
    assert placed(placements.place("gpus", gang(1, resources={GPU: 1}), holder="api")).nodes == ("n1",)
    assert free_of(placements)["n1"] == {GPU: 7, "cpu": 64_000}
    assert placed(placements.place("whole", gang(3), holder="api")).nodes == ("n2", "n3", "n4")
    assert free_of(placements)["n2"] == {"cpu": 64_000}
    assert isinstance(placements.place("more", gang(1), holder="api"), Refusal)
    assert isinstance(placements.place("more", gang(8, resources={GPU: 1}), holder="api"), Refusal)
    placements.release("gpus")
    placements.release("whole")
    assert free_of(placements)["n1"] == free_of(placements)["n2"] == {"workers": 1, GPU: 8, "cpu": 64_000}


def test_a_pod_that_arrived_is_counted_by_the_free_capacity_alone() -> None:
    placements = book()
    placements.place("a", gang(2), holder="Job")
    placements.set_unused_of("n1", {"workers": 0})  # its pod runs there
    placements.arrive("a", [0])
    placements.arrive("a", [0])
    assert placements.held("a").arrived == {0}
    assert free_nodes(placements) == {"n3", "n4"}
    placements.set_unused_of("n1", {"workers": 1})  # the pod is over
    assert free_nodes(placements) == {"n1", "n3", "n4"}
    placements.release("a")
    assert free_nodes(placements) == set(NODES)
    placements.place("b", gang(1), holder="Job")
    for rank in (-1, 1):
        with pytest.raises(PlacementsError, match="1 rank"):
            placements.arrive("b", [rank])


def moved(placements: Placements, name: str, *moves: Move) -> Placement:
    nodes = list(placements.held(name).placement.nodes)
    for move in moves:
        nodes[move.rank] = move.target
    return Placement(tuple(nodes), 2, "core", Cost(2, (2,), 2, 0, (0, 0, 0)))


def test_a_move_takes_the_new_node_and_leaves_the_old_one() -> None:
    placements = book()
    placements.place("a", gang(2), holder="api")
    placements.arrive("a", [0])
    move = Move(0, "n1", "n3")
    placements.move("a", [move], moved(placements, "a", move))
    held = placements.held("a")
    assert (held.placement.nodes, held.arrived) == (("n3", "n2"), frozenset())
    assert free_nodes(placements) == {"n1", "n4"}  # n1: what its pod holds is the room's to say
    move = Move(1, "n2", "n4")
    placements.move("a", [move], moved(placements, "a", move))
    assert free_nodes(placements) == {"n1", "n2"}
    placements.release("a")
    assert free_nodes(placements) == set(NODES)


def test_a_move_that_does_not_fit_any_more_changes_nothing() -> None:
    placements = book()
    placements.place("a", gang(2), holder="api")
    move = Move(0, "n1", "n3")
    after = moved(placements, "a", move)
    placements.place("b", gang(1), holder="api")  # takes n3
    held, free = placements.held("a"), free_of(placements)
    with pytest.raises(NoRoomError, match="n3: 1 workers are needed, 0 are free"):
        placements.move("a", [move], after)
    unplanned = moved(placements, "a", Move(1, "n2", "n4"))
    for moves in ([], [Move(0, "n1", "n4")], [Move(7, "n1", "n4"), Move(1, "n2", "n4")]):
        with pytest.raises(NoRoomError, match="plan again"):
            placements.move("a", moves, unplanned)
    assert placements.held("a") is held
    assert free_of(placements) == free


def test_two_that_swap_nodes_fit() -> None:
    placements = book()
    placements.place("a", gang(2), holder="api")
    moves = (Move(0, "n1", "n2"), Move(1, "n2", "n1"))
    placements.move("a", moves, moved(placements, "a", *moves))
    assert placements.held("a").placement.nodes == ("n2", "n1")


def test_reservations_are_over_when_their_time_is() -> None:
    now = [1000]
    placements = book(lambda: now[0])
    placements.place("brief", gang(1), holder="api", expires_ns=1500)
    placements.place("longer", gang(1), holder="api", expires_ns=2500)
    placements.place("ever", gang(1), holder="api")
    now[0] = 1499
    assert placements.expire() == []
    now[0] = 1500
    assert placements.expire() == ["brief"]
    now[0] = 10**18
    assert placements.expire() == ["longer"]
    assert [held.gang for held in placements] == ["ever"]
    assert free_nodes(placements) == {"n1", "n2", "n4"}


def test_restored_is_held_whether_it_fits_or_not() -> None:
    placements = Placements(clock_ns=lambda: 0, timer=lambda: 0.0)
    where = Placement(("n1", "n1", "gone"), 2, "core", Cost(2, (), 2, 0, ()))
    placements.restore(Reservation("a", "api", gang(3), where, 5, arrived=frozenset({1})))
    placements.set_topology(TWO_LEAVES)
    placements.set_unused({node: {"workers": 1} for node in NODES})
    assert free_nodes(placements) == {"n2", "n3", "n4"}
    again = Placement(("n2", "n3", "n4"), 2, "core", Cost(2, (), 3, 0, ()))
    placements.restore(Reservation("a", "api", gang(3), again, 5))
    assert (free_nodes(placements), placements.ranks, len(placements)) == ({"n1"}, 3, 1)
    with pytest.raises(PlacementsError, match="3 nodes for 2 ranks"):
        placements.restore(Reservation("b", "api", gang(2), again, 5))
    placements.release("a")
    assert free_nodes(placements) == set(NODES)


def test_nodes_that_take_no_work_have_no_free_capacity() -> None:
    placements = book()
    placements.set_unusable({"n1", "n3", "elsewhere"})
    assert free_nodes(placements) == {"n2", "n4"}
    placements.place("a", gang(1), holder="api")
    placements.set_unusable({"n2"})
    assert free_nodes(placements) == {"n1", "n3", "n4"}
    placements.set_unusable(())
    assert free_nodes(placements) == {"n1", "n3", "n4"}


def test_a_gang_that_took_a_node_whole_gives_back_its_devices_too() -> None:
    placements = book()
    placements.set_unused({node: {"workers": 1, GPU: 8} for node in NODES})
    placements.place("a", gang(1), holder="api")
    assert placements.capacity.free_of("n1") == {}
    assert placements.without("a")().free_of("n1") == {"workers": 1, GPU: 8}


def test_as_if_a_gang_held_nothing() -> None:
    placements = book()
    placements.set_unused({node: {GPU: 8} for node in NODES})
    for name, nodes in (("a", ("n1", "n1", "n2")), ("b", ("n2",))):
        where = Placement(nodes, 1, "l1", Cost(1, (), 2, 0, (0, 0)))
        placements.restore(Reservation(name, "Job", gang(len(nodes), resources={GPU: 4}), where, 0))
    placements.set_unused_of("n2", {GPU: 4})
    placements.arrive("a", [2])
    before = free_of(placements)
    without = placements.without("a")()
    assert [without.free_of(node).get(GPU, 0) for node in NODES] == [8, 4, 8, 8]
    assert free_of(placements) == before
    placements.set_unusable({"n2"})  # one of "a" runs there
    assert placements.without("a")().free_of("n2") == {}
    with pytest.raises(NoReservationError):
        placements.without("c")


# Large topologies are read in a thread


async def test_until_a_large_topology_is_read_the_one_before_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_capacity, "IN_A_THREAD", 4)
    read, go = asyncio.Event(), asyncio.Event()

    async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
        found = function(*args)
        read.set()
        await go.wait()
        go.clear()
        return found

    monkeypatch.setattr(free_capacity, "BoundedExecutor", lambda name: in_thread)
    placements = book()
    reading = asyncio.create_task(placements.run())
    await asyncio.sleep(0)
    placements.set_topology(leaves(("n1", "n2"), ("n3", "n5"), generation=2))
    await read.wait()
    assert placements.capacity.forest.generation == 1
    placements.place("a", gang(1), holder="api")  # while it is being read
    placements.set_unused_of("n3", {"workers": 5})
    placements.set_topology(leaves(("n1", "n2"), ("n3", "n6"), generation=3))
    go.set()
    async with asyncio.timeout(TIMEOUT_S):
        while placements.capacity.forest.generation != 2:
            await asyncio.sleep(0)
        assert free_of(placements) == {"n1": {}, "n2": {"workers": 1}, "n3": {"workers": 5}, "n5": {}}
        go.set()
        while placements.capacity.forest.generation != 3:
            await asyncio.sleep(0)
    assert free_of(placements) == {"n1": {}, "n2": {"workers": 1}, "n3": {"workers": 5}, "n6": {}}
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_a_small_topology_overtakes_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_capacity, "IN_A_THREAD", 4)
    read, go = asyncio.Event(), asyncio.Event()

    async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
        found = function(*args)
        read.set()
        await go.wait()
        return found

    monkeypatch.setattr(free_capacity, "BoundedExecutor", lambda name: in_thread)
    placements = book()
    reading = asyncio.create_task(placements.run())
    await asyncio.sleep(0)
    placements.set_topology(leaves(("n1", "n2"), ("n3", "n5"), generation=2))
    await read.wait()
    placements.set_topology(leaves(("n1",), ("n2",), generation=3))
    go.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert placements.capacity.forest.generation == 3
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_a_large_topology_that_is_no_tree_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_capacity, "IN_A_THREAD", 4)
    placements = book()
    reading = asyncio.create_task(placements.run())
    await asyncio.sleep(0)
    placements.set_topology(leaves(("n1", "n2"), ("n2", "n3")))
    await until(lambda: placements.problem is not None)
    with pytest.raises(NotReadyError, match="l2"):
        placements.place("a", gang(1), holder="api")
    assert not reading.done()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def test_what_no_node_has_takes_no_room_in_memory() -> None:
    placements = book()
    for i in range(100):
        asked = gang(1, resources={f"vendor.example/{i}": 1})
        assert isinstance(placements.place("a", asked, holder="api"), Refusal)
    assert list(placements.capacity._free) == ["workers"]
    placements.set_unused_of("n2", {"vendor.example/99": 1})
    assert placed(placements.place("a", asked, holder="api")).nodes == ("n2",)


def test_many_changes_at_once_are_the_same_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_capacity, "_AT_ONCE", 2)
    placements = book()
    placements.place("a", gang(3), holder="api")
    placements.set_unused({node: {"workers": 2} for node in NODES})
    held = placements.held("a").placement.nodes
    assert free_of(placements) == {n: {"workers": 1 if n in held else 2} for n in NODES}


# Whatever happens, what is free is the room less what is held and has not arrived.

_ROOMS = st.dictionaries(st.sampled_from(["workers", GPU, "cpu"]), st.integers(0, 8))
_NODE = st.sampled_from([*NODES, "n5", "n6"])
_GANG = st.sampled_from("abcd")
_TOPOLOGIES = st.sampled_from(
    [TWO_LEAVES, leaves(("n1", "n5"), ("n2", "n3")), leaves(("n6",)), leaves(("n4", "n3"), ("n1",))]
)
_NEEDS = st.sampled_from([{"workers": 1}, {GPU: 1}, {GPU: 3}, {"cpu": 2, GPU: 1}, {"cpu": 1}])


class Book(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.placements = Placements(clock_ns=lambda: self.now, timer=lambda: 0.0)
        self.nodes: tuple[str, ...] = ()
        self.room: dict[str, dict[str, int]] = {}
        self.unusable: frozenset[str] = frozenset()
        self.set_topology(TWO_LEAVES)
        self.set_unused({node: {"workers": 1, GPU: 4} for node in NODES})

    @rule(topology=_TOPOLOGIES)
    def set_topology(self, topology: Topology) -> None:
        self.placements.set_topology(topology)
        self.nodes = topology.hypernodes[-1].nodes

    @rule(room=st.dictionaries(_NODE, _ROOMS))
    def set_unused(self, room: dict[str, dict[str, int]]) -> None:
        self.placements.set_unused(room)
        self.room = dict(room)

    @rule(node=_NODE, room=st.none() | _ROOMS)
    def set_unused_of(self, node: str, room: dict[str, int] | None) -> None:
        self.placements.set_unused_of(node, room)
        self.room[node] = room or {}

    @rule(nodes=st.frozensets(_NODE, max_size=2))
    def set_unusable(self, nodes: frozenset[str]) -> None:
        self.placements.set_unusable(nodes)
        self.unusable = nodes

    @rule(name=_GANG, count=st.integers(1, 5), needs=_NEEDS, lasts=st.integers(0, 3), dry=st.booleans())
    def place(self, name: str, count: int, needs: dict[str, int], lasts: int, dry: bool) -> None:
        free = free_of(self.placements)
        expires_ns = self.now + lasts if lasts else 0
        try:
            answer = self.placements.place(
                name, gang(count, resources=needs), holder="api", dry_run=dry, expires_ns=expires_ns
            )
        except HeldError:
            assert self.placements.get(name) is not None
            return
        if isinstance(answer, Placement):
            for (node, resource), amount in sums(answer, gang(count, resources=needs)).items():
                assert free[node][resource] >= amount

    @rule(name=_GANG, nodes=st.lists(_NODE, min_size=1, max_size=4), needs=_NEEDS)
    def restore(self, name: str, nodes: list[str], needs: dict[str, int]) -> None:
        where = Placement(tuple(nodes), None, None, Cost(3, (1, 1), 1, 0, ()))
        self.placements.restore(Reservation(name, "Job", gang(len(nodes), resources=needs), where, self.now))

    @rule(name=_GANG, rank=st.integers(0, 5))
    def arrive(self, name: str, rank: int) -> None:
        try:
            self.placements.arrive(name, [rank])
        except PlacementsError:
            return

    @rule(name=_GANG, rank=st.integers(0, 3), node=_NODE)
    def move(self, name: str, rank: int, node: str) -> None:
        held = self.placements.get(name)
        if held is None or rank >= len(held.placement.nodes):
            return
        move = Move(rank, held.placement.nodes[rank], node)
        try:
            self.placements.move(name, [move], moved(self.placements, name, move))
        except NoRoomError:
            assert self.placements.get(name) is held

    @rule(name=_GANG, stay=st.integers(1, 4), more=st.lists(_NODE, max_size=3))
    def resize(self, name: str, stay: int, more: list[str]) -> None:
        held = self.placements.get(name)
        if held is None:
            return
        nodes = (*held.placement.nodes[:stay], *more)
        (kind,) = ends(held.request.gang)
        request = Request(Group(1, (replace(kind, count=len(nodes)),)))
        try:
            self.placements.resize(name, request, replace(held.placement, nodes=nodes))
        except NoRoomError:
            assert self.placements.get(name) is held
        else:
            now = self.placements.held(name)
            assert (now.placement.nodes, now.request) == (nodes, request)
            assert now.arrived == {rank for rank in held.arrived if rank < stay}

    @rule(name=_GANG)
    def release(self, name: str) -> None:
        try:
            self.placements.release(name)
        except NoReservationError:
            return

    @rule(later=st.integers(1, 3))
    def expire(self, later: int) -> None:
        self.now += later
        over = [held.gang for held in self.placements if 0 < held.expires_ns <= self.now]
        assert self.placements.expire() == over

    @invariant()
    def free_is_room_less_what_is_held(self) -> None:
        booked: Counter[tuple[str, str]] = Counter()
        for held in self.placements:
            booked.update(sums(held.placement, held.request, held.arrived))
        for node, free in free_of(self.placements).items():
            room = {} if node in self.unusable else self.room.get(node, {})
            wanted = {name: has - booked[node, name] for name, has in room.items()}
            if booked[node, GPU]:
                wanted["workers"] = 0
            if booked[node, "workers"]:
                wanted[GPU] = 0
            assert free == {name: left for name, left in wanted.items() if left > 0}, node
        assert tuple(sorted(self.placements.capacity.forest.nodes)) == tuple(sorted(self.nodes))

    @invariant()
    def a_gang_that_goes_leaves_what_it_took(self) -> None:
        assert self.placements.ranks == sum(len(held.placement.nodes) for held in self.placements)

    @precondition(lambda self: len(self.placements) > 1)
    @rule()
    def release_all(self) -> None:
        for held in self.placements:
            self.placements.release(held.gang)
        for node, free in free_of(self.placements).items():
            room = {} if node in self.unusable else self.room.get(node, {})
            assert free == {name: has for name, has in room.items() if has}


def sums(
    placement: Placement, request: Request, arrived: frozenset[int] = frozenset()
) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for rank, (node, worker) in enumerate(zip(placement.nodes, ranks(request.gang), strict=True)):
        if rank not in arrived:
            for name, amount in worker.resources:
                found[node, name] += amount
    return found


TestBook = Book.TestCase
TestBook.settings = settings(stateful_step_count=40)


def test_a_domain_that_is_kept_meanwhile_repeats_a_decision() -> None:
    """A slow decision took nodes of it: it is made again, around the domain."""
    placements, tries = book(), []
    two_kinds, large = gang(Workers(1, role="leader"), Workers(1)), gang(2, tier=1)

    async def in_thread(trial: Callable[[], Trial]) -> Trial:
        found = trial()
        tries.append(found.answer)
        if len(tries) == 1:
            placements.drain = choose("large", large, {}, placements.booked(large))
        return found

    answer = asyncio.run(placements.decide("a", two_kinds, holder="api", in_thread=in_thread))
    assert [placed(x).nodes for x in tries] == [("n1", "n2"), ("n3", "n4")]
    assert placed(answer).nodes == ("n3", "n4")
