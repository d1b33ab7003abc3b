"""The election by tables, and in a simulated cluster: skewed clocks, lost answers, stopped processes."""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hyperscout_kubernetes.election import (
    Election,
    Event,
    Instruction,
    Lease,
    LeaseTimes,
    Look,
    Looked,
    Lost,
    Record,
    Refused,
    Sleep,
    Woke,
    Write,
    Wrote,
)
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

TIMES = LeaseTimes()


class Middle(Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def election(me: str = "a") -> Election:
    return Election(me, f"{me}:50051", TIMES, Middle())


def of(
    holder: str, version: str = "7", transitions: int = 3, renewed: str = "t0", duration_s: int = 8
) -> Lease:
    return Lease(Record(holder, duration_s, transitions, "then", renewed, f"{holder}:50051"), version)


def leader(at_s: float = 100.0) -> Election:
    """One that was elected; its write went out at `at_s`."""
    e = election()
    e.handle(Woke(), at_s)
    e.handle(Looked(None), at_s)
    e.handle(Wrote(of("a")), at_s + 0.1)
    assert e.leading
    return e


def brief(instruction: Instruction) -> str:
    match instruction:
        case Write(record, version, acquires):
            how = "create" if version is None else f"update {version}"
            return f"{how} {record.holder or '-'} {record.transitions}{' acquire' if acquires else ''}"
        case Look():
            return "look"
        case Sleep(seconds):
            return f"sleep {seconds:g}"


Steps = Sequence[tuple[float, Event, str]]


@pytest.mark.parametrize(
    ("steps", "leads"),
    [
        pytest.param(
            [
                (0, Woke(), "look"),
                (0, Looked(None), "create a 0 acquire"),
                (0.1, Wrote(of("a", "1")), "sleep 1"),
                (1.1, Woke(), "update 1 a 3"),
                (1.2, Wrote(of("a", "2", renewed="t1")), "sleep 1"),
                (2.2, Woke(), "update 2 a 3"),
            ],
            True,
            id="no replica has it: create, then renew without looking",
        ),
        pytest.param(
            [
                (0, Woke(), "look"),
                (0, Looked(of("")), "update 7 a 4 acquire"),
                (0.1, Wrote(of("a")), "sleep 1"),
            ],
            True,
            id="released: taken at once, one transition more",
        ),
        pytest.param(
            [
                (0, Woke(), "look"),
                (50, Looked(of("b")), "sleep 1"),
                (57.9, Looked(of("b")), "sleep 1"),
                (58.0, Looked(of("b")), "update 7 a 4 acquire"),
            ],
            False,
            id="it must stand still for its whole duration, counted from when we saw it",
        ),
        pytest.param(
            [
                (0, Looked(of("b")), "sleep 1"),
                (7.9, Looked(of("b", "8", renewed="t1")), "sleep 1"),
                (8.0, Looked(of("b", "8", renewed="t1")), "sleep 1"),
                (15.9, Looked(of("b", "8", renewed="t1")), "update 8 a 4 acquire"),
            ],
            False,
            id="a renewal starts the count anew",
        ),
        pytest.param(
            [
                (0, Looked(of("b")), "sleep 1"),
                (7.9, Looked(of("b", "8")), "sleep 1"),
                (8.0, Looked(of("b", "8")), "update 8 a 4 acquire"),
            ],
            False,
            id="another client's label on the lease is no renewal",
        ),
        pytest.param(
            [
                (0, Looked(of("b", duration_s=10**9)), "sleep 1"),
                (121, Looked(of("b", duration_s=10**9)), "update 7 a 4 acquire"),
            ],
            False,
            id="no holder keeps it for ever by claiming so",
        ),
        pytest.param(
            [
                (0, Looked(of("")), "update 7 a 4 acquire"),
                (1, Refused(), "look"),
                (1, Looked(of("b", "8")), "sleep 1"),
            ],
            False,
            id="another was quicker",
        ),
        pytest.param(
            [
                (0, Looked(None), "create a 0 acquire"),
                (2.5, Lost(), "look"),
                (2.6, Looked(of("a", "1", 0)), "update 1 a 0"),
                (2.7, Wrote(of("a", "2", 0)), "sleep 1"),
            ],
            True,
            id="the answer was lost, the lease was not: written again before it is believed",
        ),
        pytest.param(
            [
                (0, Looked(of("b")), "sleep 1"),
                (1, Woke(), "look"),
                (3.5, Lost(), "sleep 1"),
                (60, Woke(), "look"),
                (60, Looked(of("b")), "sleep 1"),
                (67.9, Looked(of("b")), "sleep 1"),
                (68, Looked(of("b")), "update 7 a 4 acquire"),
            ],
            False,
            id="while no replica could look, none could renew: the leader has its time once more",
        ),
        pytest.param(
            [(0, Woke(), "look"), (2.5, Lost(), "sleep 1"), (3.5, Woke(), "look")],
            False,
            id="the server is away",
        ),
    ],
)
def test_candidate(steps: Steps, leads: bool) -> None:
    e = election()
    for now_s, event, expected in steps:
        assert brief(e.handle(event, now_s)) == expected
    assert e.leading == leads


@pytest.mark.parametrize(
    ("steps", "leads", "term"),
    [
        pytest.param(
            [
                (101, Woke(), "update 7 a 3"),
                (103.5, Lost(), "look"),
                (103.6, Looked(of("a")), "update 7 a 3"),
            ],
            True,
            1,
            id="a lost renewal is tried again",
        ),
        pytest.param(
            [
                (101, Woke(), "update 7 a 3"),
                (101.1, Refused(), "look"),
                (101.2, Looked(of("a", "8", renewed="t1")), "update 8 a 3"),
            ],
            True,
            1,
            id="its own renewal, answered late",
        ),
        pytest.param(
            [
                (105.2, Woke(), "look"),
                (160, Looked(of("a")), "update 7 a 3"),
                (160.1, Wrote(of("a", "8")), "sleep 1"),
            ],
            True,
            1,
            id="the server was away, no replica took it: goes on in the same term",
        ),
        pytest.param(
            [(105.2, Woke(), "look"), (160, Looked(of("b")), "sleep 1")],
            False,
            1,
            id="the server was away, another took it",
        ),
        pytest.param(
            [(101, Woke(), "update 7 a 3"), (101.1, Refused(), "look"), (101.2, Looked(of("b")), "sleep 1")],
            False,
            1,
            id="taken away by hand",
        ),
        pytest.param(
            [
                (101, Woke(), "update 7 a 3"),
                (101.1, Refused(), "look"),
                (101.2, Looked(None), "create a 0 acquire"),
                (101.3, Wrote(of("a", "1", 0)), "sleep 1"),
            ],
            True,
            1,
            id="deleted within the deadline: no other replica can have had it",
        ),
        pytest.param(
            [
                (106, Woke(), "look"),
                (160, Looked(None), "create a 0 acquire"),
                (160.1, Wrote(of("a", "1", 0)), "sleep 1"),
            ],
            True,
            2,
            id="deleted while we could not look: a new term",
        ),
        pytest.param(
            [
                (106, Woke(), "look"),
                (160, Looked(of("")), "update 7 a 4 acquire"),
                (160.1, Wrote(of("a", "8", 4)), "sleep 1"),
            ],
            True,
            2,
            id="released by another while we could not look: a new term",
        ),
        pytest.param(
            [(106, Woke(), "look"), (160, Looked(of("")), "update 7 a 4 acquire")],
            False,
            1,
            id="until it is confirmed, no replica leads",
        ),
    ],
)
def test_leader(steps: Steps, leads: bool, term: int) -> None:
    e = leader()
    for now_s, event, expected in steps:
        assert brief(e.handle(event, now_s)) == expected
    assert (e.leading, e.own_terms) == (leads, term)


def test_the_deadline_counts_from_when_the_update_was_sent() -> None:
    e = leader(100.0)
    assert e.write_until_s == 105.0
    e.handle(Woke(), 101.0)
    e.handle(Wrote(of("a", "8")), 103.4)
    assert e.write_until_s == 106.0
    e.handle(Woke(), 104.4)
    e.handle(Lost(), 106.9)
    assert e.write_until_s == 106.0
    assert e.leading, "no replica is known to have taken over"


def test_a_candidate_names_the_leader_only_while_it_renews() -> None:
    e = election()
    assert e.leader(0.0) is None
    e.handle(Looked(of("b")), 10.0)
    found = e.leader(12.9)
    assert found is not None
    assert found.address == "b:50051"
    assert e.leader(13.0) is None, "it has missed its renewals: it may be gone"
    e.handle(Looked(of("")), 13.0)
    assert e.leader(13.0) is None


def test_what_is_released() -> None:
    e = leader()
    assert e.released(of("a")) == Record("", 1, 3, "then", "t0", "")
    assert e.released(of("b")) is None
    assert e.released(of("")) is None


# --- a cluster in which everything goes wrong --------------------------------------------------------------


@dataclass
class Server:
    """The API server: one Lease, updates at its present version only."""

    lease: Lease | None = None
    versions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def serve(self, ask: Look | Write, stamp: str) -> Event:
        if isinstance(ask, Look):
            return Looked(self.lease)
        version = self.lease.version if self.lease is not None else None
        if ask.version != version:
            return Refused()
        self.lease = Lease(replace(ask.record, renewed=stamp), str(next(self.versions)))
        return Wrote(self.lease)


@dataclass(frozen=True)
class Fate:
    """Of one request: seconds to the server and back, and whether it or its answer is lost."""

    there_s: float
    back_s: float
    lost: str


@dataclass(frozen=True)
class Pause:
    """A process that is stopped (SIGSTOP) for a while."""

    replica: int
    at_s: float
    for_s: float


class Cluster:
    """Candidates on skewed clocks. Permission to write begins with a confirmed write: there it is checked."""

    def __init__(self, rates: Sequence[float], fates: Sequence[Fate], pauses: Sequence[Pause]) -> None:
        self.now_s = 0.0
        self.server = Server()
        self.fates = itertools.cycle(fates)
        self.calm = False
        self.pauses = pauses
        self.candidates = [Election(f"c{i}", "", TIMES, Random(i)) for i in range(len(rates))]
        self.rates = rates
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.terms = 0
        for i in range(len(rates)):
            self.at(0.0, lambda i=i: self.step(i, Woke()))  # type: ignore[misc]

    def clock(self, i: int) -> float:
        return self.now_s * self.rates[i] + 1000.0 * i

    def at(self, when_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (when_s, next(self.order), what))

    def run(self, until_s: float) -> None:
        while self.queue and self.queue[0][0] <= until_s:
            self.now_s, _, what = heapq.heappop(self.queue)
            what()
        self.now_s = until_s

    def writers(self) -> list[int]:
        return [i for i, c in enumerate(self.candidates) if c.leading and self.clock(i) < c.write_until_s]

    def step(self, i: int, event: Event) -> None:
        for pause in self.pauses:
            if pause.replica == i and pause.at_s <= self.now_s < pause.at_s + pause.for_s and not self.calm:
                self.at(pause.at_s + pause.for_s, lambda: self.step(i, event))
                return
        instruction = self.candidates[i].handle(event, self.clock(i))
        if isinstance(event, Wrote):
            assert len(self.writers()) <= 1, f"two may write at {self.now_s}: {self.writers()}"
        if isinstance(instruction, Sleep):
            self.at(self.now_s + instruction.seconds / self.rates[i], lambda: self.step(i, Woke()))
        else:
            self.send(i, instruction)

    def send(self, i: int, ask: Look | Write) -> None:
        fate = Fate(0.01, 0.01, "") if self.calm else next(self.fates)
        gives_up_s = self.now_s + ask.timeout_s / self.rates[i]
        answered: list[bool] = []

        def answer(event: Event) -> None:
            if not answered:
                answered.append(True)
                self.step(i, event)

        def arrive() -> None:
            event = self.server.serve(ask, f"{i} {self.now_s}")
            if fate.lost != "answer":
                self.at(self.now_s + fate.back_s, lambda: answer(event))

        if fate.lost != "request":
            self.at(self.now_s + fate.there_s, arrive)  # perhaps long after the client gave up
        self.at(gives_up_s, lambda: answer(Lost()))


FATES = st.builds(
    Fate,
    st.sampled_from([0.01, 0.5, 2.4, 4.9, 7.9, 20.0]),
    st.sampled_from([0.01, 0.5, 2.4, 4.9]),
    st.sampled_from(["", "", "", "request", "answer"]),
)
PAUSES = st.builds(
    Pause, st.integers(0, 2), st.floats(0, 100), st.sampled_from([0.5, 3.0, 4.9, 5.1, 7.9, 8.1, 30.0])
)


@given(
    rates=st.lists(st.sampled_from([0.95, 1.0, 1.05]), min_size=2, max_size=3),
    fates=st.lists(FATES, min_size=1, max_size=30),
    pauses=st.lists(PAUSES, max_size=6),
)
@examples(3)
def test_never_two_writers_and_one_in_the_end(
    rates: list[float], fates: list[Fate], pauses: list[Pause]
) -> None:
    cluster = Cluster(rates, fates, pauses)
    cluster.run(150.0)
    cluster.calm = True
    cluster.run(200.0)
    assert len(cluster.writers()) == 1
    assert cluster.server.lease is not None
    assert cluster.server.lease.record.holder == f"c{cluster.writers()[0]}"


@given(rates=st.lists(st.sampled_from([0.95, 1.0, 1.05]), min_size=2, max_size=3), seed=st.integers(0, 99))
def test_a_lease_that_a_client_deletes_makes_no_second_writer(rates: list[float], seed: int) -> None:
    """Its holder does not know yet, and may write; another replica that followed it waits as after death."""
    cluster, rng = Cluster(rates, [Fate(0.01, 0.01, "")], []), Random(seed)
    for _ in range(5):
        cluster.at(rng.uniform(20.0, 120.0), lambda: setattr(cluster.server, "lease", None))
    cluster.run(200.0)
    assert len(cluster.writers()) == 1


def test_in_good_weather_a_dead_leader_is_followed_within_ten_seconds() -> None:
    cluster = Cluster([1.0, 1.0], [Fate(0.01, 0.01, "")], [Pause(0, 20.0, 1e9), Pause(1, 0.0, 5.0)])
    cluster.run(19.9)
    assert cluster.writers() == [0]
    cluster.run(30.5)
    assert cluster.writers() == [1]
    assert cluster.server.lease is not None
    assert cluster.server.lease.record.transitions == 1


def test_the_simulation_can_fail() -> None:
    """With a deadline past what others wait for, two would write: the check is no wall."""

    class Careless(Election):
        def handle(self, event: Event, now_s: float) -> Any:
            instruction = super().handle(event, now_s)
            if isinstance(event, Wrote):
                self.write_until_s = now_s + 2 * TIMES.duration_s
            return instruction

    cluster = Cluster([1.0, 1.0], [Fate(0.01, 0.01, "")], [Pause(0, 20.0, 9.0)])
    cluster.candidates = [Careless(f"c{i}", "", TIMES, Random(i)) for i in range(2)]
    with pytest.raises(AssertionError, match="two may write"):
        cluster.run(150.0)


@pytest.mark.parametrize("duration_s", [1, 3, 8, 120])
def test_times_follow_from_the_duration(duration_s: int) -> None:
    times = LeaseTimes.of(duration_s)
    assert times.retry_s < times.renew_deadline_s < times.duration_s == duration_s
    assert LeaseTimes.of(LeaseTimes().duration_s) == LeaseTimes()
