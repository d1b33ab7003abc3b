"""Which node measures which: tasks for both ends, bounds on traffic, back-off, pause, RDMA."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hyperscout_collector.decisions.measuring.pair_events import (
    Assign,
    HierarchyChanged,
    Planned,
    PlanWanted,
    Resumed,
    Tick,
)
from hyperscout_collector.decisions.measuring.pair_limits import PairSettings, Rests
from hyperscout_formats.facts.facts import LatencyPort
from hyperscout_runtime.units import NS

from .measured_world import World, all_pairs, most_within


def names(n: int) -> list[str]:
    return [f"n{i:04}" for i in range(n)]


def world(n: int = 4, **more: object) -> World:
    found = World(**more)  # type: ignore[arg-type]
    found.connect(*names(n))
    return found


def test_both_ends_get_the_same_task_from_their_own_side() -> None:
    w = world(2)
    w.run(1)
    (ends,) = w.tasks().values()
    a, b = ends
    assert (a.node, a.peer, b.node, b.peer) == ("n0000", "n0001", "n0001", "n0000")
    assert (a.interface, a.address, a.peer_interface, a.peer_address) == (
        "ib0",
        "10.0.0.0",
        "ib0",
        "10.0.0.1",
    )
    assert (b.interface, b.address, b.peer_interface, b.peer_address) == (
        "ib0",
        "10.0.0.1",
        "ib0",
        "10.0.0.0",
    )
    assert a.key == b.key
    assert len(a.key) == 32
    assert [a.first, b.first].count(True) == 1
    assert (a.method, a.pings, a.peer_port) == ("udp", 16, 4711)
    assert 0 < a.expires_s <= 60
    assert str(a.key) not in repr(a)


def test_all_pairs_are_measured_and_no_key_or_id_comes_twice() -> None:
    w = world(6)
    w.run(60)
    ends = list(w.tasks().values())
    assert Counter(frozenset((x.node, x.peer)) for x, _ in ends) == Counter(
        frozenset((a, b)) for a in names(6) for b in names(6) if a < b
    )
    assert len({x.key for x, _ in ends}) == len(ends) == len({x.task_id for x, _ in ends})
    assert (w.machine.measured, w.machine.failed, w.machine.in_flight) == (15, 0, 0)
    firsts = Counter(x.node for pair in ends for x in pair if x.first)
    assert max(firsts.values()) - min(firsts.get(n, 0) for n in names(6)) <= 2


def test_what_was_measured_rests_whatever_is_planned() -> None:
    w = world(3)
    w.run(200)
    assert len(w.tasks()) == 3
    w.run(300)
    assert 3 < len(w.tasks()) <= 6


def test_ends_that_disagree_are_asked_again_soon_and_then_ever_later() -> None:
    """Noise goes away by itself; a liar must not be measured for ever."""
    w = world(2)
    w.rtt_us = lambda task: 5.0 if task.node == "n0000" else 9.0
    w.run(60)
    soon = len(w.tasks())
    assert 3 <= soon <= 5
    w.run(10)
    last_s = (w.told[-1][0] - 1000 * NS) / NS
    assert 55 < last_s < 70, "20 s after it was known, not at the next plan that nothing came of"
    w.run(600)
    assert len(w.tasks()) <= soon + 5
    w.rtt_us = lambda task: 5.0
    w.run(900)
    assert len(w.tasks()) <= soon + 8


def test_all_was_tried_also_when_a_pair_never_agrees() -> None:
    w = world(3)
    w.rtt_us = lambda task: 9.0 if (task.node, task.peer) == ("n0000", "n0001") else 5.0
    w.plan = lambda wanted: [("n0000", "n0001")] if len(w.told) >= 6 else all_pairs(wanted)
    w.run(40)
    assert not w.machine.all_tried, "it may only be noise"
    w.run(160)
    assert w.machine.all_tried
    assert w.machine.learning, "the plan still has its pair"
    w.connect("n0003")
    w.plan = None
    w.run(20)
    assert not w.machine.all_tried, "until a new node comes"


def test_a_node_has_one_task_at_a_time_and_each_rail_its_turn() -> None:
    w = World(settings=PairSettings(node_kbps=100_000.0))
    w.connect("n0", "n1", rails=3)
    w.run(30)
    times = [at_ns for at_ns, task in w.told if task.node == "n0"]
    assert [task.interface for _, task in w.told if task.node == "n0"] == ["ib0", "ib1", "ib2"]
    assert all(later - at_ns >= NS // 2 for at_ns, later in pairwise(times))


@pytest.mark.slow
def test_a_thousand_nodes_stay_within_the_bounds_of_each_and_of_the_cluster() -> None:
    w = World(settings=PairSettings(probes_per_s=2000.0))  # more than the nodes' own bound lets through
    w.connect(*names(1000))
    hubs = names(1000)[:8]
    w.plan = lambda wanted: [(a, b) for b in wanted.nodes[8:] for a in hubs][: wanted.limit]
    w.run(40)
    assert len(w.tasks()) > 300
    window_s = 10
    for seen in w.bytes_by_node().values():
        assert most_within(seen, window_s * NS) * 8 / window_s <= 200_000
    busiest = max(most_within(seen, window_s * NS) for seen in w.bytes_by_node().values())
    assert busiest * 8 / window_s > 100_000  # the bound was reached, so it was tested


def test_the_cluster_s_probes_are_bounded() -> None:
    w = World(settings=PairSettings(probes_per_s=100.0))
    w.connect(*names(1000))
    w.plan = lambda wanted: list(zip(wanted.nodes[::2], wanted.nodes[1::2], strict=True))
    w.run(30)
    bursts = [(at_ns, 1) for at_ns, _ in w.told]
    assert most_within(bursts, 10 * NS) <= 100 * 10 + 50
    assert most_within(bursts, 10 * NS) > 900
    assert w.machine.rate.total == len(w.told)
    assert 0 <= w.machine.rate.now_per_s(w.now_ns) <= 105


@pytest.mark.slow
def test_little_traffic_means_few_tasks() -> None:
    w = World(settings=PairSettings(node_kbps=10.0))
    w.connect(*names(40))
    w.run(120)
    assert len(w.tasks()) > 100
    for seen in w.bytes_by_node().values():
        one_task = seen[0][1]
        assert (most_within(seen, 60 * NS) - one_task) * 8 / 60 <= 10_000


def test_pausing_leaves_no_task_alive_and_tells_all_agents_at_once() -> None:
    w = world(50)
    w.run(7)
    assert w.machine.in_flight > 0
    w.pause()
    assert w.machine.in_flight == 0
    assert {(at_ns, stop.node) for at_ns, stop in w.stops} == {(w.now_ns, node) for node in names(50)}
    assert {stop.reason for _, stop in w.stops} == {"by ann"}
    before = len(w.told)
    w.handle(HierarchyChanged())
    w.handle(Planned([("n0000", "n0001")], learning=True))
    w.connect("n0060")
    w.run(100)
    assert len(w.told) == before
    assert w.machine.paused == "by ann"
    w.handle(Resumed())
    w.run(10)
    assert len(w.told) > before


def test_a_plan_that_was_asked_for_before_the_pause_is_passed_over() -> None:
    w = world(3)
    w.handle(Tick())
    assert w.machine.wants_plan(w.now_ns) is not None
    w.pause()
    w.handle(Planned([("n0000", "n0001")], learning=True))
    w.handle(Resumed())
    w.handle(Tick())
    assert w.told == []
    w.run(10)
    assert w.told


def test_what_fails_is_tried_again_later_and_later() -> None:
    w = world(2, answers=lambda task: False)
    w.run(3600)
    times = [tasks[0] for tasks in zip(*[iter(w.told)] * 2, strict=True)]
    gaps = [(b[0] - a[0]) / NS for a, b in pairwise(times)]
    assert len(gaps) >= 4
    assert all(later > 1.5 * gap for gap, later in pairwise(gaps))
    assert w.machine.failed == len(times)
    assert w.machine.measured == 0


def test_a_task_without_a_report_fails_when_its_time_is_over() -> None:
    w = world(2, answers=lambda task: None)
    w.run(59)
    assert (w.machine.in_flight, w.machine.failed) == (1, 0)
    w.run(3)
    assert (w.machine.in_flight, w.machine.failed) == (0, 1)


def test_a_silent_node_is_left_alone_and_its_peers_are_not() -> None:
    w = world(8, answers=lambda task: None if task.node == "n0003" else task.peer != "n0003")
    w.run(400)
    with_it = [t for _, t in w.told if t.node == "n0003"]
    assert 3 <= len(with_it) <= 12
    assert any("n0003" not in wanted.nodes for wanted in w.plans)
    assert all("n0001" in wanted.nodes for wanted in w.plans)
    assert w.machine.measured >= 21


def test_a_node_that_reports_is_not_blamed_for_a_peer_that_does_not() -> None:
    quick = PairSettings(back_off_s=1.0, node_back_off_s=1.0, reverify_s=60.0)
    w = world(8, settings=quick, answers=lambda task: None if task.node == "n0003" else False)
    w.plan = lambda wanted: [("n0003", x) for x in names(8) if x != "n0003"]
    w.run(1000)
    assert w.machine.failed > 8
    assert all(set(wanted.nodes) >= set(names(8)) - {"n0003"} for wanted in w.plans)


def test_an_old_result_ends_no_task() -> None:
    w = world(2)
    w.run(20)
    assert w.machine.measured == 1
    w.answers = lambda task: None
    w.run(330)
    assert w.machine.in_flight + w.machine.failed >= 1
    for node in ("n0000", "n0001"):
        w.publish(node)  # once more what is known
    assert w.machine.measured == 1


def test_an_agent_that_leaves_takes_its_tasks_with_it_and_no_node_is_blamed() -> None:
    w = world(3, answers=lambda task: None)
    w.run(1.2)
    assert w.machine.in_flight > 0
    for node in names(3):
        w.leave(node)
    assert (w.machine.in_flight, w.machine.failed, w.machine.agents) == (0, 0, 0)
    w.run(100)
    assert w.machine.wants_plan(w.now_ns) is None


def test_it_plans_again_when_nodes_come_or_the_hierarchy_changes() -> None:
    w = world(3)
    w.run(100)
    assert {len(wanted.nodes) for wanted in w.plans} == {3}
    settled = len(w.plans)
    w.run(60)
    assert len(w.plans) <= settled + 1  # nothing comes of it: seldom
    w.connect("n0007")
    w.run(6)
    assert len(w.plans[-1].nodes) == 4
    w.plan = lambda wanted: []
    w.run(400)
    plans = len(w.plans)
    w.handle(HierarchyChanged())
    w.run(6)
    assert len(w.plans) == plans + 1


def test_a_node_that_answers_nowhere_takes_no_part() -> None:
    w = world(3)
    w.ports["n0001"]["ib0"] = replace(w.ports["n0001"]["ib0"], udp_port=0)
    w.publish("n0001")
    w.ports["n0002"]["ib0"] = LatencyPort("ib0")
    w.publish("n0002")
    assert w.machine.agents == 1
    w.run(10)
    assert w.plans == []


@pytest.mark.parametrize(("learning", "rails"), [(True, ["ib0"]), (False, ["ib0", "ib1", "ib2"])])
def test_to_learn_one_rail_is_enough_to_verify_all_are_measured(learning: bool, rails: list[str]) -> None:
    w = World(learning=learning)
    w.connect("n0", "n1", rails=3)
    w.run(8)
    assert [t.interface for _, t in w.told if t.node == "n0"] == rails


def test_a_node_that_answers_elsewhere_now_is_asked_there() -> None:
    w = World(learning=False)
    w.connect("n0", "n1", rails=3)
    w.run(0.8)
    assert len(w.tasks()) == 1
    w.connect("n0", rails=2)
    w.ports["n1"]["ib1"] = replace(w.ports["n1"]["ib1"], udp_port=5000)
    w.publish("n1")
    w.run(3)
    later = [t for _, t in w.told[2:] if t.node == "n0"]
    assert [(t.interface, t.peer_port) for t in later] == [("ib0", 4711), ("ib1", 5000)]


def test_a_pair_with_an_unknown_node_or_of_one_node_is_not_measured() -> None:
    w = world(2)
    w.plan = lambda wanted: [("n0000", "ghost"), ("n0001", "n0001"), ("n0000", "n0001")]
    w.run(1)
    assert len(w.tasks()) == 1


# --- RDMA


def rdma_world(**more: object) -> World:
    w = World(learning=False, representatives=frozenset(names(3)), **more)  # type: ignore[arg-type]
    w.connect(*names(5), rdma=True)
    return w


def test_rdma_is_for_representatives_one_at_a_time() -> None:
    w = rdma_world()
    w.run(120)
    tasks = w.tasks("rdma")
    assert tasks
    assert {t.node for pair in tasks.values() for t in pair} <= set(names(3))
    assert all(x.peer == y.node and x.key == y.key for x, y in tasks.values())
    # Each node once: with three, that is one pair.
    assert len(tasks) == 1
    assert w.machine.failed == 0
    assert len(w.tasks()) == 10


@pytest.mark.parametrize("why", ["learning", "no port", "no representative"])
def test_no_rdma(why: str) -> None:
    w = World(
        learning=why == "learning",
        representatives=frozenset() if why == "no representative" else frozenset(names(3)),
    )
    w.connect(*names(3), rdma=why != "no port")
    w.run(60)
    assert w.tasks("rdma") == {}
    assert len(w.tasks()) == 3


def test_rdma_is_one_at_a_time_in_the_cluster() -> None:
    w = World(learning=False, representatives=frozenset(names(8)))
    w.connect(*names(8), rdma=True)
    done: list[int] = []
    w.answers = lambda task: done.append(task.task_id) is None
    seen: list[list[int]] = []
    for _ in range(300):
        w.run(1)
        seen.append([i for i in w.tasks("rdma") if done.count(i) < 2])
    assert len(w.tasks("rdma")) >= 3
    assert max(map(len, seen)) == 1


def test_a_node_is_seldom_in_a_test_of_bandwidth_however_much_it_may_see() -> None:
    w = rdma_world(settings=PairSettings(node_kbps=1e6))
    w.run(280)
    assert len(w.tasks("rdma")) == 1


def test_rdma_is_paid_for() -> None:
    w = World(learning=False, representatives=frozenset(names(2)))
    w.connect(*names(80), rdma=True)
    w.plan = lambda wanted: [(a, b) for b in wanted.nodes for a in names(2) if a < b]
    w.run(500)  # once before RDMA has its turn, and once more when pairs have rested
    (task_id,) = w.tasks("rdma")
    rdma_ns = next(at_ns for at_ns, t in w.told if t.task_id == task_id)
    busy = [(at_ns, size) for at_ns, size in w.bytes_by_node()["n0000"] if at_ns > rdma_ns]
    assert len(busy) > 30
    assert most_within(busy, 10 * NS) * 8 / 10 <= 100_000  # half of the share; the other half pays


def test_rdma_that_fails_leaves_the_node_in_peace_and_in_use() -> None:
    w = rdma_world(answers=lambda task: task.method == "udp")
    w.run(300)
    assert w.machine.failed == 1
    assert all(len(wanted.nodes) == 5 for wanted in w.plans)


# --- nodes that are left alone


def test_rests_are_bounded_and_forgotten() -> None:
    rests = Rests(first_s=60, most_s=600, limit=3)
    for i in range(10):
        rests.failed(i, 0)
    assert len(rests) == 3
    assert rests.is_over(0, 0)
    assert not rests.is_over(9, 59 * NS)
    assert rests.is_over(9, 60 * NS)
    rests.failed(9, 60 * NS)
    assert not rests.is_over(9, 179 * NS)
    rests.measured(9, 200 * NS)
    rests.forget(201 * NS)
    assert len(rests) == 2
    rests.forget(661 * NS)
    assert len(rests) == 0


def test_no_wait_grows_without_end() -> None:
    rests = Rests(first_s=60, most_s=600, limit=3)
    for _ in range(2000):
        rests.failed("x", 0)
    assert rests.is_over("x", 600 * NS)


def test_the_key_of_a_task_is_in_no_log() -> None:
    w = world(2)
    w.run(1)
    assert all(repr(task.key) not in repr(task) for _, task in w.told)
    assert isinstance(w.told[0][1], Assign)
    assert isinstance(w.plans[0], PlanWanted)
