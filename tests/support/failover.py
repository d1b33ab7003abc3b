"""What replicas with PostgreSQL must keep while they are killed, and what clients, readers and agents saw.

A gang is `held` when its reservation was acknowledged, and `gone` when its release was. During a call, and
after one without an answer, either is right. Once the process that had the call is dead, the next answer
decides, and it must stay so. A client may also release such a gang: then it is gone, whether it was held.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from hyperscout.v1 import placement_pb2 as pb

from support.collector_process import CollectorProcess

GPUS = 2  # of each node

Gangs = Mapping[str, pb.Placement]


class State(Enum):
    PLACING = "placing"
    HELD = "held"
    RELEASING = "releasing"
    GONE = "gone"


@dataclass(slots=True)
class Gang:
    """`nodes`: one for each worker, as acknowledged. `by`: the processes that may still act on its calls."""

    state: State = State.PLACING
    nodes: list[str] = field(default_factory=list)
    by: list[CollectorProcess] = field(default_factory=list)
    is_open: bool = True  # its call has not ended
    calls: int = 1

    @property
    def is_settled(self) -> bool:
        return self.state in (State.HELD, State.GONE)


class Reservations:
    """The model of the reservations."""

    def __init__(self) -> None:
        self.gangs: dict[str, Gang] = {}
        self.acknowledged: Counter[State] = Counter()
        self.decided: Counter[State] = Counter()  # calls without an answer, by what became of them
        self.at_answer: Callable[[], None] | None = None  # called once, when the next call is acknowledged

    def held(self, prefix: str = "") -> list[str]:
        return [name for name, x in self.gangs.items() if x.state is State.HELD and name.startswith(prefix)]

    def unknown(self, prefix: str) -> list[str]:
        """Gangs whose call ended without an answer."""
        return [
            name
            for name, x in self.gangs.items()
            if not (x.is_settled or x.is_open) and name.startswith(prefix)
        ]

    def place(self, name: str) -> Gang:
        found = self.gangs[name] = Gang()
        return found

    def placed(self, name: str, placement: pb.Placement) -> None:
        """The reservation was acknowledged."""
        gang = self.gangs[name]
        gang.nodes = nodes_of(placement)
        gang.state, gang.is_open = State.HELD, False
        self.acknowledged[State.HELD] += 1
        shared = crowded(self.gangs[x].nodes for x in self.held())
        assert not shared, f"{name} got GPUs that others hold: {shared}"
        self._answered()

    def release(self, name: str) -> Gang:
        gang = self.gangs[name]
        if gang.is_settled:
            gang.by = []
        gang.state, gang.is_open = State.RELEASING, True
        gang.calls += 1
        return gang

    def gone(self, name: str) -> None:
        """The release was acknowledged, or the reservation was refused."""
        is_released = self.gangs[name].state is State.RELEASING
        self.gangs[name].state, self.gangs[name].is_open = State.GONE, False
        if is_released:
            self.acknowledged[State.GONE] += 1
            self._answered()

    def _answered(self) -> None:
        now, self.at_answer = self.at_answer, None
        if now is not None:
            now()

    def states(self) -> dict[str, State]:
        """As they are now, for `check`."""
        return {name: gang.state for name, gang in self.gangs.items()}

    def check(self, answer: Gangs, before: Mapping[str, State], where: str) -> None:
        """Check what is reserved. `before`: the states when the answer was asked for."""
        assert answer.keys() <= self.gangs.keys()
        for name, state in before.items():
            gang, there = self.gangs[name], answer.get(name)
            if state is gang.state is State.HELD:
                assert there is not None, f"{where}: the reservation of {name} is lost"
                assert nodes_of(there) == gang.nodes, f"{where}: {name} has other nodes"
            assert state is not State.GONE or there is None, f"{where}: {name} is back after its release"
        shared = crowded(map(nodes_of, answer.values()))
        assert not shared, f"{where}: gangs share GPUs: {shared}"

    def decide(self, answer: Gangs, dead: Mapping[str, int]) -> None:
        """Take an answer for the outcome of the calls of gangs that were `undecided` before it was asked."""
        for name, calls in dead.items():
            gang = self.gangs[name]
            if gang.is_settled or gang.is_open or gang.calls != calls:
                continue
            gang.state = State.HELD if name in answer else State.GONE
            gang.nodes = nodes_of(answer[name]) if name in answer else []
            self.decided[gang.state] += 1

    def undecided(self, alive: Iterable[CollectorProcess]) -> dict[str, int]:
        """Gangs whose call ended without an answer, and whose processes are dead, with their calls."""
        living = list(alive)
        gangs = {name: self.gangs[name] for name in self.unknown("")}
        return {name: x.calls for name, x in gangs.items() if not any(p in living for p in x.by)}


def nodes_of(placement: pb.Placement) -> list[str]:
    return [x.node for x in placement.assignments]


def crowded(gangs: Iterable[list[str]]) -> dict[str, int]:
    """Nodes whose GPUs do not suffice for the workers there, with the number of these."""
    used = Counter(node for nodes in gangs for node in nodes)
    return {node: count for node, count in used.items() if count > GPUS}


class Generations:
    """The generations that readers saw."""

    def __init__(self) -> None:
        self.seen: dict[int, str] = {}  # and at which replica first
        self._latest: Counter[str] = Counter()

    def saw(self, replica: str, generation: int) -> None:
        """A reader of a replica, or of one of the same name before it, saw a generation."""
        latest = self._latest[replica]
        assert generation >= latest, f"{replica} served generation {generation} after {latest}"
        self._latest[replica] = generation
        if not generation:
            return  # nothing has been published yet
        self.seen.setdefault(generation, replica)

    def check(self, history: list[int]) -> None:
        """Check that the recorded generations, in their order, have all that readers saw."""
        assert history == sorted(set(history)), f"the history is not in order: {history}"
        lost = {number: where for number, where in self.seen.items() if number not in history}
        assert not lost, f"the history lacks {lost}, which readers saw there: {history}"
