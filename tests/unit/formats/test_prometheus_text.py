"""What is written in Prometheus' format is read back by its own client as it was meant."""

import math

import pytest
from hyperscout_formats.text.prometheus_text import Histogram, counter, gauge, histogram
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    (family,) = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for s in family.samples}


@pytest.mark.parametrize(
    ("value", "shown"), [(3, "3"), (True, "1"), (0.25, "0.25"), (1e-7, "1e-07"), (math.nan, "NaN")]
)
def test_one_figure(value: float, shown: str) -> None:
    assert gauge("x", "What.").of(value) == f"# HELP x What.\n# TYPE x gauge\nx {shown}\n"


def test_figures_by_labels() -> None:
    text = counter("x_total", "What.", "a", "b").by({("1", "2"): 3, ("4", "5"): 6.5})
    assert text.splitlines()[1:] == [
        "# TYPE x_total counter",
        'x_total{a="1",b="2"} 3',
        'x_total{a="4",b="5"} 6.5',
    ]
    with pytest.raises(ValueError, match="argument"):
        gauge("x", "What.", "a", "b").by({"one": 1})


# Its parser splits lines as Python does, at more ends than "\n": a scrape has none of those.
@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]))
    | st.sampled_from(['"', "\\", "\n", '\\n"'])
)
def test_any_name_of_a_device_is_read_back(value: str) -> None:
    assert read(gauge("x", "What.", "a").by({value: 1})) == {("x", (("a", value),)): 1}


def test_a_histogram_counts_up_to_each_bound() -> None:
    seconds = Histogram(histogram("x_seconds", "Time in seconds."), (0.1, 1))
    for took_s in (0.05, 0.1, 0.2, 5):
        seconds.observe(took_s)
    assert seconds.text().splitlines()[2:] == [
        'x_seconds_bucket{le="0.1"} 2',
        'x_seconds_bucket{le="1"} 3',
        'x_seconds_bucket{le="+Inf"} 4',
        "x_seconds_sum 5.35",
        "x_seconds_count 4",
    ]
