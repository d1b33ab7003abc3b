"""Sweep leases by script."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hyperscout_collector.decisions.fabric.lease_state import MAX_PORTS, LeaseSettings, remembered
from hyperscout_collector.decisions.fabric.leases import SweepLeases
from hyperscout_collector.decisions.fabric.sweep_events import (
    AgentConnected,
    Grant,
    PortsSeen,
    Revoke,
    SweepFailed,
    SweepPort,
    SweepSeen,
    Tick,
)

from .fabrics import World

SETTINGS = LeaseSettings()
ONE = {(h, 0): "ib" for h in range(4)}
RAILS = {(h, r): f"rail{r}" for h in range(4) for r in range(8)}


@pytest.mark.parametrize(
    ("known", "seen", "expected"),
    [
        ({1}, {1, 2}, {1, 2}),
        ({1, 2}, {2}, {1, 2}),
        ({1, 2}, {2, 3}, {1, 2, 3}),
        ({1, 2, 3, 4, 5}, {5}, {5}),
        ({1, 2, 3, 4}, {5}, {5}),
    ],
)
def test_earlier_sweeps_are_remembered_up_to_four_times_as_many(
    known: set[int], seen: set[int], expected: set[int]
) -> None:
    earlier, new = frozenset(known), frozenset(seen)
    found = remembered(earlier, new)
    assert found == expected
    assert all(found is one for one in (new, earlier) if one == expected), "no second set of megabytes"


def world(cables: dict[tuple[int, int], str], settings: LeaseSettings = SETTINGS) -> World:
    return World(SweepLeases(settings, 0xABC), dict(cables))


def explored(cables: dict[tuple[int, int], str]) -> World:
    """All hosts connected and every fabric swept."""
    w = world(cables)
    w.connect(*sorted({h for h, _ in cables}))
    for _ in range(10):
        w.round()
    assert w.machine.uncovered() == []
    w.told.clear()
    return w


def test_one_fabric_comes_to_be_swept_under_one_lease() -> None:
    w = world(ONE)
    w.connect(0, 1, 2, 3)
    assert w.where() == [("h0", "mlx5_0"), ("h1", "mlx5_0")], "two at a time explore"
    assert w.machine.uncovered() == [("h2", "mlx5_0", 1), ("h3", "mlx5_0", 1)]
    first, second = w.grants()
    assert first == Grant("h0", "abc-1", "mlx5_0", 1, 60.0)
    w.sweep(second)
    assert w.grants() == [second], "the one that has swept stays"
    assert w.reasons() == ["the fabric is swept under lease abc-2"]
    assert w.machine.uncovered() == []
    told = len(w.told)
    for _ in range(20):
        w.round()
    assert len(w.told) == told, "then all is quiet"


def test_of_two_that_have_swept_the_older_stays() -> None:
    apart = {(0, 0): "a", (1, 0): "b"}
    w = explored(apart)
    assert len(w.grants()) == 2
    w.cables.update({(1, 0): "a"})
    w.sweep(w.grants()[1])
    assert w.where() == [("h0", "mlx5_0")]
    assert w.machine.uncovered() == [], "it answers for both, before it swept again"
    w.round()
    assert w.machine.uncovered() == []


def test_of_two_the_one_whose_sweeps_are_whole_stays() -> None:
    w = explored({(0, 0): "a", (1, 0): "b"})
    older, newer = w.grants()
    w.fail(older)
    w.cables.update({(1, 0): "a"})
    w.sweep(newer)
    assert w.grants() == [newer]


def test_every_rail_that_is_a_fabric_of_its_own_gets_one() -> None:
    w = explored(RAILS)
    assert sorted(device for _, device in w.where()) == [f"mlx5_{r}" for r in range(8)]
    assert len({node for node, _ in w.where()}) == 4, "spread over the hosts"


def test_other_rails_are_tried_first() -> None:
    w = world({(0, 0): "rail0", (1, 0): "rail0", (1, 1): "rail1"})
    w.connect(0, 1)
    assert w.where() == [("h0", "mlx5_0"), ("h1", "mlx5_1")]
    w.send(PortsSeen("h0", (*w.ports(0), SweepPort("mlx5_9", 1, 0x99))))
    assert w.machine.uncovered() == [("h0", "mlx5_9", 1), ("h1", "mlx5_0", 1)]


def test_only_leases_of_which_nothing_is_known_explore() -> None:
    w = explored({(h, 0): "a" if h < 2 else "b" for h in range(4)})
    w.leave(0, 2)
    w.wait(30)
    assert [node for node, _ in w.where()] == ["h1", "h3"], "moved, and not swept yet"
    w.cables |= {(h, 0): f"{h}" for h in (4, 5, 6, 7)}
    w.connect(4, 5, 6, 7)
    assert [node for node, _ in w.where()] == ["h1", "h3", "h4", "h5"]
    for grant in w.grants()[2:]:
        w.send(SweepSeen(grant.node, grant.lease_id, frozenset(), True, "own link down"))
    assert [node for node, _ in w.where()] == ["h1", "h3", "h4", "h5", "h6", "h7"]


def test_a_fabric_that_falls_apart_is_swept_from_both_sides() -> None:
    w = explored(ONE)
    w.cables.update({(2, 0): "other", (3, 0): "other"})
    w.round()
    assert [node for node, _ in w.where()] == ["h0"], "it sweeps again before others explore"
    for _ in range(3):
        w.round()
    assert [node for node, _ in w.where()] == ["h0", "h2"]


def test_a_port_that_comes_back_waits_for_the_next_sweep() -> None:
    w = explored(ONE)
    for _ in range(5):
        w.set_down((2, 0))
        w.round(1)
        w.set_down((2, 0), down=False)
        assert w.machine.uncovered() == [("h2", "mlx5_0", 1)]
        w.round(11)
        assert w.machine.uncovered() == []
    asked = {x.lease_id for x in w.told}
    assert len(w.told) >= 3
    assert asked == {w.grants()[0].lease_id}, "it sweeps ahead of its time, and no other lease is granted"


def test_a_port_that_comes_up_between_two_sweeps_asks_for_one() -> None:
    """It may be in another switch."""
    w = explored(ONE)
    (lease,) = w.grants()
    w.wait(200)
    for port in ((2, 0), (3, 0)):
        w.set_down(port)
    assert w.told == []
    w.set_down((2, 0), down=False)
    assert w.told == [lease]
    w.wait(3)
    w.set_down((3, 0), down=False)
    w.wait(6)
    assert w.told == [lease]
    w.wait(1)
    assert w.told == [lease] * 2, "the second one was not forgotten"
    w.wait(200)
    w.leave(2)
    w.connect(2)
    assert w.told == [lease] * 2, "it was up all the time"


def test_ports_that_flap_for_ever_ask_ever_more_seldom() -> None:
    w = explored(ONE)
    w.wait(200)
    asked = []
    for second in range(300):
        w.told.clear()
        w.set_down((2, 0), down=second % 2 == 0)
        w.wait(1)
        asked += [second] * bool(w.told)
    waits = [b - a for a, b in pairwise(asked)]
    assert waits == sorted(waits)
    assert waits[0] <= 12
    assert waits[-1] >= 60


def test_a_port_that_comes_back_is_explored_if_its_lease_does_not_sweep() -> None:
    w = explored(ONE)
    w.set_down((2, 0))
    w.round(1)
    w.set_down((2, 0), down=False)
    w.wait(119)
    assert len(w.grants()) == 1
    w.wait(1)
    assert [node for node, _ in w.where()] == ["h0", "h2"]


def test_never_more_than_the_limits() -> None:
    cables = {(h, r): f"{h}.{r}" for h in range(4) for r in range(8)}
    w = world(cables, replace(SETTINGS, leases=5, exploring=3))
    w.connect(0, 1, 2, 3)
    assert len(w.grants()) == 3
    for _ in range(5):
        w.round()
    assert len(w.grants()) == 5
    assert len(w.machine.uncovered()) == 27


def test_only_connected_agents_that_can_sweep_get_one() -> None:
    w = world(ONE)
    w.send(PortsSeen("h3", w.ports(3)))  # evidence from before a restart
    w.connect(0, probes=frozenset({"lldp"}))
    assert w.grants() == []
    w.connected.add(3)
    w.send(AgentConnected("h3", frozenset({"ibnetdiscover"})))
    assert [g.node for g in w.grants()] == ["h3"]
    w.sweep(w.grants()[0])
    w.connect(3, probes=frozenset())  # it was downgraded
    assert w.grants() == []
    assert w.reasons() == ["the agent no longer sweeps"]


def test_ports_without_a_guid_and_too_many_are_passed_over() -> None:
    w = world({})
    w.connect(0)
    w.send(PortsSeen("h0", (SweepPort("mlx5_0", 1, 0),)))
    assert w.grants() == []
    w.send(PortsSeen("h0", tuple(SweepPort(f"d{i:05}", 1, i + 1) for i in range(10_000))))
    assert len(w.machine.uncovered()) == MAX_PORTS - SETTINGS.exploring
    w.send(PortsSeen("h0", ()))
    assert w.machine.uncovered() == []
    assert w.grants() == []


def test_an_agent_that_is_back_in_time_keeps_its_lease() -> None:
    w = explored(ONE)
    (before,) = w.grants()
    w.leave(0)
    w.wait(29)
    assert w.machine.may_report("h0", before.lease_id)
    w.connect(0)
    assert w.told == [before], "granted again: the lease ended with the stream"
    w.wait(1000)


def test_the_lease_of_a_dead_agent_moves_and_no_agent_explores() -> None:
    w = explored(ONE)
    (before,) = w.grants()
    w.leave(0)
    w.wait(30)
    (after,) = w.grants()
    assert (after.node, after.lease_id) == ("h1", "abc-3")
    assert w.told == [after]
    assert not w.machine.may_report("h0", before.lease_id)
    assert w.machine.may_report("h1", after.lease_id)
    assert not w.machine.may_report("h0", after.lease_id)
    assert w.machine.uncovered() == []
    w.connect(0)
    w.round()
    assert w.told == [after]


def test_when_all_are_gone_it_starts_anew() -> None:
    w = explored({(0, 0): "ib"})
    w.leave(0)
    w.wait(31)
    assert w.machine.leases() == ()
    w.connect(0)
    assert [g.lease_id for g in w.grants()] == ["abc-2"]


def test_a_port_that_goes_down_gives_its_lease_to_another_host() -> None:
    w = explored({(h, r): "ib" for h in range(2) for r in range(2)})
    assert w.where() == [("h0", "mlx5_0")]
    w.set_down((0, 0))
    assert w.where() == [("h1", "mlx5_0")]
    assert w.reasons() == ["the port is no longer active"]
    # Another adapter in the same slot is another port.
    w.send(PortsSeen("h1", (SweepPort("mlx5_0", 1, 0x77), w.ports(1)[1])))
    assert w.reasons()[1:] == ["the port is no longer active"]
    assert ("h0", "mlx5_1") in w.where()


def test_a_lease_moves_to_another_host_rather_than_to_another_port() -> None:
    w = explored({(0, 0): "ib", (0, 1): "ib", (1, 0): "other", (1, 1): "ib"})
    assert w.where() == [("h0", "mlx5_0"), ("h1", "mlx5_0")]
    w.sweep(w.grants()[0], partial=True)
    assert w.where() == [("h1", "mlx5_0"), ("h1", "mlx5_1")]


def test_a_port_that_failed_before_is_tried_last() -> None:
    w = explored({(h, 0): "ib" for h in range(3)})
    for _ in range(2):
        w.fail(w.grants()[0])
    assert w.where() == [("h1", "mlx5_0")]
    w.wait(61)
    w.set_down((1, 0))
    assert w.where() == [("h2", "mlx5_0")], "h0 may be tried again, but has failed"


def test_a_full_sweep_clears_the_port() -> None:
    w = world({(0, 0): "ib"})
    w.connect(0)
    for _ in range(2):
        w.fail(w.grants()[0])
    assert w.grants() == []
    w.wait(60)
    w.sweep(w.grants()[0])
    w.set_down((0, 0))
    w.set_down((0, 0), down=False)
    w.wait(59)
    assert w.grants() == []
    w.wait(1)
    assert len(w.grants()) == 1, "its first failure, not its second"


def test_a_move_for_a_dead_agent_is_none_in_vain() -> None:
    w = explored(ONE)
    w.leave(0)
    w.wait(30)
    w.sweep(w.grants()[0], partial=True)
    assert w.where() == [("h2", "mlx5_0")]


def test_a_partial_sweep_moves_the_lease_at_once_but_it_does_not_wander() -> None:
    w = explored(ONE)
    grants = 0
    for sweeps in range(1, 61):
        (grant,) = w.grants()
        w.sweep(grant, partial=True)
        w.wait(60)
        (now,) = w.grants()
        grants += now != grant
        if sweeps == 1:
            assert now.node == "h1"
    assert grants == 5, "after 1, 2, 4, 8 and 16 more"
    assert w.machine.uncovered() == []
    w.sweep(w.grants()[0])
    (last,) = w.grants()
    w.sweep(last, partial=True)
    assert w.grants() != [last], "a full one, and it is as before"
    assert w.reasons()[-1] == "its sweep is partial: mute node"


def test_a_partial_sweep_never_uncovers_and_stays_where_no_other_agent_can_look() -> None:
    w = explored({(0, 0): "ib", (1, 0): "ib"})
    w.leave(1)
    (grant,) = w.grants()
    for _ in range(50):
        w.send(SweepSeen("h0", grant.lease_id, frozenset({w.guid(0, 0)}), True, "own port down"))
        w.wait(60)
    w.connect(1)
    assert w.grants()[0] == grant
    (state,) = w.machine.leases()
    assert (state.partial, state.reason) == (True, "own port down")
    assert (state.node, state.device, state.port) == ("h0", "mlx5_0", 1)
    assert state.last_sweep_at_ns > state.granted_at_ns > 0
    w.sweep(grant)
    (state,) = w.machine.leases()
    assert (state.partial, state.reason) == (False, "")


def test_failures_move_the_lease_the_second_time() -> None:
    w = explored(ONE)
    (grant,) = w.grants()
    w.fail(grant)
    assert w.grants() == [grant]
    w.fail(grant)
    assert [g.node for g in w.grants()] == ["h1"]
    assert w.reasons() == ["its sweeps fail: exit 255"]


def test_one_that_is_silent_counts_as_failing() -> None:
    w = explored(ONE)
    for seconds in (299, 1, 299):
        assert w.where() == [("h0", "mlx5_0")]
        w.wait(seconds)
    w.wait(1)
    assert [g.node for g in w.grants()] == ["h1"]
    assert w.reasons() == ["its sweeps fail: no sweep came"]


def test_time_away_is_no_silence() -> None:
    w = explored(ONE)
    w.sweep(w.grants()[0])
    for _ in range(2):
        w.wait(290)
        w.leave(0)
        w.wait(9)
        w.connect(0)
        w.wait(2)
    assert w.where() == [("h0", "mlx5_0")]


def test_a_full_sweep_makes_up_for_a_failure() -> None:
    w = explored(ONE)
    (grant,) = w.grants()
    for _ in range(5):
        w.fail(grant)
        w.sweep(grant)
    assert w.grants() == [grant]


def test_where_nothing_can_be_swept_it_is_tried_ever_more_seldom() -> None:
    w = world({(h, 0): "ib" for h in range(2)})
    w.connect(0, 1)
    for _ in range(24 * 60):
        for grant in w.grants():
            w.fail(grant)
        w.wait(60)
    granted = sum(isinstance(x, Grant) for x in w.told)
    assert 2 * 24 < granted < 2 * (24 + 12), "some six while it doubles, then about one an hour and port"


def test_the_last_full_sweep_stays_while_no_agent_can_sweep() -> None:
    w = explored(ONE)
    for _ in range(100):
        for grant in w.grants():
            w.fail(grant)
        assert len(w.grants()) == 1
        assert w.machine.uncovered() == []
        w.wait(60)


def test_reports_of_others_are_answered_and_change_nothing() -> None:
    w = explored(ONE)
    (grant,) = w.grants()
    before = w.machine.leases()
    for event in (
        SweepSeen("h1", grant.lease_id, frozenset()),
        SweepSeen("h1", "old-1", frozenset(), True, "x"),
        SweepFailed("h1", grant.lease_id, "x"),
    ):
        assert w.send(event) == [Revoke("h1", event.lease_id, "the lease is not held")]
    assert w.machine.handle(SweepSeen("stranger", grant.lease_id, frozenset()), 0) == []
    assert w.machine.leases() == before


def test_a_node_is_unswept_while_no_lease_covers_one_of_its_ports() -> None:
    w = world({(0, 0): "a", (1, 0): "a", (1, 1): "b", (2, 0): "b"})
    w.connect(1, 2, probes=frozenset())
    assert w.machine.unswept() == ["h1", "h2"]
    w.connect(0)
    assert w.machine.unswept() == ["h0", "h1", "h2"], "it has not swept yet"
    w.round()
    assert w.machine.unswept() == ["h2"], "a sweep shows one of the two ports of h1"
    w.set_down((2, 0))
    assert w.machine.unswept() == []
    w.set_down((2, 0), down=False)
    w.leave(2)
    assert w.machine.unswept() == []
    w.leave(0)
    w.wait(SETTINGS.grace_s)
    assert w.machine.unswept() == ["h1"]


def test_ids_differ_from_those_of_another_start() -> None:
    ids = set()
    for epoch in (1, 2):
        w = World(SweepLeases(SETTINGS, epoch), dict(RAILS))
        w.connect(0, 1)
        w.round()
        ids |= {g.lease_id for g in w.told if isinstance(g, Grant)}
    assert len(ids) == len({i.split("-")[1] for i in ids}) * 2


def test_what_is_remembered_is_bounded() -> None:
    w = world({(h, 0): "ib" for h in range(50)}, replace(SETTINGS, agents=10))
    for host in range(50):
        w.connect(host)
        for grant in w.grants() * 2:
            w.fail(grant)
        w.wait(1)
        w.leave(host)
    assert len(w.machine._back_off) > 40
    assert len(w.machine._agents) <= 12
    w.wait(100_000)
    assert w.machine._back_off == {}


def test_a_tick_alone_does_nothing() -> None:
    assert SweepLeases(SETTINGS, 1).handle(Tick(), 1) == []
