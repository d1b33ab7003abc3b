"""The taint publisher over an API server in memory: one entry of a list that others write too."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hyperscout_kubernetes.errors import ForbiddenError
from hyperscout_publish.nodes.node_writes import Mode
from hyperscout_publish.nodes.taint_policy import TaintSettings
from hyperscout_publish.nodes.taints import TaintsPublisher, is_ours, with_ours, without_ours
from hyperscout_publish.publisher.base import PublishError
from hyperscout_publish.publisher.runner import PublisherRunner
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.fake_kube import FakeKube, failing
from support.topologies import SINCE_NS, two_leaves
from support.waiting import TIMEOUT_S

OURS = {"key": "hyperscout.io/degraded", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
EVICTS = {"key": "hyperscout.io/degraded", "effect": "NoExecute"}
HEALTHY = replace(two_leaves(), anomalies=())
DEGRADED = two_leaves()  # n03's cable, out since SINCE_NS


class Clock:
    """Seconds after the cable went out."""

    def __init__(self) -> None:
        self.now_s = 0

    def __call__(self) -> int:
        return SINCE_NS + self.now_s * NS


def cluster(*taints: dict[str, Any]) -> FakeKube:
    fake = FakeKube()
    for name in ("n01", "n02", "n03", "n04"):
        fake.add_node(name, None, *(taints if name == "n03" else ()))
    return fake


def publisher(
    fake: FakeKube, mode: Mode = "on", share: float = 0.5, said: list[str] | None = None
) -> tuple[TaintsPublisher, Clock]:
    clock = Clock()
    settings = TaintSettings(share, after_s=30, clear_after_s=300)
    say = [].append if said is None else said.append
    return TaintsPublisher(fake.kube(), fake.nodes(), mode, settings, say, clock_ns=clock), clock


async def test_a_node_is_tainted_late_and_cleared_later() -> None:
    fake = cluster(GPU)
    taints, clock = publisher(fake)
    clock.now_s = 29
    await taints.publish(DEGRADED)
    assert fake.writes == []
    clock.now_s = 30
    await taints.publish(DEGRADED)
    assert fake.taints("n03") == [GPU, OURS]
    await taints.publish(DEGRADED)
    assert len(fake.writes) == 1
    clock.now_s = 100
    await taints.publish(HEALTHY)
    clock.now_s = 399
    await taints.publish(HEALTHY)
    assert fake.taints("n03") == [GPU, OURS]
    clock.now_s = 400
    await taints.publish(HEALTHY)
    assert fake.taints("n03") == [GPU]
    assert len(fake.writes) == 2


async def test_it_wakes_itself_when_it_is_time() -> None:
    fake = cluster()
    taints, clock = publisher(fake)
    clock.now_s = 29
    runner = PublisherRunner([taints], rng=Random(0))
    runner.offer(replace(DEGRADED, generation=3))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(TIMEOUT_S):
        before_s = loop.time()
        task = asyncio.create_task(runner.run(runner.states[0]))
        while not runner.states[0].generation:
            await asyncio.sleep(0)
        assert taints.alarm.at_s is not None
        assert before_s + 1.0 <= taints.alarm.at_s <= loop.time() + 1.0
        clock.now_s = 30
        taints.wake()  # what the alarm calls: the loop's clock is not ours to turn
        while not fake.taints("n03"):
            await asyncio.sleep(0)
    assert taints.alarm.at_s is None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_others_write_meanwhile_is_kept() -> None:
    fake = cluster()
    taints, clock = publisher(fake)
    clock.now_s = 60

    def interfere(method: str, path: str) -> None:
        if method == "PATCH":
            fake.before = lambda method, path: None
            fake.put(path, fake.objects[path] | {"spec": {"taints": [GPU]}})

    fake.before = interfere
    await taints.publish(DEGRADED)
    assert fake.taints("n03") == [GPU, OURS]


async def test_the_taint_may_be_there_already() -> None:
    fake = cluster(OURS)
    nodes_before = FakeKube()
    for name in ("n01", "n02", "n03", "n04"):
        nodes_before.add_node(name)
    clock = Clock()
    clock.now_s = 60
    taints = TaintsPublisher(
        fake.kube(), nodes_before.nodes(), "on", TaintSettings(), [].append, clock_ns=clock
    )
    await taints.publish(DEGRADED)
    assert fake.writes == []


async def test_a_cap_that_is_reached_is_a_notice_and_not_an_error() -> None:
    fake = cluster()
    taints, clock = publisher(fake, share=0.0)
    clock.now_s = 60
    runner = PublisherRunner([taints], rng=Random(0))
    await taints.publish(DEGRADED)
    assert fake.writes == []
    reached = "at most 0 of 4 nodes may be tainted (taint_share): n03 is degraded but not tainted"
    assert runner.problems == [f"publisher taints: {reached}"]
    await taints.publish(HEALTHY)
    assert runner.problems == []


async def test_a_dry_run_says_it_and_writes_nothing() -> None:
    fake = cluster()
    said: list[str] = []
    taints, clock = publisher(fake, "dry-run", said=said)
    clock.now_s = 60
    await taints.publish(DEGRADED)
    await taints.publish(DEGRADED)
    await taints.publish(HEALTHY)
    assert said == [
        "would change taints of nodes: 1\nn03: taint (MissingLink: n03/p1 -> leaf-b/p1)\n",
        "would change taints of nodes: 0\n",
    ]
    assert fake.writes == []


async def test_a_dry_run_with_nothing_to_say_says_nothing() -> None:
    said: list[str] = []
    taints, _ = publisher(cluster(), "dry-run", said=said)
    await taints.publish(HEALTHY)
    assert said == []


async def test_switched_off_it_takes_its_own_taints_away_and_only_those() -> None:
    fake = cluster(GPU, OURS, EVICTS)
    taints, _ = publisher(fake, "off")
    await taints.publish(DEGRADED)
    assert fake.taints("n03") == [GPU, EVICTS]
    await taints.publish(DEGRADED)
    assert len(fake.writes) == 1


async def test_a_role_that_may_not_is_said() -> None:
    fake = cluster(OURS)
    taints, _ = publisher(fake, "off")
    fake.before = failing(ForbiddenError("403: cannot patch nodes"))
    with pytest.raises(PublishError, match="cannot patch nodes"):
        await taints.publish(DEGRADED)


async def test_switched_off_and_clean_it_asks_nothing() -> None:
    fake = cluster(GPU)
    taints, _ = publisher(fake, "off")
    fake.before = failing(AssertionError("asked"), method="GET")  # type: ignore[arg-type]
    await taints.publish(Topology(1))
    assert fake.writes == []


TAINT = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["hyperscout.io/degraded", "hyperscout.io/x", "nvidia.com/gpu"]),
        "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    },
    optional={"value": st.sampled_from(["", "a"]), "timeAdded": st.just("2026-01-01T00:00:00Z")},
)


@given(taints=st.lists(TAINT, max_size=5))
def test_other_owners_taints_stay_in_their_order(taints: Sequence[dict[str, Any]]) -> None:
    others = [t for t in taints if not is_ours(t)]
    for change, ours in ((with_ours, True), (without_ours, False)):
        after = change(taints)
        assert [t for t in after if not is_ours(t)] == others
        assert any(map(is_ours, after)) == ours
        assert change(after) == after
