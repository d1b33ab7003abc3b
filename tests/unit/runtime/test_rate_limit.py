"""A bucket gives what it holds, fills at its rate, and holds its capacity at most."""

import pytest
from hyperscout_runtime.rate_limit import TokenBucket
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ([(0.0, 3), (0.0, 1)], [True, False]),
        ([(0.0, 3), (0.4, 1), (0.5, 1), (0.5, 1)], [True, False, True, False]),
        ([(0.0, 1), (100.0, 3), (100.0, 1)], [True, True, False]),  # not more than the capacity is stored
        ([(0.0, 4), (9.0, 4), (9.0, 3)], [False, False, True]),
        ([(5.0, 3), (0.0, 1), (0.5, 1)], [True, False, True]),  # a clock that steps back earns nothing
    ],
)
def test_what_is_taken(asked: list[tuple[float, float]], taken: list[bool]) -> None:
    bucket = TokenBucket(2.0, 3.0)
    assert [bucket.take(tokens, now) for now, tokens in asked] == taken


def test_a_spare_part_stays_for_others() -> None:
    bucket = TokenBucket(2.0, 3.0, tokens=2.0)
    assert not bucket.take(2.0, 0.0, spare=1.0)
    assert bucket.take(1.0, 0.0, spare=1.0)
    assert bucket.take(1.0, 0.0)


def test_a_charge_says_when_it_is_earned() -> None:
    bucket = TokenBucket(10.0, 5.0)
    assert [bucket.charge(1, 0.0) for _ in range(7)] == pytest.approx([0, 0, 0, 0, 0, 0.1, 0.2])
    assert bucket.charge(1, 0.2) == pytest.approx(0.1)
    assert [bucket.charge(1, 100.0) for _ in range(6)] == pytest.approx([0, 0, 0, 0, 0, 0.1])


@given(st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 400)), max_size=60))
def test_never_more_than_the_capacity_and_the_rate(asked: list[tuple[int, int]]) -> None:
    """In nanoseconds, and for any order of calls."""
    bucket, now_ns, taken = TokenBucket(100 / 1e9, 300.0), 0, 0
    for pause_ns, tokens in asked:
        now_ns += pause_ns
        taken += tokens * bucket.take(tokens, now_ns)
        assert taken <= 300 + now_ns * 100 / 1e9 + 1e-6
