"""The agent's own limit holds, whatever is asked of it."""

from hyperscout_agent.ping.bucket import Bucket
from hypothesis import given
from hypothesis import strategies as st


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


asks = st.tuples(st.floats(0, 3), st.integers(1, 6000), st.sampled_from(["ping", "answer", "borrow"]))


@given(st.lists(asks, max_size=200))
def test_never_more_than_one_second_ahead(asked: list[tuple[float, int, str]]) -> None:
    clock = Clock()
    bucket = Bucket(100, clock)
    borrowed = 0
    for pause_s, size, kind in asked:
        clock.now_s += pause_s
        if kind == "borrow":
            borrowed += size * 8 if bucket.borrow(size) else 0
        else:
            bucket.take(size, answer=kind == "answer")
        assert bucket.sent_bytes * 8 <= 100_000 * (1 + clock.now_s) + borrowed + 1


@given(st.lists(asks, max_size=100), st.integers(1, 9000))
def test_what_is_waited_for_can_be_had(asked: list[tuple[float, int, str]], size: int) -> None:
    clock = Clock()
    bucket = Bucket(100, clock)
    for pause_s, other, kind in asked:
        clock.now_s += pause_s
        bucket.borrow(other) if kind == "borrow" else bucket.take(other, answer=kind == "answer")
    for _ in range(40):
        if bucket.take(min(size, bucket.most_bytes)):
            return
        clock.now_s += bucket.wait_s(min(size, bucket.most_bytes)) + 1e-9
    raise AssertionError("it waits for ever")


def test_pings_leave_something_to_answers() -> None:
    bucket = Bucket(100, Clock())
    while bucket.take(100):
        pass
    assert bucket.take(1000, answer=True)
    assert bucket.sent_bytes <= 100_000 / 8


def test_a_loan_is_paid_back_by_half_of_the_flow() -> None:
    clock = Clock()
    bucket = Bucket(100, clock)
    assert bucket.borrow(125_000), "ten seconds of the rate"
    assert not bucket.borrow(1), "one at a time"
    while bucket.take(100, answer=True):
        pass
    clock.now_s = 1.0
    assert bucket.take(6000, answer=True), "half a second's worth"
    assert not bucket.take(500, answer=True)
    clock.now_s = 19.0
    assert not bucket.borrow(1)
    clock.now_s = 20.1
    assert bucket.borrow(1)
