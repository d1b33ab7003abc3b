"""The benchmark runner reads rows and judges budgets without being fooled by units."""

from types import ModuleType

import pytest
from support.modules import module_of
from support.real import ROOT


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    return module_of(ROOT / "tests" / "bench" / "__main__.py", "bench_runner")


VERDICTS = [
    # measured, ratio, budget, verdict
    ("1.2 s", "12 x", "at most 20 x", "kept"),
    ("1.2 s", "21.5 x", "at most 20 x", "MISSED"),
    ("1.2 s, 410 MiB", "12 x", "at most 20 x, 400 MiB", "MISSED"),
    ("1.2 s, 399 MiB", "12 x", "at most 20 x, 400 MiB", "kept"),
    ("0.9 s", "-", "1 s", "kept"),
    ("1,100 ms", "-", "1 s", "MISSED"),
    ("1.1 GiB", "-", "1 GiB", "MISSED"),
    ("97 MB", "-", "96 MiB", "kept"),
    ("101 MB", "-", "96 MiB", "MISSED"),
    ("2 %", "", "1 % of one core", "MISSED"),
    ("24,000 findings/s", "-", "-", ""),
    ("fast", "-", "20 x", "?"),
    ("40 MB/s", "-", "20 MB", "?"),
]


@pytest.mark.parametrize(("measured", "ratio", "budget", "verdict"), VERDICTS)
def test_verdict(runner: ModuleType, measured: str, ratio: str, budget: str, verdict: str) -> None:
    assert runner.Row("parse", measured, "0.1 s", ratio, budget).verdict == verdict


def test_only_rows_are_taken_from_the_output(runner: ModuleType) -> None:
    output = "\n".join(
        [
            "making the dump",
            "what | measured | floor or peer | ratio | budget",
            "--- | --- | --- | --- | ---",
            "| parse | 1 s | 0.1 s | 10 x | 8 x |",
            "a | b",
            "slope | 42 KB an agent |  |  | ",
            "half | a | row | -",
        ]
    )
    rows = runner.rows_in(output)
    assert [(row.what, row.budget) for row in rows] == [("parse", "8 x"), ("slope", "")]
