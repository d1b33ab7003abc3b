"""What earlier bursts of a pair say: recent ones, usual ones, and those of no sense."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hyperscout_formats.facts.facts import LatencyPort, LatencyResult, LatencySample
from hyperscout_inference.latency.bursts import MAX_BURSTS, PairHistory, bursts_of, columns_of
from hyperscout_inference.latency.pairs import pairs_of
from hypothesis import given
from hypothesis import strategies as st

NAN = math.nan


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
    assert bursts_of(result("b", *newest, *before)) == expected


def test_a_long_past_is_not_looked_at() -> None:
    assert bursts_of(result("b", 6.0, 0.1, *[(99.0, 9.0)] * 1000, *[(5.0, 0.1)] * MAX_BURSTS))[3] == 5.0


def history(x: LatencyResult, y: LatencyResult) -> tuple[float, ...]:
    table = pairs_of({"a": (LatencyPort("ib0", results=(x,)),), "b": (LatencyPort("ib0", results=(y,)),)})
    found = table.history
    assert isinstance(found, PairHistory)
    return tuple(float(getattr(found, name)[0]) for name in PairHistory.__slots__)


def test_both_ends_are_one_row() -> None:
    long = [(5.0, 0.1)] * 4 + [(6.0, 0.5)] * 2
    assert history(result("b", 6.0, 0.5, *long), result("a", 6.1, 0.4, *long)) == (6.0, 0.5, 3, 5.0, 0.1, 4)
    # Of counts the lesser; what only one end knows of the past is nobody's.
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
    one_by_one = np.array([bursts_of(x) for x in results]).T
    np.testing.assert_allclose(columns_of(results), one_by_one, rtol=1e-12)
