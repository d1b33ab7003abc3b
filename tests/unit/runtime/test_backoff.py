"""Delays double up to a maximum, whatever the number of failures is."""

from random import Random

import pytest
from hyperscout_runtime.backoff import Backoff, RetryTime, doubled_s


@pytest.mark.parametrize(
    ("failures", "delay_s"), [(0, 0.0), (1, 1.0), (2, 2.0), (6, 32.0), (7, 60.0), (100_000, 60.0)]
)
def test_a_delay_of_any_number_of_failures(failures: int, delay_s: float) -> None:
    assert doubled_s(failures, 1.0, 60.0) == delay_s


def test_failures_are_counted_until_a_reset() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next_s() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    assert backoff.failures == 4
    backoff.reset()
    assert backoff.next_s() == 1.0
    assert backoff.next_s(at_least_failures=3) == 4.0
    assert backoff.next_s(at_least_failures=1) == 5.0


@pytest.mark.parametrize(("jitter", "least_s"), [(1.0, 0.0), (0.5, 4.0), (0.0, 8.0)])
def test_jitter_shortens_a_delay_by_its_share_at_most(jitter: float, least_s: float) -> None:
    first = [Backoff(8.0, 60.0, Random(seed), jitter=jitter).next_s() for seed in range(200)]
    assert least_s <= min(first) <= least_s + 0.5
    assert max(first) == pytest.approx(8.0, abs=0.5)
    assert max(first) <= 8.0


def test_a_retry_time_counts_from_the_time_of_the_failure() -> None:
    retry = RetryTime(Backoff(30.0, 3600.0))
    assert retry.until_ns == 0
    retry.failed(100)
    assert retry.until_ns == 100 + 30 * 10**9
    retry.failed(0)
    assert retry.until_ns == 60 * 10**9
