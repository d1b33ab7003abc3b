"""Plans of a schedule: for the first gang that was refused, and nothing moves."""

import pytest
from hyperscout_collector.app.metrics import outputs
from support.controller_world import World, running
from support.waiting import until


async def test_the_first_waiting_gang_gets_a_plan(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One worker is on each leaf: the gang of two fits in a leaf when one of them moves."""
    world = World()
    plans = world.gates.queue.plans

    def moves() -> list[str]:
        return [x for x in outputs._queue(world.gates.queue, 0) if "defragment_moves" in x]

    async with running(world, monkeypatch):
        await plans.plan()
        assert plans.last is None, "no gang waits"
        none = moves()
        for number in range(1, 5):
            world.submit(f"small-{number}", 1)
            await until(lambda number=number: world.opened(f"small-{number}"))  # type: ignore[misc]
        world.end("small-2")
        world.end("small-3")
        await until(lambda: len(world.held()) == 2)
        world.submit("large", 2, highest_tier_allowed="leaf")
        await until(lambda: world.waiting() == ["large"])
        with caplog.at_level("INFO"):
            await plans.plan()
        held = world.held()
        last = plans.last
        assert last is not None
        assert last.placement.placed
        assert last.placement.predicted.ring_s > 0
        assert (last.placement.gang, last.moved) == ("default/Gang/large", 1)
        assert last.planned_at.seconds == world.gates._now_s()
        assert (plans.plans, plans.refusals) == (1, 0)
        assert moves() != none
        assert "fits when 1 worker of 1 gang move (dry run): default/Gang/small-" in caplog.text
        assert world.held() == held, "nothing moves"
        plans._most_moves = 0
        await plans.plan()
        last = plans.last
        assert last is not None
        assert not last.placement.placed
        assert (plans.plans, plans.refusals) == (1, 1)
        assert moves() == none


@pytest.mark.parametrize("was_read", [True, False])
async def test_a_plan_moves_gangs_only_to_nodes_that_they_may_use(
    was_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, but the pods select the leaf in which they run. `was_read`: their gang is known."""
    world = World()
    for node, side in {"n01": "a", "n02": "a", "n03": "b", "n04": "b"}.items():
        world.learn_node(node, side=side)
    async with running(world, monkeypatch):
        for number, side in enumerate("aabb", 1):
            world.submit(f"small-{number}", 1, selector={"side": side}, checkpoint_hook="none")
            await until(lambda number=number: world.opened(f"small-{number}"))  # type: ignore[misc]
        world.end("small-2")
        world.end("small-3")
        await until(lambda: len(world.held()) == 2)
        world.submit("large", 2, highest_tier_allowed="leaf")
        await until(lambda: world.waiting() == ["large"])
        for record in () if was_read else world.gates._records:
            if record.machine.plan is not None:
                record.machine.gang = None
        await world.gates.queue.plans.plan()
        last = world.gates.queue.plans.last
        assert last is not None
        assert not last.placement.placed
