"""How much of an expensive test runs: multiples of the Hypothesis profile, and tables whose rest is slow."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings


def examples(times: float) -> settings:
    """Settings with this multiple of the profile's number of examples."""
    return settings(max_examples=max(1, round(settings.default.max_examples * times)))


def slow_after(count: int, values: Sequence[Any]) -> list[Any]:
    """Parameters of which all but the first `count` are marked `slow`."""
    return [*values[:count], *(pytest.param(value, marks=pytest.mark.slow) for value in values[count:])]


def seed_blocks(small: range, large: Sequence[range]) -> pytest.MarkDecorator:
    """Run a test with the argument `seeds`: with a few of them, and with the large ranges, which are `slow`.

    No seed is in two ranges, and the few ones are chosen so that they contain what the test counts.
    """
    return pytest.mark.parametrize("seeds", slow_after(1, [small, *large]), ids=str)


def in_blocks(count: int, each: int) -> list[range]:
    """The numbers from 0, in `count` ranges of the same length."""
    return [range(first, first + each) for first in range(0, count * each, each)]


def seeds(count: int) -> pytest.MarkDecorator:
    """Run a test with the argument `seed` from 0 to count - 1; all but the first three are marked `slow`.

    For properties of which a rare exception is known. Hypothesis would find it, but not on every run, because
    its examples vary with the modules that are loaded.
    """
    return pytest.mark.parametrize("seed", slow_after(3, range(count)))
