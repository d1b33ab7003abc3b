"""States say what changed and nothing of when; changes wait in a bounded line, and none is counted twice."""

from dataclasses import replace

from hyperscout_publish.mqtt.payloads import EVENTS_A_MESSAGE, Backlog, states_of
from hyperscout_topology.events import Event
from hypothesis import given
from hypothesis import strategies as st
from support.findings import T0
from support.topologies import two_leaves


def event(number: int) -> Event:
    return Event("NodeAdded", str(number), node=f"n{number}")


def test_a_generation_alone_changes_no_state() -> None:
    topology = two_leaves()
    before, after = states_of(topology), states_of(replace(topology, generation=99))
    assert {name: x.digest for name, x in before.items()} == {name: x.digest for name, x in after.items()}
    assert before["leaf-a"].payload(7) != before["leaf-a"].payload(8)


def test_an_anomaly_changes_the_state_that_it_counts_against_alone() -> None:
    topology = two_leaves()
    before, after = states_of(topology), states_of(replace(topology, anomalies=()))
    assert [name for name in before if before[name].digest != after[name].digest] == ["leaf-b"]


def test_a_message_is_of_one_generation_and_not_too_long() -> None:
    line = Backlog()
    line.add(7, T0, [event(i) for i in range(EVENTS_A_MESSAGE + 1)])
    line.add(8, T0, [event(0)])
    told = []
    while (found := line.next()) is not None:
        told.append((found[0]["generation"], found[1], found[0]["lost"]))
        line.sent(*found)
    assert told == [(7, EVENTS_A_MESSAGE, 0), (7, 1, 0), (8, 1, 0)]


@given(st.lists(st.integers(0, 12) | st.sampled_from(["tell", "fail"]), max_size=60))
def test_every_change_is_told_once_or_counted_as_lost_once(steps: list[int | str]) -> None:
    """However changes come while others are on their way, and whether or not those arrive."""
    line = Backlog(most=10)
    come = told = lost = 0
    on_its_way = None
    for generation, step in enumerate(steps, 1):
        if isinstance(step, int):
            line.add(generation, T0, [event(come + i) for i in range(step)])
            come += step
        elif on_its_way is not None and step == "tell":
            line.sent(*on_its_way)
            told += on_its_way[1]
            lost += on_its_way[0]["lost"]
        on_its_way = line.next()
        assert len(line) <= 10
    while (found := line.next()) is not None:
        told += found[1]
        lost += found[0]["lost"]
        line.sent(*found)
    assert told + lost + line.lost == come
    assert lost + line.lost <= line.lost_total <= come


def test_a_change_that_was_told_while_it_was_pushed_out_is_not_lost() -> None:
    line = Backlog(most=3)
    line.add(1, T0, [event(1), event(2)])
    found = line.next()
    assert found is not None
    line.add(2, T0, [event(3), event(4), event(5)])
    line.sent(*found)
    assert (line.lost, len(line)) == (0, 3)
    second = line.next()
    assert second is not None
    assert (second[0]["generation"], second[0]["lost"]) == (2, 0)
