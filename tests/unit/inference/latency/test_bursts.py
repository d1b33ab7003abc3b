"""What earlier bursts of a pair say: recent ones, usual ones, and those of no sense."""

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
import pytest
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult, LatencySample
from hyperscout_inference.latency.bursts import MAX_BURSTS, MIN_USUAL, RECENT, PairHistory, columns_of
from hypothesis import given
from hypothesis import strategies as st
from support.latency_pairs import pairs_of

NAN = math.nan


def one_by_one(x: LatencyResult) -> tuple[float, ...]:
    """An oracle for `columns_of`: one result in plain Python."""
    if not x.history:
        return (x.min_us, x.jitter_us if _is_time(x.jitter_us) else -1.0, 1.0, 0.0, 0.0, 0.0)
    earlier = [b for b in x.history[-MAX_BURSTS:] if _is_time(b.min_us) and b.min_us > 0]
    last, before = earlier[1 - RECENT :], earlier[: 1 - RECENT]
    jitters = [j for j in (x.jitter_us, *(b.jitter_us for b in last)) if _is_time(j)]
    recent = (min([x.min_us, *(b.min_us for b in last)]), min(jitters, default=-1.0), 1.0 + len(last))
    if len(before) < MIN_USUAL:
        return (*recent, 0.0, 0.0, 0.0)
    usual_jitter = _median([b.jitter_us for b in before if _is_time(b.jitter_us)])
    return (*recent, _median([b.min_us for b in before]), usual_jitter, float(len(before)))


def _is_time(us: float) -> bool:
    return 0 <= us <= 1e6


def _median(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


def result(peer: str, rtt_us: float, jitter_us: float, *before: tuple[float, float]) -> LatencyResult:
    history = tuple(LatencySample(i, *burst) for i, burst in enumerate(before))
    return LatencyResult(peer, "ib0", "udp", 100, 16, 16, rtt_us, rtt_us, jitter_us, history=history)


@pytest.mark.parametrize(
    ("newest", "before", "expected"),
    [
        ((6.0, 0.2), [], (6.0, 0.2, 1, 0, 0, 0)),
        ((6.0, NAN), [], (6.0, -1, 1, 0, 0, 0)),
        ((6.0, 0.2), [(5.0, 0.3)], (5.0, 0.2, 2, 0, 0, 0)),
        ((9.0, 0.2), [(5.0, 0.1), (8.0, 0.3), (8.5, 0.4)], (8.0, 0.2, 3, 0, 0, 0)),  # one before is no habit
        ((9.0, 3.0), [(5, 0.1), (6, 0.2), (7, 0.3), (8, 2), (8.5, 4)], (8, 2, 3, 6, 0.2, 3)),
        ((9.0, 3.0), [(5, 0.1), (6, 0.2), (7, 0.3), (7, 0.5), (8, 2), (8.5, 4)], (8, 2, 3, 6.5, 0.25, 4)),
        ((9.0, 0.2), [(0.0, 0.0), (-1.0, 0.1), (NAN, 0.1), (1e9, 0.1)], (9.0, 0.2, 1, 0, 0, 0)),
        ((9.0, -1), [(5, NAN), (6, NAN), (7, NAN), (8, NAN), (8.5, NAN)], (8, -1, 3, 6, 0, 3)),
    ],
)
def test_an_end_s_bursts(
    newest: tuple[float, float], before: Sequence[tuple[float, float]], expected: tuple[float, ...]
) -> None:
    x = result("b", *newest, *before)
    assert one_by_one(x) == expected
    assert columns_of([x])[:, 0].tolist() == pytest.approx(expected)


def test_a_long_past_is_not_looked_at() -> None:
    past = [(99.0, 9.0)] * 1000 + [(5.0, 0.1)] * MAX_BURSTS
    assert columns_of([result("b", 6.0, 0.1, *past)])[3, 0] == 5.0


def history(x: LatencyResult, y: LatencyResult) -> tuple[float, ...]:
    table = pairs_of({"a": (LatencyPort("ib0", results=(x,)),), "b": (LatencyPort("ib0", results=(y,)),)})
    found = table.history
    assert isinstance(found, PairHistory)
    return tuple(float(getattr(found, name)[0]) for name in PairHistory.__slots__)


def test_both_ends_are_one_row() -> None:
    long = [(5.0, 0.1)] * 4 + [(6.0, 0.5)] * 2
    assert history(result("b", 6.0, 0.5, *long), result("a", 6.1, 0.4, *long)) == (6.0, 0.5, 3, 5.0, 0.1, 4)
    # Of counts the lesser; a past that only one end knows is dropped.
    assert history(result("b", 6.0, 0.5, *long), result("a", 6.1, 0.4)) == (6.1, 0.5, 1, 0, 0, 0)
    assert history(result("b", 6.0, NAN, *[(6.0, NAN)]), result("a", 6.1, 0.4)) == (6.1, 0.4, 1, 0, 0, 0)


def test_history_stays_beside_its_row() -> None:
    """Rows are sorted, and some are dropped."""
    ports: dict[str, tuple[LatencyPort, ...]] = {}
    nodes = [f"n{i}" for i in range(6)]
    for i, a in enumerate(nodes):
        results = []
        for j, b in enumerate(nodes):
            if a != b:
                own = 5.0 + i + j + (3.0 * (a == "n0") if {a, b} == {"n0", "n3"} else 0.0) * 10
                results.append(result(b, own, 0.1, *[(own + 1, 0.1)] * 8))
        ports[a] = (LatencyPort("ib0", results=tuple(results)),)
    table = pairs_of(ports)
    assert len(table) == 14
    assert table.disagreeing == 1
    assert table.history is not None
    assert table.history.usual_us.tolist() == (table.rtt_us + 1).tolist()
    assert table.history.recent_us.tolist() == table.rtt_us.tolist()


times = st.one_of(st.sampled_from([0.0, -1.0, 5.0, 5.5, math.nan, math.inf, 1e300]), st.floats(0.1, 100))
samples = st.lists(st.builds(LatencySample, st.just(1), times, times), max_size=10).map(tuple)
some_results = st.lists(
    st.builds(
        lambda us, jitter, history: LatencyResult(
            "b", "ib0", "udp", 1, 16, 16, us, us, jitter, history=history
        ),
        st.floats(0.1, 100),
        times,
        samples,
    ),
    min_size=1,
    max_size=8,
)


@given(results=some_results)
def test_many_at_once_are_read_as_one_by_one(results: list[LatencyResult]) -> None:
    expected = np.array([one_by_one(x) for x in results]).T
    np.testing.assert_allclose(columns_of(results), expected, rtol=1e-12)
