"""Event logs of the state machines: their contents, their bounds, and replays."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hyperscout_collector.app.status.event_logs import EventLogError, lines, replay
from hyperscout_collector.decisions.fabric import sweep_events
from hyperscout_collector.decisions.fabric.lease_state import LeaseSettings
from hyperscout_collector.decisions.fabric.leases import SweepLeases
from hyperscout_collector.decisions.publication.takeover import (
    Evidence,
    FullState,
    TakeoverFacts,
    TakeoverMachine,
)
from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_gates.state.machine import GangMachine
from hyperscout_runtime.event_log import EventLog
from support.gates_world import World, gang_of
from support.state_machines import replayed


def gang_log(most_events: int = 4096) -> EventLog:
    """A gang that is placed, loses a node and ends."""
    world = World({"n0": 2, "n1": 2, "n2": 2}, log=EventLog("gang", most_events))
    world.start()
    world.submit(gang_of("a", 3))
    world.settle()
    world.set_down("n0", True)
    world.settle()
    world.finish("ns/Job/a")
    world.settle()
    return world.log


def text_of(log: EventLog) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(log.kind, log.entries())]


def test_a_replay_of_a_gang_reaches_the_same_states() -> None:
    found = replayed(gang_log())
    assert (found.machines, found.difference) == (1, None)
    assert found.events > 20


@pytest.mark.parametrize("most_events", [4, 7, 16])
def test_a_log_that_dropped_events_is_replayed_from_its_snapshots(most_events: int) -> None:
    log = gang_log(most_events)
    found = text_of(log)
    assert len(found) <= most_events + 2, "one snapshot in each segment comes on top"
    assert "snapshot" in found[0]
    assert replayed(log).difference is None


def test_large_events_are_bounded_by_their_items() -> None:
    log = EventLog("gang", most_items=1000)
    machine = GangMachine("ns/Job/a", "u", GateSettings(), log=log)
    for step in range(100):
        machine.handle([e.NodesDown(frozenset(f"n{step}-{k}" for k in range(100)))], float(step))
    held = sum(
        len(event.nodes) for x in log.entries() for event in x.events if isinstance(event, e.NodesDown)
    )
    assert 400 <= held <= 1200
    assert replayed(log).difference is None


def test_a_machine_that_is_larger_than_the_log_is_not_copied_for_each_event() -> None:
    log = EventLog("takeover", most_items=1000)
    facts = TakeoverFacts(1, 9, {f"n{k}" for k in range(2000)}, {}, set(), set())
    machine = TakeoverMachine(facts, log)
    for step in range(1000):
        machine.handle(FullState(f"n{step}"), 2 + step)
    assert sum(x.snapshot is not None for x in log.entries()) == 1
    assert replayed(log).difference is None


def test_ticks_without_effect_drop_no_events() -> None:
    log = EventLog("leases", most_items=20)
    machine = SweepLeases(LeaseSettings(), 1, log)
    machine.handle(sweep_events.AgentConnected("n1", frozenset()), 1)
    before = log.entries()
    for step in range(100):
        machine.handle(sweep_events.Tick(), 2 + step)
    assert log.entries() == before


def test_agents_that_reconnect_after_a_take_over_do_not_displace_its_events() -> None:
    log = EventLog("takeover", 8)
    machine = TakeoverMachine(TakeoverFacts(1, 9, {"n1"}, {}, set(), set()), log)
    machine.handle(FullState("n1"), 2)
    machine.handle(Evidence(frozenset(), frozenset(), frozenset(), frozenset()), 3)
    for step in range(100):
        machine.handle(FullState("n1"), 4 + step)
    assert [x.state for x in log.entries()] == ["agents", "fabrics", "complete"]
    assert replayed(log).difference is None


def test_fields_that_may_hold_items_are_counted() -> None:
    seen = e.PodSeen(e.Pod("u", "ns", "a"))
    log = EventLog("gang", most_items=400)
    machine = GangMachine("ns/Job/a", "u", GateSettings(), log=log)
    for step in range(10):
        machine.handle([seen] * 100, float(step))  # an event and its pod: 200 items
    assert len([x for x in log.entries() if x.events]) == 2


def test_the_first_event_that_leads_elsewhere_is_named() -> None:
    log = gang_log()
    found = text_of(log)
    number = next(i for i, x in enumerate(found) if "PlanStored" in x.get("events", [{}])[0])
    found[number]["state"] = "waiting"
    result = replay(map(json.dumps, found), "x.jsonl")
    difference = result.difference
    assert difference is not None
    assert (difference.line, difference.machine, difference.events) == (number + 1, "gang", ("PlanStored",))
    assert (difference.logged, difference.replayed) == ("waiting", "open")


def test_pod_specs_are_not_logged_because_they_may_hold_secrets() -> None:
    secret = {"containers": [{"env": [{"name": "TOKEN", "value": "s3cret"}]}]}
    gang = replace(gang_of("a", 1), templates={"worker": secret})
    log = EventLog("gang", 4)
    machine = GangMachine(gang.key, gang.uid, GateSettings(), log=log)
    pod = e.Pod("u0", "ns", "a-0", "worker/0")
    steps: list[list[e.Event]] = [[e.PodSeen(pod), e.Began()], [e.OwnerRead(gang)], [e.Turn()]]
    seen = ""
    for at_s, events in enumerate(steps):
        machine.handle(events, 1000.0 + at_s)
        seen += "".join(lines("gang", log.entries()))
    assert machine.state == "placing"
    assert "OwnerRead" in seen
    assert "s3cret" not in seen


def test_an_exception_of_a_machine_is_logged_with_its_event() -> None:
    log = EventLog("gang")
    machine = GangMachine("ns/Job/a", "u", GateSettings(), log=log)
    with pytest.raises(KeyError):
        machine.handle(["no event"], 1.0)  # type: ignore[list-item]
    assert log.entries()[-1].state == "raised KeyError"


GOOD = {"machine": "gang", "subject": "a#1", "at_ns": 1, "state": "waiting", "events": [{"Tick": {}}]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "x.jsonl: line 1: expected an object of `hyperscout status --event-log`: Invalid JSON"),
        ("[1]", "x.jsonl: line 1: expected an object"),
        (json.dumps(GOOD | {"at_ns": "soon"}), "x.jsonl: line 1: expected an object .*: at_ns: "),
        (json.dumps(GOOD | {"at_ns": 10**30}), "x.jsonl: line 1: expected an object .*: at_ns: "),
        (json.dumps(GOOD | {"events": None}), "x.jsonl: line 1: expected either `events` or `snapshot`"),
        (json.dumps(GOOD | {"machine": "x"}), "x.jsonl: line 1: machine 'x': expected one of gang, gen"),
        (json.dumps(GOOD), "x.jsonl: line 1: expected a snapshot of 'a#1' before its first event"),
    ],
)
def test_what_is_no_event_log_is_refused_with_its_line(line: str, message: str) -> None:
    with pytest.raises(EventLogError, match=message):
        replay([line], "x.jsonl")


def test_an_empty_file_is_no_event_log() -> None:
    with pytest.raises(EventLogError, match=r"^x.jsonl: empty: expected an event log$"):
        replay([], "x.jsonl")


def test_a_bad_event_is_refused_with_its_line() -> None:
    first = next(lines("gang", gang_log().entries()))
    for event, message in [
        ({"Boom": {}}, "line 2: event 'Boom': expected one of Began, PodSeen"),
        ({"PodGone": {}}, "line 2: event PodGone: uid: "),
        ({"PodGone": {"uid": 7}}, "line 2: event PodGone: uid: "),
    ]:
        second = json.dumps(GOOD | {"subject": json.loads(first)["subject"], "events": [event]})
        with pytest.raises(EventLogError, match=message):
            replay([first, second], "x.jsonl")
    bad = json.loads(first)
    bad["snapshot"]["key"] = 1
    with pytest.raises(EventLogError, match="line 1: snapshot: key: "):
        replay([json.dumps(bad)], "x.jsonl")
