"""The tables of the accuracy report count what they say, and get between the markers of the document."""

from collections import Counter
from pathlib import Path

import pytest
from bench.accuracy.measure import Outcome, outcome
from bench.accuracy.report import tables, write
from hyperscout_sim.uneven.case import healthy
from hyperscout_sim.uneven.faults import faulty

WELL = Outcome("ring", ("ring",), frozenset({13}), True, 0, 0, Counter(), Counter(), ())
ACCUSED = Outcome("ring", ("ring",), frozenset({13}), False, 3, 0, Counter(), Counter(), ((0.9, False),))
ILL = Outcome(
    "regular",
    ("regular",),
    frozenset(),
    True,
    0,
    0,
    Counter({"loop cable": 1, "missing uplink": 2}),
    Counter({"missing uplink": 1}),
    ((0.9, True), (0.95, True)),
)


def rows(table: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {line[0]: line[1:] for line in lines}


def test_the_tables_count_fabrics_faults_and_anomalies() -> None:
    found = tables([WELL, ACCUSED], [ILL])
    assert rows(found["kinds"])["ring"] == ["2", "1", "1", "0", "0", "0", "0", "0"]
    assert rows(found["kinds"])["all"] == ["2", "1", "1", "1", "1", "0", "3", "1"]
    assert rows(found["causes"])["13"][:3] == ["2", "1", "1"]
    assert rows(found["causes"])["16"][3:] == ["1", "1", "0", "3", "1"]
    assert rows(found["faults"])["missing uplink"] == ["1", "2", "1"]
    assert rows(found["faults"])["loop cable"] == ["1", "1", "0"]
    assert rows(found["confidence"])["0.9 to 1"] == ["3", "0.92", "0.67"]


def test_an_outcome_counts_what_the_judge_says() -> None:
    right = outcome(healthy(0, "regular"))
    assert right.tree_right
    assert (right.accused, right.silent, right.planted.total(), right.error) == (0, 0, 0, "")
    planted = outcome(faulty(2, "regular"))
    assert planted.named <= planted.planted
    assert planted.planted["missing uplink"]


def test_the_tables_replace_what_is_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- kinds -->\nold\n<!-- end of kinds -->\nafter\n")
    write(page, {"kinds": "| new |"})
    write(page, {"kinds": "| newer |"})
    assert page.read_text() == "before\n<!-- kinds -->\n| newer |\n<!-- end of kinds -->\nafter\n"


def test_a_document_without_the_markers_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="markers of kinds"):
        write(page, {"kinds": "| new |"})
