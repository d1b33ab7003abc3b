"""Groups by votes: one wrong vote moves no host, and small and large tables are summed alike."""

import numpy as np
import pytest
from hyperscout_inference.latency import grouping
from hyperscout_inference.latency.grouping import grouped
from hyperscout_inference.latency.pairs import Floats, Longs
from support.opaque_loop import rand_index


def votes_of(label: Longs, share: float, wrong: float, seed: int) -> tuple[Longs, Longs, Floats]:
    """Some of all pairs, each for or against as the labels say, but for the wrong ones."""
    random = np.random.default_rng(seed)
    a, b = np.triu_indices(len(label), 1)
    some = random.random(len(a)) < share
    a, b = a[some], b[some]
    vote = np.where(label[a] == label[b], 1.0, -1.0) * np.where(random.random(len(a)) < wrong, -1.0, 1.0)
    return a, b, vote


@pytest.mark.parametrize("wrong", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_groups_are_those_that_voted(wrong: float, seed: int) -> None:
    label = np.random.default_rng(seed).integers(0, 6, 90)
    a, b, vote = votes_of(label, 0.5, wrong, seed)
    assert rand_index(grouped(np.arange(90), a, b, vote), label) > 0.9


def test_a_hub_takes_all_that_want_it() -> None:
    """Every host voted with host 0 alone."""
    b = np.arange(1, 50)
    vote = np.where(b < 20, 1.0, -1.0)
    found = grouped(np.arange(50), np.zeros(49, np.int64), b, vote)
    assert (found[:20] == 0).all()
    assert len(np.unique(found)) == 31


def test_units_stay_whole() -> None:
    unit = np.repeat(np.arange(10), 4)
    a, b, vote = votes_of(unit // 5, 0.3, 0.0, 1)
    assert np.array_equal(grouped(unit, a, b, vote), unit // 5)


def test_summed_in_a_table_or_by_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    label = np.random.default_rng(7).integers(0, 9, 120)
    a, b, vote = votes_of(label, 0.2, 0.1, 7)
    in_table = grouped(np.arange(120), a, b, vote)
    monkeypatch.setattr(grouping, "DENSE", 0)
    monkeypatch.setattr(grouping, "LEAST_PLACES", 0)
    assert np.array_equal(grouped(np.arange(120), a, b, vote), in_table)


def test_no_hosts_and_no_votes() -> None:
    empty = np.zeros(0, np.int64)
    assert len(grouped(empty, empty, empty, np.zeros(0))) == 0
    assert grouped(np.arange(3), empty, empty, np.zeros(0)).tolist() == [0, 1, 2]
