"""The controller when a gang raises: that gang is parked and begins anew, and the others go on."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from hyperscout_gates.control import controller
from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang import GANG_LABEL, SIZE_LABEL
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_gates.state.machine import GangMachine
from support.controller_world import NODES, PODS, World, running
from support.fake_kube import Object
from support.waiting import until


class Planted:
    """Makes the machine of one gang raise, at events that `where` chooses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gang: str) -> None:
        self.where: Callable[[e.Event], bool] = lambda event: True
        self.raised = 0
        handle = GangMachine.handle

        def planted(
            machine: GangMachine, events: Iterable[e.Event], now_s: float
        ) -> Collection[e.Instruction]:
            events = list(events)
            if machine.key.endswith(f"/{gang}") and any(map(self.where, events)):
                self.raised += 1
                raise ValueError("planted")
            return handle(machine, events, now_s)

        monkeypatch.setattr(GangMachine, "handle", planted)


async def test_a_gang_that_raises_is_parked_and_another_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    world, planted = World(), Planted(monkeypatch, "bad")
    async with running(world, monkeypatch):
        world.submit("bad", 2)
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2)
        (problem,) = world.gates.problems
        assert problem == "gang default/Gang/bad is parked: ValueError: planted"
        await until(lambda: "Parked" in world.told())
        assert not world.opened("bad")
        for wait_s in (5, 10, 20):  # it doubles
            raised = planted.raised
            world.now_s += wait_s - 1
            for _ in range(50):
                await asyncio.sleep(0)
            assert planted.raised == raised
            world.now_s += 1
            await until(lambda raised=raised: planted.raised == raised + 1)  # type: ignore[misc]
        planted.where = lambda event: False
        world.now_s += 40
        await until(lambda: len(world.opened("bad")) == 2)
        assert not world.gates.problems
        assert sorted(world.opened("bad") + world.opened("good")) == NODES


@pytest.mark.parametrize(("wanted", "labels"), [(True, {"hyperscout.io/leaf": "leaf-a"}), (False, {})])
async def test_opened_pods_have_labels_of_their_place_on_request(
    wanted: bool, labels: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(GateSettings(patience_s=0.0, pod_labels=wanted))
    async with running(world, monkeypatch):
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2)
        assert world.opened("good") == ["n01", "n02"]
        for pod in ("good-0", "good-1"):
            found = world.server.objects[f"{PODS}/{pod}"]["metadata"]["labels"]
            assert found == {GANG_LABEL: "good", SIZE_LABEL: "2"} | labels


async def test_a_gang_for_which_the_placer_raises_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    place, raises = world.placements.place, True

    def planted(gang: str, *words: Any, **options: Any) -> Any:
        if raises and gang.endswith("/bad"):
            raise ZeroDivisionError("planted")
        return place(gang, *words, **options)

    monkeypatch.setattr(world.placements, "place", planted)
    async with running(world, monkeypatch):
        world.submit("bad", 2)
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2 and world.gates.problems)
        assert "ZeroDivisionError: planted" in world.gates.problems[0]
        raises = False
        world.now_s += 5
        await until(lambda: len(world.opened("bad")) == 2)


@pytest.mark.parametrize("event", [e.PlanStored, e.Opened])
async def test_a_gang_that_is_parked_on_its_way_keeps_its_nodes(
    event: type[e.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its plan has just been stored, or its gates are open: it is never placed twice."""
    world, planted = World(), Planted(monkeypatch, "bad")
    planted.where = lambda seen: isinstance(seen, event)
    async with running(world, monkeypatch):
        world.submit("bad", 2)
        await until(lambda: world.gates.problems)
        held = world.held()
        assert [len(nodes) for nodes in held.values()] == [2]
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2)
        planted.where = lambda seen: isinstance(seen, e.Began)
        world.now_s += 5
        await until(lambda: planted.raised > 1 and world.gates.problems)
        assert held.items() <= world.held().items(), "a try that fails releases nothing"
        planted.where = lambda seen: False
        world.now_s += 10
        await until(lambda: len(world.opened("bad")) == 2 and not world.gates.problems)
        assert sorted(world.held()) == ["default/Gang/bad", "default/Gang/good"]
        assert sorted(world.opened("bad") + world.opened("good")) == NODES
        assert world.held()["default/Gang/bad"] == world.opened("bad")


async def test_what_raises_while_the_owner_is_read_parks_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    read = controller.Owners.read

    async def planted(self: Any, pods: Iterable[Object], uid: str) -> e.OwnerRead:
        pods = list(pods)
        if any("bad" in pod["metadata"]["name"] for pod in pods):
            raise ValueError("planted")
        return await read(self, pods, uid)

    monkeypatch.setattr(controller.Owners, "read", planted)
    async with running(world, monkeypatch):
        world.submit("bad", 2)
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2 and world.gates.problems)


async def test_a_pod_that_cannot_be_read_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    seen = controller.seen

    def planted(kept: Object) -> e.Pod:
        if kept["metadata"]["name"] == "bad-0":
            raise ValueError("planted")
        return seen(kept)

    monkeypatch.setattr(controller, "seen", planted)
    async with running(world, monkeypatch):
        world.submit("bad", 1)
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2 and "NoGang" in world.told())
