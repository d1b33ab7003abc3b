"""Gangs on degraded links: they move once, or an Event advises what to drain."""

import asyncio
from collections.abc import Mapping

import pytest
from hyperscout_gates.control import mover
from hyperscout_gates.degradation.watch import Action, DegradationSettings
from hyperscout_gates.state.gang_state import GateSettings
from support.controller_world import World, running
from support.fake_kube import Object
from support.waiting import until


def moving_world(action: Action) -> World:
    degradation = DegradationSettings(action, wait_s=60.0, moves_per_hour=1)
    return World(GateSettings(patience_s=0.0, degradation=degradation))


def hooked(value: str) -> dict[str, str]:
    """The annotation of the hook, if there is one."""
    return {"checkpoint_hook": value} if value else {}


@pytest.mark.parametrize(
    ("action", "hook", "owned", "advice"),
    [
        ("move", "none", True, ""),
        ("move", "8080/save", True, ""),
        ("advise", "none", True, "the collector only advises; there is a place with no degraded link"),
        ("move", "", True, "pod a-0 has no annotation hyperscout.io/checkpoint-hook"),
        ("move", "none", False, "no controller creates pod a-0 again"),
        ("move", "8080 save", True, "'8080 save': expected PORT/PATH, or \"none\""),
        ("move", "8081/broken", True, "the checkpoint hook fails: a-0 answers 500"),
    ],
)
async def test_a_gang_on_degraded_links_moves_once_or_is_advised(
    action: Action, hook: str, owned: bool, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[Mapping[str, str], Object]] = []

    async def call(urls: Mapping[str, str], body: Object, timeout_s: float) -> list[str]:
        called.append((urls, body))
        return ["a-0 answers 500"] if ":8081/" in urls["a-0"] else []

    monkeypatch.setattr(mover, "call", call)
    world = moving_world(action)
    async with running(world, monkeypatch):
        world.submit("a", 1, owned=owned, **hooked(hook))
        await until(lambda: len(world.opened("a")) == 1)
        (node,) = world.opened("a")
        world.bind()
        await until(lambda: next(iter(world.placements)).arrived == {0})
        world.degrade(node)
        await settled()
        assert not world.told().count("Degraded")
        world.now_s += 61
        if advice:
            await until(lambda: world.messages("Degraded"))
            assert advice in world.messages("Degraded")[0]
            assert f"Cordon and repair: {node} (1 degraded link)" in world.messages("Degraded")[0]
            assert world.held() == {"default/Gang/a": [node]}
            assert world.deleted() == []
        else:
            await until(lambda: world.deleted() == ["a-0"])
            world.end("a")
            await settled()
            world.submit("a", 1, owned=True, **hooked(hook))
            await until(lambda: bool(world.opened("a")))
            assert world.opened("a") != [node]
            assert world.held() == {"default/Gang/a": world.opened("a")}
            assert len(world.messages("Moves")) == 1
        if "8080/" in hook:
            ((urls, body),) = called
            assert urls == {"a-0": "http://10.9.9.9:8080/save"}
            assert body == {"gang": "default/Gang/a", "ranks": [0], "withinSeconds": 120.0}
        world.now_s += 3600
        await settled()
        assert len(world.messages("Moves") + world.messages("Degraded")) == 1, "each is handled once"


async def test_a_recovery_in_time_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = moving_world("move")
    async with running(world, monkeypatch):
        world.submit("a", 1, owned=True, **hooked("none"))
        await until(lambda: len(world.opened("a")) == 1)
        world.bind()
        for _ in range(3):
            world.degrade(*world.opened("a"))
            await settled()
            world.now_s += 59
            await settled()
            world.degrade()
            await settled()
            world.now_s += 59
            await settled()
        assert (world.deleted(), world.messages("Degraded")) == ([], [])


@pytest.mark.parametrize(("label", "moves"), [("a", False), ("b", True)])
async def test_a_gang_moves_only_where_its_pods_may_run(
    label: str, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a change of the leader: the new one does not read the workload of pods that run."""
    world = moving_world("move")
    world.learn_node("n01", rack="b")
    async with running(world, monkeypatch):
        world.submit("a", 1, owned=True, selector={"rack": "b"}, **hooked("none"))
        await until(lambda: world.opened("a") == ["n01"])
        world.bind()
    world = world.next_leader()
    world.learn_node("n01", rack="b")
    world.learn_node("n02", rack=label)
    async with running(world, monkeypatch):
        await until(lambda: bool(world.held()))
        world.degrade("n01")
        await settled()
        world.now_s += 61
        await until(lambda: bool(world.messages("Moves") or world.messages("Degraded")))
        assert bool(world.messages("Moves")) is moves
        assert world.held() == {"default/Gang/a": ["n02" if moves else "n01"]}


async def test_nodes_that_are_kept_for_another_gang_are_no_better_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All other nodes are kept for a gang that waits."""
    degradation = DegradationSettings("move", wait_s=60.0)
    world = World(GateSettings(patience_s=0.0, degradation=degradation, drain_after_s=1.0))
    async with running(world, monkeypatch):
        world.submit("a", 1, owned=True, **hooked("none"))
        await until(lambda: len(world.opened("a")) == 1)
        (node,) = world.opened("a")
        world.bind()
        world.submit("large", 4)
        world.now_s += 61
        await until(lambda: world.kept_for() == "large")
        world.degrade(node)
        await settled()
        world.now_s += 61
        await until(lambda: bool(world.messages("Degraded")))
        assert "there is no better place" in world.messages("Degraded")[0]
        assert world.held() == {"default/Gang/a": [node]}


async def test_only_so_many_gangs_move_within_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    world = moving_world("move")
    async with running(world, monkeypatch):
        for name in "ab":
            world.submit(name, 1, owned=True, **hooked("none"))
        await until(lambda: len(world.opened("a") + world.opened("b")) == 2)
        world.bind()
        await until(lambda: all(x.arrived for x in world.placements))
        world.degrade(*world.opened("a"), *world.opened("b"))
        await settled()
        world.now_s += 61
        await until(lambda: world.messages("Degraded") and world.deleted())
        await settled()
        assert len(world.deleted()) == 1
        assert "1 gang moved within the last hour, which is the limit" in world.messages("Degraded")[0]
        world.now_s += 3600
        await until(lambda: len(world.messages("Moves")) == 2)


async def settled() -> None:
    for _ in range(200):
        await asyncio.sleep(0)
