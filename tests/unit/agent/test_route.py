"""Where an agent tries next: tables of what collectors answered, and what becomes of it."""

from collections.abc import Sequence
from random import Random

import pytest
from hyperscout_agent.uplink.route import Route
from hyperscout_runtime.backoff import Backoff


class UpperEnd(Random):
    def uniform(self, a: float, b: float) -> float:
        return b


def route(*targets: str) -> Route:
    return Route(targets, Backoff(0.5, 60.0, UpperEnd(), jitter=1.0), UpperEnd())


# What the present target answers (None: it is away; a text: a standby with that hint), then the next target
# and the longest wait before it.
Steps = Sequence[tuple[str | None, str, float]]


@pytest.mark.parametrize(
    ("targets", "steps"),
    [
        pytest.param(
            "a b",
            [(None, "b", 0.5), (None, "a", 1.0), (None, "b", 2.0), (None, "a", 4.0)],
            id="all away: in turn, ever slower",
        ),
        pytest.param(
            "a b",
            [
                *[("c:1", "c:1", 0.5), (None, "c:1", 0.5), (None, "c:1", 0.5)],
                *[(None, "b", 0.5), (None, "a", 0.5), (None, "b", 0.5), (None, "a", 2.0)],
            ],
            id="a hint: some tries, and back when no collector listens there",
        ),
        pytest.param(
            "a",
            [("", "a", 2.0), ("", "a", 2.0), ("", "a", 2.0), ("", "a", 2.0)],
            id="no replica leads: soon again",
        ),
        pytest.param(
            "a b",
            [(None, "b", 0.5), (None, "a", 1.0), (None, "b", 2.0), ("", "a", 2.0), (None, "b", 0.5)],
            id="a standby answers: the one that is away is tried soon as well",
        ),
        pytest.param(
            "a",
            [("", "a", 2.0)]
            + [(None, "a", x) for x in (0.5, 2.0, 2.0)]
            + [(None, "a", x) for x in (0.5, 1.0, 2.0, 4.0, 8.0)],
            id="a standby that is gone counts for a round only, and then the back-off begins",
        ),
        pytest.param(
            "a",
            [("b:1", "b:1", 0.5), ("a", "a", 0.5), ("b:1", "b:1", 0.5), ("a", "a", 2.0), ("b:1", "b:1", 0.5)],
            id="two that point at each other: three hints, then slower",
        ),
        pytest.param(
            "a:1 b:1",
            [("a:1", "a:1", 0.5), (None, "a:1", 0.5), ("a:1", "a:1", 0.5), ("a:1", "b:1", 2.0)],
            id="one that points at itself is about to lead: some tries",
        ),
    ],
)
def test_next(targets: str, steps: Steps) -> None:
    tried = route(*targets.split())
    for leader, target, longest_s in steps:
        assert tried.failed(leader=leader) == longest_s
        assert tried.target == target


