"""Responder, bursts and tasks over real sockets on the loopback interface, with ends that misbehave."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest
from hyperscout.v1.discovery_pb2 import PairTask
from hyperscout_agent.ping.bucket import Bucket
from hyperscout_agent.ping.burst import Burst, BurstPlan
from hyperscout_agent.ping.clocks import Reading, read_clocks
from hyperscout_agent.ping.keys import Keyring, LiveTask
from hyperscout_agent.ping.packet import DONE, PACKET_BYTES, PING, PONG, Packet, pack, unpack
from hyperscout_agent.ping.rdma import RdmaPings
from hyperscout_agent.ping.responder import Responder
from hyperscout_agent.ping.statistics import STEPPED, UNKNOWN, Summary
from hyperscout_agent.ping.tasks import MAX_TASKS, PairTasks
from hyperscout_agent.runtime.threads import in_thread
from hyperscout_formats.facts.facts import LatencyResult
from support.waiting import TIMEOUT_S, eventually, until

KEY = bytes(range(32))
A, B = "127.0.0.11", "127.0.0.12"
SILENCE_S = 0.3  # for answers that are not expected


class End:
    """One agent's part, on an address of its own."""

    def __init__(
        self, address: str, *, kbps: float = 10_000, bucket_clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.address = address
        self.keyring = Keyring()
        self.bucket = Bucket(kbps, bucket_clock)
        self.responder = Responder(self.keyring, self.bucket, clock=time.monotonic)
        self.results: list[LatencyResult] = []
        self.tasks = PairTasks(
            self.responder,
            self.keyring,
            self.bucket,
            RdmaPings(ib_send_lat=["no-such-program"], ib_send_bw=[], bucket=self.bucket),
            rdma_port_of=lambda _: "",
            record=lambda _, result: self.results.append(result),
            clock=time.monotonic,
            wall_ns=time.time_ns,
        )
        self.responder.open("lo", [address])

    @property
    def port(self) -> int:
        return self.responder.port_of("lo")

    def task(self, other: "End", number: int = 1, **more: object) -> PairTask:
        given = {
            "task_id": number,
            "peer": "peer",
            "interface": "lo",
            "address": self.address,
            "peer_interface": "lo",
            "peer_address": other.address,
            "peer_port": other.port,
            "key": KEY,
            "method": "udp",
            "pings": 16,
            "first": self.address < other.address,
            "expires_s": 120.0,
        }
        return PairTask(**{**given, **more})

    async def result(self, index: int = 0) -> LatencyResult:
        await eventually(lambda: len(self.results) > index)
        return self.results[index]

    def close(self) -> None:
        self.tasks.stop()
        self.responder.close_all()


@contextlib.asynccontextmanager
async def ends(a: str = A, b: str = B, **more: float) -> AsyncIterator[tuple[End, End]]:
    one, two = End(a, **more), End(b, **more)
    try:
        yield one, two
    finally:
        one.close()
        two.close()
        await asyncio.sleep(0)


def live(end: End, peer: str, **more: object) -> LiveTask:
    task = LiveTask(1, KEY, False, "lo", end.address, peer, time.monotonic() + 60)
    return replace(task, **more)  # type: ignore[arg-type]


async def burst_to(
    end: End, source: str = A, pings: int = 16, **more: object
) -> tuple[Burst, Summary | None]:
    """A burst in a thread, to an end whose task is alive."""
    plan = BurstPlan(1, KEY, True, "lo", source, end.address, end.port, pings)
    burst = Burst(plan, Bucket(10_000, time.monotonic), threading.Lock(), **more)  # type: ignore[arg-type]
    return burst, await in_thread(burst.run, "burst")


@pytest.fixture
async def answering() -> AsyncIterator[End]:
    """An end with a live task whose peer is A and goes first."""
    end = End(B)
    end.keyring.add(live(end, A))
    end.responder.wake()
    yield end
    end.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst waits for an answer as long as a busy machine may delay it, so that no ping is lost."""
    monkeypatch.setattr("hyperscout_agent.ping.burst._ANSWER_S", TIMEOUT_S)
    monkeypatch.setattr("hyperscout_agent.ping.burst._FIND_TRIES", 1000)


# Two good ends


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("a", "b"), [(A, B), ("::1", "::1")])
async def test_both_ends_measure_one_after_the_other(a: str, b: str) -> None:
    async with ends(a, b) as (one, two):
        one.tasks.take([one.task(two, first=True)])
        two.tasks.take([two.task(one, first=False)])
        for end in (one, two):
            found = await end.result()
            assert (found.failure, found.sent, found.received) == ("", 16, 16)
            assert 0 < found.min_us <= found.median_us
            assert end.tasks.unstamped == 0
        assert two.results[0].at_ns - one.results[0].at_ns > 100_000_000, "the second waited for the first"
        # Each knows that the other is done: keys are forgotten.
        await eventually(lambda: not len(one.tasks) + len(two.tasks))
        assert len(one.keyring) == len(two.keyring) == 0


async def test_the_second_begins_when_it_never_hears_of_the_first(answering: End) -> None:
    async with ends("127.0.0.13", "127.0.0.14") as (one, two):
        two.tasks.take([two.task(one, first=False, expires_s=1.5)])
        assert (await two.result()).failure
        assert two.tasks.bursts == {"failed": 1}


async def test_a_peer_without_the_task_does_not_answer() -> None:
    async with ends() as (one, two):
        one.tasks.take([one.task(two)])  # the other end was told nothing
        found = await one.result()
        assert (found.failure, found.received, found.min_us) == ("no answer", 0, 0)
        assert two.responder.received == 0, "without a task it does not even read"


@pytest.mark.parametrize(
    ("wrong", "failure"),
    [
        ({"key": b"short"}, "the key has 5 bytes, not 32"),
        ({"method": "smoke"}, "unknown method: 'smoke'"),
        ({"expires_s": 0.0}, "expires in 0.0 s"),
        ({"expires_s": float("nan")}, "expires in nan s"),
        ({"address": "10.1.2.3"}, "own address: 10.1.2.3 is not one of 'lo' here"),
        ({"interface": "eth9"}, f"own address: {A} is not one of 'eth9' here"),
        ({"address": "junk"}, "no address: 'junk' does not appear to be an IPv4 or IPv6 address"),
        ({"peer_address": "::1"}, f"peer's address: ::1 cannot be reached from {A}"),
        ({"peer_address": "224.0.0.1"}, "peer's address: 224.0.0.1 is not of one host"),
        ({"peer_address": "255.255.255.255"}, "peer's address: 255.255.255.255 is not of one host"),
        ({"peer_port": 0}, "peer's port: 0"),
        ({"peer_port": 70_000}, "peer's port: 70000"),
        ({"method": "rdma"}, "RDMA: no such port behind 'lo'"),
        ({"peer": ""}, None),
        ({"peer": "x" * 300}, None),
    ],
)
async def test_tasks_that_cannot_be_done(wrong: dict[str, object], failure: str | None) -> None:
    async with ends() as (one, two):
        one.tasks.take([one.task(two, **wrong)])
        assert [x.failure for x in one.results] == ([] if failure is None else [failure])
        assert one.tasks.refused.total() == 1
        assert len(one.tasks) == len(one.keyring) == 0


async def test_a_task_fails_while_too_many_bursts_hang(caplog: pytest.LogCaptureFixture) -> None:
    released = threading.Event()
    hanging = [asyncio.create_task(in_thread(released.wait, "ping-burst")) for _ in range(100)]
    try:
        await asyncio.wait(hanging, return_when=asyncio.FIRST_COMPLETED)
        async with ends() as (one, two):
            one.tasks.take([one.task(two)])
            failure = (await one.result()).failure
            assert failure.startswith("the burst did not start: ")
            assert "(ping-burst) have not returned" in failure
            assert one.tasks.bursts == {"failed": 1}
    finally:
        released.set()
        await asyncio.gather(*hanging, return_exceptions=True)
    assert not caplog.records


async def test_tasks_are_bounded_and_done_once() -> None:
    async with ends() as (one, two):
        for number in range(MAX_TASKS + 50):
            one.tasks.take([one.task(two, number)])
        one.tasks.take([one.task(two, 3)])
        assert len(one.tasks) == len(one.keyring) == MAX_TASKS
        assert one.tasks.refused == {"too many": 50}
        one.tasks.stop()
        assert len(one.keyring) == 0, "at once"
        threads = threading.enumerate
        await eventually(lambda: not (len(one.tasks) or any(x.name == "ping-burst" for x in threads())))
        assert one.results == []


# Ends and others that misbehave


class Stranger:
    """A socket of its own that tries things."""

    def __init__(self, target: End, source: str = A) -> None:
        self._to = (target.address, target.port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((source, 0))

    def send(self, datagram: bytes) -> None:
        self._socket.sendto(datagram, self._to)

    def ask(self, datagram: bytes, timeout_s: float = SILENCE_S) -> bytes | None:
        self._socket.settimeout(timeout_s)
        self._socket.sendto(datagram, self._to)
        try:
            return self._socket.recv(4096)
        except TimeoutError:
            return None

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def stranger(target: End, source: str = A) -> Iterator[Stranger]:
    made = Stranger(target, source)
    try:
        yield made
    finally:
        made.close()


def ping(sequence: int, key: bytes = KEY, *, first: bool = True, kind: int = PING, task: int = 1) -> bytes:
    return pack(Packet(kind, first, task, sequence, b"n" * 8), key)


async def test_a_sender_that_knows_the_key_gets_one_answer_of_the_same_size(answering: End) -> None:
    with stranger(answering) as peer:
        answer = await in_thread(lambda: peer.ask(ping(0), TIMEOUT_S), "ask")
        assert answer is not None
        assert len(answer) == PACKET_BYTES == len(ping(0))
        assert unpack(answer, KEY).nonce == b"n" * 8
        assert await in_thread(lambda: peer.ask(ping(0)), "ask") is None, "replayed"
        assert await in_thread(lambda: peer.ask(answer), "ask") is None, "its own answer sent back"
    await eventually(lambda: answering.keyring.dropped == {"replayed": 1, "reflected": 1})


@pytest.mark.parametrize(
    ("reason", "source", "datagram"),
    [
        ("malformed", A, b"hello"),
        ("malformed", A, ping(1) + bytes(1000)),
        ("unknown task", A, ping(1, task=2)),
        ("forged", A, ping(1, bytes(32))),
        ("wrong address", "127.0.0.99", ping(1)),
        ("reflected", A, ping(1, first=False)),
        ("reflected", A, ping(1, kind=PONG)),
    ],
)
async def test_others_get_no_byte_back(answering: End, reason: str, source: str, datagram: bytes) -> None:
    with stranger(answering, source) as one:
        assert await in_thread(lambda: one.ask(datagram), "ask") is None
    await eventually(lambda: answering.keyring.dropped == {reason: 1})
    assert answering.responder.sent == 0


async def test_no_ping_is_answered_after_the_keys_are_forgotten(answering: End) -> None:
    answering.tasks.stop()
    with stranger(answering) as peer:
        assert await in_thread(lambda: peer.ask(ping(0)), "ask") is None
    assert answering.responder.received == 0


class FakePeer:
    """Answers pings its own way, in a thread."""

    def __init__(self, address: str = B) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 0))
        self._socket.settimeout(0.05)
        self.port = self._socket.getsockname()[1]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.seen: list[bytes] = []

    def answers(self, ping: Packet) -> list[bytes]:
        """What is sent back."""
        return [pack(Packet(PONG, False, 1, ping.sequence, ping.nonce, (5000,) * 4), KEY)]

    def _serve(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                data, source = self._socket.recvfrom(4096)
                self.seen.append(data)
                if (heard := unpack(data, KEY)).kind != DONE:
                    for answer in self.answers(heard):
                        self._socket.sendto(answer, source)

    def __enter__(self) -> "FakePeer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()


class Repeating(FakePeer):
    """Sends the first answers that it ever gave along with each."""

    def __init__(self) -> None:
        super().__init__()
        self._old: list[bytes] = []

    def answers(self, ping: Packet) -> list[bytes]:
        good = super().answers(ping)
        self._old += good if len(self._old) < 3 else []
        return [*self._old, *good]


class Guessing(FakePeer):
    """Answers before it was asked, and with numbers that it cannot know."""

    def answers(self, ping: Packet) -> list[bytes]:
        early = [
            pack(Packet(PONG, False, 1, ping.sequence + n, b"guessed!", (9,) * 4), KEY) for n in range(3)
        ]
        forged = [pack(Packet(PONG, False, 1, ping.sequence, ping.nonce, (9,) * 4), bytes(32))]
        mirrored = [self.seen[-1]]
        return [*early, *forged, *mirrored, b"junk", *super().answers(ping)]


class Losing(FakePeer):
    """Every third answer is lost."""

    def __init__(self) -> None:
        super().__init__()
        self._count = count()

    def answers(self, ping: Packet) -> list[bytes]:
        return [] if next(self._count) % 3 == 2 else super().answers(ping)


class Lying(FakePeer):
    """Says that answers stayed longer than they were away."""

    def answers(self, ping: Packet) -> list[bytes]:
        return [pack(Packet(PONG, False, 1, ping.sequence, ping.nonce, (4_000_000_000,) * 4), KEY)]


class Mute(FakePeer):
    """Takes everything and says nothing."""

    def answers(self, ping: Packet) -> list[bytes]:
        return []


async def with_peer(peer: FakePeer, **more: object) -> tuple[Burst, Summary | None]:
    plan = BurstPlan(1, KEY, True, "lo", A, peer.address, peer.port, 16)
    burst = Burst(plan, Bucket(10_000, time.monotonic), threading.Lock(), **more)  # type: ignore[arg-type]
    return burst, await in_thread(burst.run, "burst")


@pytest.mark.usefixtures("patient")
async def test_old_answers_are_counted_and_not_believed() -> None:
    with Repeating() as peer:
        burst, found = await with_peer(peer)
    assert found is not None
    assert (found.failure, found.received) == ("", 16)
    assert burst.dropped["replayed"] >= 16


@pytest.mark.usefixtures("patient")
async def test_answers_without_a_request() -> None:
    with Guessing() as peer:
        burst, found = await with_peer(peer)
    assert found is not None
    assert (found.failure, found.received) == ("", 16)
    assert min(burst.dropped[x] for x in ("replayed", "forged", "reflected", "malformed")) >= 10
    assert set(burst._residence_ns.values()) == {5000}, "nothing guessed was believed"


async def test_loss_is_told_and_leaves_the_minimum() -> None:
    received = 0
    with Losing() as peer:
        async with asyncio.timeout(TIMEOUT_S):
            while received < 8:  # a busy machine delays more answers: the burst is repeated
                _, found = await with_peer(peer)
                assert found is not None
                received = found.received
    assert (found.failure, found.sent) == ("", 16)
    assert received <= 11
    assert found.min_us > 0


async def test_an_impossible_residence_is_no_measurement() -> None:
    with Lying() as peer:
        _, found = await with_peer(peer)
    assert found is not None
    assert "residence longer than the round trip" in found.failure
    assert found.min_us == 0


async def test_a_peer_that_is_mute() -> None:
    with Mute() as peer:
        burst, found = await with_peer(peer)
        assert found is not None
        assert (found.failure, found.received) == ("no answer", 0)
        await eventually(lambda: len(peer.seen) >= burst.sent)  # the peer's thread reads in its own time
        assert len(peer.seen) == burst.sent
        assert unpack(peer.seen[-1], KEY).kind == DONE, (
            "it is told all the same: perhaps only answers are lost"
        )


async def test_stopping_a_burst_ends_it_at_once() -> None:
    with Mute() as peer:
        plan = BurstPlan(1, KEY, True, "lo", A, peer.address, peer.port, 16)
        burst = Burst(plan, Bucket(10_000, time.monotonic), threading.Lock())
        running = asyncio.create_task(in_thread(burst.run, "burst"))
        await eventually(lambda: peer.seen)
        burst.stop()
        assert await running is None


class SteppingClock:
    """A wall clock that is set again and again; the steady one is not."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._looks = 0

    def __call__(self) -> Reading:
        self._looks += 1
        true = read_clocks()
        return replace(true, offset_ns=true.offset_ns + self._looks // self._every * 50_000)


@pytest.mark.usefixtures("patient")
async def test_the_own_clock_steps(answering: End) -> None:
    _, found = await burst_to(answering, read=SteppingClock(1))
    assert found is not None
    assert found.failure == f"{STEPPED} (16)"
    assert found.min_us == 0


@pytest.mark.usefixtures("patient")
async def test_the_own_clock_steps_now_and_then(answering: End) -> None:
    _, found = await burst_to(answering, read=SteppingClock(7))
    assert found is not None
    assert found.failure == ""
    assert 1 <= found.dropped[STEPPED] <= 8


async def test_the_responders_clock_steps() -> None:
    end = End(B)
    try:
        end.responder._read = SteppingClock(1)
        end.keyring.add(live(end, A))
        end.responder.wake()
        _, found = await burst_to(end)
    finally:
        end.close()
    assert found is not None
    assert found.received
    assert UNKNOWN in found.failure, "the responder tells no residence while its clock steps"


@pytest.mark.usefixtures("patient")
async def test_without_stamps_of_the_kernel(answering: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where SO_TIMESTAMPING is not known: the process's own clock must do."""
    monkeypatch.setattr("hyperscout_agent.ping.burst.enable", lambda _: False)
    for one in answering.responder._sockets["lo"]:
        one.stamping = False
    burst, found = await burst_to(answering)
    assert found is not None
    assert (found.failure, found.received, burst.stamped) == ("", 16, False)
    assert found.min_us > 0


@pytest.mark.usefixtures("patient")
async def test_stamps_are_promised_and_do_not_come(answering: End, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not stamp what it sends."""
    for module in ("burst", "responder"):
        monkeypatch.setattr(f"hyperscout_agent.ping.{module}.sent_stamps", lambda _: [])
    burst, found = await burst_to(answering)
    assert found is not None
    assert (found.failure, found.received, burst.stamped) == ("", 16, False)


# The limit on traffic


async def test_answers_are_limited_for_every_sender() -> None:
    end = End(B, kbps=50, bucket_clock=lambda: 0.0)  # the bucket is full, and is never filled again
    end.keyring.add(live(end, A))
    end.responder.wake()
    with stranger(end) as peer:
        for sequence in range(500):
            peer.send(ping(sequence))
            if sequence % 20 in (0, 19):
                await until(lambda sequence=sequence: end.responder.received > sequence)
        await until(lambda: end.responder.sent + end.keyring.dropped["rate limit"] >= 500)
    end.close()
    assert 0 < end.responder.sent * PACKET_BYTES * 8 <= 50_000


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("kbps", [50.0, 200.0])
async def test_the_limit_holds_whatever_is_asked_for(kbps: float) -> None:
    async with ends(kbps=kbps) as (one, two):
        began_s = time.monotonic()
        for number in range(100):
            one.tasks.take([one.task(two, number, pings=64)])
            two.tasks.take([two.task(one, number, pings=64)])
        rate_bytes = kbps * 1000 / 8
        # Until far more was sent than a full bucket holds.
        await eventually(
            lambda: one.results and min(x.bucket.sent_bytes for x in (one, two)) >= 1.5 * rate_bytes
        )
        for end, other in ((one, two), (two, one)):
            received = end.responder.received + end.tasks.received
            sent_bytes = other.bucket.sent_bytes
            most_bytes = rate_bytes * (1 + time.monotonic() - began_s)
            assert received * PACKET_BYTES < most_bytes, "what arrived, without headers"
            assert sent_bytes <= most_bytes
        assert {x.sent - x.received for x in one.results if not x.failure} <= {0}, (
            one.tasks.dropped,
            two.tasks.dropped,
            one.keyring.dropped,
            two.keyring.dropped,
            [(x.sent, x.received) for x in one.results],
        )
