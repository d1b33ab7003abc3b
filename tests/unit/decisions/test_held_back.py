"""An all-clear that damping holds back: what is published of it, how often, and by the next leader."""

from dataclasses import replace

import pytest
from hyperscout_collector.decisions.publication.renewal import calmed
from hyperscout_collector.decisions.publication.stamps import by_link, moved, not_after
from hyperscout_runtime.units import NS, rfc3339
from hyperscout_topology.figures import figures
from hyperscout_topology.frames import decoded, encoded_whole
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.objects import anomalies, to_json
from hyperscout_topology.topology import Anomaly, Link, Topology, held_back, undamped
from support.inference import inferred

from .test_generations import Player, condition, running
from .test_with_inference import FABRICS, WHOLE
from .trees import leaves_of, lost_uplink, tree, uplink

FOUR = leaves_of(4)
GONE = "the link from sw-l00/p1 to sw-top/p1 is gone"
LOST = lost_uplink(1, message=GONE)
UP = tree(FOUR, links=[uplink(1), uplink(2)])
DOWN = tree(FOUR, [LOST], links=[uplink(2)])


def flapped(times: int) -> Player:
    """The cable is down in even seconds from 200 on, and up from the second after its last loss."""
    player = running(UP)
    for second in range(200, 200 + 2 * times, 2):
        player.offer(second, DOWN)
        player.offer(second + 1, UP)
    return player


def test_the_message_says_since_when_the_cable_is_up_and_when_it_clears() -> None:
    player = flapped(10)
    for second in range(220, 600):
        player.offer(second, UP)
    assert player.times[1:] == [200, 229, 519], (
        "nothing is published while it flaps, nor each second after it"
    )
    up, clears = (rfc3339(player.ns(at)) for at in (219, 519))
    (told,) = player.log[2][1].anomalies
    assert told.message == f"up since {up}; flapped 10 times; clears at {clears}; before: {GONE}"
    assert (told.since_ns, told.kind) == (player.ns(200), "MissingLink")
    (data,) = anomalies(player.log[2][1])
    assert (data["flaps"], data["changedAt"], data["clearsAt"]) == (10, up, clears)
    degraded = condition(player.log[2][1], "l00", "Degraded")
    assert f"up since {up}; flapped 10 times; clears at {clears}" in degraded.message
    assert degraded.message.endswith(f", since {rfc3339(player.ns(200))}")
    assert player.last.anomalies == ()


def test_a_first_all_clear_says_that_it_waits() -> None:
    player = flapped(1)
    player.run(205)
    (once,) = player.last.anomalies
    assert (once.flaps, once.clears_ns) == (1, player.ns(211))
    player.run(1000)
    assert player.times[1:] == [200, 202, 211]


def test_a_cable_that_is_gone_again_is_gone() -> None:
    player = flapped(3)
    player.run(230)
    assert player.last.anomalies[0].is_over
    player.offer(230, DOWN)
    player.run(1000)
    (gone,) = player.last.anomalies
    assert player.times[1:] == [200, 215, 230]
    assert gone.message == GONE
    assert (gone.flaps, gone.changed_ns, gone.clears_ns) == (3, player.ns(230), 0)


def test_a_flapping_cable_that_is_up_says_both() -> None:
    """That it flaps is known a moment after its last flap: this keeps no other anomaly."""
    flaps = lost_uplink(1, "ErroringLink", message="flaps 5 times an hour; clears at noon")
    erring = replace(UP, anomalies=(replace(flaps, clears_ns=Player.ns(4000)),))
    player = flapped(3)
    player.offer(230, erring)
    player.run(240)
    found = {x.kind: x for x in player.last.anomalies}
    assert found["MissingLink"].message.startswith("up since ")
    assert found["MissingLink"].clears_ns == player.ns(205 + 160)
    player.run(1000)
    assert player.times[1:] == [200, 215, 230, 365]
    (last,) = player.last.anomalies
    assert replace(last, since_ns=0) == erring.anomalies[0]


DENIED = replace(uplink(1), note="does not count: others deny it")
OTHER = "Miswired"


@pytest.mark.parametrize(
    ("lost", "links", "word"),
    [
        pytest.param(LOST, [uplink(1), uplink(2)], "up", id="there"),
        pytest.param(LOST, [Link("sw-top", "1", "sw-l00", "1", "ib", ())], "up", id="there-turned"),
        pytest.param(LOST, [uplink(2)], "over", id="approved"),
        pytest.param(LOST, [replace(uplink(1), b_port="9")], "over", id="in-another-port"),
        pytest.param(LOST, [DENIED], "over", id="denied"),
        pytest.param(lost_uplink(1, OTHER, message=GONE), [uplink(1)], "over", id="was-never-down"),
    ],
)
def test_up_is_what_is_there(lost: Anomaly, links: list[Link], word: str) -> None:
    player = running(UP)
    for second in (200, 202, 204):
        player.offer(second, tree(FOUR, [lost], links=[uplink(2)]))
        player.offer(second + 1, tree(FOUR, links=links))
    player.run(220)
    assert player.last.anomalies[0].message.startswith(f"{word} since ")


