"""The queue of waiting gangs: the order, the gang for which a domain is kept, and a new leader."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hyperscout_gates.control import controller, placement_requests
from hyperscout_gates.state.events import OwnerRead
from hyperscout_gates.state.gang_state import GateSettings
from support.controller_world import NODES, PODS, World, running
from support.fake_kube import Object
from support.topologies import leaves
from support.waiting import until

AFTER_S = 600.0


def world() -> World:
    return World(GateSettings(patience_s=0.0, drain_after_s=AFTER_S))


async def full(one: World) -> None:
    """One gang on each node, small-1 on n01 and so on."""
    for number in range(1, 5):
        one.submit(f"small-{number}", 1)
        await until(lambda number=number: one.opened(f"small-{number}"))  # type: ignore[misc]


async def test_the_first_that_waits_long_gets_the_domain_that_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    one = world()
    async with running(one, monkeypatch):
        await full(one)
        one.submit("large", 2, highest_tier_allowed="leaf")
        await until(lambda: one.waiting() == ["large"])
        one.end("small-1")
        one.submit("passes", 1)
        await until(lambda: one.opened("passes") == ["n01"])  # before the time is over
        one.now_s += AFTER_S
        await until(lambda: "Drains" in one.told())
        (large,) = one.gates.queue.turns.waiting()
        assert (large.gang, large.holder, large.workers) == ("default/Gang/large", "Gang", 2)
        assert (large.waits_since.seconds, large.kept.since.seconds) == (one.now_s - AFTER_S, one.now_s)
        assert large.reason.startswith("2 workers are requested")
        assert (large.kept.hypernode, large.kept.nodes, large.kept.fits) == ("leaf-a", 2, 0)
        assert (large.kept.tier, large.kept.workers) == (1, 2)
        one.submit("later", 1)
        one.end("passes")
        await until(lambda: one.waiting() == ["large", "later"])
        await until(lambda: "kept for gang default/Gang/large" in one.gates.queue.turns.waiting()[1].reason)
        large.kept.fits = 1
        assert one.gates.queue.draining.kept() == large.kept
        one.end("small-3")
        await until(lambda: one.opened("later") == ["n03"])  # outside of the kept domain
        one.end("small-2")
        await until(lambda: one.opened("large") == ["n01", "n02"])
        assert one.gates.queue.draining.kept() is None
        assert one.gates.queue.draining.begun == 1


async def test_a_gang_that_waits_for_a_repair_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is first in the order, and has its domain already."""
    one = world()
    async with running(one, monkeypatch):
        await full(one)
        one.submit("large", 2, highest_tier_allowed="leaf")
        await until(lambda: one.waiting() == ["large"])
        records = {record.machine.key.rpartition("/")[2]: record for record in one.gates._records}
        repairs = records["small-1"]
        repairs.put_in_order()
        repairs.reason = "no replacement"
        one.now_s += AFTER_S
        one.gates.queue.draining.look([repairs, records["large"]])
        assert one.kept_for() == "large"


async def test_a_higher_priority_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    one = world()
    async with running(one, monkeypatch):
        await full(one)
        one.submit("large", 2, highest_tier_allowed="leaf")
        one.now_s += AFTER_S
        await until(lambda: one.gates.queue.draining.kept() is not None)
        one.submit("low", 1, priority=-5)
        one.submit("high", 1, priority=5)
        await until(lambda: one.waiting() == ["high", "large", "low"])
        one.end("small-1")
        await until(lambda: one.opened("high") == ["n01"])  # also on kept nodes
        one.submit("higher", 2, priority=7)
        one.now_s += AFTER_S

        def kept_for_higher() -> bool:
            one.now_s += 1  # there is one choice in a few seconds
            return one.kept_for() == "higher"

        await until(kept_for_higher)
        assert one.waiting() == ["higher", "large", "low"]
        assert one.placements.drain is not None
        assert one.placements.drain.priority == 7  # reservations of a higher one may use the kept nodes


