"""Checks of state machines by their event logs: transitions against a table, and replays."""

from collections.abc import Iterable, Mapping

from hyperscout_collector.app.status.event_logs import Replay, lines, replay
from hyperscout_runtime.event_log import Entry, EventLog

Row = tuple[str, str, str]  # state, event, next state
Table = Mapping[str, Mapping[str, tuple[str, ...]]]


def rows_of(table: Table) -> set[Row]:
    return {
        (state, name, after) for state, row in table.items() for name, all_ in row.items() for after in all_
    }


def transitions(entries: Iterable[Entry]) -> set[Row]:
    """The changes of state by single events."""
    states: dict[str, str] = {}
    found = set()
    for entry in entries:
        before, states[entry.subject] = states.get(entry.subject), entry.state
        if before is not None and before != entry.state and len(entry.events) == 1:
            found.add((before, type(entry.events[0]).__name__, entry.state))
    return found


def lease_transitions(entries: Iterable[Entry]) -> set[Row]:
    """The changes of single leases; the state "none" is that before the grant and after the end."""
    states: dict[str, str] = {}
    found = set()
    for entry in entries:
        now = dict(one.split("=") for one in entry.state.split())
        for lease in states.keys() | now.keys():
            before, after = states.get(lease, "none"), now.get(lease, "none")
            if before != after and entry.events:
                found.add((before, type(entry.events[0]).__name__, after))
        states = now
    return found


def assert_is(observed: set[Row], table: Table) -> None:
    """Every transition is in the table, and every row of the table happened."""
    rows = rows_of(table)
    assert sorted(observed - rows) == [], "these are missing in the table"
    assert sorted(rows - observed) == [], "these did not happen"


def replayed(log: EventLog) -> Replay:
    return replay(list(lines(log.kind, log.entries())), "log.jsonl")
