"""Sorted and distinct numbers of columns, against NumPy's own functions."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hyperscout_inference.fabric.network import distinct, distinct_counts, distinct_places, order_of
from hypothesis import given
from hypothesis import strategies as st

_TYPES = {np.uint8: 8, np.int32: 31, np.int64: 63, np.uint64: 64}


@st.composite
def _columns(draw: st.DrawFn) -> npt.NDArray[np.integer[Any]]:
    kind = draw(st.sampled_from([*_TYPES]))
    low = draw(st.sampled_from([0, -3])) if kind in (np.int32, np.int64) else 0
    number = st.integers(low, 5) | st.integers(0, 2 ** draw(st.integers(1, _TYPES[kind])) - 1)
    return np.array(draw(st.lists(number)), kind)


@given(_columns())
def test_columns_are_sorted_as_numpy_sorts_them(values: npt.NDArray[np.integer[Any]]) -> None:
    assert order_of(values).tolist() == np.argsort(values, kind="stable").tolist()
    found, places = distinct_places(values)
    for mine, expected in (
        (distinct(values), np.unique(values)),
        (found, np.unique(values)),
        (places, np.unique(values, return_inverse=True)[1]),
        (distinct_counts(values)[0], np.unique(values)),
        (distinct_counts(values)[1], np.unique(values, return_counts=True)[1]),
    ):
        assert mine.tolist() == expected.tolist()
    assert found.dtype == values.dtype


@pytest.mark.parametrize("bits", [16, 32, 48, 63])
def test_the_highest_bit_counts(bits: int) -> None:
    values = np.array([1 << bits - 1, (1 << bits - 1) - 1, 1, 0], np.int64)
    assert order_of(values).tolist() == [3, 2, 1, 0]
