"""Which sender gets an answer: a table of those that do not."""

from collections.abc import Callable

import pytest
from hyperscout_agent.ping.keys import MAX_TASKS, Keyring, LiveTask, answer_to, plain_address
from hyperscout_agent.ping.packet import DONE, PACKET_BYTES, PING, PONG, Packet, pack, unpack
from hypothesis import given
from hypothesis import strategies as st

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
ME, PEER = "10.0.0.1", "10.0.0.2"


def live(**more: object) -> LiveTask:
    given = {
        "task_id": 7,
        "key": KEY,
        "first": False,
        "interface": "eth0",
        "address": ME,
        "peer_address": PEER,
        "expires_s": 100.0,
    }
    return LiveTask(**{**given, **more})  # type: ignore[arg-type]


def ping(
    sequence: int = 0, *, first: bool = True, kind: int = PING, task: int = 7, key: bytes = KEY
) -> bytes:
    return pack(Packet(kind, first, task, sequence, b"n" * 8), key)


def heard(
    ring: Keyring, datagram: bytes, source: str = PEER, interface: str = "eth0", now_s: float = 1.0
) -> bool:
    return ring.hear(datagram, source, interface, ME, now_s) is not None


def ring_of(*tasks: LiveTask) -> Keyring:
    ring = Keyring()
    for task in tasks or (live(),):
        assert ring.add(task)
    return ring


@pytest.mark.parametrize(
    ("reason", "try_it"),
    [
        ("malformed", lambda ring: heard(ring, b"hello")),
        ("malformed", lambda ring: heard(ring, ping() + b"\0")),
        ("unknown task", lambda ring: heard(ring, ping(task=8))),
        ("unknown task", lambda ring: heard(ring, ping(), now_s=100.0)),
        ("wrong interface", lambda ring: heard(ring, ping(), interface="eth1")),
        ("wrong address", lambda ring: heard(ring, ping(), source="10.0.0.3")),
        ("forged", lambda ring: heard(ring, ping(key=OTHER_KEY))),
        ("reflected", lambda ring: heard(ring, ping(first=False))),
        ("reflected", lambda ring: heard(ring, ping(kind=PONG))),
        ("replayed", lambda ring: heard(ring, ping(3)) and heard(ring, ping(3))),
        ("replayed", lambda ring: heard(ring, ping(3)) and heard(ring, ping(2))),
    ],
)
def test_a_ping_without_an_answer(reason: str, try_it: Callable[[Keyring], bool]) -> None:
    ring = ring_of()
    assert not try_it(ring)
    assert ring.dropped == {reason: 1}


def test_each_sequence_number_is_answered_once_and_with_no_more_bytes() -> None:
    ring = ring_of()
    for sequence in (0, 1, 5, 6):
        found = ring.hear(ping(sequence), PEER, "eth0", ME, 1.0)
        assert found is not None
        answer = answer_to(found[1], found[0])
        assert len(answer) == PACKET_BYTES
        assert unpack(answer, KEY) == Packet(PONG, False, 7, sequence, b"n" * 8)
        assert not heard(ring, ping(sequence))
        assert not heard(ring, answer), "our own answer, sent back to us"
    assert ring.dropped == {"replayed": 4, "reflected": 4}


def test_a_forged_packet_does_not_use_up_a_number() -> None:
    ring = ring_of()
    assert not heard(ring, ping(10**6, key=OTHER_KEY))
    assert heard(ring, ping(0))


def test_an_answer_tells_how_long_those_before_stayed() -> None:
    ring = ring_of()
    task = live()
    for sequence in range(50):
        task.stayed(sequence, 100 + sequence)
    found = unpack(answer_to(Packet(PING, True, 7, 50, b"n" * 8), task), KEY)
    assert found.residence_ns == (149, 148, 147, 146)
    assert len(task.residence_ns) <= 8, "bounded"
    found = unpack(answer_to(Packet(PING, True, 7, 52, b"n" * 8), task), KEY)
    assert found.residence_ns == (0, 0, 149, 148), "the answer to 51 was not sent"
    assert len(ring) == 1


def test_the_end_of_the_other_end() -> None:
    told: list[int] = []
    ring = Keyring(lambda task: told.append(task.task_id))
    ring.add(live())
    assert not heard(ring, ping(0, kind=DONE)), "never answered"
    assert told == [7]
    assert not heard(ring, ping(0, kind=DONE))
    assert told == [7], "only once"


def test_keys_are_bounded_and_can_be_forgotten() -> None:
    ring = ring_of(*(live(task_id=number) for number in range(MAX_TASKS)))
    assert not ring.add(live(task_id=MAX_TASKS))
    assert not ring.add(live(task_id=0)), "known"
    ring.forget(0)
    assert ring.add(live(task_id=0))
    ring.forget_all()
    assert len(ring) == 0
    assert not heard(ring, ping())


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("FD00:0::0001", "fd00::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_one_spelling_for_each_address(text: str, plain: str) -> None:
    assert plain_address(text) == plain


@given(st.binary(max_size=100) | st.binary(min_size=48, max_size=48).map(lambda x: ping()[:12] + x))
def test_garbage_gets_no_answer(datagram: bytes) -> None:
    ring = ring_of()
    assert not heard(ring, datagram)
    assert ring.dropped.total() == 1
