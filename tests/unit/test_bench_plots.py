"""The pictures of benchmarks: logarithmic axes, and the growth of the load test's figures."""

import re
from itertools import pairwise
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from support.modules import module_of
from support.real import ROOT
from support.svg_plot import LogAxes, powers

SIZES = (1000, 2000, 4000, 8000, 16000)
AXES = LogAxes(100, 500, 50, 250, SIZES, 1, 3)


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    return module_of(ROOT / "tests" / "bench" / "plot_scale.py", "plot_scale")


def figures(agents: int, *, ms: float = 50.0) -> dict[str, Any]:
    """The figures of a load test with memory and restart that are linear."""
    return {
        "agents": agents,
        "memoryMib": {"empty": 100.0, "withAgents": agents / 10, "peak": agents / 8},
        "restart": {"acknowledgedS": agents / 500, "collectorCpuS": agents / 1000},
        "changes": {
            "made": 60,
            "seen": 60,
            "collectorCpuPerChangeMs": ms,
            "collectorLoadAtRest": agents / 1e5,
            "changeToWatcherS": {"p50": 0.25, "max": 1.5},
        },
    }


def polylines(text: str, kind: str) -> list[list[tuple[float, float]]]:
    found = []
    for element in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}polyline"):
        if (element.get("class") == "floor") is (kind == "floor"):
            points = (point.split(",") for point in element.get("points", "").split())
            found.append([(float(x), float(y)) for x, y in points])
    return found


def test_axes_are_logarithmic_from_edge_to_edge() -> None:
    assert [AXES.x(size) for size in SIZES] == pytest.approx([100, 200, 300, 400, 500])
    assert [AXES.y(value) for value in (10, 100, 1000)] == pytest.approx([250, 150, 50])


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1.0], (0, 0)), ([2.0], (0, 1)), ([0.02, 30.0], (-2, 2)), ([10.0, 1000.0], (1, 3))],
)
def test_powers_of_ten_are_around_the_values(values: list[float], expected: tuple[int, int]) -> None:
    assert powers(values) == expected


def test_names_of_curves_do_not_overlap() -> None:
    ends = [(100.0, "one", "#000"), (101.0, "other", "#000"), (900.0, "far", "#000")]
    places = [float(y) for y in re.findall(r' y="([\d.]+)"', "".join(AXES.names(ends)))]
    assert min(b - a for a, b in pairwise(places)) >= 14


def test_linear_figures_lie_on_the_lines_to_compare_with(scale: ModuleType) -> None:
    text = scale.drawing([figures(size) for size in SIZES])
    curves, floors = polylines(text, "curve"), polylines(text, "floor")
    assert curves == floors
    slopes = [curve[0][1] - curve[-1][1] for curve in curves]
    assert slopes[0] == pytest.approx(slopes[1], abs=0.1), "the panels have the same scale"
    assert (slopes[0] > 0, slopes[2]) == (True, 0)


def test_figures_that_grow_more_lie_above_the_lines(scale: ModuleType) -> None:
    text = scale.drawing([figures(size, ms=size / 100) for size in SIZES])
    (*_, curve), (*_, floor) = polylines(text, "curve"), polylines(text, "floor")
    assert all(of_curve[1] < of_floor[1] for of_curve, of_floor in zip(curve[1:], floor[1:], strict=True))


def test_the_table_and_the_growth_of_sizes(scale: ModuleType) -> None:
    sizes = [figures(1000), figures(16000, ms=60)]
    assert scale.table(sizes).splitlines()[2:] == [
        "| 1,000 | 100 MiB | 0 | 2.0 s | 1.0 s | 50 ms | 1 % | 0.25 s |",
        "| 16,000 | 1,600 MiB | 96 | 32.0 s | 16.0 s | 60 ms | 16 % | 0.25 s |",
    ]
    assert scale.growth(sizes) == (
        "From 1,000 to 16,000 agents (16 x): memory 16.0, restart 16.0, processor time of a change 1.2"
    )


@pytest.mark.parametrize(
    ("seen", "slowest_s", "count"), [(60, 1.9, 0), (60, 2.1, 1), (59, 1.9, 1), (0, None, 1)]
)
def test_changes_that_may_share_an_inference_are_reported(
    scale: ModuleType, seen: int, slowest_s: float | None, count: int
) -> None:
    one = figures(1000)
    one["changes"] |= {"seen": seen, "changeToWatcherS": {"max": slowest_s}}
    assert len(list(scale.merged([one]))) == count
