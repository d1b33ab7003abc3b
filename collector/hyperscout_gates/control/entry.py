"""A gang as the controller and the writer know it."""

from dataclasses import dataclass, field

from hyperscout_kubernetes.client import Object

from hyperscout_gates.state import events as e
from hyperscout_gates.state.machine import GangMachine
from hyperscout_gates.state.plan import Plan

FIRST_PARK_S = 5.0


@dataclass(slots=True, eq=False)
class Entry:
    """A gang: its state machine, and what the controller keeps beside it.

    `stored`: the plan that the API server has. `writes`: requests that are not answered yet.
    """

    machine: GangMachine
    stored: Plan | None = None
    name: str = ""  # in the book of placements; "" = it holds no node
    pods: dict[str, Object] = field(default_factory=dict)  # as kept, by uid
    events: list[e.Event] = field(default_factory=list)
    refused_at: int = -1  # the count of growths of free resources at which it did not fit
    left: bool = False
    down: frozenset[str] = frozenset()
    writes: int = 0
    parked_until_s: float | None = None
    park_s: float = FIRST_PARK_S  # how long it is parked the next time; doubles each time
    begun_s: float = 0.0  # when it last began anew
    problem: str = ""  # why it is parked
