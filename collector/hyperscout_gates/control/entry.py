"""The record of a gang that the controller and the writer share."""

from dataclasses import dataclass, field

from hyperscout_kubernetes.client import Object

from hyperscout_gates.state import events as e
from hyperscout_gates.state.machine import GangMachine
from hyperscout_gates.state.plan import Plan

FIRST_PARK_S = 5.0


@dataclass(slots=True, eq=False)
class Entry:
    """A gang: its state machine and the controller's data about it.

    `stored`: the plan on the API server. `writes`: number of requests without a response yet.
    """

    machine: GangMachine
    stored: Plan | None = None
    name: str = ""  # name of its reservation; "" if it has none
    pods: dict[str, Object] = field(default_factory=dict)  # in stored form, by uid
    events: list[e.Event] = field(default_factory=list)
    refused_at: int = -1  # value of the controller's `_grown` when it did not fit
    left: bool = False
    down: frozenset[str] = frozenset()
    writes: int = 0
    parked_until_s: float | None = None
    park_s: float = FIRST_PARK_S  # next duration of a pause; doubles each time
    begun_s: float = 0.0  # Unix seconds of its last restart
    problem: str = ""  # why it is parked