def test_refused_connections_keep_the_wait_short() -> None:
    """An attempt costs no collector anything where no program listens."""
    tried = route("a")
    assert [tried.failed(refused=True) for _ in range(7)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert [tried.failed(silent=True), tried.failed()] == [0.5, 1.0], (
        "another failure is the first of its kind"
    )
    assert [tried.failed(refused=True), tried.failed()] == [0.5, 2.0], "and refusals do not hide it"


def test_a_connection_may_take_long_where_the_only_collector_starts() -> None:
    """It has just begun to listen, and answers ten thousand agents at once."""
    tried = route("a")
    assert tried.connect_s == 2.0
    tried.failed(refused=True)
    assert tried.connect_s == 10.0
    tried.greeted()
    assert tried.connect_s == 2.0
    several = route("a", "b")
    several.failed(refused=True)
    several.failed(refused=True)
    assert (several.target, several.connect_s) == ("a", 2.0), "its machine may be dead by now, and b leads"


def test_an_answer_of_a_standby_ends_the_delay_after_refusals() -> None:
    tried = route("a")
    for _ in range(9):
        tried.failed(refused=True)
    for _ in range(3):
        tried.failed(leader="")
    assert tried.failed(refused=True) == 0.5


def test_agents_are_spread_over_the_time_after_refusals() -> None:
    waits = []
    for seed in range(100):
        tried = Route(["a"], Backoff(0.5, 60.0, Random(seed), jitter=1.0), Random(seed))
        waits.append([tried.failed(refused=True) for _ in range(20)][-1])
    assert max(waits) <= 10.0
    assert sum(wait > 5.0 for wait in waits) > 80, "not all at once"
    assert len({round(wait, 1) for wait in waits}) > 30


def test_hints_in_a_row_end_in_a_wait() -> None:
    tried = route("a")
    waits = [tried.failed(leader=f"c{i}:1") for i in range(9)]
    assert tried.target == "c8:1"
    assert waits == [0.5, 0.5, 0.5, 2.0, 0.5, 0.5, 0.5, 2.0, 0.5]


def test_a_collector_that_leads_ends_the_haste() -> None:
    tried = route("a")
    tried.failed(leader="")
    tried.failed(failures=8)
    tried.greeted()
    assert tried.failed(failures=8) == 60.0
    tried.settled()
    assert tried.failed() == 0.5


def test_a_leader_that_is_full_is_not_pressed() -> None:
    tried = route("a")
    assert tried.failed(leader="b:1") == 0.5
    assert tried.failed(failures=5) == 8.0
    assert tried.target == "a"


def test_a_leader_that_is_out_of_reach_is_met_by_the_way_that_led_to_the_standby() -> None:
    """A switch comes by a node's port, which leads to any replica; the leader's pod has no route to it."""
    tried = route("node1:30054", "node2:30054")
    tried.failed(leader="10.244.1.7:50054")
    assert tried.target == "10.244.1.7:50054"
    tried.failed(silent=True)
    assert tried.target == "node2:30054", "not that way again"
    longest_s, seen = 0.0, []
    for _ in range(16):
        longest_s = max(longest_s, tried.failed(leader="10.244.1.7:50054"))
        seen.append(tried.target)
        if tried.target == "10.244.1.7:50054":
            tried.failed(silent=True)
    assert seen.count("10.244.1.7:50054") == 2, "now and then: there may be a route by now"
    assert longest_s <= 2.0
    tried.failed(leader="10.244.2.9:50054")
    assert tried.target == "10.244.2.9:50054", "another leader is another address"


def test_a_leader_that_came_into_reach_is_a_good_hint_again() -> None:
    tried = route("a")
    for _ in range(3):
        tried.failed(leader="b:1")
        if tried.target == "b:1":
            tried.failed(silent=True)
    while tried.target != "b:1":
        tried.failed(leader="b:1")
    tried.greeted()
    tried.failed()
    tried.failed(leader="b:1")
    assert tried.target == "b:1"


def test_silence_of_a_target_is_no_news_about_hints() -> None:
    tried = route("a:1", "b:1")
    tried.failed(silent=True)
    tried.failed(leader="a:1")
    assert tried.target == "a:1"


@pytest.mark.parametrize("listens_after_s", [3.0, 10.0, 30.0])
def test_a_new_leader_that_takes_its_time_is_found_soon(listens_after_s: float) -> None:
    """The standby points at itself once it is elected, and does not listen there until it leads."""
    tried = route("a:1", "b:1")
    now_s = 0.0
    for _ in range(20):  # the old leader is away for long: no replica is elected yet
        now_s += tried.failed(leader="a:1" if tried.target == "b:1" else None)
    elected_s = now_s
    tried.failed(leader="b:1")
    while tried.target != "b:1" or now_s - elected_s < listens_after_s:
        now_s += tried.failed()
    assert now_s - elected_s < 3 * listens_after_s + 4


def test_a_leader_that_is_lost_is_no_hint_any_more() -> None:
    tried = route("a")
    tried.failed(leader="b:1")
    tried.greeted()
    tried.failed()
    assert tried.target == "a"


def test_a_leader_that_shut_down_is_no_hint_for_a_while() -> None:
    """Its Lease is valid for some seconds more, so standbys still name it."""
    tried = route("any:1")
    tried.failed(leader="old:1")
    tried.greeted()
    assert tried.failed(leader="", left=True) == 0.5, "at once to a standby, which waits for the next leader"
    assert tried.target == "any:1"
    tried.failed(leader="old:1")
    assert tried.target == "any:1"
    tried.failed(leader="new:1")
    assert tried.target == "new:1"


def test_a_connection_gets_more_time_with_each_silence() -> None:
    tried, given = route("a:1"), []
    for _ in range(5):
        given.append(tried.connect_s)
        tried.failed(silent=True)
    assert given == [2.0, 4.0, 8.0, 10.0, 10.0]
    tried.failed()
    assert tried.connect_s == 2.0, "it answers"


def test_a_busy_leader_gets_more_time_although_standbys_answer_in_between() -> None:
    tried, given = route("any:1"), []
    for _ in range(40):
        tried.failed(leader="new:1")
        if tried.target == "new:1":
            given.append(tried.connect_s)
            tried.failed(silent=True)
    assert given == [2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_leader_that_shut_down_is_a_good_hint_again_once_it_answers() -> None:
    tried = route("a:1", "b:1")
    tried.greeted()
    tried.failed(leader="", left=True)
    assert tried.target == "b:1"
    tried.failed(leader="a:1")
    assert tried.target == "a:1", "in turn: the hint names the one that left"
    tried.failed(leader="")
    tried.failed(leader="a:1")
    assert (tried.target, tried._hints) == ("a:1", 1), "it answered as a standby, and leads again"