def test_a_missing_switch_is_up_when_it_is_there() -> None:
    gone = replace(
        LOST, kind="MissingSwitch", subject=replace(LOST.peer or LOST.subject, port=None), peer=None
    )
    player = running(UP)
    for second in (200, 202, 204):
        player.offer(second, replace(UP, anomalies=(gone,), switches=UP.switches[:-1]))
        player.offer(second + 1, UP)
    player.run(220)
    assert player.last.anomalies[0].message.startswith("up since ")


@pytest.mark.parametrize("codec", ["json", "disk"])
def test_a_new_leader_goes_on_with_the_same_times(codec: str) -> None:
    player = flapped(10)
    player.run(260)
    saved = from_json(to_json(player.last)) if codec == "json" else decoded(encoded_whole(player.last))
    leader = Player(saved, at=270)
    for second in range(270, 280):  # a take-over offers what is published until its evidence is complete
        assert leader.offer(second, saved) is None
    for second in range(280, 600):
        leader.offer(second, UP)
    player.run(600)
    assert player.times[-1] == 519
    assert leader.times == [519]
    assert leader.last.anomalies == ()


def test_a_new_leader_clears_nothing_before_its_evidence_is_complete() -> None:
    player = flapped(3)
    player.run(230)
    saved = player.last
    leader = Player(saved, at=230)
    for second in range(230, 1000, 10):
        assert leader.offer(second, saved) is None
    gone = leader.offer(1000, DOWN)
    assert gone is not None
    assert [x.message for x in gone.anomalies] == [GONE], "it was pulled meanwhile"
    assert Player(saved, at=990).offer(1000, UP) is not None


def test_a_new_leader_counts_on() -> None:
    player = flapped(10)
    player.run(260)
    leader = Player(player.last, at=270)
    leader.offer(270, player.last)
    leader.offer(280, UP)
    leader.offer(290, DOWN)
    leader.offer(291, UP)
    leader.run(310)
    assert leader.times == [290, 301]
    assert "; flapped 11 times; clears at " in leader.last.anomalies[0].message
    assert leader.last.anomalies[0].clears_ns == player.ns(591)
    # So does one that takes over while the cable is out.
    leader = Player(leader.log[0][1], at=290.5)
    leader.offer(291, UP)
    leader.run(310)
    assert leader.last.anomalies[0].clears_ns == player.ns(591)


def test_inference_continues_from_what_it_found_itself() -> None:
    player = flapped(3)
    player.run(230)
    (told,) = player.last.anomalies
    assert replace(undamped(told), since_ns=0) == LOST
    assert undamped(replace(LOST, flaps=3, changed_ns=7)) == LOST
    ((found,),) = (items.values() for items in by_link([told]).values())
    assert found == LOST
    offered = replace(LOST, kind="SlowLink", sources=("latency",), figures=figures(round_trip_us=14.2))
    measured = replace(told, kind=offered.kind, sources=offered.sources, figures=offered.figures)
    (calm,) = calmed(Topology(1, anomalies=(offered,)), Topology(1, anomalies=(measured,))).anomalies
    assert calm == offered


def test_a_switch_that_is_missing_again_is_not_over() -> None:
    """Inference takes a missing switch from what is published."""
    whole = inferred(WHOLE)
    lost = inferred(FABRICS["spine"], previous=whole)
    (missing,) = lost.anomalies
    assert missing.kind == "MissingSwitch"
    over = held_back(replace(missing, flaps=2, changed_ns=8 * NS, clears_ns=9 * NS), is_up=True)
    again = inferred(FABRICS["spine"], previous=replace(whole, anomalies=(over,)))
    assert again.anomalies == (missing,)


OVER = replace(LOST, since_ns=100 * NS, flaps=1, changed_ns=200 * NS, clears_ns=300 * NS)


def test_words() -> None:
    assert held_back(OVER, is_up=True).message == (
        "up since 1970-01-01T00:03:20Z; flapped once; clears at 1970-01-01T00:05:00Z; before: " + GONE
    )
    assert undamped(held_back(OVER, is_up=False)) == replace(LOST, since_ns=100 * NS)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(lambda x: moved(x, 50 * NS), (150, 250, 350), id="moved"),
        pytest.param(lambda x: moved(x, -50 * NS), (50, 150, 250), id="moved-back"),
        pytest.param(lambda x: not_after(x, 250 * NS), (100, 200, 300), id="to-come"),
        pytest.param(lambda x: not_after(x, 150 * NS), (100, 150, 250), id="a-clock-that-was-ahead"),
    ],
)
def test_times_of_another_clock(change: object, expected: tuple[int, int, int]) -> None:
    assert callable(change)
    (x,) = change(Topology(1, anomalies=(OVER,))).anomalies
    assert (x.since_ns, x.changed_ns, x.clears_ns) == tuple(at * NS for at in expected)
    (never,) = change(Topology(1, anomalies=(LOST,))).anomalies
    assert never == LOST
