"""Writes the event logs of the state machines as JSON lines, and replays such a file.

Each line is an object with `machine`, `subject`, `at_ns` (Unix ns) and `state`, and either `events` or
`snapshot`. `events` lists what the machine handled at that time: objects with one key, the name of the event.
`state` is the state after that. `snapshot` has all facts of the machine in `state`: a replay begins there.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from hyperscout_gates.state import events as gang_events
from hyperscout_gates.state.gang_state import GangFacts
from hyperscout_gates.state.machine import GangMachine
from hyperscout_runtime.event_log import Entry, EventLog, Machine, error_state
from hyperscout_runtime.units import NS
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hyperscout_collector.decisions.fabric import sweep_events
from hyperscout_collector.decisions.fabric.lease_state import LeaseFacts
from hyperscout_collector.decisions.fabric.leases import SweepLeases
from hyperscout_collector.decisions.publication import membership, takeover
from hyperscout_collector.decisions.publication.membership import Membership, MembershipFacts
from hyperscout_collector.decisions.publication.takeover import TakeoverFacts, TakeoverMachine

MAX_LINE_CHARS = 256 << 20  # a snapshot of a gang with 1,000,000 pods


@dataclass(frozen=True, slots=True)
class _Kind:
    """How to replay the machines of one kind."""

    facts: type
    events: dict[str, type]
    restored: Callable[[Any], Machine]
    handle: Callable[[Any, Sequence[Any], int], object]


def _named(union: object) -> dict[str, type]:
    return {one.__name__: one for one in get_args(union)}


def _each(machine: Any, events: Sequence[Any], at_ns: int) -> None:
    for event in events:
        machine.handle(event, at_ns)


_KINDS = {
    "gang": _Kind(
        GangFacts,
        _named(gang_events.Event),
        GangMachine.restored,
        lambda machine, events, at_ns: machine.handle(events, at_ns / NS),
    ),
    "generations": _Kind(MembershipFacts, _named(membership.Event), Membership, _each),
    "leases": _Kind(LeaseFacts, _named(sweep_events.Event), SweepLeases.restored, _each),
    "takeover": _Kind(TakeoverFacts, _named(takeover.Event), TakeoverMachine, _each),
}


class EventLogError(ValueError):
    """A file is not an event log. The message names the line."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first line whose state the replay does not reach."""

    line: int
    machine: str
    subject: str
    at_ns: int
    events: tuple[str, ...]
    logged: str
    replayed: str


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a replay: the numbers of machines and events, and the first difference."""

    machines: int
    events: int
    difference: Difference | None = None


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    machine: str
    subject: str
    at_ns: int = Field(ge=0, lt=2**63)
    state: str
    events: list[dict[str, Any]] | None = None
    snapshot: dict[str, Any] | None = None


_adapters: dict[type, TypeAdapter[Any]] = {}  # building one takes milliseconds


def _adapter(type_: type) -> TypeAdapter[Any]:
    if (found := _adapters.get(type_)) is None:
        found = _adapters[type_] = TypeAdapter(type_)
    return found


def lines(kind: str, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield entries of the machines of one kind as JSON lines, without line ends."""
    for entry in entries:
        found: dict[str, Any] = {
            "machine": kind,
            "subject": entry.subject,
            "at_ns": entry.at_ns,
            "state": entry.state,
        }
        if entry.snapshot is not None:
            found["snapshot"] = _plain(entry.snapshot)
        else:
            found["events"] = [{type(event).__name__: _plain(event)} for event in entry.events]
        yield json.dumps(found, separators=(",", ":"))


def all_lines(logs: Iterable[EventLog]) -> Iterator[str]:
    """Return the lines of all logs as they are now. Each line is encoded when it is read."""
    copies = [(log.kind, log.entries()) for log in logs]
    return (line for kind, entries in copies for line in lines(kind, entries))


def _plain(value: Any) -> Any:
    return _adapter(type(value)).dump_python(value, mode="json")


def replay(text: Iterable[str], source: str) -> Replay:
    """Replay the lines of an event log from `source`, up to the first difference. Raises EventLogError."""
    machines: dict[tuple[str, str], Machine] = {}
    events = number = 0
    for number, one in enumerate(text, 1):
        where = f"{source}: line {number}"
        line, kind = _read(one, where)
        key = line.machine, line.subject
        machine = machines.get(key)
        if line.snapshot is not None:
            machine = machines[key] = kind.restored(_value(kind.facts, line.snapshot, f"{where}: snapshot"))
            names: tuple[str, ...] = ("snapshot",)
            replayed = machine.state
        else:
            if machine is None:
                raise EventLogError(
                    f"{where}: expected a snapshot of {line.subject!r} before its first event"
                )
            handled = [_event(kind, event, where) for event in line.events or ()]
            names = tuple(type(event).__name__ for event in handled)
            events += len(handled)
            replayed = _state_after(kind, machine, handled, line.at_ns)
        if replayed != line.state:
            difference = Difference(
                number, line.machine, line.subject, line.at_ns, names, line.state, replayed
            )
            return Replay(len(machines), events, difference)
    if not number:
        raise EventLogError(f"{source}: empty: expected an event log")
    return Replay(len(machines), events)


def _state_after(kind: _Kind, machine: Machine, events: Sequence[Any], at_ns: int) -> str:
    try:
        kind.handle(machine, events, at_ns)
    except Exception as error:  # a machine that raised in the collector must raise here too
        return error_state(error)
    return machine.state


def _read(text: str, where: str) -> tuple[_Line, _Kind]:
    if len(text) > MAX_LINE_CHARS:
        raise EventLogError(f"{where}: longer than {MAX_LINE_CHARS >> 20} MiB: no event log has such a line")
    try:
        line = _Line.model_validate_json(text)
    except ValidationError as error:
        raise EventLogError(
            f"{where}: expected an object of `hyperscout status --event-log`: {_first(error)}"
        ) from error
    if (line.events is None) == (line.snapshot is None):
        raise EventLogError(f"{where}: expected either `events` or `snapshot`")
    kind = _KINDS.get(line.machine)
    if kind is None:
        known = ", ".join(_KINDS)
        raise EventLogError(f"{where}: machine {line.machine[:40]!r}: expected one of {known}")
    return line, kind


def _event(kind: _Kind, found: dict[str, Any], where: str) -> Any:
    name = next(iter(found), "")
    type_ = kind.events.get(name)
    if type_ is None or len(found) != 1:
        expected = ", ".join(kind.events)
        raise EventLogError(f"{where}: event {name[:40]!r}: expected one of {expected}")
    return _value(type_, found[name], f"{where}: event {name}")


def _value(type_: type, found: Any, where: str) -> Any:
    try:
        return _adapter(type_).validate_python(found)
    except ValidationError as error:
        raise EventLogError(f"{where}: {_first(error)}") from error


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])
