"""The numbers of a burst, and samples that must not fool them."""

import random

import pytest
from hyperscout_agent.ping.statistics import (
    ALONE,
    LIED,
    STEPPED,
    UNKNOWN,
    PingSample,
    summary,
    without_lonely,
)
from hypothesis import given
from hypothesis import strategies as st


def sample(rtt_us: float, residence_us: float = 50.0, **more: object) -> PingSample:
    gap_ns = int((rtt_us + residence_us) * 1000)
    return PingSample(
        **{"gap_ns": gap_ns, "residence_ns": int(residence_us * 1000), "at_most_ns": gap_ns + 5000, **more}
    )


NORMAL = [sample(x) for x in (10.0, 10.2, 10.3, 10.6, 11.0, 11.5, 12.0, 13.0, 15.0, 30.0)]


def test_a_quiet_burst() -> None:
    found = summary(12, NORMAL)
    assert (found.sent, found.received, found.failure, found.dropped) == (12, 10, "", {})
    assert (found.min_us, found.median_us) == (10.0, 11.25)
    assert found.jitter_us == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("reason", "odd"),
    [
        pytest.param(STEPPED, sample(3.0, stepped=True), id="the clock was seen to step"),
        pytest.param(
            STEPPED, PingSample(10_000_000, 50_000, 70_000), id="longer than the steady clock allows"
        ),
        pytest.param(STEPPED, PingSample(-40_000, 50_000, 70_000), id="back in time"),
        pytest.param(LIED, PingSample(60_000, 61_000, 70_000), id="residence longer than the gap"),
        pytest.param(UNKNOWN, PingSample(60_000, 0, 70_000), id="not told"),
        pytest.param(ALONE, sample(2.0), id="far below the rest"),
    ],
)
def test_one_impossible_sample_is_dropped(reason: str, odd: PingSample) -> None:
    found = summary(12, [*NORMAL, odd])
    assert (found.min_us, found.failure) == (10.0, "")
    assert found.received == 11
    assert found.dropped == {reason: 1}


def test_nothing_came_back() -> None:
    assert summary(16, []).failure == "no answer"


@pytest.mark.parametrize(
    ("samples", "failure"),
    [
        pytest.param(
            [sample(9.0, stepped=True)] * 9 + NORMAL[:7], "a clock stepped (9)", id="a stepping clock"
        ),
        pytest.param([PingSample(60_000, 99_000, 70_000)] * 16, f"{LIED} (16)", id="an impossible peer"),
        pytest.param([PingSample(60_000, 0, 70_000)] * 16, f"{UNKNOWN} (16)", id="a peer that tells nothing"),
        pytest.param(NORMAL[:2], "only 2 answers", id="too few"),
    ],
)
def test_a_burst_that_says_nothing_says_why(samples: list[PingSample], failure: str) -> None:
    found = summary(16, samples)
    assert found.failure == failure
    assert (found.min_us, found.median_us, found.jitter_us) == (0, 0, 0)


@pytest.mark.parametrize(
    ("ascending", "kept_from"),
    [
        pytest.param([10.0, 10.1, 10.2, 10.3, 10.4], 0, id="dense"),
        pytest.param([9.5, 10.1, 10.2, 10.3, 10.4], 0, id="within a microsecond"),
        pytest.param([5.0, 10.1, 10.2, 10.3, 10.4], 1, id="one alone"),
        pytest.param([5.0, 5.1, 10.2, 10.3, 10.4, 10.5, 10.6, 10.7], 2, id="two of eight"),
        pytest.param([5.0, 5.1, 5.2, 10.3, 10.4, 10.5, 10.6], 0, id="three of seven are no outliers"),
        pytest.param([10.0, 14.0, 22.0, 29.0, 40.0, 60.0], 0, id="wide spread: the lowest may be true"),
        pytest.param([], 0, id="none"),
        pytest.param([3.0], 0, id="one"),
    ],
)
def test_the_lonely(ascending: list[float], kept_from: int) -> None:
    assert without_lonely(ascending) == ascending[kept_from:]


@given(st.lists(st.builds(PingSample, *[st.integers(-(2**62), 2**62)] * 3, st.booleans()), max_size=40))
def test_any_samples(samples: list[PingSample]) -> None:
    found = summary(max(len(samples), 1), samples)
    assert bool(found.failure) == (found.min_us == 0)
    assert 0 <= found.min_us <= found.median_us


def test_the_minimum_holds_against_planted_lows() -> None:
    """Log-normal excess as between namespaces, one low sample planted: never fooled by more than noise."""
    rng = random.Random(5)
    for _ in range(500):
        true_us = rng.uniform(2, 40)
        burst = [sample(true_us + rng.lognormvariate(-0.3, 0.8)) for _ in range(15)]
        planted = sample(true_us * rng.uniform(0.05, 0.6) if true_us > 6 else 0.5)
        assert summary(16, [*burst, planted]).min_us > min(true_us * 0.6, true_us - 2)
