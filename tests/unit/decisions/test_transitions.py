"""Random histories of the collector's state machines: their transitions, and that a replay repeats them."""

from pathlib import Path
from random import Random

import pytest
from hyperscout_collector.decisions.fabric import lease_state
from hyperscout_collector.decisions.fabric.lease_state import LeaseSettings
from hyperscout_collector.decisions.fabric.leases import SweepLeases
from hyperscout_collector.decisions.fabric.sweep_events import SWEEP_PROBE, SweepHeld
from hyperscout_collector.decisions.publication import membership, takeover
from hyperscout_collector.decisions.publication.generations import Generations, GenerationSettings
from hyperscout_collector.decisions.publication.takeover import (
    Evidence,
    FullState,
    TakeoverFacts,
    TakeoverMachine,
)
from hyperscout_gates.state import gang_state
from hyperscout_runtime.event_log import EventLog
from hyperscout_runtime.units import NS
from support.state_machines import Row, Table, assert_is, lease_transitions, replayed, transitions

from .fabrics import World
from .trees import leaves_of, tree

PAGE = Path(__file__).parents[3] / "docs" / "state-machines.md"
TABLES: dict[str, Table] = {
    "Gangs": gang_state.TRANSITIONS,
    "Generations": membership.TRANSITIONS,
    "Sweep leases": lease_state.TRANSITIONS,
    "Take-over": takeover.TRANSITIONS,
}


def printed(table: Table) -> str:
    rows = [
        f"| `{state}` | {event} | {', '.join(f'`{one}`' for one in after)} |"
        for state, events in table.items()
        for event, after in events.items()
    ]
    return "\n".join(["| state | event | next state |", "|---|---|---|", *rows]) + "\n"


@pytest.mark.parametrize("title", TABLES)
def test_the_page_has_the_table(title: str) -> None:
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert printed(TABLES[title]) in section


def leases(seed: int) -> EventLog:
    rng, log = Random(seed), EventLog("leases")
    cables = {(host, rail): f"rail{rail}" for host in range(4) for rail in range(2)}
    world = World(SweepLeases(LeaseSettings(leases=6), 7, log), cables)
    for _ in range(60):
        port = rng.randrange(4), rng.randrange(2)
        what = rng.randrange(10)
        if what == 0:
            world.connect(port[0], probes=frozenset({SWEEP_PROBE} if rng.random() < 0.8 else ()))
        elif what == 1:
            world.leave(port[0])
        elif what == 2:
            world.set_down(port, rng.random() < 0.5)
        elif what == 3:
            world.cables[port] = rng.choice(["rail0", "rail1", "other"])
        elif what in (4, 5, 6) and (grants := world.grants()):
            grant, how = rng.choice(grants), rng.choice(["full", "full", "partial", "fail"])
            if how == "fail":
                world.fail(grant)
            else:
                world.sweep(grant, partial=how == "partial")
        elif what == 7 and (grants := world.grants()):
            grant = rng.choice(grants)
            first, accused = rng.random() < 0.2, rng.random() < 0.7
            world.send(SweepHeld(grant.node, grant.lease_id, "it moves all hosts", first, accused))
        elif what >= 7:
            world.wait(rng.choice([1, 29, 61, 301, 4000]))
    return log


def test_transitions_of_leases() -> None:
    observed: set[Row] = set()
    for seed in (0, 4, 38, 68, 92, 104, 175, 177):  # together they take all rows
        log = leases(seed)
        observed |= lease_transitions(log.entries())
        if seed % 3 == 0:
            assert replayed(log).difference is None
    assert_is(observed, lease_state.TRANSITIONS)


def generations(seed: int) -> EventLog:
    rng, log = Random(seed), EventLog("generations")
    now_ns = 1_767_225_600 * NS
    machine = Generations(GenerationSettings(), None, now_ns, log)
    trees = [leaves_of(n) for n in (6, 6, 5, 3, 7)] + [{}]
    for _ in range(40):
        now_ns += rng.choice([0, 1, 4, 9, 31, 70, 700]) * NS
        if rng.random() < 0.4:
            decision = machine.offer(tree(rng.choice(trees)), now_ns)
        else:
            decision = machine.tick(now_ns)
        if decision.held is not None and rng.random() < 0.1:
            machine.approve(decision.held.generation, now_ns)
    return log


def test_transitions_of_generations() -> None:
    observed: set[Row] = set()
    for seed in range(20):
        log = generations(seed)
        observed |= transitions(log.entries())
        assert replayed(log).difference is None
    assert_is(observed, membership.TRANSITIONS)


def take_over(seed: int) -> EventLog:
    rng, log = Random(seed), EventLog("takeover")
    nodes, switches = ["n0", "n1", "n2"], ["s0", "s1"]
    facts = TakeoverFacts(
        0,
        100 * NS,
        set(nodes),
        {"fabric": frozenset(switches)} if rng.random() < 0.7 else {},
        {frozenset(switches)} if rng.random() < 0.5 else set(),
        {"n0"} if rng.random() < 0.5 else set(),
    )
    machine = TakeoverMachine(facts, log)

    def some(names: list[str], share: float) -> frozenset[str]:
        return frozenset(name for name in names if rng.random() < share)

    for now_s in range(0, 130, 10):
        if rng.random() < 0.5:
            machine.handle(FullState(rng.choice([*nodes, "switch/s0"])), now_s * NS)
        else:
            parts = some(nodes, 0.2), some(["fabric"], 0.1), some(switches, 0.1), some(nodes, 0.5)
            machine.handle(Evidence(*parts), now_s * NS)
    return log


def test_transitions_of_take_overs() -> None:
    observed: set[Row] = set()
    for seed in range(60):
        log = take_over(seed)
        observed |= transitions(log.entries())
        assert replayed(log).difference is None
    assert_is(observed, takeover.TRANSITIONS)
