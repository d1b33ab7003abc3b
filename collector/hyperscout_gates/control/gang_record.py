"""The records of gangs that the controller and the writer share."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hyperscout_kubernetes.client import Object
from hyperscout_runtime.backoff import Backoff
from hyperscout_runtime.event_log import EventLog

from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang_plan import GangPlan
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_gates.state.machine import GangMachine

# Gangs with lost nodes are first, those that grow last. Then come priority, time of the first pod, and key.
Order = tuple[int, int, float, str]
_FIRST: Order = (0, 0, 0.0, "")

_PARK_FIRST_S, _PARK_MOST_S = 5.0, 600.0
_SHOWN = 5  # number of parked gangs to list as problems


@dataclass(slots=True, eq=False)
class GangRecord:
    """A gang: its state machine and the controller's data about it.

    `stored`: the plan on the API server. `writes`: number of requests without a response yet.
    """

    machine: GangMachine
    stored: GangPlan | None = None
    name: str = field(default="", init=False)  # name of its reservation; "" if it has none
    pods: dict[str, Object] = field(default_factory=dict, init=False)  # in stored form, by uid
    events: list[e.Event] = field(default_factory=list, init=False)
    order: Order = field(default=_FIRST, init=False)  # its place among the waiting gangs
    reason: str = field(default="", init=False)  # why it was not placed when it was tried last
    no_drain_until_s: float = field(default=0.0, init=False)  # no domain holds it: when to look again
    refused_at: int = field(default=-1, init=False)  # value of `Turns._grown` when it did not fit
    left: bool = field(default=False, init=False)
    down: frozenset[str] = field(default=frozenset(), init=False)
    writes: int = field(default=0, init=False)
    parked_until_s: float | None = field(default=None, init=False)
    backoff: Backoff = field(default_factory=lambda: Backoff(_PARK_FIRST_S, _PARK_MOST_S), init=False)
    begun_s: float = field(default=0.0, init=False)  # Unix seconds of its last restart
    problem: str = field(default="", init=False)  # why it is parked

    @property
    def templates(self) -> Mapping[str, Object]:
        """What pods demand of a node, by role; {} if it is not known."""
        machine, pods = self.machine, self.pods
        if machine.gang is not None:
            return machine.gang.templates
        opened = (pod for _, pod in machine.members.opened() if pod.uid in pods)
        found = {pod.role: pods[pod.uid]["gate"]["demands"] for pod in opened}
        number = Counter(pod.role for pod in machine.members)
        # The first one is for roles without a pod.
        roles = sorted(found, key=lambda role: -number[role])
        return {role: found[role] for role in roles if found[role] is not None}

    def park(self, problem: str, now_s: float) -> float:
        """Suspend the gang, and return for how many seconds. The pause doubles each time."""
        if now_s >= self.begun_s + _PARK_MOST_S:
            self.backoff.reset()
        pause_s = self.backoff.next_s()
        self.problem, self.parked_until_s = problem, now_s + pause_s
        self.events.clear()
        return pause_s

    def begin_anew(self, settings: GateSettings, log: EventLog, now_s: float) -> None:
        """End the pause: a new state machine starts from the stored plan."""
        old = self.machine
        self.machine = GangMachine(old.key, old.uid, settings, self.stored, log)
        self.parked_until_s, self.begun_s = None, now_s
        self.refused_at, self.down = -1, frozenset()

    def put_in_order(self) -> None:
        machine = self.machine
        turn = 1 if machine.plan is None else 0 if machine.wants_repair else 2
        self.order = turn, -machine.priority, machine.waits_since_s, machine.key


class GangRecords:
    """All records of gangs that have not ended, by key and by pod. Iteration is in the order of `add`."""

    def __init__(self) -> None:
        self._records: dict[GangRecord, None] = {}
        self._by_key: dict[str, list[GangRecord]] = {}
        self.by_pod: dict[str, GangRecord] = {}

    def __iter__(self) -> Iterator[GangRecord]:
        return iter(self._records)

    @property
    def problems(self) -> list[str]:
        """Which gangs are parked, and why."""
        parked = [x for x in self if x.parked_until_s is not None]
        found = [f"gang {x.machine.key} is parked: {x.problem}" for x in parked[:_SHOWN]]
        return found + ([f"{len(parked) - _SHOWN} more gangs are parked"] if len(parked) > _SHOWN else [])

    def add(self, machine: GangMachine) -> GangRecord:
        record = GangRecord(machine, machine.stored)
        self._records[record] = None
        self._by_key.setdefault(machine.key, []).append(record)
        return record

    def remove(self, record: GangRecord) -> None:
        del self._records[record]
        same_key = self._by_key[record.machine.key]
        same_key.remove(record)
        if not same_key:
            del self._by_key[record.machine.key]
        for uid in record.pods:
            self.by_pod.pop(uid, None)

    def find(self, key: str, run: str) -> GangRecord | None:
        """Return the newest gang with this key and the uid `run` of its owner.

        Some pods do not carry the uid of their owner (`run` is ""). They match any run of the owner.
        """
        for record in reversed(self._by_key.get(key, ())):
            if not run or not record.machine.uid or record.machine.uid == run:
                return record
        return None