async def test_a_new_leader_finds_order_and_domain_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of leaf-b, which drains, n03 is free. A later gang whose owner is read first does not take it."""
    one = world()
    async with running(one, monkeypatch):
        for number in (1, 2, 3, 4):
            one.submit(f"small-{number}", 1)
            await until(lambda number=number: one.opened(f"small-{number}"))  # type: ignore[misc]
        one.end("small-3")
        await until(lambda: len(one.held()) == 3)
        one.submit("large", 2, highest_tier_allowed="leaf")
        one.submit("never", 3, priority=9, highest_tier_allowed="leaf")  # no leaf can hold it
        await until(lambda: one.waiting() == ["never", "large"])
        one.now_s += AFTER_S
        await until(lambda: one.kept_for() == "large")
    after = one.next_leader()
    after.submit("later", 1)
    read = controller.Owners.read

    is_read = asyncio.Event()

    async def slow_for_large(self: Any, pods: Iterable[Object], uid: str) -> OwnerRead:
        pods = list(pods)
        if "large" in pods[0]["metadata"]["name"]:
            await is_read.wait()
        return await read(self, pods, uid)

    monkeypatch.setattr(controller.Owners, "read", slow_for_large)
    async with running(after, monkeypatch):
        names = ["default/Gang/never", "default/Gang/later"]
        await until(lambda: [one.gang for one in after.gates.queue.turns.waiting()] == names)
        for _ in range(50):
            await asyncio.sleep(0)
        assert "default/Gang/later" not in after.held(), "it has no turn before large is read"
        is_read.set()
        await until(lambda: after.waiting() == ["never", "large", "later"])
        assert after.kept_for() == "large"
        (_, kept, _) = after.gates.queue.turns.waiting()
        assert (kept.kept.hypernode, kept.kept.fits) == ("leaf-b", 1)
        assert not after.opened("later")


async def test_a_domain_that_cannot_hold_the_gang_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    one = world()
    async with running(one, monkeypatch):
        await full(one)
        one.submit("large", 2, highest_tier_allowed="leaf")
        one.now_s += AFTER_S
        await until(lambda: one.kept_for() == "large")
        one.end("small-1")
        one.submit("later", 1)
        await until(lambda: one.waiting() == ["large", "later"])
        one.placements.set_topology(leaves(("n01",), ("n02",), ("n03",), ("n04",), generation=9))
        await until(lambda: one.opened("later") == ["n01"])
        assert one.kept_for() == ""


async def test_a_domain_stays_while_the_owner_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tiers are published, so the gang is read again."""
    one, may_read = world(), asyncio.Event()
    may_read.set()
    read = controller.Owners.read

    async def slow(self: Any, pods: Iterable[Object], uid: str) -> OwnerRead:
        await may_read.wait()
        return await read(self, pods, uid)

    monkeypatch.setattr(controller.Owners, "read", slow)
    async with running(one, monkeypatch):
        await full(one)
        one.submit("large", 2, highest_tier_allowed="1")
        one.now_s += AFTER_S
        await until(lambda: one.kept_for() == "large")
        may_read.clear()
        topology = leaves(NODES[:2], NODES[2:], generation=9)
        racks = (replace(h, tier_name=f"{h.tier_name}s") for h in topology.hypernodes)
        one.placements.set_topology(replace(topology, hypernodes=tuple(racks)))
        await until(lambda: one.waiting() == [])
        assert one.gates.queue.draining.kept() is not None
        may_read.set()
        await until(lambda: one.waiting() == ["large"] and one.kept_for() == "large")
        assert one.gates.queue.draining.begun == 1


async def test_an_elastic_gang_grows_after_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It began first, and has its minimum. It gets one rank at a time here."""
    monkeypatch.setattr(placement_requests, "_MOST_NEW", 1)
    one = world()
    async with running(one, monkeypatch):
        for number in (1, 2, 3):
            one.submit(f"small-{number}", 1)
            await until(lambda number=number: one.opened(f"small-{number}"))  # type: ignore[misc]
        one.submit("flexible", 4, min_count="1")
        await until(lambda: one.opened("flexible") == ["n04"])
        one.bind()
        await until(lambda: one.waiting() == ["flexible"])
        assert one.gates.queue.turns.waiting()[0].reason.startswith(
            "1 of 4 workers run: no place for one more worker"
        )
        one.now_s += 1
        one.submit("later", 1)
        await until(lambda: one.waiting() == ["later", "flexible"])
        one.end("small-3")
        await until(lambda: one.opened("later") == ["n03"])
        assert one.opened("flexible") == ["n04"]
        one.end("small-2")
        await until(lambda: one.opened("flexible") == ["n02", "n04"])
        one.bind()
        await until(lambda: "Resized" in one.told())
        assert one.messages("Resized") == ["now 2 workers (1 before)"]
        assert one.held()["default/Gang/flexible"] == ["n02", "n04"]
        one.end("later")
        one.end("small-1")
        await until(lambda: one.opened("flexible") == NODES)


async def test_an_elastic_gang_starts_before_the_whole_of_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a new leader lets it grow."""
    one = world()
    async with running(one, monkeypatch):
        await full(one)
        one.submit("flexible", 3, min_count="2")
        one.end("small-1")
        await until(lambda: one.waiting() == ["flexible"])
        assert "the minimum of 2 workers does not fit" in one.gates.queue.turns.waiting()[0].reason
        one.end("small-2")
        await until(lambda: one.opened("flexible") == ["n01", "n02"])
        one.bind()
    two = one.next_leader()
    two.bind()
    async with running(two, monkeypatch):
        await until(lambda: two.waiting() == ["flexible"])
        two.end("small-4")
        await until(lambda: two.opened("flexible") == ["n01", "n02", "n04"])
        two.bind()
        path = next(
            path
            for path, pod in two.server.objects.items()
            if path.startswith(f"{PODS}/flexible") and pod["spec"].get("nodeName") == "n04"
        )
        two.gates.pods.forget(f"default/{two.server.objects.pop(path)['metadata']['name']}")
        assert "n04" in two.held()["default/Gang/flexible"]

        def released() -> bool:
            two.now_s += 10
            return two.held()["default/Gang/flexible"] == ["n01", "n02"]

        await until(released)
